// flash_attention_fwd_subgroup.f16.k64g1x1d4.alibi
//
// Linked by attnc; generated, do not edit.

// ---- prelude (generated)

enable f16;

// ---- params (generated)

// params: workgroups of 8

const WORKGROUP_SIZE: u32 = 8u;
const BLOCK_M: u32 = 64u;
const BLOCK_N: u32 = 64u;
const PART_KEYS: u32 = 64u;

// ---- kernels/flash_attention_fwd_subgroup.wgsl

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

// ---- micro (generated)

// micro: attention tile of 1 query rows, columns by 8 lanes; Q and K have 4, V and O 4 (generated)
//
// Row g * 1 + r is the one whose softmax lane r has in component g, for the first of 4 keys.

const ROWS: u32 = 1u;
const GROUP: u32 = 1u;
const KEYS: u32 = 4u;
const PACKS_HEADS: bool = false;
const SCORES_MASK: bool = true;
const HAS_SINK: bool = false;

alias Rows = f32; // one number a row
alias RowIndex = u32;
alias RowMask = bool;
alias q_item = vec4<f16>;
alias k_item = vec4<f16>;
alias v_item = vec4<f16>;
alias o_item = vec4<f32>;

// What a lane has of a row of K, of V, and of some rows of V.
struct KRow {
    c0: vec4<f32>,
}

struct VRow {
    c0: vec4<f32>,
}

struct VRows {
    k0: VRow,
    k1: VRow,
    k2: VRow,
    k3: VRow,
}

struct QTile {
    r0c0: vec4<f32>,
}

struct OTile {
    r0c0: vec4<f32>,
}

// The bits of all lanes.
fn lanes_or(x: u32) -> u32 {
    let by1 = x | subgroupShuffleXor(x, 1u);
    let by2 = by1 | subgroupShuffleXor(by1, 2u);
    let by4 = by2 | subgroupShuffleXor(by2, 4u);
    return by4;
}

// Of the keys that are taken together.
fn max_over_keys(x: Rows) -> Rows {
    let by1 = max(x, subgroupShuffleXor(x, 1u));
    let by2 = max(by1, subgroupShuffleXor(by1, 2u));
    return by2;
}

fn sum_over_keys(x: Rows) -> Rows {
    let by1 = x + subgroupShuffleXor(x, 1u);
    let by2 = by1 + subgroupShuffleXor(by1, 2u);
    return by2;
}

// The numbers of the rows whose softmax the lane has, and of the key.
fn row_numbers(lane: u32) -> RowIndex {
    return 0u + (lane & 0u);
}

fn key_number(lane: u32) -> u32 {
    return lane / 1u % 4u;
}

alias HeadIndex = RowIndex;

fn rows_score_mod(score: Rows, b: u32, h: HeadIndex, q_idx: RowIndex, kv_idx: u32) -> Rows {
    return score_mod(score, b, h, q_idx, kv_idx);
}

fn rows_mask_mod(b: u32, h: HeadIndex, q_idx: RowIndex, kv_idx: u32) -> RowMask {
    return mask_mod(b, h, q_idx, kv_idx);
}

fn rows_prob_mod(p: Rows, b: u32, h: HeadIndex, q_idx: RowIndex, kv_idx: u32) -> Rows {
    return p;
}

fn rows_sink(m: Rows, b: u32, h: HeadIndex, q_idx: RowIndex) -> Rows {
    return Rows(0.0);
}

fn load_q(at: u32, lane: u32) -> KRow {
    return KRow(
        select(vec4<f32>(), vec4<f32>(q[at / 4u + min(lane, 0u) + 0u]), lane < 1u),
    );
}

// Rows of Q times the scale, so that no product overflows before it is scaled.
fn tile_load_q(at: RowIndex, lane: u32, scale: f32) -> QTile {
    var tile: QTile;
    let row0 = load_q(subgroupBroadcast(at, 0u), lane);
    tile.r0c0 = row0.c0 * scale;
    return tile;
}

fn load_k(at: u32, lane: u32) -> KRow {
    return KRow(
        select(vec4<f32>(), vec4<f32>(k[at / 4u + min(lane, 0u) + 0u]), lane < 1u),
    );
}

