// flash_attention_fwd_matrix.f16.m64n32d64.causal
//
// Linked by attnc; generated, do not edit.
enable wgpu_cooperative_matrix;

// ---- prelude (generated)

enable f16;

// ---- params (generated)

// params: workgroups of 128

const WORKGROUP_SIZE: u32 = 128u;
const BLOCK_M: u32 = 64u;
const BLOCK_N: u32 = 64u;

// ---- kernels/flash_attention_fwd_matrix.wgsl

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

// ---- micro (generated)

// micro: attention tile of 64 query rows by 32 keys; Q and K have 64 columns, V and O 64 (generated)

const SIZE: u32 = 16u;
const QK_PADDED: u32 = 64u; // columns in workgroup memory, zeros behind the last
const V_PADDED: u32 = 64u;
const V_COLUMNS: u32 = 64u;
const IS_MASKED: bool = true;
const HAS_SINK: bool = false;

alias a_matrix = coop_mat16x16<f16, A>;
alias b_matrix = coop_mat16x16<f16, B>;
alias c_matrix = coop_mat16x16<f32, C>;

alias Rows = vec4<f32>; // one number a row
alias RowIndex = vec4<u32>;
alias RowMask = vec4<bool>;
alias q_item = vec4<f16>;
alias k_item = vec4<f16>;
alias v_item = vec4<f16>;
alias o_item = vec4<f16>;

// Every LANES-th vector of columns of O.
struct OTile {
    r0c0: vec4<f32>,
    r0c1: vec4<f32>,
    r1c0: vec4<f32>,
    r1c1: vec4<f32>,
    r2c0: vec4<f32>,
    r2c1: vec4<f32>,
    r3c0: vec4<f32>,
    r3c1: vec4<f32>,
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
    return vec4<f32>(q[(at + column) / 4u]);
}

fn load_k(at: u32, column: u32) -> vec4<f32> {
    return vec4<f32>(k[(at + column) / 4u]);
}

fn load_v(at: u32, column: u32) -> vec4<f32> {
    return vec4<f32>(v[(at + column) / 4u]);
}

fn tile_scale(out: ptr<function, OTile>, factor: Rows) {
    (*out).r0c0 *= factor[0];
    (*out).r0c1 *= factor[0];
    (*out).r1c0 *= factor[1];
    (*out).r1c1 *= factor[1];
    (*out).r2c0 *= factor[2];
    (*out).r2c1 *= factor[2];
    (*out).r3c0 *= factor[3];
    (*out).r3c1 *= factor[3];
}

fn store_o(at: u32, column: u32, x: vec4<f32>) {
    if column < V_COLUMNS {
        o[(at + column) / 4u] = vec4<f16>(x);
    }
}

fn tile_store_o(head: u32, row: RowIndex, lane: u32, tile: OTile, factor: Rows) {
    if row[0] < shape.q_len {
        let at = head + row[0] * shape.o_row_stride;
        store_o(at, 4u * (lane + 0u), tile.r0c0 * factor[0]);
        store_o(at, 4u * (lane + 8u), tile.r0c1 * factor[0]);
    }
    if row[1] < shape.q_len {
        let at = head + row[1] * shape.o_row_stride;
        store_o(at, 4u * (lane + 0u), tile.r1c0 * factor[1]);
        store_o(at, 4u * (lane + 8u), tile.r1c1 * factor[1]);
    }
    if row[2] < shape.q_len {
        let at = head + row[2] * shape.o_row_stride;
        store_o(at, 4u * (lane + 0u), tile.r2c0 * factor[2]);
        store_o(at, 4u * (lane + 8u), tile.r2c1 * factor[2]);
    }
    if row[3] < shape.q_len {
        let at = head + row[3] * shape.o_row_stride;
        store_o(at, 4u * (lane + 0u), tile.r3c0 * factor[3]);
        store_o(at, 4u * (lane + 8u), tile.r3c1 * factor[3]);
    }
}

