//! One operation over registers of lanes: plain loops that the compiler vectorises.

use crate::exec::math;
use crate::scalar64::int_pow;
use attnc_ir::{BinaryOp, CompareOp, DType, UnaryOp};
use bytemuck::{AnyBitPattern, NoUninit, Pod};
use pulp::{Arch, Simd, WithSimd};

/// `dst[i] = base + slope * i`, wrapped to 32 bits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "wrapping is what integers of 32 bits do"
)]
pub(super) fn ramp(dst: &mut [u32], base: i64, slope: i64) {
    let (mut at, slope) = (base as u32, slope as u32);
    for x in dst {
        *x = at;
        at = at.wrapping_add(slope);
    }
}

fn map<A: AnyBitPattern + NoUninit, R: Pod>(dst: &mut [u32], a: &[u32], f: impl Fn(A) -> R) {
    let (dst, a) = (bytemuck::cast_slice_mut(dst), bytemuck::cast_slice(a));
    Arch::new().dispatch(Map { dst, a, f });
}

/// `dst[i] = f(a[i])`, compiled for the vectors of the machine.
struct Map<'a, A, R, F> {
    dst: &'a mut [R],
    a: &'a [A],
    f: F,
}

impl<A: Copy, R, F: Fn(A) -> R> WithSimd for Map<'_, A, R, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (d, &x) in self.dst.iter_mut().zip(self.a) {
            *d = (self.f)(x);
        }
    }
}

fn zip<A: AnyBitPattern + NoUninit, R: Pod>(
    dst: &mut [u32],
    a: &[u32],
    b: &[u32],
    f: impl Fn(A, A) -> R,
) {
    let dst = bytemuck::cast_slice_mut(dst);
    let (a, b) = (bytemuck::cast_slice(a), bytemuck::cast_slice(b));
    Arch::new().dispatch(Zip { dst, a, b, f });
}

/// `dst[i] = f(a[i], b[i])`, compiled for the vectors of the machine.
struct Zip<'a, A, R, F> {
    dst: &'a mut [R],
    a: &'a [A],
    b: &'a [A],
    f: F,
}

impl<A: Copy, R, F: Fn(A, A) -> R> WithSimd for Zip<'_, A, R, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for ((d, &x), &y) in self.dst.iter_mut().zip(self.a).zip(self.b) {
            *d = (self.f)(x, y);
        }
    }
}

/// An operation on lanes of type `dtype`.
pub(super) fn unary(op: UnaryOp, dtype: DType, dst: &mut [u32], a: &[u32]) {
    match dtype {
        DType::I32 => int_unary(
            op,
            dst,
            a,
            i32::wrapping_neg,
            i32::wrapping_abs,
            i32::signum,
        ),
        DType::U32 => int_unary(op, dst, a, u32::wrapping_neg, |x| x, |x| u32::from(x > 0)),
        DType::Bool => map(dst, a, |x: u32| u32::from(op == UnaryOp::Not && x == 0)),
        DType::F32 | DType::F16 | DType::BF16 => float_unary(op, dst, a),
    }
}

fn int_unary<T: Pod + Default + PartialOrd>(
    op: UnaryOp,
    dst: &mut [u32],
    a: &[u32],
    neg: fn(T) -> T,
    abs: fn(T) -> T,
    sign: fn(T) -> T,
) {
    match op {
        UnaryOp::Neg => map(dst, a, neg),
        UnaryOp::Abs => map(dst, a, abs),
        UnaryOp::Sign => map(dst, a, sign),
        UnaryOp::Relu => map(
            dst,
            a,
            |x: T| if x < T::default() { T::default() } else { x },
        ),
        UnaryOp::IsNan | UnaryOp::IsInf => dst.fill(0),
        // The verifier admits no other operation on integers; those that round leave them as they are.
        _ => dst.copy_from_slice(a),
    }
}

