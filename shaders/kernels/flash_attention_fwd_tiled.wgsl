// Fused attention, forward: O = prob_mod(softmax(score_mod(scale * Q K^T), mask_mod, sink)) V
//
// A workgroup owns ROWS query rows of one (batch, head) and walks the keys by tiles of BLOCK_N. Operands pass through
// workgroup memory by slices of SLICE columns or keys; scores and O are in registers. LANES invocations share four
// rows, a quad: of these each has the scores of every LANES-th key, and every LANES-th vector of columns of O.
// Tiles of BLOCK_M queries and BLOCK_N keys are skipped where no key counts.
//
// Dao 2023, arXiv:2307.08691, Algorithm 1 and section 3.1.1 (divide by l once, at the end). Sink, prob_mod and tiles
// are as in flash_attention_fwd_rows. Whatever a barrier depends on is the same for the whole workgroup.
//
// Layout: Q, O are [B, H, M, D]; K, V are [B, H / heads_per_kv, N, D]; every axis strided, in elements.

import package::params::{WORKGROUP_SIZE, BLOCK_M, BLOCK_N};
import package::mods::{block_some, block_all, HAS_FILL, SETTLED_ABOVE};
import package::micro::{QK_COLUMNS, HAS_SINK, IS_MASKED, Rows, RowIndex, RowMask, Scores, OTile};
import package::micro::{q_item, k_item, v_item, o_item, rows_prob_mod, rows_sink};
import package::micro::{scores_add_qk, scores_turned, tile_scale, tile_add_pv, tile_add_pv_where, tile_store_o};
import package::lib::quads::{LANES, is_live, key_score, weight_where};
import package::lib::attention_slices::{ROWS, SLICE, LEFT_LINE, HAS_ODD, UNSETTLED, left, facts, unsettled, stage_q, stage_k, stage_v, share};
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
fn flash_attention_fwd_tiled(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) invocation: u32,
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

            var scores = Scores();
            for (var column = 0u; column < QK_COLUMNS; column += SLICE) {
                workgroupBarrier();
                stage_q(q_head, first_row, column, invocation);
                stage_k(k_head, kv_first, column, invocation);
                workgroupBarrier();
                scores_add_qk(&scores, quad, lane);
            }
            var top = m;
            for (var kv_idx = kv_first + lane; kv_idx < kv_first + BLOCK_N; kv_idx += LANES) {
                let score = key_score(scores.k0, b, h, q_idx, kv_idx, shape.kv_len, full);
                top = max(top, select(Rows(SCORE_MIN), score, is_live(score)));
                scores = scores_turned(scores, score);
            }
            share(top, quad, lane);
            for (var n = 0u; n < LANES; n++) {
                top = max(top, left[n * LEFT_LINE + quad]);
            }
            let shrink = exp(m - top);
            m = top;
            l *= shrink;
            tile_scale(&out, shrink);

            for (var first = kv_first; first <= kv_last; first += SLICE) {
                workgroupBarrier();
                for (var n = lane; n < SLICE; n += LANES) {
                    let score = scores.k0;
                    let p = select(Rows(0.0), exp(score - m), is_live(score));
                    l += p;
                    let weight = rows_prob_mod(p, b, h, q_idx, min(first + n, kv_last));
                    left[n * LEFT_LINE + quad] = weight_where(weight, is_live(score));
                    scores = scores_turned(scores, score);
                }
                stage_v(v_head, first, invocation);
                workgroupBarrier();
                if IS_MASKED && (atomicLoad(&facts) & HAS_ODD) != 0u {
                    tile_add_pv_where(&out, quad, lane);
                } else {
                    tile_add_pv(&out, quad, lane);
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
    l = left[quad];
    for (var n = 1u; n < LANES; n++) {
        l += left[n * LEFT_LINE + quad];
    }
    let sink = rows_sink(m, b, h, q_idx); // -inf is none
    let has_sink = RowMask(HAS_SINK) & (bitcast<RowIndex>(sink) != RowIndex(NEG_INF_BITS));
    let last_m = select(m, max(m, sink), has_sink);
    let shrink = exp(m - last_m);
    l = l * shrink + select(Rows(0.0), exp(sink - last_m), has_sink);

    // A row without a live key has l = 0 and attends to nothing: its output is zero.
    tile_store_o(o_head, row, lane, out, select(shrink / l, Rows(0.0), l == Rows(0.0)));
}
