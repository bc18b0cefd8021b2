// operands of linear attention, contiguous: q, k [B, H, M, D], v [B, H, M, Dv], state [B, H, D, Dv],
// decay (in log space), beta [B, H, M]; one query head a KV head, D a multiple of 4

struct OperandDims {
    heads: u32,
    len: u32,
    key_dim: u32,
    value_dim: u32,
}

@group(1) @binding(0) var<uniform> operand_dims: OperandDims;
@group(1) @binding(1) var<storage, read> q: array<f32>;
@group(1) @binding(2) var<storage, read> k: array<f32>;
@group(1) @binding(3) var<storage, read> v: array<f32>;
@group(1) @binding(4) var<storage, read> state: array<f32>;
@group(1) @binding(5) var<storage, read> decay: array<f32>;
@group(1) @binding(6) var<storage, read> beta: array<f32>;

fn operand_row(b: u32, h: u32, t: u32) -> u32 {
    return (b * operand_dims.heads + h) * operand_dims.len + t;
}

// Columns 4 d to 4 d + 3 of a row, zeros behind the last.
fn q_four(b: u32, h: u32, t: u32, d: u32) -> vec4<f32> {
    let at = operand_row(b, h, t) * operand_dims.key_dim + 4u * d;
    if 4u * d >= operand_dims.key_dim {
        return vec4<f32>();
    }
    return vec4<f32>(q[at], q[at + 1u], q[at + 2u], q[at + 3u]);
}

fn k_four(b: u32, h: u32, t: u32, d: u32) -> vec4<f32> {
    let at = operand_row(b, h, t) * operand_dims.key_dim + 4u * d;
    if 4u * d >= operand_dims.key_dim {
        return vec4<f32>();
    }
    return vec4<f32>(k[at], k[at + 1u], k[at + 2u], k[at + 3u]);
}

fn v_element(b: u32, h: u32, t: u32, j: u32) -> f32 {
    return v[operand_row(b, h, t) * operand_dims.value_dim + j];
}

// Rows 4 d to 4 d + 3 of column j of the state.
fn state_four(b: u32, h: u32, j: u32, d: u32) -> vec4<f32> {
    let step = operand_dims.value_dim;
    let at = ((b * operand_dims.heads + h) * operand_dims.key_dim + 4u * d) * step + j;
    if 4u * d >= operand_dims.key_dim {
        return vec4<f32>();
    }
    return vec4<f32>(state[at], state[at + step], state[at + 2u * step], state[at + 3u * step]);
}

fn decay_four(b: u32, h: u32, t: u32, d: u32) -> vec4<f32> {
    return vec4<f32>(exp(decay[operand_row(b, h, t)]));
}

fn beta_element(b: u32, h: u32, t: u32) -> f32 {
    return beta[operand_row(b, h, t)];
}