fn float_unary(op: UnaryOp, dst: &mut [u32], a: &[u32]) {
    match op {
        UnaryOp::Neg => map(dst, a, |x: f32| -x),
        UnaryOp::Abs => map(dst, a, f32::abs),
        UnaryOp::Sqrt => map(dst, a, f32::sqrt),
        UnaryOp::Rsqrt => map(dst, a, |x: f32| 1.0 / x.sqrt()),
        UnaryOp::Reciprocal => map(dst, a, |x: f32| 1.0 / x),
        UnaryOp::Exp => map(dst, a, math::exp),
        UnaryOp::Log => map(dst, a, f32::ln),
        UnaryOp::Tanh => map(dst, a, math::tanh),
        UnaryOp::Sin => map(dst, a, f32::sin),
        UnaryOp::Cos => map(dst, a, f32::cos),
        UnaryOp::Sigmoid => map(dst, a, math::sigmoid),
        UnaryOp::Erf => map(dst, a, math::erf),
        UnaryOp::Gelu => map(dst, a, math::gelu),
        UnaryOp::GeluTanh => map(dst, a, math::gelu_tanh),
        UnaryOp::Silu => map(dst, a, |x: f32| x * math::sigmoid(x)),
        UnaryOp::Floor => map(dst, a, f32::floor),
        UnaryOp::Ceil => map(dst, a, f32::ceil),
        UnaryOp::Round => map(dst, a, f32::round_ties_even),
        UnaryOp::Sign => map(dst, a, |x: f32| {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                x
            }
        }),
        UnaryOp::Relu => map(dst, a, |x: f32| if x < 0.0 { 0.0 } else { x }),
        UnaryOp::Softplus => map(dst, a, math::softplus),
        UnaryOp::Not => map(dst, a, |x: f32| u32::from(x == 0.0)),
        UnaryOp::IsNan => map(dst, a, |x: f32| u32::from(x.is_nan())),
        UnaryOp::IsInf => map(dst, a, |x: f32| u32::from(x.is_infinite())),
    }
}

/// An operation on two lanes of type `dtype`.
pub(super) fn binary(op: BinaryOp, dtype: DType, dst: &mut [u32], a: &[u32], b: &[u32]) {
    match dtype {
        DType::I32 => i32_binary(op, dst, a, b),
        DType::U32 => u32_binary(op, dst, a, b),
        DType::Bool => match op {
            BinaryOp::And | BinaryOp::Min | BinaryOp::Mul => zip(dst, a, b, |x: u32, y| x & y),
            BinaryOp::Or | BinaryOp::Max | BinaryOp::Add => zip(dst, a, b, |x: u32, y| x | y),
            _ => zip(dst, a, b, |x: u32, y| x ^ y),
        },
        DType::F32 | DType::F16 | DType::BF16 => float_binary(op, dst, a, b),
    }
}

fn float_binary(op: BinaryOp, dst: &mut [u32], a: &[u32], b: &[u32]) {
    match op {
        BinaryOp::Add => zip(dst, a, b, |x: f32, y| x + y),
        BinaryOp::Sub => zip(dst, a, b, |x: f32, y| x - y),
        BinaryOp::Mul => zip(dst, a, b, |x: f32, y| x * y),
        BinaryOp::Div => zip(dst, a, b, |x: f32, y| x / y),
        BinaryOp::Rem => zip(dst, a, b, |x: f32, y| x % y),
        BinaryOp::Mod => zip(dst, a, b, |x: f32, y| {
            let r = x % y;
            if r != 0.0 && (r < 0.0) != (y < 0.0) {
                r + y
            } else {
                r
            }
        }),
        BinaryOp::Pow => zip(dst, a, b, math::pow),
        BinaryOp::Min => zip(
            dst,
            a,
            b,
            |x: f32, y| if x < y || x.is_nan() { x } else { y },
        ),
        BinaryOp::Max => zip(
            dst,
            a,
            b,
            |x: f32, y| if x > y || x.is_nan() { x } else { y },
        ),
        // The verifier admits these on truth values only.
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => dst.fill(f32::NAN.to_bits()),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "wrapping is what integers of 32 bits do"
)]
fn i32_binary(op: BinaryOp, dst: &mut [u32], a: &[u32], b: &[u32]) {
    match op {
        BinaryOp::Add => zip(dst, a, b, i32::wrapping_add),
        BinaryOp::Sub => zip(dst, a, b, i32::wrapping_sub),
        BinaryOp::Mul => zip(dst, a, b, i32::wrapping_mul),
        BinaryOp::Div => zip(
            dst,
            a,
            b,
            |x: i32, y| if y == 0 { x } else { x.wrapping_div(y) },
        ),
        BinaryOp::Rem => zip(
            dst,
            a,
            b,
            |x: i32, y| if y == 0 { 0 } else { x.wrapping_rem(y) },
        ),
        BinaryOp::Mod => zip(dst, a, b, |x: i32, y| {
            let r = if y == 0 { 0 } else { x.wrapping_rem(y) };
            if r != 0 && (r < 0) != (y < 0) {
                r + y
            } else {
                r
            }
        }),
        BinaryOp::Pow => zip(dst, a, b, |x: i32, y: i32| {
            int_pow(i64::from(x), i64::from(y)) as i32
        }),
        BinaryOp::Min => zip(dst, a, b, i32::min),
        BinaryOp::Max => zip(dst, a, b, i32::max),
        BinaryOp::And => zip(dst, a, b, |x: i32, y| x & y),
        BinaryOp::Or => zip(dst, a, b, |x: i32, y| x | y),
        BinaryOp::Xor => zip(dst, a, b, |x: i32, y| x ^ y),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "wrapping is what integers of 32 bits do"
)]
fn u32_binary(op: BinaryOp, dst: &mut [u32], a: &[u32], b: &[u32]) {
    match op {
        BinaryOp::Add => zip(dst, a, b, u32::wrapping_add),
        BinaryOp::Sub => zip(dst, a, b, u32::wrapping_sub),
        BinaryOp::Mul => zip(dst, a, b, u32::wrapping_mul),
        BinaryOp::Div => zip(dst, a, b, |x: u32, y: u32| x.checked_div(y).unwrap_or(x)),
        BinaryOp::Rem | BinaryOp::Mod => {
            zip(dst, a, b, |x: u32, y: u32| x.checked_rem(y).unwrap_or(0));
        }
        BinaryOp::Pow => zip(dst, a, b, |x: u32, y: u32| {
            int_pow(i64::from(x), i64::from(y)) as u32
        }),
        BinaryOp::Min => zip(dst, a, b, u32::min),
        BinaryOp::Max => zip(dst, a, b, u32::max),
        BinaryOp::And => zip(dst, a, b, |x: u32, y| x & y),
        BinaryOp::Or => zip(dst, a, b, |x: u32, y| x | y),
        BinaryOp::Xor => zip(dst, a, b, |x: u32, y| x ^ y),
    }
}

