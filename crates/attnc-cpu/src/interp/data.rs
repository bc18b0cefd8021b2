//! Data ops: concatenation, padding, look-ups, counting.

use super::{At, Value};
use crate::ExecError;
use crate::index::{for_each_index, position, strides};
use crate::lazy::OutOfRange;
use crate::scalar64::{cast, wrap};
use attnc_ir::{DType, Dim, PadMode};

/// Operands one after another along the axis.
pub(super) fn concat(operands: &[&Value], axis: usize) -> Vec<f64> {
    let outer: usize = operands[0].shape[..axis].iter().product();
    let mut out = Vec::new();
    for o in 0..outer {
        for x in operands {
            let run: usize = x.shape[axis..].iter().product();
            out.extend_from_slice(&x.data[o * run..(o + 1) * run]);
        }
    }
    out
}

/// Elements added around.
pub(super) fn pad(at: &At<'_>, before: &[Dim], mode: PadMode) -> Result<Vec<f64>, ExecError> {
    let x = at.operands[0];
    let before = before
        .iter()
        .map(|d| at.length(d))
        .collect::<Result<Vec<_>, _>>()?;
    let stride = strides(&x.shape);
    let mut out = Vec::with_capacity(at.shape.iter().product());
    let mut outside = None;
    for_each_index(at.shape, |index| {
        let mut from = Vec::with_capacity(index.len());
        for (n, &i) in index.iter().enumerate() {
            let i = i64::try_from(i).unwrap_or(i64::MAX) - before[n];
            let size = i64::try_from(x.shape[n]).unwrap_or(i64::MAX);
            let i = match mode {
                PadMode::Constant(_) => i,
                PadMode::Edge => i.min(size - 1).max(0),
                PadMode::Reflect if i < 0 => -i,
                PadMode::Reflect if i >= size => 2 * (size - 1) - i,
                PadMode::Reflect => i,
            };
            from.extend(usize::try_from(i).ok().filter(|&i| i < x.shape[n]));
        }
        out.push(if from.len() == index.len() {
            x.data[position(&from, &stride)]
        } else if let PadMode::Constant(fill) = mode {
            cast(DType::F32, x.dtype, fill)
        } else {
            outside.get_or_insert_with(|| index.to_vec());
            f64::NAN
        });
    });
    match outside {
        None => Ok(out),
        Some(_) => Err(at.length_error(crate::LengthError::Mismatch {
            from: x.shape.clone(),
            to: at.shape.to_vec(),
        })),
    }
}

/// An index that counts from the end where it is negative.
#[expect(
    clippy::cast_possible_truncation,
    reason = "integers of 32 bits are exact in f64"
)]
fn wrap_index(index: f64, size: usize) -> Result<usize, OutOfRange> {
    let index = index as i64;
    let from_end = index + i64::try_from(size).unwrap_or(i64::MAX);
    usize::try_from(if index < 0 { from_end } else { index })
        .ok()
        .filter(|&i| i < size)
        .ok_or(OutOfRange { index, size })
}

/// The axis replaced by the axes of the indices.
pub(super) fn gather(at: &At<'_>, axis: usize) -> Result<Vec<f64>, ExecError> {
    let (x, indices) = (at.operands[0], at.operands[1]);
    let outer: usize = x.shape[..axis].iter().product();
    let run: usize = x.shape[axis + 1..].iter().product();
    let size = x.shape[axis];
    let mut out = Vec::with_capacity(at.shape.iter().product());
    for o in 0..outer {
        for &index in &indices.data {
            let i = wrap_index(index, size).map_err(|e| at.out_of_range(e))?;
            let start = (o * size + i) * run;
            out.extend_from_slice(&x.data[start..start + run]);
        }
    }
    Ok(out)
}

/// One index an element.
pub(super) fn gather_elements(at: &At<'_>, axis: usize) -> Result<Vec<f64>, ExecError> {
    let (x, indices) = (at.operands[0], at.operands[1]);
    let stride = strides(&x.shape);
    let mut out = Vec::with_capacity(indices.data.len());
    let mut wrong = None;
    let mut flat = 0;
    for_each_index(&indices.shape, |index| {
        let mut from = index.to_vec();
        match wrap_index(indices.data[flat], x.shape[axis]) {
            Ok(i) => from[axis] = i,
            Err(e) => {
                wrong.get_or_insert(e);
                from[axis] = 0;
            }
        }
        out.push(x.data.get(position(&from, &stride)).copied().unwrap_or(0.0));
        flat += 1;
    });
    match wrong {
        None => Ok(out),
        Some(e) => Err(at.out_of_range(e)),
    }
}

/// The last axis of the indices holds one index for each axis after the shared ones.
pub(super) fn gather_nd(at: &At<'_>, batch_dims: usize) -> Result<Vec<f64>, ExecError> {
    let (x, indices) = (at.operands[0], at.operands[1]);
    let count = indices.shape[indices.shape.len() - 1];
    let tuples: usize = indices.shape[..indices.shape.len() - 1].iter().product();
    let batches: usize = indices.shape[..batch_dims].iter().product();
    let run: usize = x.shape[batch_dims + count..].iter().product();
    let mut out = Vec::with_capacity(tuples * run);
    for t in 0..tuples {
        let batch = t / (tuples / batches.max(1)).max(1);
        let mut row = batch;
        for n in 0..count {
            let size = x.shape[batch_dims + n];
            let i =
                wrap_index(indices.data[t * count + n], size).map_err(|e| at.out_of_range(e))?;
            row = row * size + i;
        }
        out.extend_from_slice(&x.data[row * run..(row + 1) * run]);
    }
    Ok(out)
}

/// Counts along an axis.
pub(super) fn iota(
    at: &At<'_>,
    axis: usize,
    start: &Dim,
    step: &Dim,
) -> Result<Vec<f64>, ExecError> {
    let (start, step) = (at.length(start)?, at.length(step)?);
    let mut out = Vec::with_capacity(at.shape.iter().product());
    for_each_index(at.shape, |index| {
        let i = i64::try_from(index[axis]).unwrap_or(i64::MAX);
        out.push(wrap(DType::I32, start + i * step));
    });
    Ok(out)
}
