//! Few rows times a matrix that is read by rows, where it lies: once, forwards.
//!
//! Such a product takes as long as it takes to read B, and memory is read fastest forwards. So rows of B are added to
//! the result in full, four at a time; the micro-kernel of [`super::microkernel`] would hop from row to row. Threads
//! share out the rows of B, each part of which comes to a result of its own, and these are added up at the end: were
//! columns shared out, everybody would hop. (The sums are those of BLIS's `axpyf`: Van Zee and van de Geijn, "BLIS",
//! 2015, TOMS 41(3).)
//!
//! On entry: columns that are whole vectors. On exit: the result; how it is added up does not depend on the number of
//! threads.

use super::gemm::{Left, Right, product};
use super::mat::Mat;
use super::microkernel::{Strided, Target};
use super::scratch::Lanes;
use pulp::{Arch, Simd};
use rayon::prelude::*;
use std::ops::Range;

/// The most rows of A: with more, packing B pays.
pub(crate) const MOST_ROWS: usize = 3;
/// Columns below which rows of B are so short that hopping costs nothing, and the micro-kernel keeps its sums.
const SHORT: usize = 512;
/// Columns from which each thread may have some and still read long stretches.
const LONG: usize = 8192;
/// Rows of B at a time.
const AT_ONCE: usize = 4;
/// Elements of a row of the result at a time, for all rows of A together: these and as much of [`AT_ONCE`] rows of B stay
/// in the first-level cache.
const CACHED: usize = 4096;
/// Rows of B in a part at least, and parts at most.
const PART: usize = 64;
const MOST_PARTS: usize = 16;

/// Whether rows of B are long enough for so few rows of A.
pub(crate) fn suits(rows: usize, cols: usize) -> bool {
    rows <= MOST_ROWS && cols >= SHORT
}

/// Whether threads had better share out the rows of B than its columns.
pub(crate) fn in_parts(rows: usize, b: &Mat<'_>) -> bool {
    suits(rows, b.cols) && b.cols < LONG && b.rows >= 4 * PART
}

/// `out = a b` by all threads; rows of `out` begin at multiples of `stride`.
pub(crate) fn by_parts(a: Left<'_>, b: Mat<'_>, out: &mut [f32], stride: usize) {
    let (depth, cols) = (b.rows, b.cols);
    let part = depth.div_ceil(MOST_PARTS).max(PART);
    let size = a.rows() * cols;
    let mut sums = Lanes::take();
    sums.resize(depth.div_ceil(part) * size, 0);
    let sums: &mut [f32] = bytemuck::cast_slice_mut(&mut sums);
    let parts = sums.par_chunks_exact_mut(size).enumerate();
    parts.for_each(|(n, sums)| {
        let rows = n * part..depth.min((n + 1) * part);
        let (a, b) = (a.of_depth(&rows), b.of_rows(&rows));
        product(
            a,
            Right::Rows(b),
            false,
            0..cols,
            &mut Strided::new(sums, cols, cols),
        );
    });
    Arch::new().dispatch(|| {
        for (i, out) in out.chunks_mut(stride).enumerate() {
            let out = &mut out[..cols];
            out.fill(0.0);
            for sums in sums.chunks_exact(size) {
                let sums = &sums[i * cols..][..cols];
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
            }
        }
    });
}

/// `out = keep * out + a b` for the columns `cols` of `b`.
#[inline(always)]
pub(crate) fn streamed<S: Simd>(
    simd: S,
    a: Left<'_>,
    b: Mat<'_>,
    keep: bool,
    cols: Range<usize>,
    out: &mut impl Target,
) {
    match a.rows() {
        1 => add::<S, 1>(simd, a, b, keep, cols, out.rows()),
        2 => add::<S, 2>(simd, a, b, keep, cols, out.rows()),
        _ => add::<S, MOST_ROWS>(simd, a, b, keep, cols, out.rows()),
    }
}

#[inline(always)]
fn add<S: Simd, const N: usize>(
    simd: S,
    a: Left<'_>,
    b: Mat<'_>,
    keep: bool,
    cols: Range<usize>,
    mut out: [&mut [f32]; N],
) {
    if !keep {
        out.iter_mut().for_each(|row| row.fill(0.0));
    }
    let whole = b.rows / AT_ONCE * AT_ONCE;
    let width = (CACHED / N).next_multiple_of(S::F32_LANES);
    for first in cols.clone().step_by(width) {
        let len = width.min(cols.end - first);
        let row = |k| b.row(k, first, len);
        let at = first - cols.start;
        let mut out = out.each_mut().map(|row| &mut row[at..at + len]);
        for k in (0..whole).step_by(AT_ONCE) {
            add_rows::<S, N, AT_ONCE>(simd, a, k, row, &mut out);
        }
        for k in whole..b.rows {
            add_rows::<S, N, 1>(simd, a, k, row, &mut out);
        }
    }
}

/// `out[i] += a[i, k] b(k) + .. + a[i, k + K - 1] b(k + K - 1)`
#[expect(
    clippy::needless_range_loop,
    reason = "loops of a constant number of rounds, which are unrolled"
)]
#[inline(always)]
fn add_rows<'a, S: Simd, const N: usize, const K: usize>(
    simd: S,
    a: Left<'_>,
    k: usize,
    b: impl Fn(usize) -> &'a [f32],
    out: &mut [&mut [f32]; N],
) {
    let vectors = out[0].len() / S::F32_LANES;
    let mut factors = [[simd.splat_f32s(0.0); K]; N];
    let mut rows: [&[S::f32s]; K] = [&[]; K];
    // Of one length that is in sight, so that the loop below checks none.
    for n in 0..K {
        rows[n] = &S::as_simd_f32s(b(k + n)).0[..vectors];
    }
    for i in 0..N {
        let numbers = a.row(i, &(k..k + K));
        for n in 0..K {
            factors[i][n] = simd.splat_f32s(numbers[n]);
        }
    }
    let out = out
        .each_mut()
        .map(|row| &mut S::as_mut_simd_f32s(row).0[..vectors]);
    for j in 0..vectors {
        let mut sums = [simd.splat_f32s(0.0); N];
        for i in 0..N {
            sums[i] = out[i][j];
        }
        for n in 0..K {
            let b = rows[n][j];
            for i in 0..N {
                sums[i] = simd.mul_add_e_f32s(factors[i][n], b, sums[i]);
            }
        }
        for i in 0..N {
            out[i][j] = sums[i];
        }
    }
}
