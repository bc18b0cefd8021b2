// store_out: bf16, two elements a word, four elements an item

import package::lib::packed_bf16::{bf16_words};

@group(0) @binding(1) var<storage, read_write> out: array<vec2<u32>>;

fn store_out(at: u32, x: vec4<f32>) {
    out[at] = bf16_words(x);
}
