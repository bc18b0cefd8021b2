// bf16 by words: a u32 holds element 2 j in its low half and element 2 j + 1 in its high half, each the upper
// half of an f32. Reading is exact. Writing rounds to nearest, ties to even; what rounds past the largest
// bf16 becomes an infinity, as IEEE 754 has it, and a NaN stays one.

// Element i, which lies in `word`.
fn bf16_at(word: u32, i: u32) -> f32 {
    return bitcast<f32>((word >> (16u * (i & 1u))) << 16u);
}

fn bf16_vec4(words: vec2<u32>) -> vec4<f32> {
    let low = words << vec2<u32>(16u);
    let high = words & vec2<u32>(0xffff0000u);
    return bitcast<vec4<f32>>(vec4<u32>(low.x, high.x, low.y, high.y));
}

fn bf16_word(x: vec2<f32>) -> u32 {
    let bits = bitcast<vec2<u32>>(x);
    let odd = (bits >> vec2<u32>(16u)) & vec2<u32>(1u);
    let nan = (bits & vec2<u32>(0x7fffffffu)) > vec2<u32>(0x7f800000u);
    let half = select(bits + vec2<u32>(0x7fffu) + odd, vec2<u32>(0x7fc00000u), nan) >> vec2<u32>(16u);
    return half.x | (half.y << 16u);
}

fn bf16_words(x: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(bf16_word(x.xy), bf16_word(x.zw));
}

// `word` with element i, which lies in it, replaced.
fn bf16_with(word: u32, i: u32, x: f32) -> u32 {
    let half = bf16_word(vec2<f32>(x, 0.0));
    return select((word & 0xffff0000u) | half, (word & 0xffffu) | (half << 16u), (i & 1u) == 1u);
}
