// score_mod: score
fn score_mod(score: f32, b: u32, h: u32, q_idx: u32, kv_idx: u32) -> f32 {
    return score;
}
