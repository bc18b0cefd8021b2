// prob_mod: prob * prob
fn prob_mod(prob: f32, b: u32, h: u32, q_idx: u32, kv_idx: u32) -> f32 {
    return prob * prob;
}
