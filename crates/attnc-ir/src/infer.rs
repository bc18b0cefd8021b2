//! The type of a result from the types of the operands, or why they do not fit.
//!
//! The same function serves the builder, which takes the type it gives, and the verifier, which compares.

use crate::scalar::ScalarExpr;
use crate::{
    Attention, BinaryOp, CompareOp, Conv, DType, Diagnostic, Dim, Extents, Op, Shape, TensorType,
    UnaryOp,
};

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

fn reshape(x: &TensorType, shape: &Shape) -> Result<TensorType> {
    let to = TensorType {
        dtype: x.dtype,
        shape: shape.clone(),
    };
    if x.elements() != to.elements() {
        return Err(shape_error(format!(
            "{x} has {} elements, {} has {}",
            x.elements(),
            shape_text(shape),
            to.elements()
        )));
    }
    Ok(to)
}

fn transpose(x: &TensorType, perm: &[usize]) -> Result<TensorType> {
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    if sorted.iter().copied().ne(0..x.rank()) {
        return Err(Diagnostic::error(
            "bad-axis",
            format!("{perm:?} does not permute the {} axes of {x}", x.rank()),
        ));
    }
    Ok(TensorType {
        dtype: x.dtype,
        shape: perm.iter().map(|&p| x.shape[p].clone()).collect(),
    })
}

fn slice(x: &TensorType, axis: usize, start: &Dim, len: &Dim, step: i64) -> Result<TensorType> {
    check_axis("slice", axis, x.rank())?;
    let size = &x.shape[axis];
    let last = start.clone() + (len.clone() - Dim::one()) * Dim::from(step);
    // Only what is known to be wrong is refused here; symbolic bounds are checked when lengths are bound.
    let outside = |at: &Dim| {
        at.as_const().is_some_and(|a| a < 0)
            || matches!((at.as_const(), size.as_const()), (Some(a), Some(s)) if a >= s)
    };
    if step == 0
        || len.as_const().is_some_and(|l| l < 0)
        || (!len.is(0) && (outside(start) || outside(&last)))
    {
        return Err(shape_error(format!(
            "start {start}, length {len}, step {step} leave axis {axis} of {x}"
        )));
    }
    let mut shape = x.shape.clone();
    shape[axis] = len.clone();
    Ok(TensorType {
        dtype: x.dtype,
        shape,
    })
}

fn concat(operands: &[&TensorType], axis: usize) -> Result<TensorType> {
    let first = operands[0];
    check_axis("concat", axis, first.rank())?;
    let mut out = first.clone();
    for other in &operands[1..] {
        expect_same_dtype("concat", first, other)?;
        let fits = other.rank() == first.rank()
            && (0..first.rank()).all(|n| n == axis || first.shape[n] == other.shape[n]);
        if !fits {
            return Err(shape_error(format!(
                "concat along axis {axis} of {first} and {other}: other axes differ"
            )));
        }
        out.shape[axis] = out.shape[axis].clone() + other.shape[axis].clone();
    }
    Ok(out)
}

fn pad(x: &TensorType, before: &[Dim], after: &[Dim]) -> Result<TensorType> {
    if before.len() != x.rank() || after.len() != x.rank() {
        return Err(shape_error(format!(
            "pad gives {} and {} widths for {x}",
            before.len(),
            after.len()
        )));
    }
    let shape = (0..x.rank())
        .map(|n| x.shape[n].clone() + before[n].clone() + after[n].clone())
        .collect();
    Ok(TensorType {
        dtype: x.dtype,
        shape,
    })
}

fn gather(operands: &[&TensorType], axis: usize) -> Result<TensorType> {
    let (x, indices) = (operands[0], operands[1]);
    check_axis("gather", axis, x.rank())?;
    expect_index("gather", indices)?;
    let mut shape = x.shape.clone();
    shape.splice(axis..=axis, indices.shape.iter().cloned());
    Ok(TensorType {
        dtype: x.dtype,
        shape,
    })
}

