//! Pointwise ops, broadcast as in NumPy.

use super::views::broadcast_strides;
use super::{At, Value};
use crate::index::{for_each_index, position};
use crate::scalar64;
use attnc_ir::{BinaryOp, CompareOp, DType, UnaryOp};

/// Every element by itself.
pub(super) fn unary(at: &At<'_>, op: UnaryOp) -> Vec<f64> {
    let x = at.operands[0];
    let f = |&e: &f64| scalar64::unary(op, x.dtype, e);
    x.data.iter().map(f).collect()
}

/// Two elements of one index.
pub(super) fn binary(at: &At<'_>, op: BinaryOp) -> Vec<f64> {
    let dtype = at.operands[0].dtype;
    broadcast_pair(at, |x, y| scalar64::binary(op, dtype, x, y))
}

/// Two elements of one index, compared.
pub(super) fn compare(at: &At<'_>, op: CompareOp) -> Vec<f64> {
    broadcast_pair(at, |x, y| f64::from(u8::from(scalar64::compare(op, x, y))))
}

fn broadcast_pair(at: &At<'_>, f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let (x, y) = (at.operands[0], at.operands[1]);
    if x.shape == y.shape {
        return x.data.iter().zip(&y.data).map(|(&x, &y)| f(x, y)).collect();
    }
    let [xs, ys] = [x, y].map(|v: &Value| broadcast_strides(&v.shape, at.shape));
    let mut out = Vec::with_capacity(at.shape.iter().product());
    for_each_index(at.shape, |i| {
        out.push(f(x.data[position(i, &xs)], y.data[position(i, &ys)]));
    });
    out
}

/// `x` where the condition holds, else `y`.
pub(super) fn select(at: &At<'_>) -> Vec<f64> {
    let (c, x, y) = (at.operands[0], at.operands[1], at.operands[2]);
    let [cs, xs, ys] = [c, x, y].map(|v| broadcast_strides(&v.shape, at.shape));
    let mut out = Vec::with_capacity(at.shape.iter().product());
    for_each_index(at.shape, |i| {
        out.push(if c.data[position(i, &cs)] != 0.0 {
            x.data[position(i, &xs)]
        } else {
            y.data[position(i, &ys)]
        });
    });
    out
}

/// Another element type.
pub(super) fn cast(at: &At<'_>, to: DType) -> Vec<f64> {
    let x = at.operands[0];
    let f = |&e: &f64| scalar64::cast(x.dtype, to, e);
    x.data.iter().map(f).collect()
}
