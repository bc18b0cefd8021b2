// flash_attention_fwd_rows.f32.r4d4.mask
//
// Linked by attnc; generated, do not edit.

// ---- params (generated)

// params: workgroups of 32

const WORKGROUP_SIZE: u32 = 32u;
const BLOCK_M: u32 = 64u;
const BLOCK_N: u32 = 64u;

// ---- kernels/flash_attention_fwd_rows.wgsl

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

// ---- micro (generated)

// micro: attention register tile of 4 query rows; Q and K have 4 columns, V and O 4 (generated)
//
// A Chunk is 4 columns of all rows: row r of the tile is column r of the matrix.

const ROWS: u32 = 4u;
const HAS_SINK: bool = false;

alias Rows = vec4<f32>; // one number a row
alias RowIndex = vec4<u32>;
alias RowMask = vec4<bool>;
alias Chunk = mat4x4<f32>;
alias q_item = vec4<f32>;
alias k_item = vec4<f32>;
alias v_item = vec4<f32>;
alias o_item = vec4<f32>;

struct QTile {
    c0: Chunk,
}

struct OTile {
    c0: Chunk,
}

fn rows_from(first: u32) -> RowIndex {
    return RowIndex(
        first + 0u,
        first + 1u,
        first + 2u,
        first + 3u,
    );
}

alias HeadIndex = u32;

fn rows_score_mod(score: Rows, b: u32, h: HeadIndex, q_idx: RowIndex, kv_idx: u32) -> Rows {
    return Rows(
        score_mod(score[0], b, h, q_idx[0], kv_idx),
        score_mod(score[1], b, h, q_idx[1], kv_idx),
        score_mod(score[2], b, h, q_idx[2], kv_idx),
        score_mod(score[3], b, h, q_idx[3], kv_idx),
    );
}

fn rows_mask_mod(b: u32, h: HeadIndex, q_idx: RowIndex, kv_idx: u32) -> RowMask {
    return RowMask(
        mask_mod(b, h, q_idx[0], kv_idx),
        mask_mod(b, h, q_idx[1], kv_idx),
        mask_mod(b, h, q_idx[2], kv_idx),
        mask_mod(b, h, q_idx[3], kv_idx),
    );
}

fn rows_prob_mod(p: Rows, b: u32, h: HeadIndex, q_idx: RowIndex, kv_idx: u32) -> Rows {
    return p;
}

fn rows_sink(m: Rows, b: u32, h: HeadIndex, q_idx: RowIndex) -> Rows {
    return Rows(0.0);
}

fn with_row(chunk: Chunk, r: u32, x: vec4<f32>) -> Chunk {
    return Chunk(
        select(chunk[0], x, r == 0u),
        select(chunk[1], x, r == 1u),
        select(chunk[2], x, r == 2u),
        select(chunk[3], x, r == 3u),
    );
}

fn row_of(chunk: Chunk, r: u32) -> vec4<f32> {
    var x = chunk[0];
    x = select(x, chunk[1], r == 1u);
    x = select(x, chunk[2], r == 2u);
    x = select(x, chunk[3], r == 3u);
    return x;
}

fn load_q(at: u32, column: u32) -> vec4<f32> {
    return q[(at + column) / 4u];
}

// Rows of Q times the scale, so that no product overflows before it is scaled.
fn tile_load_q(at: RowIndex, rows: u32, scale: f32) -> QTile {
    var tile = QTile();
    for (var r = 0u; r < rows; r++) {
        let row = at[r];
        tile.c0 = with_row(tile.c0, r, load_q(row, 0u) * scale);
    }
    return tile;
}

fn load_k(at: u32, column: u32) -> vec4<f32> {
    return k[(at + column) / 4u];
}

fn chunk_dot(chunk: Chunk, x: vec4<f32>) -> Rows {
    return x * chunk;
}

// Every row of the tile times one row of K.
fn tile_dot_k(tile: QTile, at: u32) -> Rows {
    var sum = Rows(0.0);
    sum += chunk_dot(tile.c0, load_k(at, 0u));
    return sum;
}

fn load_v(at: u32, column: u32) -> vec4<f32> {
    return v[(at + column) / 4u];
}

fn tile_zero() -> OTile {
    return OTile();
}

// A row for which the key is masked takes nothing of it, not even 0 * NaN.
fn chunk_scale_add(chunk: Chunk, shrink: Rows, p: Rows, live: RowMask, x: vec4<f32>) -> Chunk {
    return Chunk(
        chunk[0] * shrink[0] + select(vec4<f32>(), p[0] * x, live[0]),
        chunk[1] * shrink[1] + select(vec4<f32>(), p[1] * x, live[1]),
        chunk[2] * shrink[2] + select(vec4<f32>(), p[2] * x, live[2]),
        chunk[3] * shrink[3] + select(vec4<f32>(), p[3] * x, live[3]),
    );
}

