//! Reductions, softmax and running sums.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{BinaryOp, Dim, Op, ReduceOp, UnaryOp};

/// The axes to reduce; `None` where the operator says to leave the operand alone. Axes are an attribute
/// before opset 18 (13 for ReduceSum), an operand later.
fn axes(c: &mut Call<'_, '_>, x: &Value) -> OpResult<Option<Vec<usize>>> {
    let rank = c.rank(x);
    let noop = c.attrs.flag("noop_with_empty_axes", false)?;
    match c.ints_by("axes", 1)?.filter(|axes| !axes.is_empty()) {
        Some(axes) => c.axes_of(&axes, rank).map(Some),
        None if noop => Ok(None),
        None => Ok(Some((0..rank).collect())),
    }
}

fn reduced(c: &mut Call<'_, '_>, op: ReduceOp, x: &Value) -> OpResult<Value> {
    let keep_dims = c.attrs.flag("keepdims", true)?;
    match axes(c, x)? {
        Some(axes) if !axes.is_empty() => c.apply(
            Op::Reduce {
                op,
                axes,
                keep_dims,
            },
            &[x],
        ),
        _ => Ok(x.clone()),
    }
}

pub(super) fn reduce(c: &mut Call<'_, '_>, op: ReduceOp) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    Ok(vec![reduced(c, op, &x)?])
}

pub(super) fn sum_square(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let square = c.binary(BinaryOp::Mul, &x, &x)?;
    Ok(vec![reduced(c, ReduceOp::Sum, &square)?])
}

pub(super) fn l1(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let size = c.unary(UnaryOp::Abs, &x)?;
    Ok(vec![reduced(c, ReduceOp::Sum, &size)?])
}

pub(super) fn l2(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let sum = sum_square(c)?.remove(0);
    Ok(vec![c.unary(UnaryOp::Sqrt, &sum)?])
}

/// `log(sum(x))`.
pub(super) fn log_of_sum(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let sum = reduced(c, ReduceOp::Sum, &x)?;
    Ok(vec![c.unary(UnaryOp::Log, &sum)?])
}

/// `max + log(sum(exp(x - max)))`.
pub(super) fn log_sum_exp(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let keep_dims = c.attrs.flag("keepdims", true)?;
    let Some(axes) = axes(c, &x)?.filter(|a| !a.is_empty()) else {
        return Ok(vec![x]);
    };
    let out = log_sum(c, &x, &axes)?;
    if keep_dims {
        return Ok(vec![out]);
    }
    let kept = c
        .shape(&out)
        .into_iter()
        .enumerate()
        .filter(|(n, _)| !axes.contains(n));
    let shape = kept.map(|(_, d)| d).collect();
    Ok(vec![c.reshape(&out, shape)?])
}

fn log_sum(c: &mut Call<'_, '_>, x: &Value, axes: &[usize]) -> OpResult<Value> {
    let reduce = |op| Op::Reduce {
        op,
        axes: axes.to_vec(),
        keep_dims: true,
    };
    let max = c.apply(reduce(ReduceOp::Max), &[x])?;
    let less = c.binary(BinaryOp::Sub, x, &max)?;
    let power = c.unary(UnaryOp::Exp, &less)?;
    let sum = c.apply(reduce(ReduceOp::Sum), &[&power])?;
    let log = c.unary(UnaryOp::Log, &sum)?;
    c.binary(BinaryOp::Add, &max, &log)
}

/// Applies `f` along the axis; before opset 13 all axes from there on count as one.
fn along(
    c: &mut Call<'_, '_>,
    f: impl FnOnce(&mut Call<'_, '_>, &Value, usize) -> OpResult<Value>,
) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let shape = c.shape(&x);
    if c.opset >= 13 {
        let axis = c.axis(-1, shape.len())?;
        return Ok(vec![f(c, &x, axis)?]);
    }
    let axis = c.axis(1, shape.len())?;
    if axis + 1 == shape.len() {
        return Ok(vec![f(c, &x, axis)?]);
    }
    let mut flat = shape[..axis].to_vec();
    flat.push(shape[axis..].iter().cloned().product::<Dim>());
    let flat = c.reshape(&x, flat)?;
    let out = f(c, &flat, axis)?;
    Ok(vec![c.reshape(&out, shape)?])
}

pub(super) fn softmax(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    along(c, |c, x, axis| c.apply(Op::Softmax { axis }, &[x]))
}

/// `x - log(sum(exp(x)))`.
pub(super) fn log_softmax(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    along(c, |c, x, axis| {
        let sum = log_sum(c, x, &[axis])?;
        c.binary(BinaryOp::Sub, x, &sum)
    })
}

pub(super) fn cumsum(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, axis) = (c.input(0)?, c.input(1)?);
    let exclusive = c.attrs.flag("exclusive", false)?;
    let reverse = c.attrs.flag("reverse", false)?;
    let axis = match c.ints(&axis, "the axis")?.as_slice() {
        [axis] => c.axis_of(*axis, c.rank(&x))?,
        found => {
            return Err(OpError::invalid(
                "bad-axis",
                format!("{} axes, expected 1", found.len()),
            ));
        }
    };
    Ok(vec![c.apply(
        Op::CumSum {
            axis,
            exclusive,
            reverse,
        },
        &[&x],
    )?])
}
