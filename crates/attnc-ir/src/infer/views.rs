//! Types of what moves elements: views, concatenation, padding, gathers.

use super::{Result, check_axis, expect_index, expect_same_dtype, shape_error, shape_text};
use crate::{Diagnostic, Dim, Shape, TensorType};

pub(super) fn reshape(x: &TensorType, shape: &Shape) -> Result<TensorType> {
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

pub(super) fn transpose(x: &TensorType, perm: &[usize]) -> Result<TensorType> {
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

pub(super) fn slice(
    x: &TensorType,
    axis: usize,
    start: &Dim,
    len: &Dim,
    step: i64,
) -> Result<TensorType> {
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

pub(super) fn concat(operands: &[&TensorType], axis: usize) -> Result<TensorType> {
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

pub(super) fn pad(x: &TensorType, before: &[Dim], after: &[Dim]) -> Result<TensorType> {
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

pub(super) fn gather(operands: &[&TensorType], axis: usize) -> Result<TensorType> {
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

pub(super) fn gather_elements(operands: &[&TensorType], axis: usize) -> Result<TensorType> {
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

pub(super) fn gather_nd(operands: &[&TensorType], batch_dims: usize) -> Result<TensorType> {
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
