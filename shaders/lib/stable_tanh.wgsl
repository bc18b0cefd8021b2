// Hyperbolic tangent for every finite x. WGSL's own may be computed as a quotient of exponentials,
// which overflows; beyond 10 the result is 1 in f32.
fn stable_tanh(x: f32) -> f32 {
    return tanh(clamp(x, -10.0, 10.0));
}
