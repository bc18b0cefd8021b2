// The query rows of a workgroup: ROWS of one head, or of all heads of a KV head where each has few.

import package::micro::{ROWS, PACKS_HEADS, RowIndex};
import package::lib::attention_shape::{Shape};
import package::lib::balanced::{balanced};
import package::lib::indexing::{div_ceil};

// Rows first_row to first_row + rows - 1 of batch b, counted through the heads from first_head on. Number b is the
// batch's or greater where there is no such block.
struct RowBlock {
    b: u32,
    first_head: u32,
    first_row: u32,
    rows: u32,
    packed: bool, // whether the rows are of all heads of a KV head
}

fn row_block(index: u32, shape: Shape) -> RowBlock {
    let packed = PACKS_HEADS && shape.q_len < ROWS;
    let heads = select(1u, shape.heads_per_kv, packed);
    let row_count = heads * shape.q_len;
    let blocks = div_ceil(row_count, ROWS);
    // Workgroups there are for every head, so where heads are packed some have no block: those that have one are
    // spread over the grid, since a device may share it out by halves.
    let places = select(blocks, heads, packed);
    let head_groups = shape.heads / heads;
    let b = select(shape.batch, index / (places * head_groups), index % places < blocks);
    let first_head = (index / places) % head_groups * heads;
    let first_row = balanced(index % places, blocks) * ROWS;
    return RowBlock(b, first_head, first_row, min(ROWS, row_count - first_row), packed);
}

// The rows of these numbers; those past the end stand in for the last one, and are not stored.
fn rows_of(block: RowBlock, number: RowIndex) -> RowIndex {
    return block.first_row + min(number, RowIndex(block.rows - 1u));
}
