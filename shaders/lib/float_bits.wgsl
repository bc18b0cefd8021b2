// A float given by its bits, for values WGSL has no literal for (-inf, inf, NaN). The argument of a
// function is no constant expression, so `float_bits(0xff800000u)` is accepted where a bitcast is not.
fn float_bits(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}
