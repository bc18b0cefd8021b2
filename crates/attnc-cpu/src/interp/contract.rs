//! Contractions: matrix product and convolution.

use super::Value;
use super::views::broadcast_strides;
use crate::index::{Odometer, for_each_index, position, strides};
use attnc_ir::Conv;
use rayon::prelude::*;

/// `a [.., M, K]` times `b [.., K, N]`, leading axes broadcast; row by row of the result.
pub(super) fn matmul(a: &Value, b: &Value, shape: &[usize]) -> Vec<f64> {
    let lead = shape.len() - 2;
    let (m, n) = (shape[lead], shape[lead + 1]);
    let k = a.shape[a.shape.len() - 1];
    let batch = |v: &Value| broadcast_strides(&v.shape[..v.shape.len() - 2], &shape[..lead]);
    let (a_batch, b_batch) = (batch(a), batch(b));
    let mut out = vec![0.0; shape.iter().product()];
    out.par_chunks_mut(n.max(1))
        .enumerate()
        .for_each(|(row, out)| {
            let at = Odometer::at(&shape[..lead], row / m);
            let a_start = position(at.index(), &a_batch) * m * k + row % m * k;
            let b_start = position(at.index(), &b_batch) * k * n;
            for (i, &x) in a.data[a_start..a_start + k].iter().enumerate() {
                let b_row = &b.data[b_start + i * n..b_start + (i + 1) * n];
                for (sum, &y) in out.iter_mut().zip(b_row) {
                    *sum += x * y;
                }
            }
        });
    out
}

/// `x [N, C, spatial..]` with `w [F, C / groups, kernel..]` and an optional bias.
pub(super) fn conv(operands: &[&Value], conv: &Conv, shape: &[usize]) -> Vec<f64> {
    let (x, w) = (operands[0], operands[1]);
    let bias = operands.get(2);
    let (xs, ws) = (strides(&x.shape), strides(&w.shape));
    let filters_per_group = w.shape[0] / conv.groups;
    let element = |index: &[usize]| {
        let (n, f, out_at) = (index[0], index[1], &index[2..]);
        let first_channel = f / filters_per_group * w.shape[1];
        let mut sum = bias.map_or(0.0, |b| b.data[f]);
        for_each_index(&w.shape[1..], |tap| {
            let mut at = n * xs[0] + (first_channel + tap[0]) * xs[1];
            for (s, &out_i) in out_at.iter().enumerate() {
                let i = out_i * conv.strides[s] + tap[s + 1] * conv.dilations[s];
                match i.checked_sub(conv.pads_before[s]) {
                    Some(i) if i < x.shape[s + 2] => at += i * xs[s + 2],
                    _ => return,
                }
            }
            sum += x.data[at] * w.data[f * ws[0] + position(tap, &ws[1..])];
        });
        sum
    };
    (0..shape.iter().product())
        .into_par_iter()
        .map(|flat| element(Odometer::at(shape, flat).index()))
        .collect()
}