fn gather_elements(operands: &[&TensorType], axis: usize) -> Result<TensorType> {
    let (x, indices) = (operands[0], operands[1]);
    check_axis("gather_elements", axis, x.rank())?;
    expect_index("gather_elements", indices)?;
    if x.rank() != indices.rank() {
        return Err(shape_error(format!(
            "gather_elements of {x} with indices {indices}: ranks differ"
        )));
    }
    Ok(TensorType {
        dtype: x.dtype,
        shape: indices.shape.clone(),
    })
}

fn gather_nd(operands: &[&TensorType], batch_dims: usize) -> Result<TensorType> {
    let (x, indices) = (operands[0], operands[1]);
    expect_index("gather_nd", indices)?;
    let count = indices
        .shape
        .last()
        .and_then(Dim::as_const)
        .and_then(|n| usize::try_from(n).ok());
    let Some(count) = count else {
        return Err(shape_error(format!(
            "gather_nd needs a constant last axis of the indices, found {indices}"
        )));
    };
    if batch_dims >= indices.rank()
        || batch_dims + count > x.rank()
        || indices.shape[..batch_dims] != x.shape[..batch_dims]
    {
        return Err(shape_error(format!(
            "gather_nd of {x} with indices {indices} and {batch_dims} batch axes"
        )));
    }
    let mut shape = indices.shape[..indices.rank() - 1].to_vec();
    shape.extend(x.shape[batch_dims + count..].iter().cloned());
    Ok(TensorType {
        dtype: x.dtype,
        shape,
    })
}

fn unary(op: UnaryOp, x: &TensorType) -> Result<TensorType> {
    let dtype = match op {
        UnaryOp::Not if x.dtype != DType::Bool => {
            return Err(Diagnostic::error(
                "dtype-mismatch",
                format!("not takes a bool operand, found {x}"),
            ));
        }
        UnaryOp::IsNan | UnaryOp::IsInf | UnaryOp::Not => DType::Bool,
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Relu if x.dtype != DType::Bool => {
            x.dtype
        }
        _ => {
            expect_float(op.name(), x)?;
            x.dtype
        }
    };
    Ok(TensorType {
        dtype,
        shape: x.shape.clone(),
    })
}

fn binary(op: BinaryOp, a: &TensorType, b: &TensorType) -> Result<TensorType> {
    expect_same_dtype(op.name(), a, b)?;
    let logical = matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor);
    if logical != (a.dtype == DType::Bool) {
        let wanted = if logical { "bool" } else { "number" };
        return Err(Diagnostic::error(
            "dtype-mismatch",
            format!("{} takes {wanted} operands, found {a}", op.name()),
        ));
    }
    Ok(TensorType {
        dtype: a.dtype,
        shape: broadcast(&a.shape, &b.shape)?,
    })
}

fn compare(op: CompareOp, a: &TensorType, b: &TensorType) -> Result<TensorType> {
    expect_same_dtype(op.name(), a, b)?;
    Ok(TensorType {
        dtype: DType::Bool,
        shape: broadcast(&a.shape, &b.shape)?,
    })
}

