//! Batched matrix product over strided operands.
//!
//! Where the right side is the same for the whole batch, the batch is one tall product; otherwise batches are
//! shared among threads, or each product is.
//!
//! A right side that is a weight is packed when the plan is made, and kept ([`worth_packing`]): it is read on
//! every run, and packing it costs a quarter of a product with seven rows. Weights that meet fewer than
//! [`FEW_ROWS`] rows, as in decoding, are read where they lie: nothing is gained by a copy, and the weights
//! of a model that only decodes stay in its file.

use super::copy;
use super::gemm::{FEW_ROWS, Left, Right, Threads, gemm, multiply, threads_for};
use super::layout::Layout;
use super::mat::Mat;
use super::panels::Panels;
use super::plan::{Kernel, Source, Step};
use super::scratch::Lanes;
use super::view::View;
use crate::index::{Axes, Odometer};
use rayon::prelude::*;

/// Multiplications of all products together below which one thread does them.
const SEQUENTIAL: usize = 1 << 16;

/// `a [.., M, K] b [.., K, N]`, leading axes broadcast; `out` is packed. `packed` is `b`, where it is kept.
pub(crate) fn matmul(a: &View<'_>, b: &View<'_>, packed: Option<&Panels>, out: &mut [f32]) {
    let (a_lead, b_lead) = (a.layout.shape.len() - 2, b.layout.shape.len() - 2);
    let [m, k] = [a.layout.shape[a_lead], a.layout.shape[a_lead + 1]];
    let n = b.layout.shape[b_lead + 1];
    let batch = broadcast_shape(&a.layout.shape[..a_lead], &b.layout.shape[..b_lead]);
    if out.is_empty() {
        return;
    }
    let full = |v: &View<'_>, lead: usize| {
        let mut shape = batch.clone();
        shape.extend_from_slice(&v.layout.shape[lead..]);
        broadcast_lead(v.layout, &shape)
    };
    let (a_layout, b_layout) = (full(a, a_lead), full(b, b_lead));
    if is_shared(&batch, &b_layout) {
        let rows = out.len() / n;
        let threads = threads_for(rows * n * k);
        let right = matrix(b, &b_layout, 0, [k, n]);
        let mut product = |left: Left<'_>| match packed {
            Some(panels) => multiply(left, Right::Panels(panels), out, n, threads),
            None => gemm(left, right, out, n, threads),
        };
        if let Some(flat) = a_layout.reshape(&[rows, k]) {
            return with_rows(matrix(a, &flat, 0, [rows, k]), product);
        }
        let mut flat = Lanes::take();
        flat.resize(rows * k, 0);
        copy::pack(
            &View {
                lanes: a.lanes,
                layout: &a_layout,
            },
            &mut flat,
        );
        return product(Left::new(bytemuck::cast_slice(&flat), [rows, k], k));
    }
    let one = |at: usize, out: &mut [f32], threads| {
        let odometer = Odometer::at(&batch, at);
        let start = |l: &Layout| l.position(odometer.index());
        let left = matrix(a, &a_layout, start(&a_layout) - a_layout.offset, [m, k]);
        let right = matrix(b, &b_layout, start(&b_layout) - b_layout.offset, [k, n]);
        with_rows(left, |left| gemm(left, right, out, n, threads));
    };
    let products = out.len() / (m * n);
    if products >= rayon::current_num_threads() && products * m * n * k > SEQUENTIAL {
        out.par_chunks_exact_mut(m * n)
            .with_min_len((SEQUENTIAL / 4 / (m * n * k).max(1)).max(1))
            .enumerate()
            .for_each(|(at, out)| one(at, out, Threads::One));
    } else {
        for (at, out) in out.chunks_exact_mut(m * n).enumerate() {
            one(at, out, threads_for(m * n * k));
        }
    }
}

/// Whether the right side of a product is a weight that is to be packed once and kept.
pub(crate) fn worth_packing(step: &Step) -> bool {
    let (Kernel::MatMul(_), [_, b, ..]) = (&step.kernel, &step.operands[..]) else {
        return false;
    };
    let (lead, cols) = b.layout.shape.split_at(b.layout.shape.len() - 1);
    let shared = lead[..lead.len() - 1].iter().all(|&d| d == 1);
    matches!(b.source, Source::Weight(_)) && shared && step.len >= FEW_ROWS * cols[0].max(1)
}

/// Rows whose elements are neighbours, copied where they are not.
fn with_rows(a: Mat<'_>, f: impl FnOnce(Left<'_>)) {
    if a.cols == 0 {
        return f(Left::new(&[], [a.rows, 0], 0));
    }
    if a.col_stride == 1 && a.row_stride >= 0 {
        let left = Left::new(
            &a.data[a.offset..],
            [a.rows, a.cols],
            a.row_stride.unsigned_abs(),
        );
        return f(left);
    }
    let mut copy = Lanes::take();
    copy.clear();
    copy.extend((0..a.rows).flat_map(|i| (0..a.cols).map(move |j| a.at(i, j).to_bits())));
    f(Left::new(
        bytemuck::cast_slice(&copy),
        [a.rows, a.cols],
        a.cols,
    ));
}

/// Whether the right side is the same matrix for the whole batch.
fn is_shared(batch: &[usize], b: &Layout) -> bool {
    batch
        .iter()
        .zip(&b.strides)
        .all(|(&d, &s)| d == 1 || s == 0)
}

fn matrix<'a>(view: &View<'a>, full: &Layout, distance: usize, shape: [usize; 2]) -> Mat<'a> {
    let lead = full.shape.len() - 2;
    let strides = [full.strides[lead], full.strides[lead + 1]];
    Mat::new(view.f32(), full.offset + distance, shape, strides)
}

fn broadcast_shape(a: &[usize], b: &[usize]) -> Axes<usize> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], n: usize| (n + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
    (0..rank)
        .map(|n| match (at(a, n), at(b, n)) {
            (1, y) => y,
            (x, _) => x,
        })
        .collect()
}

/// Leading axes broadcast; the last two stay, whatever their size.
fn broadcast_lead(layout: &Layout, shape: &[usize]) -> Layout {
    let mut out = layout.broadcast(shape);
    let (rank, own) = (shape.len(), layout.shape.len());
    out.strides[rank - 2..].copy_from_slice(&layout.strides[own - 2..]);
    out
}
