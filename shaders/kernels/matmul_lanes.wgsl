// Matrix product: C[b0, b1, m, n] = epilogue(sum over k of A[b0, b1, m, k] * B[b0, b1, k, n])
//
// For few rows, where elements of B are used so seldom that loading them is the work. A workgroup owns a tile of
// ROWS x COLUMNS outputs, of which every lane has a part: it takes four steps of k of every 4 * WORKGROUP_SIZE, so
// that many loads are under way. The parts are added up in the end.
//
// A product split along k: Osama et al. 2023, Stream-K, arXiv:2301.03598, section 3.2 ("split-k").
//
// Layout: every axis of A, B and C is strided, in elements; a broadcast batch axis has stride 0.

import package::params::{WORKGROUP_SIZE};
import package::micro::{ROWS, COLUMNS, COLUMN_BLOCKS, Tile, a_item, b_item, c_item};
import package::micro::{a_rows, b_columns, tile_zero, tile_multiply_add, tile_row, row_block, c_row, store_block};
import package::lib::matmul_shape::{Shape};
import package::lib::lanes_sum::{lanes_sum};
import package::lib::indexing::{linear_workgroup, div_ceil};

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> a: array<a_item>;
@group(0) @binding(2) var<storage, read> b: array<b_item>;
@group(0) @binding(3) var<storage, read_write> c: array<c_item>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn matmul_lanes(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let column_tiles = div_ceil(shape.n, COLUMNS);
    let row_tiles = div_ceil(shape.m, ROWS);
    let index = linear_workgroup(group, groups);
    let batch = index / (column_tiles * row_tiles);
    let n = (index % column_tiles) * COLUMNS;
    let m = ((index / column_tiles) % row_tiles) * ROWS;
    let b0 = batch / shape.b1;
    let b1 = batch % shape.b1;
    if b0 >= shape.b0 {
        return;
    }

    let rows = a_rows(b0, b1, m);
    let columns = b_columns(b0, b1, n);
    var part: Tile = tile_zero();
    for (var k = 4u * lane; k < shape.k; k += 4u * WORKGROUP_SIZE) {
        tile_multiply_add(&part, rows, columns, k);
    }

    // All lanes are here for every sum, and the first one stores it.
    for (var r = 0u; r < ROWS; r++) {
        let row = tile_row(part, r);
        for (var block = 0u; block < COLUMN_BLOCKS; block++) {
            let x = lanes_sum(row_block(row, block), lane);
            if lane == 0u && m + r < shape.m && n + 4u * block < shape.n {
                store_block(c_row(b0, b1, m + r), b0, b1, m + r, n + 4u * block, x);
            }
        }
    }
}
