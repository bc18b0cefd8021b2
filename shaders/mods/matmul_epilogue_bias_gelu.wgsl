// epilogue: gelu(acc + bias[n])

import package::lib::gelu::{gelu};

@group(1) @binding(0) var<storage, read> bias: array<f32>; // [N]

fn epilogue(acc: f32, b0: u32, b1: u32, m: u32, n: u32) -> f32 {
    return gelu(acc + bias[n]);
}
