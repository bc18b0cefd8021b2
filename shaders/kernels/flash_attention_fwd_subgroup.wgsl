// Fused attention, forward: O = prob_mod(softmax(score_mod(scale * Q K^T), mask_mod, sink)) V
//
// A workgroup is one subgroup, or the first lanes of a wider one. A tile is a block of query rows of one batch and KV
// head; the slot `schedule` says which a workgroup computes. Lanes own columns: each holds its columns of Q and O for
// all rows, and loads its columns of K and V once for all rows. The scores of a row and a key are one lane's; where
// rows are fewer than lanes, lanes have other keys of the same rows. Tiles of keys that count for none of the rows are
// skipped. The slot `walk` says which keys are walked, and what becomes of the sums. O is scaled only when a score
// passes m by HEADROOM. Sink, prob_mod and tiles are as in flash_attention_fwd_rows. All lanes stay to the end, since
// subgroup operations need them. Rows of which a driver that counts turns did not let all keys be walked are NaN.
// Dao 2023, arXiv:2307.08691, Algorithm 1 and section 3.1.1 (divide by l once, at the end).
//
// Layout: Q, O are [B, H, M, D]; K, V are [B, H / heads_per_kv, N, D]; the last axis contiguous, in elements.

import package::params::{WORKGROUP_SIZE};
import package::mods::{HAS_FILL, SETTLED_ABOVE};
import package::micro::{ROWS, GROUP, KEYS, SCORES_MASK, Rows, RowIndex, RowMask, OTile, q_item, k_item, v_item, o_item};
import package::micro::{row_numbers, key_number, rows_score_mod, rows_mask_mod, rows_prob_mod, lanes_or, max_over_keys};
import package::micro::{sum_over_keys, tile_load_q, tile_dot_k, load_v_where, v_is_odd, tile_zero, tile_scale};
import package::micro::{tile_add_v, tile_store_o};
import package::schedule::{compute_tiles};
import package::walk::{part_count, part_keys, part_rows, rows_end};
import package::lib::online_softmax::{SCORE_MIN, HEADROOM};
import package::lib::attention_shape::{Shape};
import package::lib::row_block::{row_block, rows_of};
import package::lib::tile_runs::{tile_rows, next_run};
import package::lib::key_facts::{DEAD, key_of, facts_of, some_live, facts_of_first};
import package::lib::float_bits::{float_bits};

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> q: array<q_item>;
@group(0) @binding(2) var<storage, read> k: array<k_item>;
@group(0) @binding(3) var<storage, read> v: array<v_item>;
@group(0) @binding(4) var<storage, read_write> o: array<o_item>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn flash_attention_fwd_subgroup(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    compute_tiles(group, groups, lane);
}

