// The products of flash_attention_fwd_matrix: cooperative matrices of SIZE x SIZE, f16 in and sums in f32.
//
// Both are ROWS x KEYS numbers, in pairs of matrices one above the other, which subgroups take in turn, as many as
// there are. All lanes of a subgroup stay together. Lines are longer than rows, and a multiple of 16 bytes.

enable f16;
enable wgpu_cooperative_matrix;

import package::micro::{SIZE, QK_PADDED, a_matrix, b_matrix, c_matrix};
import package::lib::matrix_slices::{ROWS, KEYS, Q_LINE, KV_LINE, P_LINE, SUM_LINE, q_tile, kv_tile, p_tile, sums};

const ACROSS: u32 = KEYS / SIZE;
const PAIRS: u32 = ROWS / (2u * SIZE) * ACROSS;

// sums = Q K^T
fn multiply_qk(subgroup: u32, subgroups: u32) {
    for (var n = subgroup; n < PAIRS; n += subgroups) {
        let row = n / ACROSS * 2u * SIZE;
        let key = n % ACROSS * SIZE;
        var upper: c_matrix;
        var lower: c_matrix;
        for (var column = 0u; column < QK_PADDED; column += SIZE) {
            let right = coopLoad<b_matrix>(&kv_tile[key * KV_LINE + column], KV_LINE);
            let left = coopLoadT<a_matrix>(&q_tile[row * Q_LINE + column], Q_LINE);
            upper = coopMultiplyAdd(left, right, upper);
            let next = coopLoadT<a_matrix>(&q_tile[(row + SIZE) * Q_LINE + column], Q_LINE);
            lower = coopMultiplyAdd(next, right, lower);
        }
        coopStoreT(upper, &sums[row * SUM_LINE + key], SUM_LINE);
        coopStoreT(lower, &sums[(row + SIZE) * SUM_LINE + key], SUM_LINE);
    }
}

// sums = P V, the columns of V from `first` on
fn multiply_pv(first: u32, subgroup: u32, subgroups: u32) {
    for (var n = subgroup; n < PAIRS; n += subgroups) {
        let row = n / ACROSS * 2u * SIZE;
        let column = n % ACROSS * SIZE;
        var upper: c_matrix;
        var lower: c_matrix;
        for (var key = 0u; key < KEYS; key += SIZE) {
            let right = coopLoadT<b_matrix>(&kv_tile[key * KV_LINE + first + column], KV_LINE);
            let left = coopLoadT<a_matrix>(&p_tile[row * P_LINE + key], P_LINE);
            upper = coopMultiplyAdd(left, right, upper);
            let next = coopLoadT<a_matrix>(&p_tile[(row + SIZE) * P_LINE + key], P_LINE);
            lower = coopMultiplyAdd(next, right, lower);
        }
        coopStoreT(upper, &sums[row * SUM_LINE + column], SUM_LINE);
        coopStoreT(lower, &sums[(row + SIZE) * SUM_LINE + column], SUM_LINE);
    }
}
