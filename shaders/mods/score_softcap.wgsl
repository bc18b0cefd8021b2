// score_mod: cap * tanh(score / cap)      (Gemma 2, arXiv:2408.00118, section 2)

import package::lib::stable_tanh::{stable_tanh};

const SOFTCAP: f32 = 50.0;

fn score_mod(score: f32, b: u32, h: u32, q_idx: u32, kv_idx: u32) -> f32 {
    return SOFTCAP * stable_tanh(score / SOFTCAP);
}
