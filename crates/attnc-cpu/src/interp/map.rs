//! Scalar expressions: maps and epilogues.

use super::{At, Value};
use crate::ExecError;
use crate::index::Odometer;
use crate::lazy::{BoundExpr, OutOfRange};
use attnc_ir::scalar::ScalarExpr;
use rayon::prelude::*;

/// The element of an operand at an index.
pub(super) fn load(operand: &Value, index: &[i64]) -> Result<f64, OutOfRange> {
    let mut at = 0;
    for (&i, &size) in index.iter().zip(&operand.shape) {
        let i_in_range = usize::try_from(i).ok().filter(|&i| i < size);
        at = at * size + i_in_range.ok_or(OutOfRange { index: i, size })?;
    }
    Ok(operand.data[at])
}

fn index_at(shape: &[usize], flat: usize) -> Vec<i64> {
    Odometer::at(shape, flat)
        .index()
        .iter()
        .map(|&i| i64::try_from(i).unwrap_or(i64::MAX))
        .collect()
}

/// Every element by the expression.
pub(super) fn map(at: &At<'_>, expr: &ScalarExpr) -> Result<Vec<f64>, ExecError> {
    let expr = BoundExpr::new(expr, &at.bound.dims).map_err(|e| at.dim_error(e))?;
    (0..at.shape.iter().product())
        .into_par_iter()
        .map(|flat| {
            expr.eval(&index_at(at.shape, flat), 0.0, &|operand, _, index| {
                load(at.operands[operand], index)
            })
        })
        .collect::<Result<_, _>>()
        .map_err(|e| at.out_of_range(e))
}

/// Every element through the expression, as its argument.
pub(super) fn epilogue(at: &At<'_>, expr: &ScalarExpr, data: &mut [f64]) -> Result<(), ExecError> {
    let expr = BoundExpr::new(expr, &at.bound.dims).map_err(|e| at.dim_error(e))?;
    data.par_iter_mut()
        .enumerate()
        .try_for_each(|(flat, element)| {
            *element = expr.eval(&index_at(at.shape, flat), *element, &|operand, _, index| {
                load(at.operands[operand], index)
            })?;
            Ok(())
        })
        .map_err(|e| at.out_of_range(e))
}
