//! f32 functions that are not a machine instruction, without branches, so that loops over them vectorise.
//!
//! The polynomials are Chebyshev fits of their function on the interval stated; errors were measured in
//! f32 against f64 and the tests hold them. NaN stays NaN everywhere. All are inlined, always: a loop with a
//! call in it does not vectorise, and left to itself the compiler calls the larger ones.

use pulp::Simd;

/// `c[0] + c[1] x + c[2] x² + …`.
#[inline(always)]
fn poly<const N: usize>(x: f32, c: [f32; N]) -> f32 {
    c.iter().rev().fold(0.0, |sum, &c| sum * x + c)
}

/// `2^n` for `n` in [-126, 127]; anything for others.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127).cast_unsigned()) << 23)
}

/// Adding it puts the nearest integer into the low bits.
const TO_INT: f32 = 12_582_912.0;
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// `e^r` for `|r| <= ln 2 / 2`.
const EXP: [f32; 7] = [
    1.0,
    1.0,
    0.5,
    0.166_664_15,
    0.041_666_217,
    0.008_375_135,
    0.001_394_859,
];

/// `e^x`, relative error below 2e-7 where the result is a normal number.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`, so `e^x = 2^n e^r` (Cody and Waite 1980).
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Beyond these the result is 0 or infinite; comparisons that NaN fails leave it.
    let x = if x < -105.0 { -105.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + TO_INT;
    let n = shifted - TO_INT;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    let e_r = poly(r, EXP);
    // In two halves, since 2^128 and 2^-150 are no f32.
    let n = shifted
        .to_bits()
        .wrapping_sub(TO_INT.to_bits())
        .cast_signed();
    let half = n >> 1;
    e_r * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// [`exp`] of a vector; 0 where the result is below the least normal number.
#[inline(always)]
pub(crate) fn exp_vector<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    // The limits within which 2^n is a normal number; comparisons that NaN fails leave it.
    let low = simd.splat_f32s(-87.33);
    let vanishes = simd.less_than_f32s(x, low);
    let x = simd.select_f32s(vanishes, low, x);
    let overflows = simd.greater_than_f32s(x, simd.splat_f32s(88.3));
    let to_int = simd.splat_f32s(TO_INT);
    let shifted = simd.mul_add_e_f32s(x, simd.splat_f32s(std::f32::consts::LOG2_E), to_int);
    let n = simd.sub_f32s(shifted, to_int);
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(-LN_2_HIGH), x);
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(-LN_2_LOW), r);
    let mut e_r = simd.splat_f32s(EXP[EXP.len() - 1]);
    for &c in EXP.iter().rev().skip(1) {
        e_r = simd.mul_add_e_f32s(e_r, r, simd.splat_f32s(c));
    }
    let n = simd.add_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(127));
    let power = simd.wrapping_dyn_shl_u32s(n, simd.splat_u32s(23));
    let e_x = simd.mul_f32s(e_r, simd.transmute_f32s_u32s(power));
    let e_x = simd.select_f32s(overflows, simd.splat_f32s(f32::INFINITY), e_x);
    simd.select_f32s(vanishes, simd.splat_f32s(0.0), e_x)
}

/// Hyperbolic tangent, error below 2e-7.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let (a, u) = (x.abs(), x * x);
    // On |x| <= 0.625, where the other form cancels.
    let near = poly(
        u,
        [
            1.0,
            -0.333_332_63,
            0.133_311_5,
            -0.053_722_68,
            0.020_595_68,
            -0.005_664_775,
        ],
    );
    let far = (1.0 - 2.0 / (exp(2.0 * a) + 1.0)).copysign(x);
    if a < 0.625 { x * near } else { far }
}

