//! Types of what is computed element by element.

use super::{Result, broadcast, check_expr, expect_float, expect_same_dtype};
use crate::scalar::ScalarExpr;
use crate::{BinaryOp, CompareOp, DType, Diagnostic, Shape, TensorType, UnaryOp};

pub(super) fn unary(op: UnaryOp, x: &TensorType) -> Result<TensorType> {
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

pub(super) fn binary(op: BinaryOp, a: &TensorType, b: &TensorType) -> Result<TensorType> {
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

pub(super) fn compare(op: CompareOp, a: &TensorType, b: &TensorType) -> Result<TensorType> {
    expect_same_dtype(op.name(), a, b)?;
    Ok(TensorType {
        dtype: DType::Bool,
        shape: broadcast(&a.shape, &b.shape)?,
    })
}

pub(super) fn select(operands: &[&TensorType]) -> Result<TensorType> {
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

pub(super) fn map(
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
