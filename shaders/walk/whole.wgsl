// walk: a workgroup walks all keys of its rows and finishes them.

import package::params::{WORKGROUP_SIZE};
import package::micro::{Rows, RowIndex, RowMask, HeadIndex, HAS_SINK, rows_sink};
import package::lib::online_softmax::{NEG_INF_BITS};

// Lanes that walk the same keys, where each has rows of its own.
const ROW_LANES: u32 = WORKGROUP_SIZE;

fn row_unit(workgroup: u32, lane: u32) -> u32 {
    return workgroup;
}

fn part_count(kv_len: u32) -> u32 {
    return 1u;
}

// The first key of a part, and the one behind its last.
fn part_keys(part: u32, kv_len: u32) -> vec2<u32> {
    return vec2<u32>(0u, kv_len);
}

fn part_rows(o_row: RowIndex, part: u32) -> RowIndex {
    return o_row;
}

// What rows of O are to be multiplied by, whose exponentials are relative to m and add up to l.
fn rows_end(at: RowIndex, own: RowMask, m: Rows, l: Rows, row_max: Rows, b: u32, h: HeadIndex, q_idx: RowIndex) -> Rows {
    let sink = rows_sink(row_max, b, h, q_idx); // -inf is none
    let has_sink = RowMask(HAS_SINK) & (bitcast<RowIndex>(sink) != RowIndex(NEG_INF_BITS));
    let last_m = select(m, max(row_max, sink), has_sink);
    let shrink = exp(m - last_m);
    let sum = l * shrink + select(Rows(0.0), exp(sink - last_m), has_sink);

    // A row without a live key has l = 0 and attends to nothing: its output is zero.
    return select(shrink / sum, Rows(0.0), sum == Rows(0.0));
}
