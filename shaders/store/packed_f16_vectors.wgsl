// store_out: f16, two elements a word, four elements an item

import package::lib::packed_f16::{f16_words};

@group(0) @binding(1) var<storage, read_write> out: array<vec2<u32>>;

fn store_out(at: u32, x: vec4<f32>) {
    out[at] = f16_words(x);
}
