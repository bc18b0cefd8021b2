//! Matrix products.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{BinaryOp, Dim, Op};

/// As NumPy: a vector on the left is a row, on the right a column, and its axis is gone from the result.
pub(super) fn matmul(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (mut a, mut b) = (c.input(0)?, c.input(1)?);
    let (row, column) = (c.rank(&a) == 1, c.rank(&b) == 1);
    if row {
        let shape = vec![Dim::one(), c.shape(&a)[0].clone()];
        a = c.reshape(&a, shape)?;
    }
    if column {
        let shape = vec![c.shape(&b)[0].clone(), Dim::one()];
        b = c.reshape(&b, shape)?;
    }
    let mut out = c.apply(Op::MatMul, &[&a, &b])?;
    if row || column {
        let mut shape = c.shape(&out);
        let rank = shape.len();
        if column {
            shape.remove(rank - 1);
        }
        if row {
            shape.remove(rank - 2);
        }
        out = c.reshape(&out, shape)?;
    }
    Ok(vec![out])
}

/// `alpha * a' b' + beta * c`.
pub(super) fn gemm(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (mut a, mut b) = (c.input(0)?, c.input(1)?);
    if c.rank(&a) != 2 || c.rank(&b) != 2 {
        return Err(OpError::invalid(
            "shape-mismatch",
            format!("expected matrices, found {} and {}", c.ty(&a), c.ty(&b)),
        ));
    }
    if c.attrs.flag("transA", false)? {
        a = c.swap_last(&a)?;
    }
    if c.attrs.flag("transB", false)? {
        b = c.swap_last(&b)?;
    }
    let alpha = f64::from(c.attrs.float("alpha")?.unwrap_or(1.0));
    let beta = f64::from(c.attrs.float("beta")?.unwrap_or(1.0));
    let mut out = c.apply(Op::MatMul, &[&a, &b])?;
    if alpha != 1.0 {
        out = c.with(BinaryOp::Mul, &out, alpha)?;
    }
    // A beta of 0 leaves the operand out, whatever it holds.
    if let Some(mut bias) = c.optional(2).filter(|_| beta != 0.0) {
        if beta != 1.0 {
            bias = c.with(BinaryOp::Mul, &bias, beta)?;
        }
        let shape = c.shape(&out);
        out = c.binary(BinaryOp::Add, &out, &bias)?;
        if c.shape(&out) != shape {
            return Err(OpError::invalid(
                "shape-mismatch",
                format!("{} does not broadcast to the product", c.ty(&bias)),
            ));
        }
    }
    Ok(vec![out])
}
