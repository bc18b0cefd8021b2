// Matrix product: C[b0, b1, m, n] = epilogue(sum over k of A[b0, b1, m, k] * B[b0, b1, k, n])
//
// A workgroup owns BLOCK_M x BLOCK_N outputs. It copies BLOCK_K columns of A and as many rows of B to workgroup
// memory, where each invocation reads what its tile of ROWS x COLUMNS sums in registers needs: an element of
// memory is read once for the whole block, and one of workgroup memory once for a tile.
//
// Blocking of the three levels: Goto and van de Geijn 2008, Anatomy of High-Performance Matrix Multiplication,
// ACM TOMS 34(3), section 4; on GPUs Volkov and Demmel 2008, Benchmarking GPUs to Tune Dense Linear Algebra, SC'08.
//
// Layout: every axis of A, B and C is strided, in elements; a broadcast batch axis has stride 0.

import package::params::{WORKGROUP_SIZE};
import package::micro::{ROWS, COLUMN_BLOCKS, ACROSS, BLOCK_M, BLOCK_N, BLOCK_K, A_STRIDE, B_STRIDE};
import package::micro::{Tile, a_item, b_item, c_item, tile_zero, tile_multiply_add, tile_row, row_block};
import package::micro::{c_row, store_block};
import package::lib::matmul_shape::{Shape};
import package::lib::matmul_stage::{stage};
import package::lib::indexing::{linear_workgroup, div_ceil};

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> a: array<a_item>;
@group(0) @binding(2) var<storage, read> b: array<b_item>;
@group(0) @binding(3) var<storage, read_write> c: array<c_item>;

// By rows of k: four rows of A, or four columns of B, an item.
var<workgroup> a_tile: array<vec4<f32>, BLOCK_K * A_STRIDE>;
var<workgroup> b_tile: array<vec4<f32>, BLOCK_K * B_STRIDE>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn matmul_tiled(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let column_blocks = div_ceil(shape.n, BLOCK_N);
    let row_blocks = div_ceil(shape.m, BLOCK_M);
    let index = linear_workgroup(group, groups);
    let batch = index / (column_blocks * row_blocks);
    let b0 = batch / shape.b1;
    let b1 = batch % shape.b1;
    if b0 >= shape.b0 {
        return;
    }
    // Blocks of the same columns follow each other, so that B is in the cache.
    let block_m = (index % row_blocks) * BLOCK_M;
    let block_n = ((index / row_blocks) % column_blocks) * BLOCK_N;
    let row = lane / ACROSS;
    let column = lane % ACROSS;

    var tile: Tile = tile_zero();
    for (var k = 0u; k < shape.k; k += BLOCK_K) {
        stage(b0, b1, block_m, block_n, k, lane);
        workgroupBarrier();
        for (var step = 0u; step < BLOCK_K; step++) {
            tile_multiply_add(&tile, step * A_STRIDE + row * (ROWS / 4u), step * B_STRIDE + column);
        }
        workgroupBarrier();
    }

    // An invocation's blocks of columns lie ACROSS blocks apart: what neighbours read and write lies side by side.
    let m = block_m + row * ROWS;
    let n = block_n + 4u * column;
    for (var r = 0u; r < ROWS && m + r < shape.m; r++) {
        let sums = tile_row(tile, r);
        for (var block = 0u; block < COLUMN_BLOCKS; block++) {
            let at = n + 4u * ACROSS * block;
            if at < shape.n {
                store_block(c_row(b0, b1, m + r), b0, b1, m + r, at, row_block(sums, block));
            }
        }
    }
}
