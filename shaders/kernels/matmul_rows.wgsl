// Matrix product: C[b0, b1, m, n] = epilogue(sum over k of A[b0, b1, m, k] * B[b0, b1, k, n])
//
// One invocation owns a tile of ROWS x COLUMNS outputs in registers and walks k four at a time: a
// row of A gives one vec4, a block of B one mat4x4, and their product is the micro-kernel's step.
//
// The split into macro-kernel (here) and micro-kernel (generated): Van Zee and van de Geijn 2015,
// BLIS, ACM TOMS 41(3), section 5.
//
// Layout: every axis of A, B and C is strided, in elements; a broadcast batch axis has stride 0.

import package::params::{WORKGROUP_SIZE};
import package::micro::{ROWS, COLUMNS, COLUMN_BLOCKS, Tile, a_item, b_item, c_item};
import package::micro::{a_rows, b_columns, tile_zero, tile_multiply_add, tile_row, c_row, store_row};
import package::lib::matmul_shape::{Shape};
import package::lib::indexing::{linear_workgroup, div_ceil};

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> a: array<a_item>;
@group(0) @binding(2) var<storage, read> b: array<b_item>;
@group(0) @binding(3) var<storage, read_write> c: array<c_item>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn matmul_rows(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Neighbouring invocations own neighbouring columns of the same rows.
    let column_tiles = div_ceil(shape.n, COLUMNS);
    let row_tiles = div_ceil(shape.m, ROWS);
    let index = linear_workgroup(group, groups) * WORKGROUP_SIZE + lane;
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
    var tile: Tile = tile_zero();
    let terms = shape.k;
    for (var k = 0u; k < terms; k += 4u) {
        tile_multiply_add(&tile, rows, columns, k);
    }

    // The epilogue may be long, so it stands in a loop, not in ROWS * COLUMNS copies.
    let live_rows = min(ROWS, shape.m - m);
    let live_blocks = min(COLUMN_BLOCKS, div_ceil(shape.n - n, 4u));
    let stride = shape.c_m_stride;
    var at = c_row(b0, b1, m);
    for (var r = 0u; r < live_rows; r++) {
        store_row(at, b0, b1, m + r, n, live_blocks, tile_row(tile, r));
        at += stride;
    }
}
