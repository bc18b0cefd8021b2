// Four rows of attention, a quad, that LANES invocations share: which of a row's keys count, kept in the bits of the
// numbers themselves, so that no masks lie beside them.

import package::micro::{rows_score_mod, rows_mask_mod};
import package::lib::online_softmax::{NEG_INF_BITS};

const LANES: u32 = 8u;

// A score of -inf is that of a key that does not count. By bits, since WGSL may assume that no infinities exist.
fn is_live(score: vec4<f32>) -> vec4<bool> {
    return bitcast<vec4<u32>>(score) != vec4<u32>(NEG_INF_BITS);
}

// What the score of a key comes to. Past the last key, and in a tile that is not full where the mask says so, it is -inf.
fn key_score(qk: vec4<f32>, b: u32, h: u32, q_idx: vec4<u32>, kv_idx: u32, kv_len: u32, full: bool) -> vec4<f32> {
    let known = min(kv_idx, kv_len - 1u);
    var attends = vec4<bool>(kv_idx == known);
    if !full {
        attends &= rows_mask_mod(b, h, q_idx, known);
    }
    let score = rows_score_mod(qk, b, h, q_idx, known);
    return bitcast<vec4<f32>>(select(vec4<u32>(NEG_INF_BITS), bitcast<vec4<u32>>(score), attends));
}

// The weight of a key that does not count is -0, a product with which changes no sum of numbers; of one that
// counts it is never that.
const DEAD: u32 = 0x80000000u;

fn weight_where(weight: vec4<f32>, live: vec4<bool>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(weight);
    let counted = select(bits, vec4<u32>(), bits == vec4<u32>(DEAD));
    return bitcast<vec4<f32>>(select(vec4<u32>(DEAD), counted, live));
}

fn counts(weight: vec4<f32>) -> vec4<bool> {
    return bitcast<vec4<u32>>(weight) != vec4<u32>(DEAD);
}

const EXPONENT: u32 = 0x7f800000u;

// Which are infinities or NaN.
fn odd(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(EXPONENT)) == vec4<u32>(EXPONENT);
}