fn over_pairs(x: f32, distance: u32) -> f32 {
    return x + subgroupShuffleXor(x, distance);
}

// Every row of the tile times the rows of K from `at` on, in the lane that has the row's softmax for that key.
fn tile_dot_k(tile: QTile, lane: u32, at: u32, last: u32) -> Rows {
    let x0 = load_k(min(at + 0u * shape.k_row_stride, last), lane);
    let x1 = load_k(min(at + 1u * shape.k_row_stride, last), lane);
    let x2 = load_k(min(at + 2u * shape.k_row_stride, last), lane);
    let x3 = load_k(min(at + 3u * shape.k_row_stride, last), lane);
    return over_pairs(fold(fold(dot(tile.r0c0, x0.c0), dot(tile.r0c0, x1.c0), lane, 1u), fold(dot(tile.r0c0, x2.c0), dot(tile.r0c0, x3.c0), lane, 1u), lane, 2u), 4u);
}

fn load_v(at: u32, lane: u32) -> VRow {
    return VRow(
        select(vec4<f32>(), vec4<f32>(v[at / 4u + min(lane, 0u) + 0u]), lane < 1u),
    );
}

fn v_where(x: VRow, keep: bool) -> VRow {
    return VRow(
        select(vec4<f32>(), x.c0, keep),
    );
}

// The lane's part of the rows of V from `at` on, zeros where a fact's bit is not set.
fn load_v_where(at: u32, last: u32, lane: u32, facts: u32) -> VRows {
    return VRows(
        v_where(load_v(min(at + 0u * shape.v_row_stride, last), lane), (facts & 1u) != 0u),
        v_where(load_v(min(at + 1u * shape.v_row_stride, last), lane), (facts & 2u) != 0u),
        v_where(load_v(min(at + 2u * shape.v_row_stride, last), lane), (facts & 4u) != 0u),
        v_where(load_v(min(at + 3u * shape.v_row_stride, last), lane), (facts & 8u) != 0u),
    );
}

const EXPONENT: u32 = 0x7f800000u;

// Whether the lane's part of a row has an infinity or NaN, and the row's bit is set. By bits of the numbers, since WGSL
// may assume that there are none.
fn v_is_odd(x: VRows, facts: u32) -> bool {
    return ((facts & 1u) != 0u && (any((bitcast<vec4<u32>>(x.k0.c0) & vec4<u32>(EXPONENT)) == vec4<u32>(EXPONENT)))) || ((facts & 2u) != 0u && (any((bitcast<vec4<u32>>(x.k1.c0) & vec4<u32>(EXPONENT)) == vec4<u32>(EXPONENT)))) || ((facts & 4u) != 0u && (any((bitcast<vec4<u32>>(x.k2.c0) & vec4<u32>(EXPONENT)) == vec4<u32>(EXPONENT)))) || ((facts & 8u) != 0u && (any((bitcast<vec4<u32>>(x.k3.c0) & vec4<u32>(EXPONENT)) == vec4<u32>(EXPONENT))));
}

// out += p * (rows of V) + p_next * (the next rows of V)
fn tile_add_v(out: ptr<function, OTile>, p: Rows, x: VRows, p_next: Rows, x_next: VRows) {
    let p0k0 = subgroupBroadcast(p, 0u);
    let next0k0 = subgroupBroadcast(p_next, 0u);
    let p0k1 = subgroupBroadcast(p, 1u);
    let next0k1 = subgroupBroadcast(p_next, 1u);
    let p0k2 = subgroupBroadcast(p, 2u);
    let next0k2 = subgroupBroadcast(p_next, 2u);
    let p0k3 = subgroupBroadcast(p, 3u);
    let next0k3 = subgroupBroadcast(p_next, 3u);
    (*out).r0c0 += p0k0 * x.k0.c0 + p0k1 * x.k1.c0 + p0k2 * x.k2.c0 + p0k3 * x.k3.c0 + next0k0 * x_next.k0.c0 + next0k1 * x_next.k1.c0 + next0k2 * x_next.k2.c0 + next0k3 * x_next.k3.c0;
}

