//! f32 functions that are not a machine instruction.

/// `e^x`.
pub(crate) fn exp(x: f32) -> f32 {
    x.exp()
}

/// Hyperbolic tangent.
pub(crate) fn tanh(x: f32) -> f32 {
    x.tanh()
}

/// The error function.
pub(crate) fn erf(x: f32) -> f32 {
    libm::erff(x)
}

/// `1 / (1 + e^-x)`.
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x / 2 * (1 + erf(x / sqrt(2)))`.
pub(crate) fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
pub(crate) fn gelu_tanh(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    0.5 * x * (1.0 + tanh(SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)))
}

/// `log(1 + e^x)` without overflow; NaN stays.
pub(crate) fn softplus(x: f32) -> f32 {
    (if x < 0.0 { 0.0 } else { x }) + (-x.abs()).exp().ln_1p()
}

/// `x^y`; the square, which norms are full of, exactly.
pub(crate) fn pow(x: f32, y: f32) -> f32 {
    if y == 2.0 { x * x } else { x.powf(y) }
}
