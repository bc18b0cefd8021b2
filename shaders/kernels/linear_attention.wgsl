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

import package::params::{WORKGROUP_SIZE, KEY_DIM, IS_DELTA, RETURNS_STATE};
import package::mods::{q_element, k_element, v_element, state_element, decay_element, beta_element};
import package::store::{store_out};
import package::lib::indexing::{linear_workgroup};

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
