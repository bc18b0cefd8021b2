// linear_attention.f32.d8.gated_delta.state
//
// Linked by attnc; generated, do not edit.

// ---- params (generated)

// params: workgroups of 32

alias out_elem = f32;
alias out_item = f32;

const WORKGROUP_SIZE: u32 = 32u;
const KEY_DIM: u32 = 8u;
const IS_DELTA: bool = true;
const RETURNS_STATE: bool = true;
const SHARES_STATE: bool = false;

// ---- kernels/linear_attention.wgsl

// Linear attention: a state S that each key and value is written into, read by each query
//
//     S <- decay_t S                              (1 where there is no gate)
//     S <- S + k_t (x) v_t                        or, by the delta rule,
//     S <- S + beta_t k_t (x) (v_t - S^T k_t)
//     o_t = scale q_t^T S
//
// The columns of S never meet: one invocation owns column j of one (batch, KV head) in registers and walks
// the keys; it writes column j of the rows of every query head of that KV head, or of the last state. Memory
// is read and written once a key, whatever the length; neither workgroup memory nor barriers.
//
// Katharopoulos 2020, arXiv:2006.16236, equations 18 to 20; the delta rule: Yang 2024, arXiv:2406.06484,
// section 2.2; with a gate: Yang 2024, arXiv:2412.06464, equation 10.
//
// Layout: operands come from mods; O is [B, H, M, Dv], the last state [B, H_kv, D, Dv], strided, in elements.

const SIXTEENS: u32 = (KEY_DIM + 15u) / 16u; // of rows of the state, zeros behind the last

fn q_sixteen(b: u32, h: u32, t: u32, n: u32) -> sixteen {
    let d = 4u * n;
    return sixteen(q_four(b, h, t, d), q_four(b, h, t, d + 1u), q_four(b, h, t, d + 2u), q_four(b, h, t, d + 3u));
}

fn k_sixteen(b: u32, h: u32, t: u32, n: u32) -> sixteen {
    let d = 4u * n;
    return sixteen(k_four(b, h, t, d), k_four(b, h, t, d + 1u), k_four(b, h, t, d + 2u), k_four(b, h, t, d + 3u));
}

fn decay_sixteen(b: u32, h: u32, t: u32, n: u32) -> sixteen {
    let d = 4u * n;
    return sixteen(decay_four(b, h, t, d), decay_four(b, h, t, d + 1u), decay_four(b, h, t, d + 2u), decay_four(b, h, t, d + 3u));
}

fn state_sixteen(b: u32, h: u32, j: u32, n: u32) -> sixteen {
    let d = 4u * n;
    return sixteen(state_four(b, h, j, d), state_four(b, h, j, d + 1u), state_four(b, h, j, d + 2u), state_four(b, h, j, d + 3u));
}

struct Shape {
    batch: u32,
    kv_heads: u32,
    heads_per_kv: u32,
    len: u32, // keys
    value_dim: u32,
    scale: f32,
    out_offset: u32,
    out_batch_stride: u32,
    out_head_stride: u32,
    out_row_stride: u32,
    out_column_stride: u32,
    dim_4_S: u32,
    dim_2_S: u32,
    dim_16_S: u32,
}

@group(0) @binding(0) var<uniform> shape: Shape;

