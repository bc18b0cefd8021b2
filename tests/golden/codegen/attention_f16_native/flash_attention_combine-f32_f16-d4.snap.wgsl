// flash_attention_combine.f32_f16.d4
//
// Linked by attnc; generated, do not edit.

// ---- prelude (generated)

enable f16;

// ---- params (generated)

// params: workgroups of 64

const WORKGROUP_SIZE: u32 = 64u;

// ---- kernels/flash_attention_combine.wgsl

// Joins the parts of an attention whose keys were walked in parts:
// O = sum(exp(m_i - m) O_i) / sum(exp(m_i - m) l_i), m = max(m_i)
//
// An invocation has four columns of a row. A part without a live key has m = SCORE_MIN, l = 0 and O = 0.
//
// Milakov and Gimelshein 2018, arXiv:1805.02867, section 3.1 (the operator on pairs (m, l); O goes as l does).
//
// Layout: parts are [B, H, M, PARTS, PART_LEN], a part as walk/part says; O is [B, H, M, D], every axis strided, in
// elements.

struct Shape {
    batch: u32,
    heads: u32,
    q_len: u32,
    part_count: u32, // 0 if there is no key
    o_offset: u32,
    o_batch_stride: u32,
    o_head_stride: u32,
    o_row_stride: u32,
    o_column_stride: u32, // read by scalar stores only
}

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> o: array<o_item>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn flash_attention_combine(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = linear_workgroup(group, groups) * WORKGROUP_SIZE + lane;
    let column = item % COLUMN_VECTORS;
    let row = item / COLUMN_VECTORS;
    let q_idx = row % shape.q_len;
    let h = row / shape.q_len % shape.heads;
    let b = row / (shape.q_len * shape.heads);
    if b >= shape.batch {
        return;
    }

    var out = vec4<f32>();
    var m = SCORE_MIN;
    var l = 0.0;
    var row_max = SCORE_MIN;
    for (var part = 0u; part < shape.part_count; part++) {
        let at = (row * shape.part_count + part) * (COLUMN_VECTORS + 1u);
        let state = parts[at + COLUMN_VECTORS];
        let joined = max(m, state.x);
        let shrink = exp(m - joined);
        let grow = exp(state.x - joined);
        out = out * shrink + parts[at + column] * grow;
        l = l * shrink + state.y * grow;
        m = joined;
        row_max = max(row_max, state.z);
    }
    let at = shape.o_offset + b * shape.o_batch_stride + h * shape.o_head_stride + q_idx * shape.o_row_stride;
    store_columns(at, 4u * column, out * rows_end(at, true, m, l, row_max, b, h, q_idx));
}

// ---- micro (generated)

// micro: the result of attention, V and O of 4 columns (generated)

const COLUMN_VECTORS: u32 = 1u;
const HAS_SINK: bool = false;

alias Rows = f32; // one number a row
alias RowIndex = u32;
alias RowMask = bool;
alias HeadIndex = u32;
alias o_item = vec4<f16>;

fn rows_sink(m: Rows, b: u32, h: HeadIndex, q_idx: RowIndex) -> Rows {
    return 0.0;
}

fn store_columns(at: u32, column: u32, x: vec4<f32>) {
    o[(at + column) / 4u] = vec4<f16>(x);
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
