// Fused attention with a function of each probability:
// O = prob_mod(softmax(score_mod(scale * Q K^T), mask_mod, sink)) V
//
// As flash_attention_fwd_rows, except that prob_mod is applied to the probability itself, which needs the sum of
// its row: the keys are walked once for m and l, and once more for the weights of the values.
//
// Milakov and Gimelshein 2018, arXiv:1805.02867, Algorithm 3 (the first walk). A key that is not there has
// probability 0; where prob_mod may make a weight of that, SKIPS_ABSENT is false and its value counts.
//
// Layout: Q, O are [B, H, M, D]; K, V are [B, H / heads_per_kv, N, D]; every axis strided, in elements.

import package::params::{WORKGROUP_SIZE};
import package::micro::{ROWS, Rows, RowIndex, RowMask, OTile, q_item, k_item, v_item, o_item};
import package::micro::{HAS_SINK, SKIPS_ABSENT, rows_from, rows_score_mod, rows_mask_mod, rows_prob_mod, rows_sink};
import package::micro::{tile_load_q, tile_dot_k, tile_zero, tile_scale_add_v, tile_store_o};
import package::lib::online_softmax::{SCORE_MIN, NEG_INF_BITS};
import package::lib::attention_shape::{Shape};
import package::lib::indexing::{linear_workgroup, div_ceil};

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> q: array<q_item>;
@group(0) @binding(2) var<storage, read> k: array<k_item>;
@group(0) @binding(3) var<storage, read> v: array<v_item>;
@group(0) @binding(4) var<storage, read_write> o: array<o_item>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn flash_attention_fwd_two_walks(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let blocks = div_ceil(shape.q_len, ROWS * WORKGROUP_SIZE);
    let index = linear_workgroup(group, groups);
    let h = (index / blocks) % shape.heads;
    let b = index / (blocks * shape.heads);
    let first_row = ((index % blocks) * WORKGROUP_SIZE + lane) * ROWS;
    if b >= shape.batch || first_row >= shape.q_len {
        return;
    }

    // Rows past the end stand in for the last row: zeros that are computed with and never stored.
    let rows = min(ROWS, shape.q_len - first_row);
    let q_idx = min(rows_from(first_row), RowIndex(shape.q_len - 1u));
    let kv_head = h / shape.heads_per_kv;
    let q_row = shape.q_offset + b * shape.q_batch_stride + h * shape.q_head_stride + q_idx * shape.q_row_stride;
    let o_row = shape.o_offset + b * shape.o_batch_stride + h * shape.o_head_stride + q_idx * shape.o_row_stride;
    let first_k_row = shape.k_offset + b * shape.k_batch_stride + kv_head * shape.k_head_stride;
    var v_row = shape.v_offset + b * shape.v_batch_stride + kv_head * shape.v_head_stride;

    let q_tile = tile_load_q(q_row, rows, shape.scale);
    var m = Rows(SCORE_MIN); // running maximum
    var l = Rows(0.0); // running sum of exp(score - m)
    var k_row = first_k_row;
    for (var kv_idx = 0u; kv_idx < shape.kv_len; kv_idx++) {
        let attends = rows_mask_mod(b, h, q_idx, kv_idx);
        if any(attends) {
            let score = rows_score_mod(tile_dot_k(q_tile, k_row), b, h, q_idx, kv_idx);
            let live = attends & (bitcast<RowIndex>(score) != RowIndex(NEG_INF_BITS));
            let new_m = max(m, select(Rows(SCORE_MIN), score, live));
            l = l * exp(m - new_m) + select(Rows(0.0), exp(score - new_m), live);
            m = new_m;
        }
        k_row += shape.k_row_stride;
    }

    let sink = rows_sink(m, b, h, q_idx); // -inf is none
    let has_sink = RowMask(HAS_SINK) & (bitcast<RowIndex>(sink) != RowIndex(NEG_INF_BITS));
    let last_m = select(m, max(m, sink), has_sink);
    l = l * exp(m - last_m) + select(Rows(0.0), exp(sink - last_m), has_sink);

    // A row without a live key has l = 0 and no probability but 0.
    let inverse_l = select(1.0 / l, Rows(0.0), l == Rows(0.0));
    var out: OTile = tile_zero();
    k_row = first_k_row;
    for (var kv_idx = 0u; kv_idx < shape.kv_len; kv_idx++) {
        let attends = rows_mask_mod(b, h, q_idx, kv_idx);
        if any(attends) || !SKIPS_ABSENT {
            let score = rows_score_mod(tile_dot_k(q_tile, k_row), b, h, q_idx, kv_idx);
            let live = attends & (bitcast<RowIndex>(score) != RowIndex(NEG_INF_BITS));
            let p = select(Rows(0.0), exp(score - last_m) * inverse_l, live);
            let weight = rows_prob_mod(p, b, h, q_idx, kv_idx);
            tile_scale_add_v(&out, Rows(1.0), weight, live | RowMask(!SKIPS_ABSENT), v_row);
        }
        k_row += shape.k_row_stride;
        v_row += shape.v_row_stride;
    }
    tile_store_o(o_row, rows, out, Rows(1.0));
}
