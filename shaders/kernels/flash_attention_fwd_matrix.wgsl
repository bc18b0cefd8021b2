// Fused attention, forward: O = prob_mod(softmax(score_mod(scale * Q K^T), mask_mod, sink)) V
//
// As flash_attention_fwd_tiled, except that both products are by cooperative matrices of f16 with sums in f32, and so
// P is rounded to f16. Nobody can reach into a matrix: products of ROWS x KEYS come back through workgroup memory.
// Of these, the lanes of a quad take their scores, and their columns to add to O, which stays in registers.
//
// Dao 2023, arXiv:2307.08691, Algorithm 1 and section 3.1.1; P of f16 as there, section 4. Matrices: Markidis et al.
// 2018, arXiv:1803.04014. Where V has infinities or NaN, they are left out of the product and added one by one.
//
// Layout: Q, O are [B, H, M, D]; K, V are [B, H / heads_per_kv, N, D]; every axis strided, in elements.

import package::params::{WORKGROUP_SIZE, BLOCK_M, BLOCK_N};
import package::mods::{block_some, block_all, HAS_FILL, SETTLED_ABOVE};
import package::micro::{HAS_SINK, IS_MASKED, Rows, RowIndex, RowMask, OTile, q_item, k_item, v_item, o_item, rows_sink};
import package::micro::{tile_scale, tile_add_pv, tile_add_odd, tile_store_o};
import package::lib::matrix_products::{multiply_qk};
import package::lib::matrix_slices::{ROWS, KEYS, QUADS, SUM_LINE, P_LINE, HAS_ODD, UNSETTLED, sums, p_tile, shared_rows};
import package::lib::matrix_slices::{facts, unsettled, stage_q, stage_k, stage_v, share, quad_of_sums};
import package::lib::quads::{LANES, is_live, key_score, weight_where};
import package::lib::online_softmax::{SCORE_MIN, NEG_INF_BITS};
import package::lib::attention_shape::{Shape};
import package::lib::balanced::{balanced};
import package::lib::indexing::{linear_workgroup, div_ceil};

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> q: array<q_item>;
@group(0) @binding(2) var<storage, read> k: array<k_item>;
@group(0) @binding(3) var<storage, read> v: array<v_item>;
@group(0) @binding(4) var<storage, read_write> o: array<o_item>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn flash_attention_fwd_matrix(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
) {
    let blocks = div_ceil(shape.q_len, ROWS);
    let index = linear_workgroup(group, groups);
    let h = (index / blocks) % shape.heads;
    let b = index / (blocks * shape.heads);
    if b >= shape.batch {
        return;
    }
    let first_row = balanced(index % blocks, blocks) * ROWS;
    let q_first = first_row / BLOCK_M * BLOCK_M;
    let q_last = min(q_first + BLOCK_M, shape.q_len) - 1u;
    let quad = invocation / LANES;
    let lane = invocation % LANES;
    let row = first_row + 4u * quad + RowIndex(0u, 1u, 2u, 3u);
    let q_idx = min(row, RowIndex(shape.q_len - 1u));
    let kv_head = h / shape.heads_per_kv;
    let q_head = shape.q_offset + b * shape.q_batch_stride + h * shape.q_head_stride;
    let o_head = shape.o_offset + b * shape.o_batch_stride + h * shape.o_head_stride;
    let k_head = shape.k_offset + b * shape.k_batch_stride + kv_head * shape.k_head_stride;
    let v_head = shape.v_offset + b * shape.v_batch_stride + kv_head * shape.v_head_stride;
    if invocation == 0u {
        atomicStore(&facts, 0u);
    }
    workgroupBarrier();
    stage_q(q_head, first_row, invocation);

    var out: OTile;
    var m: Rows; // running maximum
    var l: Rows; // running sum of exp(score - m) over the lane's keys
    var skips = true;
    loop {
        out = OTile();
        m = Rows(SCORE_MIN);
        l = Rows(0.0);
        for (var kv_first = 0u; kv_first < shape.kv_len; kv_first += BLOCK_N) {
            let kv_last = min(kv_first + BLOCK_N, shape.kv_len) - 1u;
            if skips && !block_some(b, h, q_first, q_last, kv_first, kv_last) {
                continue;
            }
            let full = block_all(b, h, q_first, q_last, kv_first, kv_last);

            for (var first = kv_first; first <= kv_last; first += KEYS) {
                workgroupBarrier();
                stage_k(k_head, first, invocation);
                workgroupBarrier();
                multiply_qk(subgroup, subgroups);
                workgroupBarrier();
                var top = m;
                for (var n = lane; n < KEYS; n += LANES) {
                    let dots = quad_of_sums(quad, n) * shape.scale;
                    let score = key_score(dots, b, h, q_idx, first + n, shape.kv_len, full);
                    top = max(top, select(Rows(SCORE_MIN), score, is_live(score)));
                    for (var r = 0u; r < 4u; r++) {
                        sums[(4u * quad + r) * SUM_LINE + n] = score[r];
                    }
                }
                share(top, quad, lane);
                for (var n = 0u; n < LANES; n++) {
                    top = max(top, shared_rows[n * (QUADS + 1u) + quad]);
                }
                let shrink = exp(m - top);
                m = top;
                l *= shrink;
                tile_scale(&out, shrink);
                for (var n = lane; n < KEYS; n += LANES) {
                    let score = quad_of_sums(quad, n);
                    let p = select(Rows(0.0), exp(score - m), is_live(score));
                    l += p;
                    let weight = weight_where(p, is_live(score));
                    for (var r = 0u; r < 4u; r++) {
                        p_tile[(4u * quad + r) * P_LINE + n] = f16(weight[r]);
                    }
                }
                stage_v(v_head, first, invocation);
                tile_add_pv(&out, quad, lane, subgroup, subgroups);
                if IS_MASKED && (atomicLoad(&facts) & HAS_ODD) != 0u {
                    tile_add_odd(&out, quad, lane, v_head, first);
                }
            }
        }
        // Keys with a finite fill were skipped as if they added exactly 0, which they do to rows with a
        // greater maximum. Any other row is walked again, as it is written.
        if !HAS_FILL || !skips {
            break;
        }
        if any(m <= Rows(SETTLED_ABOVE)) {
            atomicOr(&facts, UNSETTLED);
        }
        workgroupBarrier();
        if invocation == 0u {
            unsettled = atomicLoad(&facts) & UNSETTLED;
        }
        if workgroupUniformLoad(&unsettled) == 0u {
            break;
        }
        skips = false;
    }

    share(l, quad, lane);
    l = shared_rows[quad];
    for (var n = 1u; n < LANES; n++) {
        l += shared_rows[n * (QUADS + 1u) + quad];
    }
    let sink = rows_sink(m, b, h, q_idx); // -inf is none
    let has_sink = RowMask(HAS_SINK) & (bitcast<RowIndex>(sink) != RowIndex(NEG_INF_BITS));
    let last_m = select(m, max(m, sink), has_sink);
    let shrink = exp(m - last_m);
    l = l * shrink + select(Rows(0.0), exp(sink - last_m), has_sink);

    // A row without a live key has l = 0 and attends to nothing: its output is zero.
    tile_store_o(o_head, row, lane, out, select(shrink / l, Rows(0.0), l == Rows(0.0)));
}