@compute @workgroup_size(WORKGROUP_SIZE)
fn linear_attention(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = linear_workgroup(group, groups) * WORKGROUP_SIZE + lane;
    if index >= shape.batch * shape.kv_heads * shape.value_dim {
        return;
    }
    let j = index % shape.value_dim;
    let kv_head = (index / shape.value_dim) % shape.kv_heads;
    let b = index / (shape.value_dim * shape.kv_heads);
    let column = shape.out_offset + b * shape.out_batch_stride + j * shape.out_column_stride;

    // Sixteen rows a turn, since drivers may count turns.
    var state: array<sixteen, SIXTEENS>;
    for (var n = 0u; n < SIXTEENS; n++) {
        state[n] = state_sixteen(b, kv_head, j, n);
    }
    let first_head = kv_head * shape.heads_per_kv;
    for (var t = 0u; t < shape.len; t++) {
        let row = column + t * shape.out_row_stride;
        var written = v_element(b, kv_head, t, j);
        if IS_DELTA {
            var held = 0.0; // what the state holds for the key
            for (var n = 0u; n < SIXTEENS; n++) {
                state[n] = times(state[n], decay_sixteen(b, kv_head, t, n));
                held += dots(state[n], k_sixteen(b, kv_head, t, n));
            }
            written = beta_element(b, kv_head, t) * (written - held);
        }
        var read = 0.0;
        for (var n = 0u; n < SIXTEENS; n++) {
            var rows = state[n];
            if !IS_DELTA {
                rows = times(rows, decay_sixteen(b, kv_head, t, n));
            }
            rows += k_sixteen(b, kv_head, t, n) * written;
            state[n] = rows;
            read += dots(rows, q_sixteen(b, first_head, t, n));
        }
        if !RETURNS_STATE {
            store_out(row + first_head * shape.out_head_stride, shape.scale * read);
            if SHARES_STATE {
                for (var h = first_head + 1u; h < first_head + shape.heads_per_kv; h++) {
                    read = 0.0;
                    for (var n = 0u; n < SIXTEENS; n++) {
                        read += dots(state[n], q_sixteen(b, h, t, n));
                    }
                    store_out(row + h * shape.out_head_stride, shape.scale * read);
                }
            }
        }
    }
    if RETURNS_STATE {
        let first_row = column + kv_head * shape.out_head_stride;
        for (var d = 0u; d < KEY_DIM; d++) {
            store_out(first_row + d * shape.out_row_stride, state[d / 16u][d / 4u % 4u][d % 4u]);
        }
    }
}

// ---- mods (generated)

@group(1) @binding(0) var<storage, read> k: array<vec4<f32>>;
@group(1) @binding(1) var<storage, read> decay: array<f32>;
@group(1) @binding(2) var<storage, read> v: array<f32>;
@group(1) @binding(3) var<storage, read> beta: array<f32>;

// q_vector: 0.0; d counts vectors
fn q_vector(b: u32, h: u32, t: u32, d: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

fn q_four(b: u32, h: u32, t: u32, d: u32) -> vec4<f32> {
    if 4u * d >= 8u {
        return vec4<f32>();
    }
    return q_vector(b, h, t, d);
}

// k_vector: k[b, h, t, d]; d counts vectors
fn k_vector(b: u32, h: u32, t: u32, d: u32) -> vec4<f32> {
    return k[shape.dim_4_S * b + 2u * h + 4u * t + d];
}

fn k_four(b: u32, h: u32, t: u32, d: u32) -> vec4<f32> {
    if 4u * d >= 8u {
        return vec4<f32>();
    }
    return k_vector(b, h, t, d);
}

// state_vector: t3[b, h, d, j]; d counts vectors
fn state_vector(b: u32, h: u32, j: u32, d: u32) -> vec4<f32> {
    return vec4<f32>(0.0);
}

fn state_four(b: u32, h: u32, j: u32, d: u32) -> vec4<f32> {
    if 4u * d >= 8u {
        return vec4<f32>();
    }
    return state_vector(b, h, j, d);
}

// decay_vector: exp(decay[b, h, t, 0]); d counts vectors
fn decay_vector(b: u32, h: u32, t: u32, d: u32) -> vec4<f32> {
    return vec4<f32>(exp(decay[shape.dim_2_S * b + h + 2u * t]));
}

fn decay_four(b: u32, h: u32, t: u32, d: u32) -> vec4<f32> {
    if 4u * d >= 8u {
        return vec4<f32>();
    }
    return decay_vector(b, h, t, d);
}

// v_element: v[b, h, t, j]
fn v_element(b: u32, h: u32, t: u32, j: u32) -> f32 {
    let at0 = shape.dim_16_S * b + 8u * h + 16u * t + j;
    return v[at0];
}

// beta_element: beta[b, h, t, 0]
fn beta_element(b: u32, h: u32, t: u32) -> f32 {
    return beta[shape.dim_2_S * b + h + 2u * t];
}

// ---- store/elements.wgsl

// store_out: one item of memory an element

@group(0) @binding(1) var<storage, read_write> out: array<out_item>;

fn store_out(at: u32, x: out_elem) {
    out[at] = out_item(x);
}

// ---- lib/sixteen.wgsl

// Sixteen numbers in four vectors. A matrix in name only: products are of elements.

alias sixteen = mat4x4<f32>;

fn times(a: sixteen, b: sixteen) -> sixteen {
    return sixteen(a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]);
}

fn dots(a: sixteen, b: sixteen) -> f32 {
    return dot(a[0], b[0]) + dot(a[1], b[1]) + dot(a[2], b[2]) + dot(a[3], b[3]);
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