fn tile_zero() -> OTile {
    return OTile();
}

fn tile_scale(out: ptr<function, OTile>, factor: Rows) {
    let factor0 = subgroupBroadcast(factor, 0u);
    (*out).r0c0 *= factor0;
}

fn store_o(at: u32, lane: u32, factor: f32, c0: vec4<f32>) {
    if lane < 1u {
        o[at / 4u + lane + 0u] = (c0 * factor);
    }
}

// Rows `first` to `end - 1`.
fn tile_store_o(at: RowIndex, lane: u32, first: u32, end: u32, tile: OTile, factor: Rows) {
    let at0 = subgroupBroadcast(at, 0u);
    let factor0 = subgroupBroadcast(factor, 0u);
    if first <= 0u && 0u < end {
        store_o(at0, lane, factor0, tile.r0c0);
    }
}

const PART_LEN: u32 = 8u; // numbers of a part of a row

fn store_state(at: RowIndex, own: RowMask, m: Rows, l: Rows, row_max: Rows) {
    if own {
        o[at / 4u + 1u] = vec4<f32>(m, l, row_max, 0.0);
    }
}

// ---- mods/mask_none.wgsl

// mask_mod: every query attends to every key.
fn mask_mod(b: u32, h: u32, q_idx: u32, kv_idx: u32) -> bool {
    return true;
}

// ---- mods/fill_none.wgsl

// No score is filled with a finite number: what is skipped never counts.
const HAS_FILL: bool = false;
const SETTLED_ABOVE: f32 = 0.0;

// ---- mods/blocks_full.wgsl

// block_some, block_all: there is no mask, so every key of every tile counts.
fn block_some(b: u32, h: u32, q_first: u32, q_last: u32, kv_first: u32, kv_last: u32) -> bool {
    return true;
}

fn block_all(b: u32, h: u32, q_first: u32, q_last: u32, kv_first: u32, kv_last: u32) -> bool {
    return true;
}

// ---- mods (generated)

@group(1) @binding(0) var<storage, read> slope: array<f16>;

// score_mod: score + slope[h] * f32(-q_idx + kv_idx)
fn score_mod(score: f32, b: u32, h: u32, q_idx: u32, kv_idx: u32) -> f32 {
    return score + f32(slope[h]) * f32(i32(kv_idx) - i32(q_idx));
}

// ---- walk/part.wgsl

// walk: a workgroup, or each lane of it, walks PART_KEYS keys of its rows; flash_attention_combine joins the parts.
//
// A part of a row is PART_LEN numbers: the columns of O, not divided, then m, l, the greatest score, and a zero.

// Where lanes have rows of their own, each has a part of its own too.
const ROW_LANES: u32 = 1u;

fn row_unit(workgroup: u32, lane: u32) -> u32 {
    return workgroup * WORKGROUP_SIZE + lane;
}

fn part_count(kv_len: u32) -> u32 {
    return div_ceil(kv_len, PART_KEYS);
}

fn part_keys(part: u32, kv_len: u32) -> vec2<u32> {
    let first = part * PART_KEYS;
    return vec2<u32>(first, min(first + PART_KEYS, kv_len));
}

fn part_rows(o_row: RowIndex, part: u32) -> RowIndex {
    return o_row + part * PART_LEN;
}

fn rows_end(at: RowIndex, own: RowMask, m: Rows, l: Rows, row_max: Rows, b: u32, h: HeadIndex, q_idx: RowIndex) -> Rows {
    store_state(at, own, m, l, row_max);
    return Rows(1.0);
}

// ---- schedule/static.wgsl

// schedule: a workgroup computes one tile, that of its own number.

fn compute_tiles(group: vec3<u32>, groups: vec3<u32>, lane: u32) {
    compute_tile(linear_workgroup(group, groups), lane);
}

// ---- lib/online_softmax.wgsl

// Online softmax: the running pair (m, l) of one query row, m the maximum and l = sum exp(score - m).
//
// Milakov and Gimelshein 2018, arXiv:1805.02867, Algorithm 3.

