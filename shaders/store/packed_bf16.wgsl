// store_out: bf16, two elements a word. Whoever stores an element owns its whole word: no other invocation
// stores the element beside it.

import package::lib::packed_bf16::{bf16_with};

@group(0) @binding(1) var<storage, read_write> out: array<u32>;

fn store_out(at: u32, x: f32) {
    let word = at / 2u;
    out[word] = bf16_with(out[word], at, x);
}
