//! Ops over the elements of a row: reductions, running sums, softmax, norms.

use super::Value;
use super::views::broadcast_strides;
use crate::index::{for_each_index, position, strides};
use crate::scalar64::{binary, wrap};
use attnc_ir::{BinaryOp, DType, ReduceOp};

/// Joins the elements over axes.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "counts are far below 2^53, and integers of 32 bits exact in f64"
)]
pub(super) fn reduce(x: &Value, op: ReduceOp, axes: &[usize]) -> Vec<f64> {
    let kept: Vec<usize> = (0..x.shape.len()).filter(|n| !axes.contains(n)).collect();
    let kept_shape: Vec<usize> = kept.iter().map(|&n| x.shape[n]).collect();
    let to = strides(&kept_shape);
    let (join, start) = match op {
        ReduceOp::Sum | ReduceOp::Mean => (BinaryOp::Add, 0.0),
        ReduceOp::Prod => (BinaryOp::Mul, 1.0),
        ReduceOp::Min => (BinaryOp::Min, largest(x.dtype)),
        ReduceOp::Max => (BinaryOp::Max, smallest(x.dtype)),
        ReduceOp::Any => (BinaryOp::Or, 0.0),
        ReduceOp::All => (BinaryOp::And, 1.0),
    };
    let mut out = vec![start; kept_shape.iter().product()];
    let mut flat = 0;
    for_each_index(&x.shape, |index| {
        let slot = &mut out[kept
            .iter()
            .zip(&to)
            .map(|(&n, s)| index[n] * s)
            .sum::<usize>()];
        *slot = binary(join, x.dtype, *slot, x.data[flat]);
        flat += 1;
    });
    if op == ReduceOp::Mean {
        let count = axes.iter().map(|&n| x.shape[n]).product::<usize>() as f64;
        for mean in &mut out {
            *mean = if x.dtype.is_int() {
                wrap(x.dtype, (*mean / count) as i64)
            } else {
                *mean / count
            };
        }
    }
    out
}

fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::I32 => f64::from(i32::MAX),
        DType::U32 => f64::from(u32::MAX),
        _ => f64::INFINITY,
    }
}

fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::I32 => f64::from(i32::MIN),
        DType::U32 => 0.0,
        _ => f64::NEG_INFINITY,
    }
}

/// Calls `f` with the positions of every row along an axis.
fn for_each_row(shape: &[usize], axis: usize, mut f: impl FnMut(&[usize])) {
    let outer: usize = shape[..axis].iter().product();
    let inner: usize = shape[axis + 1..].iter().product();
    for o in 0..outer {
        for i in 0..inner {
            let row: Vec<usize> = (0..shape[axis])
                .map(|n| (o * shape[axis] + n) * inner + i)
                .collect();
            f(&row);
        }
    }
}

/// The sum up to each element.
pub(super) fn cumsum(x: &Value, axis: usize, exclusive: bool, reverse: bool) -> Vec<f64> {
    let mut out = vec![0.0; x.data.len()];
    for_each_row(&x.shape, axis, |row| {
        let mut sum = 0.0;
        let mut step = |at: usize| {
            let before = sum;
            sum = binary(BinaryOp::Add, x.dtype, sum, x.data[at]);
            out[at] = if exclusive { before } else { sum };
        };
        if reverse {
            row.iter().rev().for_each(|&at| step(at));
        } else {
            row.iter().for_each(|&at| step(at));
        }
    });
    out
}

/// `exp(x - max) / sum`; zeros where every element is -inf, since that means no key.
pub(super) fn softmax(x: &Value, axis: usize) -> Vec<f64> {
    let mut out = vec![0.0; x.data.len()];
    for_each_row(&x.shape, axis, |row| {
        if row.iter().all(|&at| x.data[at] == f64::NEG_INFINITY) {
            return;
        }
        let max = row
            .iter()
            .fold(f64::NEG_INFINITY, |m, &at| m.max(x.data[at]));
        let mut sum = 0.0;
        for &at in row {
            out[at] = (x.data[at] - max).exp();
            sum += out[at];
        }
        for &at in row {
            out[at] /= sum;
        }
    });
    out
}

/// `(x - mean) / sqrt(variance + eps) * gain + bias`.
pub(super) fn layer_norm(operands: &[&Value], axis: usize, eps: f64) -> Vec<f64> {
    let x = operands[0];
    let (gain, bias) = (
        parameter(operands[1], &x.shape[axis..]),
        parameter(operands[2], &x.shape[axis..]),
    );
    let mut out = Vec::with_capacity(x.data.len());
    for row in x.data.chunks(gain.len().max(1)) {
        let mean = mean(row.iter().copied());
        let scale = 1.0 / (self::mean(row.iter().map(|e| (e - mean).powi(2))) + eps).sqrt();
        out.extend((0..row.len()).map(|i| (row[i] - mean) * scale * gain[i] + bias[i]));
    }
    out
}

/// `x / sqrt(mean(x * x) + eps) * gain`.
pub(super) fn rms_norm(operands: &[&Value], axis: usize, eps: f64) -> Vec<f64> {
    let x = operands[0];
    let gain = parameter(operands[1], &x.shape[axis..]);
    let mut out = Vec::with_capacity(x.data.len());
    for row in x.data.chunks(gain.len().max(1)) {
        let scale = 1.0 / (mean(row.iter().map(|e| e * e)) + eps).sqrt();
        out.extend((0..row.len()).map(|i| row[i] * scale * gain[i]));
    }
    out
}

fn parameter(p: &Value, row: &[usize]) -> Vec<f64> {
    let stride = broadcast_strides(&p.shape, row);
    let mut out = Vec::new();
    for_each_index(row, |i| out.push(p.data[position(i, &stride)]));
    out
}

#[expect(clippy::cast_precision_loss, reason = "rows are far shorter than 2^53")]
fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}
