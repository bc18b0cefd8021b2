// Matrix product: C[b0, b1, m, n] = epilogue(sum over k of A[b0, b1, m, k] * B[b0, b1, k, n])
//
// A workgroup is one subgroup, or the first lanes of a wider one. A tile is ROWS rows of C; each lane owns COLUMNS
// columns of them in registers. A is loaded once for all lanes, a row a lane, and handed round; four steps of k give
// a vec4 of each row of A and a mat4x4 of each block of B. All lanes stay to the end, since that needs them. The slot
// `schedule` says which tiles a workgroup computes.
//
// The split into macro-kernel (here) and micro-kernel (generated): Van Zee and van de Geijn 2015,
// BLIS, ACM TOMS 41(3), section 5.
//
// Layout: the axis k of A is contiguous; every other axis is strided, in elements; a broadcast batch axis has
// stride 0.

import package::params::{WORKGROUP_SIZE};
import package::micro::{ROWS, COLUMNS, COLUMN_BLOCKS, Tile, a_item, b_item, c_item};
import package::micro::{a_rows, b_columns, tile_zero, tile_multiply_add};
import package::micro::{GROUP, tile_group, tile_row, c_row, store_row};
import package::lib::matmul_shape::{Shape};
import package::schedule::{compute_tiles};
import package::lib::indexing::{div_ceil};

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> a: array<a_item>;
@group(0) @binding(2) var<storage, read> b: array<b_item>;
@group(0) @binding(3) var<storage, read_write> c: array<c_item>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn matmul_subgroup(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    compute_tiles(group, groups, lane);
}

fn compute_tile(index: u32, lane: u32) {
    let column_tiles = div_ceil(shape.n, COLUMNS * WORKGROUP_SIZE);
    let row_tiles = div_ceil(shape.m, ROWS);
    let batch = index / (column_tiles * row_tiles);
    let b0 = batch / shape.b1;
    let b1 = batch % shape.b1;
    if b0 >= shape.b0 {
        return;
    }
    // Row tiles of the same columns follow each other, so that B is in the cache.
    let m = (index % row_tiles) * ROWS;
    let n = (((index / row_tiles) % column_tiles) * WORKGROUP_SIZE + lane) * COLUMNS;

    let rows = a_rows(b0, b1, m, lane);
    let columns = b_columns(b0, b1, n);
    var tile: Tile = tile_zero();
    let terms = shape.k;
    for (var k = 0u; k < terms; k += 4u) {
        tile_multiply_add(&tile, rows, columns, k);
    }

    // The epilogue may be long, so it stands in a loop, not in ROWS * COLUMNS copies.
    let live_rows = min(ROWS, shape.m - m);
    let live_blocks = min(COLUMN_BLOCKS, div_ceil(max(shape.n, n) - n, 4u));
    let stride = shape.c_m_stride;
    var at = c_row(b0, b1, m);
    for (var first = 0u; first < live_rows; first += GROUP) {
        let part = tile_group(tile, first / GROUP);
        for (var r = first; r < min(first + GROUP, live_rows); r++) {
            store_row(at, b0, b1, m + r, n, live_blocks, tile_row(part, r - first));
            at += stride;
        }
    }
}