fn select(operands: &[&TensorType]) -> Result<TensorType> {
    let (c, a, b) = (operands[0], operands[1], operands[2]);
    if c.dtype != DType::Bool {
        return Err(Diagnostic::error(
            "dtype-mismatch",
            format!("where takes a bool condition, found {c}"),
        ));
    }
    expect_same_dtype("where", a, b)?;
    Ok(TensorType {
        dtype: a.dtype,
        shape: broadcast(&c.shape, &broadcast(&a.shape, &b.shape)?)?,
    })
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

fn matmul(a: &TensorType, b: &TensorType) -> Result<TensorType> {
    expect_float("matmul", a)?;
    expect_same_dtype("matmul", a, b)?;
    if a.rank() < 2 || b.rank() < 2 {
        return Err(shape_error(format!(
            "matmul takes operands of 2 or more axes, found {a} and {b}"
        )));
    }
    let (ka, kb) = (&a.shape[a.rank() - 1], &b.shape[b.rank() - 2]);
    if ka != kb {
        return Err(shape_error(format!(
            "matmul of {a} and {b}: {ka} columns against {kb} rows"
        )));
    }
    let mut shape = broadcast(&a.shape[..a.rank() - 2], &b.shape[..b.rank() - 2])?;
    shape.push(a.shape[a.rank() - 2].clone());
    shape.push(b.shape[b.rank() - 1].clone());
    Ok(TensorType {
        dtype: a.dtype,
        shape,
    })
}

fn convolution(conv: &Conv, operands: &[&TensorType]) -> Result<TensorType> {
    let (x, w) = (operands[0], operands[1]);
    expect_float("conv", x)?;
    expect_same_dtype("conv", x, w)?;
    let spatial = x.rank().saturating_sub(2);
    let lists = [
        &conv.strides,
        &conv.dilations,
        &conv.pads_before,
        &conv.pads_after,
    ];
    if spatial == 0 || w.rank() != x.rank() || lists.iter().any(|l| l.len() != spatial) {
        return Err(shape_error(format!(
            "conv of {x} with kernel {w}: ranks or parameter lists do not fit"
        )));
    }
    let groups = Dim::from(conv.groups);
    if conv.groups == 0
        || w.shape[1].clone() * groups.clone() != x.shape[1]
        || w.shape[0].exact_div(&groups).is_none()
    {
        return Err(shape_error(format!(
            "conv of {x} with kernel {w} in {} groups: channels do not fit",
            conv.groups
        )));
    }
    if let Some(bias) = operands.get(2)
        && bias.shape != [w.shape[0].clone()]
    {
        return Err(shape_error(format!(
            "conv takes a bias of [{}], found {bias}",
            w.shape[0]
        )));
    }
    let mut shape = vec![x.shape[0].clone(), w.shape[0].clone()];
    for n in 0..spatial {
        if conv.strides[n] == 0 || conv.dilations[n] == 0 {
            return Err(shape_error(
                "conv with a stride or dilation of 0".to_owned(),
            ));
        }
        let window =
            (w.shape[n + 2].clone() - Dim::one()) * Dim::from(conv.dilations[n]) + Dim::one();
        let padded =
            x.shape[n + 2].clone() + Dim::from(conv.pads_before[n]) + Dim::from(conv.pads_after[n]);
        let steps = (padded - window).floor_div(&Dim::from(conv.strides[n]), &Extents::none());
        shape.push(steps + Dim::one());
    }
    Ok(TensorType {
        dtype: x.dtype,
        shape,
    })
}

fn attention_type(attention: &Attention, operands: &[&TensorType]) -> Result<TensorType> {
    let (q, k, v) = (operands[0], operands[1], operands[2]);
    expect_float("attention", q)?;
    expect_same_dtype("attention", q, k)?;
    expect_same_dtype("attention", q, v)?;
    if [q, k, v].iter().any(|t| t.rank() != 4) {
        return Err(shape_error(format!(
            "attention takes q, k and v of 4 axes, found {q}, {k} and {v}"
        )));
    }
    let same = q.shape[0] == k.shape[0] && k.shape[..3] == v.shape[..3] && q.shape[3] == k.shape[3];
    if !same || q.shape[1].exact_div(&k.shape[1]).is_none() {
        return Err(shape_error(format!(
            "attention takes q [B, H, M, D], k [B, H_kv, N, D] and v [B, H_kv, N, Dv], found {q}, {k} and {v}"
        )));
    }
    let extents = [
        q.shape[0].clone(),
        q.shape[1].clone(),
        q.shape[2].clone(),
        k.shape[2].clone(),
    ];
    for (name, expr) in attention.functions() {
        let (axes, wanted) = match name {
            "mask_mod" => (4, DType::Bool),
            // One logit for all keys of a row.
            "sink" => (3, DType::F32),
            _ => (4, DType::F32),
        };
        check_expr(name, expr, &extents[..axes], operands, wanted)?;
    }
    Ok(TensorType {
        dtype: q.dtype,
        shape: vec![
            extents[0].clone(),
            extents[1].clone(),
            extents[2].clone(),
            v.shape[3].clone(),
        ],
    })
}

fn map(
    expr: &ScalarExpr,
    shape: &Shape,
    dtype: DType,
    operands: &[&TensorType],
) -> Result<TensorType> {
    if expr.uses_arg() {
        return Err(Diagnostic::error(
            "bad-expression",
            "the expression of a map has no argument, but uses one",
        ));
    }
    check_expr("map", expr, shape, operands, dtype)?;
    Ok(TensorType {
        dtype,
        shape: shape.clone(),
    })
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
