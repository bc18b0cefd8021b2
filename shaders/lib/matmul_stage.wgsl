// Fills the workgroup's tiles of A and B with the steps k to k + BLOCK_K - 1 of the rows from m and the columns from n.

import package::params::{WORKGROUP_SIZE};
import package::micro::{BLOCK_M, BLOCK_N, BLOCK_K, a_place, b_place, a_block, b_block, put_a, put_b};

fn stage(b0: u32, b1: u32, m: u32, n: u32, k: u32, lane: u32) {
    for (var i = lane; i < BLOCK_M * BLOCK_K / 16u; i += WORKGROUP_SIZE) {
        let at = a_place(i);
        put_a(at.x, at.y, a_block(b0, b1, m + at.y, k + at.x));
    }
    for (var i = lane; i < BLOCK_N * BLOCK_K / 16u; i += WORKGROUP_SIZE) {
        let at = b_place(i);
        put_b(at.x, at.y, b_block(b0, b1, n + at.y, k + at.x));
    }
}
