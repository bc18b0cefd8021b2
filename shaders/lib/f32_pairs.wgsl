// f32 by words of 64 bits, each of two elements, the first in its low half. naga knows such words, WGSL does not;
// where the lanes of a subgroup load one element after the other, they halve the loads.

struct Eight {
    low: vec4<f32>,
    high: vec4<f32>,
}

fn f32_four(words: vec2<u64>) -> vec4<f32> {
    let even = bitcast<vec2<f32>>(vec2<u32>(words));
    let odd = bitcast<vec2<f32>>(vec2<u32>(words >> vec2<u32>(32u)));
    return vec4<f32>(even.x, odd.x, even.y, odd.y);
}

fn f32_words(x: vec4<f32>) -> vec2<u64> {
    let even = vec2<u64>(bitcast<vec2<u32>>(x.xz));
    let odd = vec2<u64>(bitcast<vec2<u32>>(x.yw));
    return even | (odd << vec2<u32>(32u));
}

fn f32_eight_words(low: vec4<f32>, high: vec4<f32>) -> vec4<u64> {
    let even = vec4<u64>(bitcast<vec4<u32>>(vec4<f32>(low.xz, high.xz)));
    let odd = vec4<u64>(bitcast<vec4<u32>>(vec4<f32>(low.yw, high.yw)));
    return even | (odd << vec4<u32>(32u));
}

fn f32_eight(words: vec4<u64>) -> Eight {
    let even = bitcast<vec4<f32>>(vec4<u32>(words));
    let odd = bitcast<vec4<f32>>(vec4<u32>(words >> vec4<u32>(32u)));
    return Eight(vec4<f32>(even.x, odd.x, even.y, odd.y), vec4<f32>(even.z, odd.z, even.w, odd.w));
}
