// flash_attention_fwd_tiled.f32.m64n64d32.bias
//
// Linked by attnc; generated, do not edit.

// ---- params (generated)

// params: workgroups of 128

const WORKGROUP_SIZE: u32 = 128u;
const BLOCK_M: u32 = 64u;
const BLOCK_N: u32 = 64u;

// ---- kernels/flash_attention_fwd_tiled.wgsl

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

// ---- micro (generated)

// micro: attention tile of 64 query rows by 64 keys; Q and K have 32 columns, V and O 32 (generated)
//
// A vec4 named after keys has one number for each row of a quad; one named after rows and columns, four columns.

const QK_COLUMNS: u32 = 32u;
const V_VECTORS: u32 = 8u; // of a row in workgroup memory, zeros behind the last column
const V_COLUMNS: u32 = 32u;
const IS_MASKED: bool = true;
const HAS_SINK: bool = false;

alias Rows = vec4<f32>; // one number a row
alias RowIndex = vec4<u32>;
alias RowMask = vec4<bool>;
alias q_item = vec4<f32>;
alias k_item = vec4<f32>;
alias v_item = vec4<f32>;
alias o_item = vec4<f32>;

// Every LANES-th vector of columns of O.
struct OTile {
    r0c0: vec4<f32>,
    r1c0: vec4<f32>,
    r2c0: vec4<f32>,
    r3c0: vec4<f32>,
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

fn load_q(at: u32, column: u32) -> vec4<f32> {
    return q[(at + column) / 4u];
}

fn load_k(at: u32, column: u32) -> vec4<f32> {
    return k[(at + column) / 4u];
}

fn load_v(at: u32, column: u32) -> vec4<f32> {
    return v[(at + column) / 4u];
}

// The scores of every LANES-th key.
struct Scores {
    k0: Rows,
    k1: Rows,
    k2: Rows,
    k3: Rows,
    k4: Rows,
    k5: Rows,
    k6: Rows,
    k7: Rows,
}

fn add_dots(sum: Rows, q0: Rows, q1: Rows, q2: Rows, q3: Rows, k: vec4<f32>) -> Rows {
    return fma(q3, Rows(k.w), fma(q2, Rows(k.z), fma(q1, Rows(k.y), fma(q0, Rows(k.x), sum))));
}

// s += Q K^T over a slice of columns
fn scores_add_qk(s: ptr<function, Scores>, quad: u32, lane: u32) {
    for (var column = 0u; column < SLICE; column += 4u) {
        let q0 = left[(column + 0u) * LEFT_LINE + quad];
        let q1 = left[(column + 1u) * LEFT_LINE + quad];
        let q2 = left[(column + 2u) * LEFT_LINE + quad];
        let q3 = left[(column + 3u) * LEFT_LINE + quad];
        (*s).k0 = add_dots((*s).k0, q0, q1, q2, q3, right[(lane + 0u) * K_LINE + column / 4u]);
        (*s).k1 = add_dots((*s).k1, q0, q1, q2, q3, right[(lane + 8u) * K_LINE + column / 4u]);
        (*s).k2 = add_dots((*s).k2, q0, q1, q2, q3, right[(lane + 16u) * K_LINE + column / 4u]);
        (*s).k3 = add_dots((*s).k3, q0, q1, q2, q3, right[(lane + 24u) * K_LINE + column / 4u]);
        (*s).k4 = add_dots((*s).k4, q0, q1, q2, q3, right[(lane + 32u) * K_LINE + column / 4u]);
        (*s).k5 = add_dots((*s).k5, q0, q1, q2, q3, right[(lane + 40u) * K_LINE + column / 4u]);
        (*s).k6 = add_dots((*s).k6, q0, q1, q2, q3, right[(lane + 48u) * K_LINE + column / 4u]);
        (*s).k7 = add_dots((*s).k7, q0, q1, q2, q3, right[(lane + 56u) * K_LINE + column / 4u]);
    }
}

// Scores in a ring, so that a loop takes the first of them, and puts what it comes to behind the last.
fn scores_turned(s: Scores, last: Rows) -> Scores {
    return Scores(
        s.k1,
        s.k2,
        s.k3,
        s.k4,
        s.k5,
        s.k6,
        s.k7,
        last,
    );
}

fn tile_scale(out: ptr<function, OTile>, factor: Rows) {
    (*out).r0c0 *= factor[0];
    (*out).r1c0 *= factor[1];
    (*out).r2c0 *= factor[2];
    (*out).r3c0 *= factor[3];
}

fn store_o(at: u32, column: u32, x: vec4<f32>) {
    if column < V_COLUMNS {
        o[(at + column) / 4u] = x;
    }
}

fn tile_store_o(head: u32, row: RowIndex, lane: u32, tile: OTile, factor: Rows) {
    if row[0] < shape.q_len {
        let at = head + row[0] * shape.o_row_stride;
        store_o(at, 4u * (lane + 0u), tile.r0c0 * factor[0]);
    }
    if row[1] < shape.q_len {
        let at = head + row[1] * shape.o_row_stride;
        store_o(at, 4u * (lane + 0u), tile.r1c0 * factor[1]);
    }
    if row[2] < shape.q_len {
        let at = head + row[2] * shape.o_row_stride;
        store_o(at, 4u * (lane + 0u), tile.r2c0 * factor[2]);
    }
    if row[3] < shape.q_len {
        let at = head + row[3] * shape.o_row_stride;
        store_o(at, 4u * (lane + 0u), tile.r3c0 * factor[3]);
    }
}

fn tile_add_pv(out: ptr<function, OTile>, quad: u32, lane: u32) {
    for (var n = 0u; n < SLICE; n++) {
        let p = left[n * LEFT_LINE + quad];
        let x0 = right[n * V_VECTORS + lane + 0u];
        (*out).r0c0 = fma(vec4<f32>(p[0]), x0, (*out).r0c0);
        (*out).r1c0 = fma(vec4<f32>(p[1]), x0, (*out).r1c0);
        (*out).r2c0 = fma(vec4<f32>(p[2]), x0, (*out).r2c0);
        (*out).r3c0 = fma(vec4<f32>(p[3]), x0, (*out).r3c0);
    }
}

// The same, where V has infinities or NaN: a row for which a key is masked takes nothing of it.
fn tile_add_pv_where(out: ptr<function, OTile>, quad: u32, lane: u32) {
    for (var n = 0u; n < SLICE; n++) {
        let p = left[n * LEFT_LINE + quad];
        let live = counts(p);
        let x0 = right[n * V_VECTORS + lane + 0u];
        (*out).r0c0 = fma(vec4<f32>(p[0]), select(vec4<f32>(), x0, live[0]), (*out).r0c0);
        (*out).r1c0 = fma(vec4<f32>(p[1]), select(vec4<f32>(), x0, live[1]), (*out).r1c0);
        (*out).r2c0 = fma(vec4<f32>(p[2]), select(vec4<f32>(), x0, live[2]), (*out).r2c0);
        (*out).r3c0 = fma(vec4<f32>(p[3]), select(vec4<f32>(), x0, live[3]), (*out).r3c0);
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

@group(1) @binding(0) var<storage, read> ids: array<i32>;

// score_mod: score + select(bool(ids[b, kv_idx]), 0.0, -3.4028235e38)
fn score_mod(score: f32, b: u32, h: u32, q_idx: u32, kv_idx: u32) -> f32 {
    let v0 = select(-3.4028234663852886e38, 0.0, ids[shape.dim_seq * b + kv_idx] != 0i);
    return score + v0;
}

// ---- lib/quads.wgsl

// Four rows of attention, a quad, that LANES invocations share: which of a row's keys count, kept in the bits of the
// numbers themselves, so that no masks lie beside them.

const LANES: u32 = 8u;

// A score of -inf is that of a key that does not count. By bits, since WGSL may assume that no infinities exist.
fn is_live(score: vec4<f32>) -> vec4<bool> {
    return bitcast<vec4<u32>>(score) != vec4<u32>(NEG_INF_BITS);
}

// What the score of a key comes to. Past the last key, and in a tile that is not full where the mask says so, it is -inf.
fn key_score(qk: vec4<f32>, b: u32, h: u32, q_idx: vec4<u32>, kv_idx: u32, kv_len: u32, full: bool) -> vec4<f32> {
    let known = min(kv_idx, kv_len - 1u);
    var attends = vec4<bool>(kv_idx == known);
    if !full {
        attends &= rows_mask_mod(b, h, q_idx, known);
    }
    let score = rows_score_mod(qk, b, h, q_idx, known);
    return bitcast<vec4<f32>>(select(vec4<u32>(NEG_INF_BITS), bitcast<vec4<u32>>(score), attends));
}

// The weight of a key that does not count is -0, a product with which changes no sum of numbers; of one that
// counts it is never that.
const DEAD: u32 = 0x80000000u;

fn weight_where(weight: vec4<f32>, live: vec4<bool>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(weight);
    let counted = select(bits, vec4<u32>(), bits == vec4<u32>(DEAD));
    return bitcast<vec4<f32>>(select(vec4<u32>(DEAD), counted, live));
}

fn counts(weight: vec4<f32>) -> vec4<bool> {
    return bitcast<vec4<u32>>(weight) != vec4<u32>(DEAD);
}

const EXPONENT: u32 = 0x7f800000u;

// Which are infinities or NaN.
fn odd(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(EXPONENT)) == vec4<u32>(EXPONENT);
}

// ---- lib/attention_slices.wgsl

// Slices of Q, K and V in workgroup memory, for flash_attention_fwd_tiled.

const QUADS: u32 = WORKGROUP_SIZE / LANES;
const ROWS: u32 = 4u * QUADS;
const SLICE: u32 = 16u;

// Left operands by four rows an item, a line for each column of Q or key of P. Right operands by four columns an item,
// a line for each key. Lines of an odd length keep the lanes that read several in different banks of the memory.
const LEFT_LINE: u32 = QUADS + 1u;
const K_LINE: u32 = SLICE / 4u + 1u;
var<workgroup> left: array<vec4<f32>, SLICE * LEFT_LINE>;
var<workgroup> right: array<vec4<f32>, max(BLOCK_N * K_LINE, SLICE * V_VECTORS)>;

// Rows of Q times the scale, so that no product overflows before it is scaled. Rows past the end stand in for the last.
fn stage_q(head: u32, first_row: u32, column: u32, invocation: u32) {
    for (var n = invocation; n < QUADS * SLICE / 4u; n += WORKGROUP_SIZE) {
        let quad = n / (SLICE / 4u);
        let part = n % (SLICE / 4u) * 4u;
        let rows = min(first_row + 4u * quad + RowIndex(0u, 1u, 2u, 3u), RowIndex(shape.q_len - 1u));
        let at = head + rows * shape.q_row_stride;
        let x = shape.scale * transpose(mat4x4<f32>(
            load_q(at.x, column + part),
            load_q(at.y, column + part),
            load_q(at.z, column + part),
            load_q(at.w, column + part),
        ));
        left[part * LEFT_LINE + quad] = x[0];
        left[(part + 1u) * LEFT_LINE + quad] = x[1];
        left[(part + 2u) * LEFT_LINE + quad] = x[2];
        left[(part + 3u) * LEFT_LINE + quad] = x[3];
    }
}

fn stage_k(head: u32, first_key: u32, column: u32, invocation: u32) {
    for (var n = invocation; n < BLOCK_N * SLICE / 4u; n += WORKGROUP_SIZE) {
        let key = n / (SLICE / 4u);
        let part = n % (SLICE / 4u);
        let kv_idx = min(first_key + key, shape.kv_len - 1u);
        right[key * K_LINE + part] = load_k(head + kv_idx * shape.k_row_stride, column + 4u * part);
    }
}

// Keys past the end have zeros. The workgroup remembers whether it met an infinity or NaN.
fn stage_v(head: u32, first_key: u32, invocation: u32) {
    for (var n = invocation; n < SLICE * V_VECTORS; n += WORKGROUP_SIZE) {
        let kv_idx = first_key + n / V_VECTORS;
        let known = min(kv_idx, shape.kv_len - 1u);
        let x = load_v(head + known * shape.v_row_stride, n % V_VECTORS * 4u);
        right[n] = select(x, vec4<f32>(), kv_idx != known);
        if IS_MASKED && any(odd(x)) {
            atomicOr(&facts, HAS_ODD);
        }
    }
}

var<workgroup> facts: atomic<u32>;
const HAS_ODD: u32 = 1u; // of a row of V, which masked keys must not multiply by 0
const UNSETTLED: u32 = 2u; // a row's maximum is no greater than SETTLED_ABOVE
var<workgroup> unsettled: u32;

// What the lanes of a quad have, to be read by all of them.
fn share(x: Rows, quad: u32, lane: u32) {
    workgroupBarrier();
    left[lane * LEFT_LINE + quad] = x;
    workgroupBarrier();
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
    dim_seq: u32,
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
