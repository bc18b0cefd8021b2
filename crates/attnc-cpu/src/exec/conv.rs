//! Convolution as a matrix product: windows are laid out as columns, a bounded number at a time.

use super::gemm::{Left, Threads, gemm, threads_for};
use super::mat::Mat;
use super::view::View;
use crate::index::{Odometer, strides};
use attnc_ir::Conv;
use rayon::prelude::*;

/// Elements of the window matrix that are laid out at a time.
const TILE: usize = 1 << 18;

/// `x [N, C, spatial..]` with `w [F, C / groups, kernel..]` and an optional bias; all packed.
pub(crate) fn conv(operands: &[View<'_>], conv: &Conv, out_shape: &[usize], out: &mut [f32]) {
    let (x, w) = (&operands[0], &operands[1]);
    let bias = operands.get(2);
    let filters = w.layout.shape[0] / conv.groups;
    let taps: usize = w.layout.shape[1..].iter().product();
    let places: usize = out_shape[2..].iter().product();
    if out.is_empty() {
        return;
    }
    let windows = Windows::new(x, w, conv, out_shape);
    let weights = w.f32();
    // One image and group; rows of its stretch of the result are filters.
    let group = |n: usize, out: &mut [f32], threads: Threads, columns: &mut Vec<f32>| {
        let (image, group) = (n / conv.groups, n % conv.groups);
        let weights = &weights[group * filters * taps..(group + 1) * filters * taps];
        let width = (TILE / taps.max(1)).clamp(1, places);
        for first in (0..places).step_by(width) {
            let width = width.min(places - first);
            columns.resize(taps * width, 0.0);
            windows.lay_out(image, group, first, width, columns);
            let kernel = Left::new(weights, [filters, taps], taps);
            let right = Mat::packed(&columns[..taps * width], [taps, width]);
            let end = (filters - 1) * places + first + width;
            gemm(kernel, right, &mut out[first..end], places, threads);
        }
        if let Some(bias) = bias {
            for (f, row) in out.chunks_exact_mut(places).enumerate() {
                let at = bias.layout.position(&[group * filters + f]);
                let b = bias.f32()[at];
                row.iter_mut().for_each(|o| *o += b);
            }
        }
    };
    let groups = out.len() / (filters * places);
    if groups >= rayon::current_num_threads() {
        out.par_chunks_exact_mut(filters * places)
            .enumerate()
            .for_each_init(Vec::new, |columns, (n, out)| {
                group(n, out, Threads::One, columns);
            });
    } else {
        let mut columns = Vec::new();
        for (n, out) in out.chunks_exact_mut(filters * places).enumerate() {
            group(n, out, threads_for(filters * places * taps), &mut columns);
        }
    }
}

/// The windows of an input: which element each tap of each place sees.
struct Windows<'a> {
    data: &'a [f32],
    x_shape: &'a [usize],
    kernel: &'a [usize],
    places: &'a [usize],
    conv: &'a Conv,
}

impl<'a> Windows<'a> {
    fn new(x: &View<'a>, w: &View<'a>, conv: &'a Conv, out_shape: &'a [usize]) -> Self {
        Self {
            data: x.f32(),
            x_shape: &x.layout.shape,
            kernel: &w.layout.shape[1..],
            places: &out_shape[2..],
            conv,
        }
    }

    /// Column `i` is the window of place `first + i`; zeros outside of the input.
    fn lay_out(&self, image: usize, group: usize, first: usize, width: usize, out: &mut [f32]) {
        let stride = strides(self.x_shape);
        let mut tap = Odometer::at(self.kernel, 0);
        for row in out.chunks_exact_mut(width) {
            let channel = group * self.kernel[0] + tap.index()[0];
            let start = image * stride[0] + channel * stride[1];
            let mut place = Odometer::at(self.places, first);
            for x in row {
                let at = self.position(start, &stride, place.index(), tap.index());
                *x = at.map_or(0.0, |at| self.data[at]);
                place.step();
            }
            tap.step();
        }
    }

    fn position(
        &self,
        start: usize,
        stride: &[usize],
        place: &[usize],
        tap: &[usize],
    ) -> Option<usize> {
        let mut at = start;
        for (s, &p) in place.iter().enumerate() {
            let i = p * self.conv.strides[s] + tap[s + 1] * self.conv.dilations[s];
            let i = i.checked_sub(self.conv.pads_before[s])?;
            if i >= self.x_shape[s + 2] {
                return None;
            }
            at += i * stride[s + 2];
        }
        Some(at)
    }
}
