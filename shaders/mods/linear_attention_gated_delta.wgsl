// operands of linear attention, contiguous: q, k [B, H, M, D], v [B, H, M, Dv], state [B, H, D, Dv],
// decay (in log space), beta [B, H, M]; one query head a KV head

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

fn q_element(b: u32, h: u32, t: u32, d: u32) -> f32 {
    return q[operand_row(b, h, t) * operand_dims.key_dim + d];
}

fn k_element(b: u32, h: u32, t: u32, d: u32) -> f32 {
    return k[operand_row(b, h, t) * operand_dims.key_dim + d];
}

fn v_element(b: u32, h: u32, t: u32, j: u32) -> f32 {
    return v[operand_row(b, h, t) * operand_dims.value_dim + j];
}

fn state_element(b: u32, h: u32, d: u32, j: u32) -> f32 {
    let head = b * operand_dims.heads + h;
    return state[(head * operand_dims.key_dim + d) * operand_dims.value_dim + j];
}

fn decay_element(b: u32, h: u32, t: u32, d: u32) -> f32 {
    return exp(decay[operand_row(b, h, t)]);
}

fn beta_element(b: u32, h: u32, t: u32) -> f32 {
    return beta[operand_row(b, h, t)];
}
