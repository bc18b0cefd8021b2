// score_mod: score + slope[h] * (kv_idx - q_idx)      (ALiBi, arXiv:2108.12409)

@group(1) @binding(0) var<storage, read> slope: array<f32>; // [H]

fn score_mod(score: f32, b: u32, h: u32, q_idx: u32, kv_idx: u32) -> f32 {
    let distance = f32(kv_idx) - f32(q_idx);
    return score + slope[h] * distance;
}
