//! The type of a result from the types of the operands, or why they do not fit.
//!
//! The same function serves the builder, which takes the type it gives, and the verifier, which compares.

mod contract;
mod elementwise;
mod views;

use crate::scalar::ScalarExpr;
use crate::{DType, Diagnostic, Dim, Op, Shape, TensorType};
use contract::{attention_type, convolution, matmul};
use elementwise::{binary, compare, map, select, unary};
use views::{concat, gather, gather_elements, gather_nd, pad, reshape, slice, transpose};

pub(crate) type Result<T> = std::result::Result<T, Diagnostic>;

/// The type that `op` gives for operands of these types, before any epilogue.
///
/// # Errors
/// Where an operand's count, element type or shape does not fit; the message has both sides.
pub fn result_type(op: &Op, operands: &[&TensorType]) -> Result<TensorType> {
    let (least, most) = op.arity();
    let most = if op.takes_epilogue() {
        usize::MAX
    } else {
        most
    };
    if operands.len() < least || operands.len() > most {
        return Err(Diagnostic::error(
            "operand-count",
            format!(
                "{} takes {} operands, found {}",
                op.name(),
                count_text(least, most),
                operands.len()
            ),
        ));
    }
    let ty = |shape: Shape| TensorType {
        dtype: operands.first().map_or(DType::I32, |t| t.dtype),
        shape,
    };
    match op {
        Op::Input => Err(Diagnostic::error(
            "untyped-input",
            "the type of an input is not inferred, it is stated",
        )),
        Op::Constant(data) => Ok(data.ty()),
        Op::Reshape(shape) => reshape(operands[0], shape),
        Op::Transpose(perm) => transpose(operands[0], perm),
        Op::Broadcast(shape) => broadcast_to(&operands[0].shape, shape).map(|()| ty(shape.clone())),
        Op::Slice {
            axis,
            start,
            len,
            step,
        } => slice(operands[0], *axis, start, len, *step),
        Op::Concat { axis } => concat(operands, *axis),
        Op::Pad { before, after, .. } => pad(operands[0], before, after),
        Op::Gather { axis } => gather(operands, *axis),
        Op::GatherElements { axis } => gather_elements(operands, *axis),
        Op::GatherNd { batch_dims } => gather_nd(operands, *batch_dims),
        Op::Iota { shape, axis, .. } => {
            check_axis("iota", *axis, shape.len())?;
            Ok(TensorType {
                dtype: DType::I32,
                shape: shape.clone(),
            })
        }
        Op::Length(_) => Ok(TensorType::scalar(DType::I32)),
        Op::Unary(op) => unary(*op, operands[0]),
        Op::Binary(op) => binary(*op, operands[0], operands[1]),
        Op::Compare(op) => compare(*op, operands[0], operands[1]),
        Op::Where => select(operands),
        Op::Cast(to) => Ok(TensorType {
            dtype: *to,
            shape: operands[0].shape.clone(),
        }),
        Op::Reduce {
            op,
            axes,
            keep_dims,
        } => reduce(op.name(), operands[0], axes, *keep_dims),
        Op::CumSum { axis, .. } => {
            check_axis("cumsum", *axis, operands[0].rank())?;
            Ok(operands[0].clone())
        }
        Op::Softmax { axis } => {
            check_axis("softmax", *axis, operands[0].rank())?;
            expect_float("softmax", operands[0])?;
            Ok(operands[0].clone())
        }
        Op::LayerNorm { axis, .. } | Op::RmsNorm { axis, .. } => norm(op, operands, *axis),
        Op::MatMul => matmul(operands[0], operands[1]),
        Op::Conv(conv) => convolution(conv, operands),
        Op::Attention(attention) => attention_type(attention, operands),
        Op::LinearAttention(linear) => linear.result_type(operands),
        Op::Map { expr, shape, dtype } => map(expr, shape, *dtype, operands),
    }
}

fn count_text(least: usize, most: usize) -> String {
    match (least, most) {
        (a, b) if a == b => a.to_string(),
        (a, usize::MAX) => format!("{a} or more"),
        (a, b) => format!("{a} to {b}"),
    }
}

fn shape_text(shape: &[Dim]) -> String {
    let dims: Vec<_> = shape.iter().map(Dim::to_string).collect();
    format!("[{}]", dims.join(", "))
}

pub(crate) fn shape_error(message: String) -> Diagnostic {
    Diagnostic::error("shape-mismatch", message)
}

fn check_axis(name: &str, axis: usize, rank: usize) -> Result<()> {
    if axis < rank {
        return Ok(());
    }
    Err(Diagnostic::error(
        "bad-axis",
        format!("{name} over axis {axis}, but the operand has {rank} axes"),
    ))
}

pub(crate) fn expect_float(name: &str, ty: &TensorType) -> Result<()> {
    if ty.dtype.is_float() {
        return Ok(());
    }
    Err(Diagnostic::error(
        "dtype-mismatch",
        format!("{name} takes a floating-point operand, found {ty}"),
    ))
}

