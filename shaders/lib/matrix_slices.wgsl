// What flash_attention_fwd_matrix has in workgroup memory: Q, a slice of K and then of V, P, and sums of products.

import package::params::{WORKGROUP_SIZE};
import package::micro::{QK_PADDED, V_PADDED, IS_MASKED, Rows, load_q, load_k, load_v};
import package::lib::quads::{LANES, odd};
import package::kernels::flash_attention_fwd_matrix::{shape};

const QUADS: u32 = WORKGROUP_SIZE / LANES;
const ROWS: u32 = 4u * QUADS;
const KEYS: u32 = 32u; // of a slice; as many are the columns of V that are multiplied at once

const Q_LINE: u32 = QK_PADDED + 8u;
const KV_LINE: u32 = max(QK_PADDED, V_PADDED) + 8u;
const P_LINE: u32 = KEYS + 8u;
const SUM_LINE: u32 = KEYS + 4u;
var<workgroup> q_tile: array<f16, ROWS * Q_LINE>;
var<workgroup> kv_tile: array<f16, KEYS * KV_LINE>;
var<workgroup> p_tile: array<f16, ROWS * P_LINE>;
var<workgroup> sums: array<f32, ROWS * SUM_LINE>;
var<workgroup> shared_rows: array<vec4<f32>, LANES * (QUADS + 1u)>;

var<workgroup> facts: atomic<u32>;
const HAS_ODD: u32 = 1u; // V has an infinity or NaN
const UNSETTLED: u32 = 2u; // a row's maximum is no greater than SETTLED_ABOVE
var<workgroup> unsettled: u32;

// Rows past the end stand in for the last.
fn stage_q(head: u32, first_row: u32, invocation: u32) {
    for (var n = invocation; n < ROWS * QK_PADDED / 4u; n += WORKGROUP_SIZE) {
        let row = n / (QK_PADDED / 4u);
        let column = n % (QK_PADDED / 4u) * 4u;
        let q_idx = min(first_row + row, shape.q_len - 1u);
        let x = load_q(head + q_idx * shape.q_row_stride, column);
        for (var i = 0u; i < 4u; i++) {
            q_tile[row * Q_LINE + column + i] = f16(x[i]);
        }
    }
}

fn stage_k(head: u32, first_key: u32, invocation: u32) {
    for (var n = invocation; n < KEYS * QK_PADDED / 4u; n += WORKGROUP_SIZE) {
        let key = n / (QK_PADDED / 4u);
        let column = n % (QK_PADDED / 4u) * 4u;
        let kv_idx = min(first_key + key, shape.kv_len - 1u);
        let x = load_k(head + kv_idx * shape.k_row_stride, column);
        for (var i = 0u; i < 4u; i++) {
            kv_tile[key * KV_LINE + column + i] = f16(x[i]);
        }
    }
}

// Zeros past the last key; and where masked keys must not multiply them by 0, in place of infinities and NaN.
fn stage_v(head: u32, first_key: u32, invocation: u32) {
    for (var n = invocation; n < KEYS * V_PADDED / 4u; n += WORKGROUP_SIZE) {
        let key = n / (V_PADDED / 4u);
        let column = n % (V_PADDED / 4u) * 4u;
        var x = vec4<f32>();
        if first_key + key < shape.kv_len {
            x = load_v(head + (first_key + key) * shape.v_row_stride, column);
        }
        if IS_MASKED && any(odd(x)) {
            atomicOr(&facts, HAS_ODD);
            x = select(x, vec4<f32>(), odd(x));
        }
        for (var i = 0u; i < 4u; i++) {
            kv_tile[key * KV_LINE + column + i] = f16(x[i]);
        }
    }
}

// What the lanes of a quad have, to be read by all of them.
fn share(x: Rows, quad: u32, lane: u32) {
    workgroupBarrier();
    shared_rows[lane * (QUADS + 1u) + quad] = x;
    workgroupBarrier();
}

// What a product came to for the rows of a quad.
fn quad_of_sums(quad: u32, column: u32) -> Rows {
    let at = 4u * quad * SUM_LINE + column;
    return Rows(sums[at], sums[at + SUM_LINE], sums[at + 2u * SUM_LINE], sums[at + 3u * SUM_LINE]);
}
