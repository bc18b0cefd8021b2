//! Ops over the elements of a row: softmax, norms, reductions, running sums.

use super::copy::SEQUENTIAL;
use super::layout::{Layout, Rows};
use super::math;
use super::scratch::Lanes;
use super::view::View;
use crate::index::Axes;
use attnc_ir::{DType, ReduceOp};
use rayon::prelude::*;

/// Sums in a fixed order over 16 lanes, which vectorises and rounds less than one running sum.
pub(crate) fn sum(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0f32; 16];
    let chunks = values.chunks_exact(16);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += f(x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += f(x);
    }
    let mut width = 8;
    while width > 0 {
        for n in 0..width {
            lanes[n] += lanes[n + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// The largest element; NaN where there is one.
pub(crate) fn max(values: &[f32]) -> f32 {
    let larger = |m: f32, x: f32| if x > m || x.is_nan() { x } else { m };
    let mut lanes = [f32::NEG_INFINITY; 16];
    let chunks = values.chunks_exact(16);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = larger(*lane, x);
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, larger)
}

/// Calls `f` with each row of the operand, split at `axis`, and the same row of the packed result.
fn for_each_row(
    x: &View<'_>,
    axis: usize,
    out: &mut [f32],
    f: impl Fn(&[f32], &mut [f32]) + Send + Sync,
) {
    let rows = Rows::new(x.layout, axis);
    if out.is_empty() || rows.len() == 0 {
        return;
    }
    out.par_chunks_exact_mut(rows.len())
        .with_min_len((SEQUENTIAL / 4).div_ceil(rows.len()))
        .enumerate()
        .for_each_init(Lanes::take, |scratch, (n, out)| {
            f(bytemuck::cast_slice(rows.get(x.lanes, n, scratch)), out);
        });
}

/// `exp(x - max) / sum` along an axis; zeros where every element is -inf.
pub(crate) fn softmax(x: &View<'_>, axis: usize, out: &mut [f32]) {
    let inner: usize = x.layout.shape[axis + 1..].iter().product();
    for_each_row(x, axis, out, |row, out| {
        if inner == 1 {
            softmax_row(row, out);
        } else {
            softmax_columns(row, inner, out);
        }
    });
}

fn softmax_row(row: &[f32], out: &mut [f32]) {
    let max = max(row);
    if max == f32::NEG_INFINITY {
        out.fill(0.0);
        return;
    }
    for (o, &x) in out.iter_mut().zip(row) {
        *o = math::exp(x - max);
    }
    let scale = 1.0 / sum(out, |x| x);
    out.iter_mut().for_each(|o| *o *= scale);
}

/// Softmax down each of `inner` columns.
fn softmax_columns(data: &[f32], inner: usize, out: &mut [f32]) {
    let mut column = vec![0.0; data.len() / inner];
    let mut result = column.clone();
    for c in 0..inner {
        for (x, &e) in column.iter_mut().zip(data[c..].iter().step_by(inner)) {
            *x = e;
        }
        softmax_row(&column, &mut result);
        for (o, &e) in out[c..].iter_mut().step_by(inner).zip(&result) {
            *o = e;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "rows are shorter than 2^24")]
fn mean(row: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    sum(row, f) / row.len() as f32
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "f32 is the type of the sums"
)]
fn narrow(eps: f64) -> f32 {
    eps as f32
}

/// A parameter of a norm, broadcast to the row; in place where it is as long.
fn parameter<'a>(view: &View<'a>, row: &[usize], copied: &'a mut Lanes) -> &'a [f32] {
    let layout = view.layout.broadcast(row);
    let (first, len) = (layout.offset, layout.elements());
    if layout.is_packed()
        && let Some(lanes) = view.lanes.get(first..first + len)
    {
        return bytemuck::cast_slice(lanes);
    }
    copied.resize(len, 0);
    let view = View {
        lanes: view.lanes,
        layout: &layout,
    };
    super::copy::pack(&view, copied);
    bytemuck::cast_slice(copied)
}

/// `(x - mean) / sqrt(variance + eps) * gain + bias` over the axes from `axis` on.
pub(crate) fn layer_norm(operands: &[View<'_>], axis: usize, eps: f64, out: &mut [f32]) {
    let x = &operands[0];
    let row_shape = &x.layout.shape[axis..];
    let (mut gain, mut bias) = (Lanes::take(), Lanes::take());
    let gain = parameter(&operands[1], row_shape, &mut gain);
    let bias = parameter(&operands[2], row_shape, &mut bias);
    for_each_row(x, axis, out, |row, out| {
        let mean = mean(row, |x| x);
        let variance = self::mean(row, |x| (x - mean) * (x - mean));
        let scale = 1.0 / (variance + narrow(eps)).sqrt();
        for (((o, &x), g), b) in out.iter_mut().zip(row).zip(gain).zip(bias) {
            *o = (x - mean) * scale * g + b;
        }
    });
}

/// `x / sqrt(mean(x * x) + eps) * gain` over the axes from `axis` on.
pub(crate) fn rms_norm(operands: &[View<'_>], axis: usize, eps: f64, out: &mut [f32]) {
    let x = &operands[0];
    let mut gain = Lanes::take();
    let gain = parameter(&operands[1], &x.layout.shape[axis..], &mut gain);
    for_each_row(x, axis, out, |row, out| {
        let scale = 1.0 / (mean(row, |x| x * x) + narrow(eps)).sqrt();
        for ((o, &x), g) in out.iter_mut().zip(row).zip(gain) {
            *o = x * scale * g;
        }
    });
}

/// Joins the elements over axes; `out` is packed over the axes that stay.
pub(crate) fn reduce(x: &View<'_>, dtype: DType, op: ReduceOp, axes: &[usize], out: &mut [u32]) {
    let rank = x.layout.shape.len();
    let kept = (0..rank).filter(|n| !axes.contains(n));
    let perm: Axes<usize> = kept.chain(axes.iter().copied()).collect();
    let layout: Layout = x.layout.transpose(&perm);
    let rows = Rows::new(&layout, rank - axes.len());
    out.par_iter_mut()
        .with_min_len(SEQUENTIAL.div_ceil(rows.len().max(1)))
        .enumerate()
        .for_each_init(Lanes::take, |scratch, (n, out)| {
            let row = if rows.len() == 0 {
                &[]
            } else {
                rows.get(x.lanes, n, scratch)
            };
            *out = join(dtype, op, row);
        });
}

fn join(dtype: DType, op: ReduceOp, row: &[u32]) -> u32 {
    match (dtype, op) {
        (_, ReduceOp::Any) => u32::from(row.iter().any(|&x| x != 0)),
        (_, ReduceOp::All) => u32::from(row.iter().all(|&x| x != 0)),
        (DType::I32, _) => join_ints(
            op,
            row.iter().map(|x| i64::from(x.cast_signed())),
            [i64::from(i32::MIN), i64::from(i32::MAX)],
        ),
        (DType::U32 | DType::Bool, _) => join_ints(
            op,
            row.iter().map(|&x| i64::from(x)),
            [0, i64::from(u32::MAX)],
        ),
        _ => join_floats(op, bytemuck::cast_slice(row)).to_bits(),
    }
}

/// Sums and products wrap; a mean is truncated.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "wrapping is what integers of 32 bits do"
)]
fn join_ints(
    op: ReduceOp,
    row: impl ExactSizeIterator<Item = i64>,
    [least, most]: [i64; 2],
) -> u32 {
    let count = i64::try_from(row.len()).unwrap_or(i64::MAX).max(1);
    let joined = match op {
        ReduceOp::Sum => row.fold(0, i64::wrapping_add),
        ReduceOp::Mean => {
            let sum = row.fold(0, i64::wrapping_add);
            // The sum wraps to the type before it is divided.
            let sum = if least < 0 {
                i64::from(sum as i32)
            } else {
                i64::from(sum as u32)
            };
            sum / count
        }
        ReduceOp::Prod => row.fold(1, i64::wrapping_mul),
        ReduceOp::Min => row.fold(most, i64::min),
        ReduceOp::Max => row.fold(least, i64::max),
        ReduceOp::Any | ReduceOp::All => 0,
    };
    joined as u32
}

fn join_floats(op: ReduceOp, row: &[f32]) -> f32 {
    match op {
        ReduceOp::Sum => sum(row, |x| x),
        ReduceOp::Mean => mean(row, |x| x),
        ReduceOp::Prod => row.iter().product(),
        ReduceOp::Max => max(row),
        ReduceOp::Min => row.iter().fold(
            f32::INFINITY,
            |m, &x| {
                if m.is_nan() || m < x { m } else { x }
            },
        ),
        ReduceOp::Any | ReduceOp::All => f32::NAN,
    }
}

/// The sum up to each element along an axis.
pub(crate) fn cumsum(
    x: &View<'_>,
    dtype: DType,
    axis: usize,
    [exclusive, reverse]: [bool; 2],
    out: &mut [u32],
) {
    let rows = Rows::new(x.layout, axis);
    let inner: usize = x.layout.shape[axis + 1..].iter().product();
    if out.is_empty() {
        return;
    }
    let add = |a: u32, b: u32| {
        if dtype.is_float() {
            (f32::from_bits(a) + f32::from_bits(b)).to_bits()
        } else {
            a.wrapping_add(b)
        }
    };
    out.par_chunks_exact_mut(rows.len())
        .enumerate()
        .for_each_init(Lanes::take, |scratch, (n, out)| {
            let row = rows.get(x.lanes, n, scratch);
            let steps = row.len() / inner;
            let mut running = vec![0; inner];
            for step in 0..steps {
                let at = if reverse { steps - 1 - step } else { step } * inner;
                for (c, sum) in running.iter_mut().enumerate() {
                    let next = add(*sum, row[at + c]);
                    out[at + c] = if exclusive { *sum } else { next };
                    *sum = next;
                }
            }
        });
}
