// epilogue: acc
fn epilogue(acc: f32, b0: u32, b1: u32, m: u32, n: u32) -> f32 {
    return acc;
}
