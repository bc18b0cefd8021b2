//! What operations on constants come to: exactly, or not at all.

use crate::{BinaryOp, CompareOp, Dim, Extents, UnaryOp};

/// The comparison that is true where the other is false, of numbers that are no NaN.
pub(super) fn negated(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Eq => CompareOp::Ne,
        CompareOp::Ne => CompareOp::Eq,
        CompareOp::Lt => CompareOp::Ge,
        CompareOp::Ge => CompareOp::Lt,
        CompareOp::Gt => CompareOp::Le,
        CompareOp::Le => CompareOp::Gt,
    }
}

/// What a comparison of polynomials comes to wherever their variables are within the extents.
pub(super) fn decide(op: CompareOp, x: &Dim, y: &Dim, ext: &Extents) -> Option<bool> {
    let (below, above) = (x.is_below(y, ext), y.is_below(x, ext));
    let (at_most, at_least) = (
        (y.clone() - x.clone()).is_nonneg(ext),
        (x.clone() - y.clone()).is_nonneg(ext),
    );
    match op {
        CompareOp::Eq if x == y => Some(true),
        CompareOp::Ne if x == y => Some(false),
        CompareOp::Eq if below || above => Some(false),
        CompareOp::Ne if below || above => Some(true),
        CompareOp::Lt if below => Some(true),
        CompareOp::Lt if at_least => Some(false),
        CompareOp::Le if at_most => Some(true),
        CompareOp::Le if above => Some(false),
        CompareOp::Gt if above => Some(true),
        CompareOp::Gt if at_most => Some(false),
        CompareOp::Ge if at_least => Some(true),
        CompareOp::Ge if below => Some(false),
        _ => None,
    }
}

pub(super) fn compare_floats(op: CompareOp, x: f32, y: f32) -> bool {
    compare_f64(op, f64::from(x), f64::from(y))
}

/// IEEE comparison: false for NaN, but for `!=`.
#[must_use]
pub(super) fn compare_f64(op: CompareOp, x: f64, y: f64) -> bool {
    match op {
        CompareOp::Eq => x == y,
        CompareOp::Ne => x != y,
        CompareOp::Lt => x < y,
        CompareOp::Le => x <= y,
        CompareOp::Gt => x > y,
        CompareOp::Ge => x >= y,
    }
}

/// Only what every backend rounds alike.
pub(super) fn fold_unary(op: UnaryOp, x: f32) -> Option<f32> {
    match op {
        UnaryOp::Neg => Some(-x),
        UnaryOp::Abs => Some(x.abs()),
        UnaryOp::Sqrt => Some(x.sqrt()),
        UnaryOp::Reciprocal => Some(1.0 / x),
        UnaryOp::Floor => Some(x.floor()),
        UnaryOp::Ceil => Some(x.ceil()),
        _ => None,
    }
}

pub(super) fn fold_binary(op: BinaryOp, x: f32, y: f32) -> Option<f32> {
    match op {
        BinaryOp::Add => Some(x + y),
        BinaryOp::Sub => Some(x - y),
        BinaryOp::Mul => Some(x * y),
        BinaryOp::Div => Some(x / y),
        BinaryOp::Min if !x.is_nan() && !y.is_nan() => Some(x.min(y)),
        BinaryOp::Max if !x.is_nan() && !y.is_nan() => Some(x.max(y)),
        _ => None,
    }
}
