// walk: a workgroup, or each lane of it, walks PART_KEYS keys of its rows; flash_attention_combine joins the parts.
//
// A part of a row is PART_LEN numbers: the columns of O, not divided, then m, l, the greatest score, and a zero.

import package::params::{WORKGROUP_SIZE, PART_KEYS};
import package::micro::{Rows, RowIndex, RowMask, HeadIndex, PART_LEN, store_state};
import package::lib::indexing::{div_ceil};

// Where lanes have rows of their own, each has a part of its own too.
const ROW_LANES: u32 = 1u;

fn row_unit(workgroup: u32, lane: u32) -> u32 {
    return workgroup * WORKGROUP_SIZE + lane;
}

fn part_count(kv_len: u32) -> u32 {
    return div_ceil(kv_len, PART_KEYS);
}

fn part_keys(part: u32, kv_len: u32) -> vec2<u32> {
    let first = part * PART_KEYS;
    return vec2<u32>(first, min(first + PART_KEYS, kv_len));
}

fn part_rows(o_row: RowIndex, part: u32) -> RowIndex {
    return o_row + part * PART_LEN;
}

fn rows_end(at: RowIndex, own: RowMask, m: Rows, l: Rows, row_max: Rows, b: u32, h: HeadIndex, q_idx: RowIndex) -> Rows {
    store_state(at, own, m, l, row_max);
    return Rows(1.0);
}