// Of the four columns of a lane, each is one number a row.
fn tile_add_pv(out: ptr<function, OTile>, quad: u32, lane: u32, subgroup: u32, subgroups: u32) {
    var a: Rows;
    var b: Rows;
    var c: Rows;
    var d: Rows;
    workgroupBarrier();
    multiply_pv(0u, subgroup, subgroups);
    workgroupBarrier();
    a = quad_of_sums(quad, 4u * lane + 0u);
    b = quad_of_sums(quad, 4u * lane + 1u);
    c = quad_of_sums(quad, 4u * lane + 2u);
    d = quad_of_sums(quad, 4u * lane + 3u);
    (*out).r0c0 += vec4<f32>(a[0], b[0], c[0], d[0]);
    (*out).r1c0 += vec4<f32>(a[1], b[1], c[1], d[1]);
    (*out).r2c0 += vec4<f32>(a[2], b[2], c[2], d[2]);
    (*out).r3c0 += vec4<f32>(a[3], b[3], c[3], d[3]);
    workgroupBarrier();
    multiply_pv(32u, subgroup, subgroups);
    workgroupBarrier();
    a = quad_of_sums(quad, 4u * lane + 0u);
    b = quad_of_sums(quad, 4u * lane + 1u);
    c = quad_of_sums(quad, 4u * lane + 2u);
    d = quad_of_sums(quad, 4u * lane + 3u);
    (*out).r0c1 += vec4<f32>(a[0], b[0], c[0], d[0]);
    (*out).r1c1 += vec4<f32>(a[1], b[1], c[1], d[1]);
    (*out).r2c1 += vec4<f32>(a[2], b[2], c[2], d[2]);
    (*out).r3c1 += vec4<f32>(a[3], b[3], c[3], d[3]);
}

fn odd_of_v(at: u32, column: u32) -> vec4<f32> {
    let x = load_v(at, column);
    return select(vec4<f32>(), x, odd(x));
}

// What the infinities and NaN of V add, which its product went without. A masked key adds nothing.
fn tile_add_odd(out: ptr<function, OTile>, quad: u32, lane: u32, v_head: u32, first: u32) {
    for (var n = 0u; n < KEYS; n++) {
        let line = 4u * quad * P_LINE + n;
        let p = Rows(vec4<f16>(p_tile[line], p_tile[line + P_LINE], p_tile[line + 2u * P_LINE], p_tile[line + 3u * P_LINE]));
        let live = counts(p);
        let at = v_head + min(first + n, shape.kv_len - 1u) * shape.v_row_stride;
        let x0 = odd_of_v(at, 4u * (lane + 0u));
        let x1 = odd_of_v(at, 4u * (lane + 8u));
        (*out).r0c0 += select(vec4<f32>(), p[0] * x0, live[0]);
        (*out).r0c1 += select(vec4<f32>(), p[0] * x1, live[0]);
        (*out).r1c0 += select(vec4<f32>(), p[1] * x0, live[1]);
        (*out).r1c1 += select(vec4<f32>(), p[1] * x1, live[1]);
        (*out).r2c0 += select(vec4<f32>(), p[2] * x0, live[2]);
        (*out).r2c1 += select(vec4<f32>(), p[2] * x1, live[2]);
        (*out).r3c0 += select(vec4<f32>(), p[3] * x0, live[3]);
        (*out).r3c1 += select(vec4<f32>(), p[3] * x1, live[3]);
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

// mask_mod: kv_idx <= q_idx
fn mask_mod(b: u32, h: u32, q_idx: u32, kv_idx: u32) -> bool {
    return kv_idx <= q_idx;
}

// block_some: -q_last + kv_first <= 0
fn block_some(b: u32, h: u32, q_first: u32, q_last: u32, kv_first: u32, kv_last: u32) -> bool {
    return kv_first <= q_last;
}

// block_all: -q_first + kv_last <= 0
fn block_all(b: u32, h: u32, q_first: u32, q_last: u32, kv_first: u32, kv_last: u32) -> bool {
    return kv_last <= q_first;
}

// ---- lib/matrix_products.wgsl

// The products of flash_attention_fwd_matrix: cooperative matrices of SIZE x SIZE, f16 in and sums in f32.
//
// Both are ROWS x KEYS numbers, in pairs of matrices one above the other, which subgroups take in turn, as many as
// there are. All lanes of a subgroup stay together. Lines are longer than rows, and a multiple of 16 bytes.

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

// ---- lib/matrix_slices.wgsl

// What flash_attention_fwd_matrix has in workgroup memory: Q, a slice of K and then of V, P, and sums of products.

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