pub(crate) fn expect_same_dtype(name: &str, a: &TensorType, b: &TensorType) -> Result<()> {
    if a.dtype == b.dtype {
        return Ok(());
    }
    Err(Diagnostic::error(
        "dtype-mismatch",
        format!("{name} takes operands of one element type, found {a} and {b}"),
    )
    .note("put a cast on one of them"))
}

fn expect_index(name: &str, ty: &TensorType) -> Result<()> {
    if ty.dtype.is_int() {
        return Ok(());
    }
    Err(Diagnostic::error(
        "dtype-mismatch",
        format!("{name} takes integer indices, found {ty}"),
    ))
}

/// The shape two shapes broadcast to: trailing axes aligned, equal or 1.
///
/// # Errors
/// Where two axes are different and neither is 1.
pub fn broadcast(a: &[Dim], b: &[Dim]) -> Result<Shape> {
    let rank = a.len().max(b.len());
    let at = |s: &[Dim], n: usize| {
        (n + s.len())
            .checked_sub(rank)
            .map_or_else(Dim::one, |i| s[i].clone())
    };
    (0..rank)
        .map(|n| match (at(a, n), at(b, n)) {
            (x, y) if x == y || y.is(1) => Ok(x),
            (x, y) if x.is(1) => Ok(y),
            (x, y) => Err(shape_error(format!(
                "{} and {} do not broadcast: {x} against {y}",
                shape_text(a),
                shape_text(b)
            ))),
        })
        .collect()
}

fn broadcast_to(from: &[Dim], to: &[Dim]) -> Result<()> {
    match broadcast(from, to) {
        Ok(shape) if shape == to => Ok(()),
        _ => Err(shape_error(format!(
            "{} does not broadcast to {}",
            shape_text(from),
            shape_text(to)
        ))),
    }
}

fn reduce(name: &str, x: &TensorType, axes: &[usize], keep_dims: bool) -> Result<TensorType> {
    for &axis in axes {
        check_axis(&format!("reduce_{name}"), axis, x.rank())?;
    }
    if !axes.is_sorted() || axes.windows(2).any(|w| w[0] == w[1]) {
        return Err(Diagnostic::error(
            "bad-axis",
            format!("axes {axes:?} are not ascending"),
        ));
    }
    let logical = name == "any" || name == "all";
    if logical != (x.dtype == DType::Bool) {
        let wanted = if logical { "bool" } else { "number" };
        return Err(Diagnostic::error(
            "dtype-mismatch",
            format!("reduce_{name} takes a {wanted} operand, found {x}"),
        ));
    }
    let kept = |n: usize| !axes.contains(&n);
    let shape = (0..x.rank())
        .filter(|&n| keep_dims || kept(n))
        .map(|n| {
            if kept(n) {
                x.shape[n].clone()
            } else {
                Dim::one()
            }
        })
        .collect();
    Ok(TensorType {
        dtype: x.dtype,
        shape,
    })
}

fn norm(op: &Op, operands: &[&TensorType], axis: usize) -> Result<TensorType> {
    let x = operands[0];
    check_axis(op.name(), axis, x.rank())?;
    expect_float(op.name(), x)?;
    for parameter in &operands[1..op.arity().0] {
        expect_float(op.name(), parameter)?;
        if broadcast_to(&parameter.shape, &x.shape[axis..]).is_err() {
            return Err(shape_error(format!(
                "{} over {} takes gain and bias that broadcast to it, found {parameter}",
                op.name(),
                shape_text(&x.shape[axis..])
            )));
        }
    }
    Ok(x.clone())
}

/// Whether an expression fits where it stands: its loads name operands with the right number of indices,
/// its index variables have extents, its result is what is wanted.
///
/// # Errors
/// What does not fit.
pub fn check_expr(
    name: &str,
    expr: &ScalarExpr,
    extents: &[Dim],
    operands: &[&TensorType],
    wanted: DType,
) -> Result<()> {
    let bad = |message: String| Err(Diagnostic::error("bad-expression", message));
    if expr.result() != wanted && !(wanted.is_float() && expr.result() == DType::F32) {
        return bad(format!("{name} gives {}, expected {wanted}", expr.result()));
    }
    for node in expr.nodes() {
        match node {
            crate::scalar::Scalar::Load { operand, index } => {
                let Some(ty) = operands.get(*operand) else {
                    return bad(format!(
                        "{name} loads from operand {operand} of {}",
                        operands.len()
                    ));
                };
                if ty.rank() != index.len() {
                    return bad(format!(
                        "{name} loads from {ty} with {} indices",
                        index.len()
                    ));
                }
            }
            crate::scalar::Scalar::Int(dim) => {
                if let Some(n) = dim
                    .indices()
                    .into_iter()
                    .find(|&n| n as usize >= extents.len())
                {
                    return bad(format!("{name} uses index d{n} of {}", extents.len()));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