/// The error function, error below 2e-7.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let (a, u) = (x.abs(), x * x);
    // On |x| <= 1.
    let near = poly(
        u,
        [
            std::f32::consts::FRAC_2_SQRT_PI,
            -0.376_126_38,
            0.112_837_83,
            -0.026_865_438,
            0.005_221_053_5,
            -0.000_848_439_64,
            0.000_112_682_54,
            -0.000_009_673_59,
        ],
    );
    // `erfc(a) e^(a²)` on [1, 4] in 1 / (a + 2); from 4 on, erf is 1 to f32.
    let a_far = if a > 4.0 { 4.0 } else { a };
    let tail = poly(
        1.0 / (a_far + 2.0),
        [
            0.000_606_408_75,
            0.547_236_3,
            1.323_362_7,
            0.810_146,
            6.461_414,
            -1.834_839_6,
            -3.426_599_5,
        ],
    );
    let far = (1.0 - exp(-a_far * a_far) * tail).copysign(x);
    if a < 1.0 { x * near } else { far }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x / 2 * (1 + erf(x / sqrt(2)))`.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
#[inline(always)]
pub(crate) fn gelu_tanh(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    0.5 * x * (1.0 + tanh(SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)))
}

/// `log(1 + e^x)` without overflow.
#[inline(always)]
pub(crate) fn softplus(x: f32) -> f32 {
    (if x < 0.0 { 0.0 } else { x }) + exp(-x.abs()).ln_1p()
}

/// `x^y`; the square, which norms are full of, exactly.
pub(crate) fn pow(x: f32, y: f32) -> f32 {
    if y == 2.0 { x * x } else { x.powf(y) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest error of `f` against `truth` over a range: `|f - truth| / max(floor, |truth|)`.
    fn error(f: fn(f32) -> f32, truth: fn(f64) -> f64, range: [f32; 2], floor: f64) -> f64 {
        let steps = 100_000u32;
        (0..=steps)
            .map(|n| {
                let t = n as f32 / steps as f32;
                let x = range[0] + (range[1] - range[0]) * t;
                let t = truth(f64::from(x));
                (f64::from(f(x)) - t).abs() / t.abs().max(floor)
            })
            .fold(0.0, f64::max)
    }

    /// [`exp_vector`] of one number.
    fn exp_by_vector(x: f32) -> f32 {
        struct Exp(f32);
        impl pulp::WithSimd for Exp {
            type Output = f32;
            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) -> f32 {
                let mut out = [0.0; 64];
                S::as_mut_simd_f32s(&mut out).0[0] = exp_vector(simd, simd.splat_f32s(self.0));
                out[0]
            }
        }
        pulp::Arch::new().dispatch(Exp(x))
    }

    #[test]
    fn vectors_of_exp() {
        assert!(error(exp_by_vector, f64::exp, [-87.3, 88.2], 0.0) < 2e-7);
        let exact = [
            (0.0, 1.0),
            (f32::NEG_INFINITY, 0.0),
            (-88.0, 0.0),
            (f32::INFINITY, f32::INFINITY),
        ];
        assert!(exact.iter().all(|&(x, e)| exp_by_vector(x) == e));
        assert!(
            exp_by_vector(f32::NAN).is_nan() && exp_by_vector(f32::from_bits(0x7fc1_2345)).is_nan()
        );
    }

    #[test]
    fn errors_are_what_they_are_said_to_be() {
        assert!(error(exp, f64::exp, [-87.0, 88.7], 0.0) < 2e-7);
        assert!(error(tanh, f64::tanh, [-10.0, 10.0], 1.0) < 2e-7);
        assert!(error(tanh, f64::tanh, [-0.6, 0.6], 0.0) < 2e-7);
        assert!(error(erf, libm::erf, [-5.0, 5.0], 1.0) < 2e-7);
        assert!(error(erf, libm::erf, [-0.9, 0.9], 0.0) < 2e-7);
    }

    #[test]
    fn ends_and_nan() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1000.0), 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!((exp(-100.0) - 3.8e-44).abs() < 2e-45);
        assert_eq!([tanh(50.0), tanh(f32::NEG_INFINITY)], [1.0, -1.0]);
        assert_eq!([erf(5.0), erf(f32::NEG_INFINITY)], [1.0, -1.0]);
        for f in [exp, tanh, erf, sigmoid, gelu, gelu_tanh, softplus] {
            assert!(f(f32::NAN).is_nan());
        }
    }
}
