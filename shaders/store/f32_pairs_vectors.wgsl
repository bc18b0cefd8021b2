// store_out: f32 by words of 64 bits, two elements each, four elements an item

import package::lib::f32_pairs::{f32_words};

@group(0) @binding(1) var<storage, read_write> out: array<vec2<u64>>;

fn store_out(at: u32, x: vec4<f32>) {
    out[at] = f32_words(x);
}
