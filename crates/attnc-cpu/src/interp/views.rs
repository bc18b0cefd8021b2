//! Views, as copies.

use super::{At, Value};
use crate::index::{for_each_index, position, strides};
use crate::{ExecError, LengthError};
use attnc_ir::Dim;

/// Result axis `i` is axis `perm[i]`.
pub(super) fn transpose(x: &Value, perm: &[usize]) -> Vec<f64> {
    let from = strides(&x.shape);
    let shape: Vec<usize> = perm.iter().map(|&p| x.shape[p]).collect();
    let stride: Vec<usize> = perm.iter().map(|&p| from[p]).collect();
    pick(x, &shape, &stride)
}

/// Repeats along new leading axes and axes of length 1.
pub(super) fn broadcast(x: &Value, shape: &[usize]) -> Vec<f64> {
    pick(x, shape, &broadcast_strides(&x.shape, shape))
}

/// Distance in a tensor of shape `from` between neighbours of it broadcast to `to`.
pub(super) fn broadcast_strides(from: &[usize], to: &[usize]) -> Vec<usize> {
    let own = strides(from);
    let mut out = vec![0; to.len() - from.len()];
    out.extend(
        from.iter()
            .zip(own)
            .map(|(&d, s)| if d == 1 { 0 } else { s }),
    );
    out
}

fn pick(x: &Value, shape: &[usize], stride: &[usize]) -> Vec<f64> {
    let mut out = Vec::with_capacity(shape.iter().product());
    for_each_index(shape, |i| out.push(x.data[position(i, stride)]));
    out
}

/// Elements `start, start + step, …` along an axis.
pub(super) fn slice(
    at: &At<'_>,
    axis: usize,
    start: &Dim,
    step: i64,
) -> Result<Vec<f64>, ExecError> {
    let x = at.operands[0];
    let (start, len) = (at.length(start)?, at.shape[axis]);
    let taken = slice_range(start, step, len, x.shape[axis]).map_err(|e| at.length_error(e))?;
    let stride = strides(&x.shape);
    let mut out = Vec::with_capacity(at.shape.iter().product());
    for_each_index(at.shape, |i| {
        let mut from = i.to_vec();
        from[axis] = taken[i[axis]];
        out.push(x.data[position(&from, &stride)]);
    });
    Ok(out)
}

/// The indices that a slice takes.
fn slice_range(start: i64, step: i64, len: usize, size: usize) -> Result<Vec<usize>, LengthError> {
    let at = |n: usize| start + i64::try_from(n).unwrap_or(i64::MAX).saturating_mul(step);
    (0..len)
        .map(|n| usize::try_from(at(n)).ok().filter(|&i| i < size))
        .collect::<Option<_>>()
        .ok_or(LengthError::Slice {
            first: start,
            last: at(len.saturating_sub(1)),
            size,
        })
}
