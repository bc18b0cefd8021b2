// sink: a learned logit for each head
@group(1) @binding(0) var<storage, read> logits: array<f32>;

fn sink(row_max: f32, b: u32, h: u32, q_idx: u32) -> f32 {
    return logits[h];
}
