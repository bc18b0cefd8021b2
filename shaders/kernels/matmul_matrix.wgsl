// Matrix product: C[b0, b1, m, n] = epilogue(sum over k of A[b0, b1, m, k] * B[b0, b1, k, n])
//
// As matmul_tiled, but a tile is a subgroup's, and consists of cooperative matrices of SIZE x SIZE: f16 in, sums in
// f32. Operands are f16 in memory, so that nothing is rounded on the way. A workgroup has at least SUBGROUPS
// subgroups. Where they are smaller than they might be there are more; those repeat the last one's products and put
// them where nobody looks, since all lanes must stay together.
//
// Warp-level tiles on matrix units: Markidis et al. 2018, NVIDIA Tensor Core Programmability, Performance &
// Precision, arXiv:1803.04014, section 4.
//
// Layout: every axis of A, B and C is strided, in elements; a broadcast batch axis has stride 0.

enable f16;
enable wgpu_cooperative_matrix;

import package::params::{WORKGROUP_SIZE};
import package::micro::{ROWS, COLUMNS, ACROSS, BLOCK_M, BLOCK_N, BLOCK_K, A_STRIDE, B_STRIDE};
import package::micro::{SIZE, SUBGROUPS, MATRICES, MATRICES_ACROSS, Tile, a_item, b_item, c_item};
import package::micro::{tile_zero, tile_multiply_add, put_matrix, c_row, store_block};
import package::lib::matmul_shape::{Shape};
import package::lib::matmul_stage::{stage};
import package::lib::indexing::{linear_workgroup, div_ceil};

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> a: array<a_item>;
@group(0) @binding(2) var<storage, read> b: array<b_item>;
@group(0) @binding(3) var<storage, read_write> c: array<c_item>;

// A and B by rows of k; a matrix of C for each subgroup that counts, and one for all others.
var<workgroup> a_tile: array<f16, BLOCK_K * A_STRIDE>;
var<workgroup> b_tile: array<f16, BLOCK_K * B_STRIDE>;
var<workgroup> c_tile: array<f32, (SUBGROUPS + 1u) * SIZE * SIZE>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn matmul_matrix(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
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
    let own = min(subgroup, SUBGROUPS - 1u);
    let row = own / ACROSS * ROWS;
    let column = own % ACROSS * COLUMNS;

    var tile: Tile = tile_zero();
    for (var k = 0u; k < shape.k; k += BLOCK_K) {
        stage(b0, b1, block_m, block_n, k, lane);
        workgroupBarrier();
        for (var step = 0u; step < BLOCK_K; step += SIZE) {
            tile_multiply_add(&tile, step * A_STRIDE + row, step * B_STRIDE + column);
        }
        workgroupBarrier();
    }

    for (var i = 0u; i < MATRICES; i++) {
        put_matrix(tile, i, min(subgroup, SUBGROUPS) * SIZE * SIZE);
        workgroupBarrier();
        // Rows of four columns of one matrix of each subgroup, shared out among all lanes.
        for (var at = 4u * lane; at < SUBGROUPS * SIZE * SIZE; at += 4u * WORKGROUP_SIZE) {
            let owner = at / (SIZE * SIZE);
            let in_row = i / MATRICES_ACROSS * SIZE + at / SIZE % SIZE;
            let in_column = i % MATRICES_ACROSS * SIZE + at % SIZE;
            let m = block_m + owner / ACROSS * ROWS + in_row;
            let n = block_n + owner % ACROSS * COLUMNS + in_column;
            if m < shape.m && n < shape.n {
                let x = vec4<f32>(c_tile[at], c_tile[at + 1u], c_tile[at + 2u], c_tile[at + 3u]);
                store_block(c_row(b0, b1, m), b0, b1, m, n, x);
            }
        }
        workgroupBarrier();
    }
}