// Where the running maximum starts: the least finite f32. A score of exactly this value is a number
// like any other (exported models fill masked scores with it) and still gives p = exp(0) = 1, so a
// row of nothing else comes out as the mean of V. Whether a key counts is decided apart from it.
const SCORE_MIN: f32 = -3.40282346638528859811704183484516925e38;

// A score of -inf means "no key". Compared as bits, since WGSL may assume that no infinities exist.
const NEG_INF_BITS: u32 = 0xff800000u;

// How far a score may pass the number that stands for the maximum before sums are scaled anew, where a kernel
// scales them seldom: exp(HEADROOM) is some 3000, far from what overflows and as precise as 1.
const HEADROOM: f32 = 8.0;

// ---- lib/attention_shape.wgsl

// The uniform of the attention kernels: lengths, and where Q, K, V and O lie, in elements.

struct Shape {
    batch: u32,
    heads: u32,
    heads_per_kv: u32, // > 1 for grouped-query attention
    q_len: u32,
    kv_len: u32,
    scale: f32,
    q_offset: u32,
    q_batch_stride: u32,
    q_head_stride: u32,
    q_row_stride: u32,
    q_column_stride: u32, // read by scalar loads only; vector loads need 1
    k_offset: u32,
    k_batch_stride: u32,
    k_head_stride: u32,
    k_row_stride: u32,
    k_column_stride: u32,
    v_offset: u32,
    v_batch_stride: u32,
    v_head_stride: u32,
    v_row_stride: u32,
    v_column_stride: u32,
    o_offset: u32,
    o_batch_stride: u32,
    o_head_stride: u32,
    o_row_stride: u32,
    o_column_stride: u32,
}

// ---- lib/row_block.wgsl

// The query rows of a workgroup: ROWS of one head, or of all heads of a KV head where each has few.

// Rows first_row to first_row + rows - 1 of batch b, counted through the heads from first_head on. Number b is the
// batch's or greater where there is no such block.
struct RowBlock {
    b: u32,
    first_head: u32,
    first_row: u32,
    rows: u32,
    packed: bool, // whether the rows are of all heads of a KV head
}

fn row_block(index: u32, shape: Shape) -> RowBlock {
    let packed = PACKS_HEADS && shape.q_len < ROWS;
    let heads = select(1u, shape.heads_per_kv, packed);
    let row_count = heads * shape.q_len;
    let blocks = div_ceil(row_count, ROWS);
    // Workgroups there are for every head, so where heads are packed some have no block: those that have one are
    // spread over the grid, since a device may share it out by halves.
    let places = select(blocks, heads, packed);
    let head_groups = shape.heads / heads;
    let b = select(shape.batch, index / (places * head_groups), index % places < blocks);
    let first_head = (index / places) % head_groups * heads;
    let first_row = balanced(index % places, blocks) * ROWS;
    return RowBlock(b, first_head, first_row, min(ROWS, row_count - first_row), packed);
}

// The rows of these numbers; those past the end stand in for the last one, and are not stored.
fn rows_of(block: RowBlock, number: RowIndex) -> RowIndex {
    return block.first_row + min(number, RowIndex(block.rows - 1u));
}

// ---- lib/tile_runs.wgsl

// Runs of tiles: the keys that a workgroup's rows have to walk one after the other.
//
// Tiles in which no key counts lie between runs; in a run, either every tile is full (every key counts for every row)
// or none is. A kernel that walks runs pays for a tile only what it takes to ask about it.

// Keys of a tile: half a block, since a workgroup here has few rows, and more of its tiles are skipped or full.
const TILE_N: u32 = BLOCK_N / 2u;

// Rows of queries, and the end of their keys.
struct TileRows {
    b: u32,
    h: u32,
    q_first: u32,
    q_last: u32,
    kv_end: u32,
}

fn tile_rows(block: RowBlock, q_len: u32, kv_end: u32) -> TileRows {
    let q_first = select(block.first_row, 0u, block.packed);
    let q_end = select(block.first_row + block.rows, q_len, block.packed);
    return TileRows(block.b, block.first_head, q_first, q_end - 1u, kv_end);
}

// From kv_idx, a key of its first tile, to end - 1.
struct Run {
    kv_idx: u32,
    end: u32,
    full: bool,
}