// out = out * shrink + p * (one row of V)
fn tile_scale_add_v(out: ptr<function, OTile>, shrink: Rows, p: Rows, live: RowMask, at: u32) {
    (*out).c0 = chunk_scale_add((*out).c0, shrink, p, live, load_v(at, 0u));
}

fn store_o(at: u32, column: u32, x: vec4<f32>) {
    o[(at + column) / 4u] = x;
}

fn tile_store_o(at: RowIndex, rows: u32, tile: OTile, factor: Rows) {
    for (var r = 0u; r < rows; r++) {
        let row = at[r];
        store_o(row, 0u, row_of(tile.c0, r) * factor[r]);
    }
}

// ---- mods/score_identity.wgsl

// score_mod: score
fn score_mod(score: f32, b: u32, h: u32, q_idx: u32, kv_idx: u32) -> f32 {
    return score;
}

// ---- mods/fill_none.wgsl

// No score is filled with a finite number: what is skipped never counts.
const HAS_FILL: bool = false;
const SETTLED_ABOVE: f32 = 0.0;

// ---- mods (generated)

@group(1) @binding(0) var<storage, read> ids: array<i32>;

// mask_mod: ids[b, q_idx] == ids[b, kv_idx]
fn mask_mod(b: u32, h: u32, q_idx: u32, kv_idx: u32) -> bool {
    return ids[shape.dim_S * b + q_idx] == ids[shape.dim_S * b + kv_idx];
}

@group(0) @binding(5) var<storage, read> blocks: array<u32>;

fn block_bits(b: u32, h: u32, q_first: u32, kv_first: u32) -> u32 {
    let tile = q_first / BLOCK_M * shape.block_row_stride + kv_first / BLOCK_N;
    return blocks[b * shape.block_batch_stride + h * shape.block_head_stride + tile];
}

fn block_some(b: u32, h: u32, q_first: u32, q_last: u32, kv_first: u32, kv_last: u32) -> bool {
    return (block_bits(b, h, q_first, kv_first) & BLOCK_LIVE) != 0u;
}

fn block_all(b: u32, h: u32, q_first: u32, q_last: u32, kv_first: u32, kv_last: u32) -> bool {
    return (block_bits(b, h, q_first, kv_first) & BLOCK_DEAD) == 0u;
}

// ---- walk/whole.wgsl

// walk: a workgroup walks all keys of its rows and finishes them.

// Lanes that walk the same keys, where each has rows of its own.
const ROW_LANES: u32 = WORKGROUP_SIZE;

fn row_unit(workgroup: u32, lane: u32) -> u32 {
    return workgroup;
}

fn part_count(kv_len: u32) -> u32 {
    return 1u;
}

// The first key of a part, and the one behind its last.
fn part_keys(part: u32, kv_len: u32) -> vec2<u32> {
    return vec2<u32>(0u, kv_len);
}

fn part_rows(o_row: RowIndex, part: u32) -> RowIndex {
    return o_row;
}

// What rows of O are to be multiplied by, whose exponentials are relative to m and add up to l.
fn rows_end(at: RowIndex, own: RowMask, m: Rows, l: Rows, row_max: Rows, b: u32, h: HeadIndex, q_idx: RowIndex) -> Rows {
    let sink = rows_sink(row_max, b, h, q_idx); // -inf is none
    let has_sink = RowMask(HAS_SINK) & (bitcast<RowIndex>(sink) != RowIndex(NEG_INF_BITS));
    let last_m = select(m, max(row_max, sink), has_sink);
    let shrink = exp(m - last_m);
    let sum = l * shrink + select(Rows(0.0), exp(sink - last_m), has_sink);

    // A row without a live key has l = 0 and attends to nothing: its output is zero.
    return select(shrink / sum, Rows(0.0), sum == Rows(0.0));
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
    dim_S: u32,
    block_batch_stride: u32,
    block_head_stride: u32,
    block_row_stride: u32,
}

// ---- lib/balanced.wgsl

// In which order workgroups take blocks of rows.

// A permutation of 0 .. n that takes from both ends in turn, so that any run of consecutive numbers has as much
// of the beginning as of the end: causal rows cost more the later they are.
fn balanced(i: u32, n: u32) -> u32 {
    return select(i / 2u, n - 1u - i / 2u, i % 2u == 1u);
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

// ---- lib/block_bits.wgsl

// What a mask does on a tile of queries and keys, as bits of a u32.

// It is true for some query and key of the tile.
const BLOCK_LIVE: u32 = 1u;

// It is false for some.
const BLOCK_DEAD: u32 = 2u;