fn compute_tile(index: u32, lane: u32) {
    let parts = part_count(shape.kv_len);
    let part = index % parts;
    let block = row_block(index / parts, shape);
    let b = block.b;
    if b >= shape.batch {
        return;
    }
    let number = row_numbers(lane);
    let row = rows_of(block, number);
    let h = block.first_head + row / shape.q_len;
    let q_idx = row % shape.q_len;
    let kv_head = block.first_head / shape.heads_per_kv;
    let k_first = shape.k_offset + b * shape.k_batch_stride + kv_head * shape.k_head_stride;
    let v_first = shape.v_offset + b * shape.v_batch_stride + kv_head * shape.v_head_stride;
    let q_row = shape.q_offset + b * shape.q_batch_stride + h * shape.q_head_stride + q_idx * shape.q_row_stride;
    let o_first = shape.o_offset + b * shape.o_batch_stride + h * shape.o_head_stride + q_idx * shape.o_row_stride;
    let o_row = part_rows(o_first, part);
    let keys = part_keys(part, shape.kv_len);
    let tiles = tile_rows(block, shape.q_len, keys.y);

    let tile = tile_load_q(q_row, lane, shape.scale);
    var out: OTile;
    var span = ROWS; // the rows that one walk over the keys is for
    var skips = true;
    for (var first = 0u; first < block.rows;) {
        let counts = (number >= RowIndex(first)) & (number < RowIndex(first + span));
        var row_max = Rows(SCORE_MIN);
        var m = Rows(SCORE_MIN); // a score of the row that none passes by more than HEADROOM
        var l = Rows(0.0); // running sum of exp(score - m)
        var has_odd = false;
        out = tile_zero();
        var run = next_run(keys.x, tiles, skips);
        var walked = run.kv_idx;
        while run.kv_idx < keys.y {
            let start = run.kv_idx;
            let k_last = k_first + (run.end - 1u) * shape.k_row_stride;
            let v_last = v_first + (run.end - 1u) * shape.v_row_stride;
            var top = m;
            // Each lane's key twice, so that O is read and written once for all, until a score passes m by too much.
            for (; run.kv_idx < run.end; run.kv_idx += 2u * KEYS) {
                let kv_next = run.kv_idx + KEYS;
                let kv_last = run.end - 1u;
                let n = key_number(lane);
                let mine = min(run.kv_idx + n, kv_last);
                let mine_next = min(kv_next + n, kv_last);
                var attends = RowMask(KEYS == 1u || run.kv_idx + n <= kv_last);
                var attends_next = RowMask(kv_next + n <= kv_last);
                var facts = facts_of_first(min(run.end - run.kv_idx, 2u * KEYS));
                if !run.full {
                    attends &= rows_mask_mod(b, h, q_idx, mine);
                    attends_next &= rows_mask_mod(b, h, q_idx, mine_next);
                    facts = lanes_or(facts_of(attends, counts, n) | facts_of(attends_next, counts, n + KEYS));
                    if !some_live(facts) {
                        continue;
                    }
                }
                let qk = tile_dot_k(tile, lane, k_first + run.kv_idx * shape.k_row_stride, k_last);
                let key = key_of(rows_score_mod(qk, b, h, q_idx, mine), attends);
                let qk_next = tile_dot_k(tile, lane, k_first + kv_next * shape.k_row_stride, k_last);
                let next = key_of(rows_score_mod(qk_next, b, h, q_idx, mine_next), attends_next);
                if SCORES_MASK {
                    facts = lanes_or(facts_of(key.live, counts, n) | facts_of(next.live, counts, n + KEYS));
                }
                top = max(m, max_over_keys(max(key.score, next.score)));
                m = select(m, top, l == Rows(0.0));
                if lanes_or(select(0u, 1u, any(top > m + HEADROOM))) != 0u {
                    break;
                }
                row_max = max(row_max, top);
                // A row for which a key is masked takes nothing of it, not even 0 * NaN.
                let x = load_v_where(v_first + run.kv_idx * shape.v_row_stride, v_last, lane, facts);
                let x_next = load_v_where(v_first + kv_next * shape.v_row_stride, v_last, lane, facts >> KEYS);
                has_odd |= v_is_odd(x, facts >> DEAD) | v_is_odd(x_next, facts >> (DEAD + KEYS));
                let p = select(Rows(0.0), exp(key.score - m), key.live);
                let p_next = select(Rows(0.0), exp(next.score - m), next.live);
                l += sum_over_keys(p + p_next);
                let weight = rows_prob_mod(p, b, h, q_idx, mine);
                tile_add_v(&out, weight, x, rows_prob_mod(p_next, b, h, q_idx, mine_next), x_next);
            }
            // Rows that did not outgrow m keep it: what they come to must not depend on other rows.
            let raised = select(m, top, top > m + HEADROOM);
            let shrink = exp(m - raised);
            l *= shrink;
            m = raised;
            tile_scale(&out, shrink);
            if run.kv_idx >= run.end {
                run = next_run(run.end, tiles, skips);
            }
            walked += run.kv_idx - start;
        }
        // An infinity or NaN of V that counts for some rows and not for others: they are walked one by one.
        let odd = subgroupAny(has_odd);
        // Keys with a finite fill were skipped as if they added exactly 0, which they do to rows with a
        // greater maximum. Any other row is walked again, as it is written.
        let unsettled = HAS_FILL && skips && subgroupAny(any(counts & (row_max <= Rows(SETTLED_ABOVE))));
        let done = !odd && !unsettled;
        let own = counts & (number < RowIndex(block.rows)) & RowMask(lane < GROUP);
        let end = rows_end(o_row, own, m, l, row_max, b, h, q_idx);
        let factor = select(Rows(float_bits(0x7fc00000u)), end, done && walked >= keys.y);
        tile_store_o(o_row, lane, first, min(first + span, block.rows), out, factor);
        first += select(0u, span, done);
        span = select(span, 1u, odd);
        skips &= odd || !unsettled;
    }
}