/// A comparison of lanes of type `dtype`; gives 0 or 1.
pub(super) fn compare(op: CompareOp, dtype: DType, dst: &mut [u32], a: &[u32], b: &[u32]) {
    match dtype {
        DType::I32 => compare_as::<i32>(op, dst, a, b),
        DType::U32 | DType::Bool => compare_as::<u32>(op, dst, a, b),
        DType::F32 | DType::F16 | DType::BF16 => compare_as::<f32>(op, dst, a, b),
    }
}

fn compare_as<T: Pod + PartialOrd>(op: CompareOp, dst: &mut [u32], a: &[u32], b: &[u32]) {
    match op {
        CompareOp::Eq => zip(dst, a, b, |x: T, y| u32::from(x == y)),
        CompareOp::Ne => zip(dst, a, b, |x: T, y| u32::from(x != y)),
        CompareOp::Lt => zip(dst, a, b, |x: T, y| u32::from(x < y)),
        CompareOp::Le => zip(dst, a, b, |x: T, y| u32::from(x <= y)),
        CompareOp::Gt => zip(dst, a, b, |x: T, y| u32::from(x > y)),
        CompareOp::Ge => zip(dst, a, b, |x: T, y| u32::from(x >= y)),
    }
}

/// `c ? a : b`.
pub(super) fn select(dst: &mut [u32], c: &[u32], a: &[u32], b: &[u32]) {
    for (((d, &c), &x), &y) in dst.iter_mut().zip(c).zip(a).zip(b) {
        *d = if c != 0 { x } else { y };
    }
}

/// Lanes in another type: float to int saturates towards zero, NaN gives 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "saturating towards zero and rounding to f32 are the definition"
)]
pub(super) fn cast(from: DType, to: DType, dst: &mut [u32], a: &[u32]) {
    match (from.is_float(), from, to) {
        (true, _, DType::I32) => map(dst, a, |x: f32| x as i32),
        (true, _, DType::U32) => map(dst, a, |x: f32| x as u32),
        (true, _, DType::Bool) => map(dst, a, |x: f32| u32::from(x != 0.0)),
        (false, _, DType::Bool) => map(dst, a, |x: u32| u32::from(x != 0)),
        (false, DType::I32, _) if to.is_float() => map(dst, a, |x: i32| x as f32),
        (false, _, _) if to.is_float() => map(dst, a, |x: u32| x as f32),
        // Between the integers, and among floats, which are all f32 here.
        _ => dst.copy_from_slice(a),
    }
}
