//! Scalar operations in f64, the definition the f32 executor is held to.
//!
//! Every element is an f64 whatever its type: 32-bit integers are exact, truth values are 0 and 1. Integer
//! operations compute in i64 and wrap to their type.

use attnc_ir::{BinaryOp, CompareOp, DType, UnaryOp};

/// `i` wrapped to 32 bits of the type.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "wrapping is what integers of 32 bits do"
)]
pub(crate) fn wrap(dtype: DType, i: i64) -> f64 {
    if dtype == DType::U32 {
        f64::from(i as u32)
    } else {
        f64::from(i as i32)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "integers of 32 bits are exact in f64"
)]
fn int(x: f64) -> i64 {
    x as i64
}

/// An operation on an element of type `dtype`.
pub(crate) fn unary(op: UnaryOp, dtype: DType, x: f64) -> f64 {
    let y = match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Reciprocal => 1.0 / x,
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Erf => libm::erf(x),
        // 1 + erf(y) is erfc(-y), without cancellation far below zero.
        UnaryOp::Gelu => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        UnaryOp::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        UnaryOp::Silu => x / (1.0 + (-x).exp()),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round_ties_even(),
        UnaryOp::Sign if x > 0.0 => 1.0,
        UnaryOp::Sign if x < 0.0 => -1.0,
        UnaryOp::Sign => x,
        UnaryOp::Relu if x < 0.0 => 0.0,
        UnaryOp::Relu => x,
        // log(1 + e^x) without overflow.
        UnaryOp::Softplus => {
            x.max(0.0) + (-x.abs()).exp().ln_1p() + if x.is_nan() { x } else { 0.0 }
        }
        UnaryOp::Not => f64::from(u8::from(x == 0.0)),
        UnaryOp::IsNan => f64::from(u8::from(x.is_nan())),
        UnaryOp::IsInf => f64::from(u8::from(x.is_infinite())),
    };
    if dtype.is_int() && !matches!(op, UnaryOp::IsNan | UnaryOp::IsInf) {
        wrap(dtype, int(y))
    } else {
        y
    }
}

/// An operation on two elements of type `dtype`.
pub(crate) fn binary(op: BinaryOp, dtype: DType, x: f64, y: f64) -> f64 {
    match dtype {
        DType::I32 | DType::U32 => wrap(dtype, int_binary(op, int(x), int(y))),
        DType::Bool => {
            let (x, y) = (x != 0.0, y != 0.0);
            f64::from(u8::from(match op {
                BinaryOp::And | BinaryOp::Min | BinaryOp::Mul => x && y,
                BinaryOp::Or | BinaryOp::Max | BinaryOp::Add => x || y,
                _ => x != y,
            }))
        }
        DType::F32 | DType::F16 | DType::BF16 => float_binary(op, x, y),
    }
}

fn float_binary(op: BinaryOp, x: f64, y: f64) -> f64 {
    match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::Div => x / y,
        BinaryOp::Rem => x % y,
        BinaryOp::Mod => {
            let r = x % y;
            if r != 0.0 && (r < 0.0) != (y < 0.0) {
                r + y
            } else {
                r
            }
        }
        BinaryOp::Pow => x.powf(y),
        BinaryOp::Min if x.is_nan() || x < y => x,
        BinaryOp::Max if x.is_nan() || x > y => x,
        BinaryOp::Min | BinaryOp::Max => y,
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => f64::NAN,
    }
}

fn int_binary(op: BinaryOp, x: i64, y: i64) -> i64 {
    match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x.wrapping_mul(y),
        BinaryOp::Div if y == 0 => x,
        BinaryOp::Div => x / y,
        BinaryOp::Rem | BinaryOp::Mod if y == 0 => 0,
        BinaryOp::Rem => x % y,
        BinaryOp::Mod => {
            let r = x % y;
            if r != 0 && (r < 0) != (y < 0) {
                r + y
            } else {
                r
            }
        }
        BinaryOp::Pow => int_pow(x, y),
        BinaryOp::Min => x.min(y),
        BinaryOp::Max => x.max(y),
        BinaryOp::And => x & y,
        BinaryOp::Or => x | y,
        BinaryOp::Xor => x ^ y,
    }
}

/// `x` to the power `y`, wrapping; negative powers are truncated quotients.
pub(crate) fn int_pow(x: i64, y: i64) -> i64 {
    match (x, y) {
        (_, 0..) => x.wrapping_pow(u32::try_from(y).unwrap_or(u32::MAX)),
        (1, _) => 1,
        (-1, _) => 1 - 2 * (y & 1),
        _ => 0,
    }
}

/// A comparison, false for NaN but for `!=`.
pub(crate) fn compare(op: CompareOp, x: f64, y: f64) -> bool {
    match op {
        CompareOp::Eq => x == y,
        CompareOp::Ne => x != y,
        CompareOp::Lt => x < y,
        CompareOp::Le => x <= y,
        CompareOp::Gt => x > y,
        CompareOp::Ge => x >= y,
    }
}

/// An element of type `from` as one of type `to`. Storage types do not round: arithmetic on them does not
/// either.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturating towards zero is the definition"
)]
pub(crate) fn cast(from: DType, to: DType, x: f64) -> f64 {
    match to {
        DType::F32 | DType::F16 | DType::BF16 => x,
        DType::Bool => f64::from(u8::from(x != 0.0)),
        DType::I32 | DType::U32 if from.is_int() => wrap(to, int(x)),
        DType::I32 => f64::from(x as i32),
        DType::U32 => f64::from(x as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_follow_their_definitions() {
        let i = |op, x, y| binary(op, DType::I32, x, y);
        assert_eq!(i(BinaryOp::Div, -7.0, 2.0), -3.0);
        assert_eq!(i(BinaryOp::Mod, -7.0, 3.0), 2.0);
        assert_eq!(i(BinaryOp::Mod, 7.0, -3.0), -2.0);
        assert_eq!(i(BinaryOp::Rem, -7.0, 3.0), -1.0);
        assert_eq!(i(BinaryOp::Div, 7.0, 0.0), 7.0);
        assert_eq!(i(BinaryOp::Add, 2_147_483_647.0, 1.0), -2_147_483_648.0);
        assert_eq!(i(BinaryOp::Pow, -1.0, -3.0), -1.0);
        assert_eq!(binary(BinaryOp::Sub, DType::U32, 0.0, 1.0), 4_294_967_295.0);
    }

    #[test]
    fn floats_keep_nan() {
        assert!(binary(BinaryOp::Max, DType::F32, f64::NAN, 1.0).is_nan());
        assert!(binary(BinaryOp::Min, DType::F32, 1.0, f64::NAN).is_nan());
        assert!(unary(UnaryOp::Relu, DType::F32, f64::NAN).is_nan());
        assert!(unary(UnaryOp::Softplus, DType::F32, f64::NAN).is_nan());
        assert_eq!(unary(UnaryOp::Round, DType::F32, 2.5), 2.0);
        assert_eq!(cast(DType::F32, DType::I32, f64::NAN), 0.0);
        assert_eq!(cast(DType::F32, DType::I32, -2.9), -2.0);
    }
}
