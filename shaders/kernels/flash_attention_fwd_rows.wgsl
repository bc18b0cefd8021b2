// Fused attention, forward: O = prob_mod(softmax(score_mod(scale * Q K^T), mask_mod, sink)) V
//
// One invocation owns ROWS query rows of one (batch, head) in registers and walks the keys one at a
// time; every invocation of a workgroup reads the same K and V row at the same time. It needs neither
// workgroup memory nor subgroup operations. Tiles of BLOCK_M queries and BLOCK_N keys are skipped where no key
// counts, and do without the mask where every key does. The slot `walk` says which keys it walks, and what becomes of
// its sums; where they are a part of the keys, each lane has a part of its own.
//
// Dao 2023, arXiv:2307.08691, Algorithm 1 and section 3.1.1 (divide by l once, at the end). Tiles: Dong et
// al. 2024, FlexAttention, arXiv:2412.05496, section 4. A sink is one more key, whose value is zero; it comes
// last, since its logit may depend on m. prob_mod must let factors pass, since it is applied before the
// division; flash_attention_fwd_two_walks is for those that do not.
//
// Layout: Q, O are [B, H, M, D]; K, V are [B, H / heads_per_kv, N, D]; every axis strided, in elements.

import package::params::{WORKGROUP_SIZE, BLOCK_M, BLOCK_N};
import package::mods::{block_some, block_all, HAS_FILL, SETTLED_ABOVE};
import package::micro::{ROWS, Rows, RowIndex, RowMask, OTile, q_item, k_item, v_item, o_item};
import package::micro::{rows_from, rows_score_mod, rows_mask_mod, rows_prob_mod};
import package::micro::{tile_load_q, tile_dot_k, tile_zero, tile_scale_add_v, tile_store_o};
import package::walk::{ROW_LANES, row_unit, part_count, part_keys, part_rows, rows_end};
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
fn flash_attention_fwd_rows(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let parts = part_count(shape.kv_len);
    let blocks = div_ceil(shape.q_len, ROWS * ROW_LANES);
    let unit = row_unit(linear_workgroup(group, groups), lane);
    let part = unit % parts;
    let index = unit / parts;
    let h = (index / blocks) % shape.heads;
    let b = index / (blocks * shape.heads);
    let first_row = (balanced(index % blocks, blocks) * ROW_LANES + lane % ROW_LANES) * ROWS;
    if b >= shape.batch || first_row >= shape.q_len {
        return;
    }

    // Rows past the end stand in for the last row: zeros that are computed with and never stored.
    let rows = min(ROWS, shape.q_len - first_row);
    let q_idx = min(rows_from(first_row), RowIndex(shape.q_len - 1u));
    let kv_head = h / shape.heads_per_kv;
    let q_row = shape.q_offset + b * shape.q_batch_stride + h * shape.q_head_stride + q_idx * shape.q_row_stride;
    let o_first = shape.o_offset + b * shape.o_batch_stride + h * shape.o_head_stride + q_idx * shape.o_row_stride;
    let o_row = part_rows(o_first, part);
    let keys = part_keys(part, shape.kv_len);
    let k_first = shape.k_offset + b * shape.k_batch_stride + kv_head * shape.k_head_stride;
    let v_first = shape.v_offset + b * shape.v_batch_stride + kv_head * shape.v_head_stride;
    let q_first = first_row / BLOCK_M * BLOCK_M;
    let q_last = min(q_first + BLOCK_M, shape.q_len) - 1u;

    let q_tile = tile_load_q(q_row, rows, shape.scale);
    var out: OTile;
    var m: Rows; // running maximum
    var l: Rows; // running sum of exp(score - m)
    var skips = true;
    loop {
        out = tile_zero();
        m = Rows(SCORE_MIN);
        l = Rows(0.0);
        for (var kv_first = keys.x; kv_first < keys.y; kv_first += BLOCK_N) {
            let kv_last = min(kv_first + BLOCK_N, keys.y) - 1u;
            if skips && !block_some(b, h, q_first, q_last, kv_first, kv_last) {
                continue;
            }
            let full = block_all(b, h, q_first, q_last, kv_first, kv_last);
            for (var kv_idx = kv_first; kv_idx <= kv_last; kv_idx++) {
                var attends = RowMask(true);
                if !full {
                    attends = rows_mask_mod(b, h, q_idx, kv_idx);
                }
                if any(attends) {
                    let qk = tile_dot_k(q_tile, k_first + kv_idx * shape.k_row_stride);
                    let score = rows_score_mod(qk, b, h, q_idx, kv_idx);
                    let live = attends & (bitcast<RowIndex>(score) != RowIndex(NEG_INF_BITS));
                    let new_m = max(m, select(Rows(SCORE_MIN), score, live));
                    let shrink = exp(m - new_m);
                    let p = select(Rows(0.0), exp(score - new_m), live);
                    l = l * shrink + p;
                    m = new_m;
                    let weight = rows_prob_mod(p, b, h, q_idx, kv_idx);
                    tile_scale_add_v(&out, shrink, weight, live, v_first + kv_idx * shape.v_row_stride);
                }
            }
        }
        // Keys with a finite fill were skipped as if they added exactly 0, which they do to rows with a
        // greater maximum. Any other row is walked again, as it is written.
        if !HAS_FILL || !skips || all(m > Rows(SETTLED_ABOVE)) {
            break;
        }
        skips = false;
    }

    let own = rows_from(0u) < RowIndex(rows);
    let factor = rows_end(o_row, own, m, l, m, b, h, q_idx);
    tile_store_o(o_row, rows, out, factor);
}