fn tile_end(kv_idx: u32, rows: TileRows) -> u32 {
    return min((kv_idx / TILE_N + 1u) * TILE_N, rows.kv_end);
}

fn is_live(kv_idx: u32, rows: TileRows, skips: bool) -> bool {
    return !skips
        || block_some(rows.b, rows.h, rows.q_first, rows.q_last, kv_idx, tile_end(kv_idx, rows) - 1u);
}

fn is_full(kv_idx: u32, rows: TileRows) -> bool {
    return block_all(rows.b, rows.h, rows.q_first, rows.q_last, kv_idx, tile_end(kv_idx, rows) - 1u);
}

// The first run from kv_idx on; it starts at kv_end if there is none.
fn next_run(kv_idx: u32, rows: TileRows, skips: bool) -> Run {
    var first = kv_idx;
    while first < rows.kv_end && !is_live(first, rows, skips) {
        first = tile_end(first, rows);
    }
    let full = first < rows.kv_end && is_full(first, rows);
    var end = tile_end(first, rows);
    while end < rows.kv_end && is_live(end, rows, skips) && is_full(end, rows) == full {
        end = tile_end(end, rows);
    }
    return Run(first, end, full);
}

// ---- lib/key_facts.wgsl

// Which keys count, for rows of a lane and for some row of any lane.

// The scores of one key, and the rows for which it counts.
struct Key {
    score: Rows,
    live: RowMask,
}

fn key_of(score: Rows, attends: RowMask) -> Key {
    let live = attends & (RowMask(!SCORES_MASK) | (bitcast<RowIndex>(score) != RowIndex(NEG_INF_BITS)));
    return Key(select(Rows(SCORE_MIN), score, live), live);
}

// Facts about the keys of a turn: bit n if key n counts for some row, bit DEAD + n if it does not for some row.
const DEAD: u32 = 16u;

fn facts_of(live: RowMask, counts: RowMask, n: u32) -> u32 {
    return select(0u, 1u << n, any(live & counts)) | select(0u, 1u << (n + DEAD), any(!live & counts));
}

fn some_live(facts: u32) -> bool {
    return (facts & ((1u << DEAD) - 1u)) != 0u;
}

// Facts about so many first keys of which nothing else is known; there is at least one.
fn facts_of_first(count: u32) -> u32 {
    return ((1u << count) - 1u) | 1u;
}

// ---- lib/float_bits.wgsl

// A float given by its bits, for values WGSL has no literal for (-inf, inf, NaN). The argument of a
// function is no constant expression, so `float_bits(0xff800000u)` is accepted where a bitcast is not.
fn float_bits(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

// ---- lib/subgroup_sums.wgsl

// Sums over the lanes of a subgroup, several at once, so that each ends up in a lane of its own.
//
// Each step halves the numbers and doubles the lanes that share them, as in a fast Fourier transform: eight sums
// over eight lanes cost seven exchanges where one after the other costs 24. All lanes must take part.

// The sum over a lane and the lane `distance` away, of `a` where that bit of the lane's number is 0, else of `b`.
fn fold(a: f32, b: f32, lane: u32, distance: u32) -> f32 {
    let upper = (lane & distance) != 0u;
    return select(a, b, upper) + subgroupShuffleXor(select(b, a, upper), distance);
}

// ---- lib/indexing.wgsl

// Index arithmetic shared by all kernels.

// Position of a workgroup in the grid, x fastest. A grid may be folded over y and z in any way:
// kernels use only this number, and workgroups beyond their work return.
fn linear_workgroup(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + groups.x * (group.y + groups.y * group.z);
}

fn div_ceil(x: u32, y: u32) -> u32 {
    return (x + y - 1u) / y;
}

// ---- lib/balanced.wgsl

// In which order workgroups take blocks of rows.

// A permutation of 0 .. n that takes from both ends in turn, so that any run of consecutive numbers has as much
// of the beginning as of the end: causal rows cost more the later they are.
fn balanced(i: u32, n: u32) -> u32 {
    return select(i / 2u, n - 1u - i / 2u, i % 2u == 1u);
}
