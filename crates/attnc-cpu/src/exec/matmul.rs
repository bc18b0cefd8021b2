//! Batched matrix product over strided operands.
//!
//! Where the right side is the same for the whole batch and the rows of the left side are evenly spaced,
//! the batch is one tall product; otherwise batches are shared among threads, or each product is.

use super::gemm::{Mat, MatMut, Threads, gemm};
use super::layout::Layout;
use super::view::View;
use crate::index::Odometer;
use rayon::prelude::*;

/// Multiplications below which one thread does the product.
const SEQUENTIAL: usize = 1 << 16;

/// `a [.., M, K] b [.., K, N]`, leading axes broadcast; `out` is packed.
pub(crate) fn matmul(a: &View<'_>, b: &View<'_>, out: &mut [f32]) {
    let (a_lead, b_lead) = (a.layout.shape.len() - 2, b.layout.shape.len() - 2);
    let [m, k] = [a.layout.shape[a_lead], a.layout.shape[a_lead + 1]];
    let n = b.layout.shape[b_lead + 1];
    let batch = broadcast_shape(&a.layout.shape[..a_lead], &b.layout.shape[..b_lead]);
    if out.is_empty() {
        return;
    }
    let full = |v: &View<'_>, lead: usize| {
        let mut shape = batch.clone();
        shape.extend(&v.layout.shape[lead..]);
        broadcast_lead(v.layout, &shape)
    };
    let (a_layout, b_layout) = (full(a, a_lead), full(b, b_lead));
    let b_is_shared = batch
        .iter()
        .zip(&b_layout.strides)
        .all(|(&d, &s)| d == 1 || s == 0);
    let tall = [out.len() / n, k];
    if b_is_shared && let Some(rows) = a_layout.reshape(&tall) {
        let threads = threads_for(tall[0] * n * k);
        let left = Mat::new(
            a.f32(),
            rows.offset,
            tall,
            [rows.strides[0], rows.strides[1]],
        );
        let right = matrix(b, &b_layout, 0, [k, n]);
        gemm(
            MatMut::new(out, [tall[0], n], n),
            false,
            left,
            right,
            threads,
        );
        return;
    }
    let one = |at: usize, out: &mut [f32], threads| {
        let odometer = Odometer::at(&batch, at);
        let start = |l: &Layout| l.position(odometer.index());
        let left = matrix(a, &a_layout, start(&a_layout) - a_layout.offset, [m, k]);
        let right = matrix(b, &b_layout, start(&b_layout) - b_layout.offset, [k, n]);
        gemm(MatMut::new(out, [m, n], n), false, left, right, threads);
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

/// Threads for a product of that many multiplications.
pub(crate) fn threads_for(multiplications: usize) -> Threads {
    if multiplications > SEQUENTIAL {
        Threads::All
    } else {
        Threads::One
    }
}

fn matrix<'a>(view: &View<'a>, full: &Layout, distance: usize, shape: [usize; 2]) -> Mat<'a> {
    let lead = full.shape.len() - 2;
    let strides = [full.strides[lead], full.strides[lead + 1]];
    Mat::new(view.f32(), full.offset + distance, shape, strides)
}

fn broadcast_shape(a: &[usize], b: &[usize]) -> Vec<usize> {
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
