// Hyperbolic tangent for every finite x. WGSL's own may be computed as a quotient of exponentials,
// which overflows; beyond 10 the result is 1 in f32. Near 0 such a quotient has no digits left, so that
// the Taylor series, whose next term is below 2e-8 there, stands in.
fn stable_tanh(x: f32) -> f32 {
    let z = x * x;
    let tail = 2.0 / 15.0 + z * (-17.0 / 315.0 + z * (62.0 / 2835.0 - z * (1382.0 / 155925.0)));
    let near = x + x * z * (-1.0 / 3.0 + z * tail);
    return select(tanh(clamp(x, -10.0, 10.0)), near, abs(x) < 0.35);
}
