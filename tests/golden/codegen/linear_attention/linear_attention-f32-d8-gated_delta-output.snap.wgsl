// linear_attention.f32.d8.gated_delta.output
//
// Linked by attnc; generated, do not edit.

// ---- params (generated)

// params: workgroups of 32

alias out_elem = f32;
alias out_item = f32;

const WORKGROUP_SIZE: u32 = 32u;
const KEY_DIM: u32 = 8u;
const IS_DELTA: bool = true;
const RETURNS_STATE: bool = false;

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
    dim_32_S: u32,
    dim_16_S: u32,
    dim_2_S: u32,
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

    var state: array<f32, KEY_DIM>;
    for (var d = 0u; d < KEY_DIM; d++) {
        state[d] = state_element(b, kv_head, d, j);
    }
    for (var t = 0u; t < shape.len; t++) {
        var held = 0.0; // what the state holds for the key
        for (var d = 0u; d < KEY_DIM; d++) {
            state[d] *= decay_element(b, kv_head, t, d);
            if IS_DELTA {
                held += state[d] * k_element(b, kv_head, t, d);
            }
        }
        var written = v_element(b, kv_head, t, j);
        if IS_DELTA {
            written = beta_element(b, kv_head, t) * (written - held);
        }
        for (var d = 0u; d < KEY_DIM; d++) {
            state[d] += k_element(b, kv_head, t, d) * written;
        }
        if !RETURNS_STATE {
            let first_head = kv_head * shape.heads_per_kv;
            for (var h = first_head; h < first_head + shape.heads_per_kv; h++) {
                var read = 0.0;
                for (var d = 0u; d < KEY_DIM; d++) {
                    read += q_element(b, h, t, d) * state[d];
                }
                store_out(column + h * shape.out_head_stride + t * shape.out_row_stride, shape.scale * read);
            }
        }
    }
    if RETURNS_STATE {
        for (var d = 0u; d < KEY_DIM; d++) {
            store_out(column + kv_head * shape.out_head_stride + d * shape.out_row_stride, state[d]);
        }
    }
}

// ---- mods (generated)

@group(1) @binding(0) var<storage, read> q: array<f32>;
@group(1) @binding(1) var<storage, read> k: array<f32>;
@group(1) @binding(2) var<storage, read> v: array<f32>;
@group(1) @binding(3) var<storage, read> decay: array<f32>;
@group(1) @binding(4) var<storage, read> beta: array<f32>;

// q_element: q[b, h, t, d]
fn q_element(b: u32, h: u32, t: u32, d: u32) -> f32 {
    let at0 = shape.dim_32_S * b + 8u * h + 32u * t + d;
    return q[at0];
}

// k_element: k[b, h, t, d]
fn k_element(b: u32, h: u32, t: u32, d: u32) -> f32 {
    let at0 = shape.dim_16_S * b + 8u * h + 16u * t + d;
    return k[at0];
}

// v_element: v[b, h, t, j]
fn v_element(b: u32, h: u32, t: u32, j: u32) -> f32 {
    let at0 = shape.dim_16_S * b + 8u * h + 16u * t + j;
    return v[at0];
}

// state_element: t3[b, h, d, j]
fn state_element(b: u32, h: u32, d: u32, j: u32) -> f32 {
    return 0.0;
}

// decay_element: exp(decay[b, h, t, 0])
fn decay_element(b: u32, h: u32, t: u32, d: u32) -> f32 {
    return exp(decay[shape.dim_2_S * b + h + 2u * t]);
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
