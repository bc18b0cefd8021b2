//! Matrix products of strided f32 matrices.
//!
//! ```text
//! for each 512 of the depth, so that a panel of B stays in the first-level cache while it is used,
//!   for each 128 rows of A, so that they stay in the second-level cache,
//!     for each panel of B,
//!       for each few rows: the micro-kernel
//! ```
//!
//! (Goto and van de Geijn 2008.) A is read where it lies, since its numbers are read one by one; B is packed into
//! [`Panels`], once for all runs where it is a weight. Where A has a few rows only, packing would cost more than
//! the product, and B is read where it lies, by rows or by columns.

use super::mat::Mat;
use super::microkernel::{Panel, Strided, Target, dots, most_rows, panel_width, rows_by_panel};
use super::panels::{self, Panels};
use super::streamed;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::Range;

/// Rows of A below which B is read where it lies, by rows.
pub(crate) const FEW_ROWS: usize = 4;
/// Rows of A below which B is read where it lies, by columns: packing them is dearer.
const FEW_ROWS_BY_COLUMNS: usize = 12;
/// Depth that is multiplied at a time.
const DEPTH: usize = 512;
/// Rows of A that are multiplied at a time.
const ROWS: usize = 128;
/// Multiplications below which threads cost more than they save.
pub(crate) const SEQUENTIAL: usize = 1 << 16;
/// Pieces of work a thread, so that one that is late does not hold up all.
const PIECES: usize = 4;

thread_local! {
    /// Memory for right sides that are packed for one product.
    static PANELS: Cell<Panels> = Cell::default();
}

/// The left side: rows whose elements are neighbours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left<'a> {
    data: &'a [f32],
    stride: usize,
    rows: usize,
    depth: usize,
}

impl<'a> Left<'a> {
    /// Row `i` is the `depth` elements from `i * stride` on.
    pub(crate) fn new(data: &'a [f32], [rows, depth]: [usize; 2], stride: usize) -> Self {
        Self {
            data,
            stride,
            rows,
            depth,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Some columns of it.
    pub(crate) fn of_depth(&self, depth: &Range<usize>) -> Self {
        Self {
            data: &self.data[depth.start..],
            depth: depth.len(),
            ..*self
        }
    }

    #[inline(always)]
    pub(crate) fn row(&self, i: usize, depth: &Range<usize>) -> &'a [f32] {
        &self.data[i * self.stride + depth.start..][..depth.len()]
    }
}

/// The right side.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Right<'a> {
    /// Packed.
    Panels(&'a Panels),
    /// Its rows: `cols` is a multiple of the width of a panel, and they are at least so far apart.
    Rows(Mat<'a>),
    /// Its columns, each without gaps, for few rows of the left side.
    Columns(Mat<'a>),
}

impl<'a> Right<'a> {
    /// The matrix as it lies, if it can be read that way and packing it does not pay for so many rows of A.
    pub(crate) fn in_place(b: Mat<'a>, rows: usize) -> Option<Self> {
        if b.rows == 0 {
            None
        } else if b.row_stride == 1 && rows < FEW_ROWS_BY_COLUMNS {
            Some(Self::Columns(b))
        } else {
            Self::rows_in_place(b).filter(|_| rows < FEW_ROWS)
        }
    }

    /// The matrix as it lies, if it can be read by rows.
    pub(crate) fn rows_in_place(b: Mat<'a>) -> Option<Self> {
        let width = panels::width();
        // Of a single row the stride says nothing.
        let row_stride = match b.rows {
            1 => b.cols.cast_signed(),
            _ => b.row_stride,
        };
        let apart = row_stride >= width.cast_signed();
        let whole = b.cols.is_multiple_of(width);
        (b.col_stride == 1 && apart && whole && b.rows > 0)
            .then_some(Self::Rows(Mat { row_stride, ..b }))
    }

    fn shape(&self) -> [usize; 2] {
        match self {
            Self::Panels(panels) => [panels.depth(), panels.cols()],
            Self::Rows(b) | Self::Columns(b) => [b.rows, b.cols],
        }
    }
}

/// Whether a product is shared among threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// The calling thread only.
    One,
    /// All of the pool.
    All,
}

/// Threads for a product of that many multiplications.
pub(crate) fn threads_for(multiplications: usize) -> Threads {
    if multiplications > SEQUENTIAL {
        Threads::All
    } else {
        Threads::One
    }
}

/// `out = a b`; rows of `out` begin at multiples of `stride`. Packs `b` where it cannot be read as it lies.
///
/// # Panics
/// Where the shapes do not fit.
pub(crate) fn gemm(a: Left<'_>, b: Mat<'_>, out: &mut [f32], stride: usize, threads: Threads) {
    if let Some(right) = Right::in_place(b, a.rows) {
        return multiply(a, right, out, stride, threads);
    }
    // Taken, not borrowed: a thread that waits for others may come here again.
    let mut panels = PANELS.take();
    panels.pack(b);
    multiply(a, Right::Panels(&panels), out, stride, threads);
    PANELS.set(panels);
}

/// As [`gemm`], for a right side that is ready.
///
/// # Panics
/// Where the shapes do not fit.
pub(crate) fn multiply(
    a: Left<'_>,
    b: Right<'_>,
    out: &mut [f32],
    stride: usize,
    threads: Threads,
) {
    let [depth, cols] = b.shape();
    let fits = out.is_empty() || out.len() + stride >= a.rows * stride + cols;
    assert!(
        a.depth == depth && stride >= cols && fits,
        "shapes of a matrix product"
    );
    if out.is_empty() || cols == 0 {
        return;
    }
    if threads == Threads::One {
        return product(a, b, false, 0..cols, &mut Strided::new(out, stride, cols));
    }
    if let Right::Rows(b) = b
        && streamed::in_parts(a.rows, &b)
    {
        return streamed::by_parts(a, b, out, stride);
    }
    let pieces = PIECES * rayon::current_num_threads();
    let panels = cols.div_ceil(panels::width());
    let across = panels.min(pieces);
    let width = panels.div_ceil(across) * panels::width();
    let down = pieces
        .div_ceil(across)
        .max(a.rows.div_ceil(ROWS))
        .min(a.rows);
    let height = a.rows.div_ceil(down);
    out.par_chunks_mut(height * stride)
        .enumerate()
        .for_each(|(n, out)| {
            let rows = height.min(a.rows - n * height);
            let a = Left {
                data: &a.data[n * height * a.stride..],
                rows,
                ..a
            };
            let mut tiles = tiles_of(out, stride, cols, width);
            tiles.par_iter_mut().enumerate().for_each(|(n, tile)| {
                let cols = n * width..cols.min((n + 1) * width);
                product(a, b, false, cols, &mut tile.as_mut_slice());
            });
        });
}

/// Some columns of some rows of a result.
type Tile<'a> = SmallVec<[&'a mut [f32]; ROWS]>;

/// Rows of `cols` elements cut every `width`.
fn tiles_of(out: &mut [f32], stride: usize, cols: usize, width: usize) -> SmallVec<[Tile<'_>; 8]> {
    let mut tiles: SmallVec<[Tile<'_>; 8]> = SmallVec::new();
    tiles.resize_with(cols.div_ceil(width), Tile::new);
    for row in out.chunks_mut(stride) {
        for (tile, part) in tiles.iter_mut().zip(row[..cols].chunks_mut(width)) {
            tile.push(part);
        }
    }
    tiles
}

/// `out = keep * out + a b` for some columns of `b`, from a multiple of the width of a panel on, on this thread.
pub(crate) fn product(
    a: Left<'_>,
    b: Right<'_>,
    keep: bool,
    cols: Range<usize>,
    out: &mut (impl Target + Send),
) {
    Arch::new().dispatch(Product {
        a,
        b,
        keep,
        cols,
        out,
    });
}

struct Product<'a, T> {
    a: Left<'a>,
    b: Right<'a>,
    keep: bool,
    cols: Range<usize>,
    out: &'a mut T,
}

impl<T: Target> WithSimd for Product<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self {
            a,
            b,
            keep,
            cols,
            out,
        } = self;
        if let Right::Columns(b) = b {
            let b = b.transposed();
            for i in 0..a.rows {
                let column = |j| b.row(cols.start + j, 0, a.depth);
                dots(simd, a.row(i, &(0..a.depth)), column, keep, out.row(i));
            }
            return;
        }
        if let Right::Rows(b) = b
            && streamed::suits(a.rows, cols.len())
        {
            return streamed::streamed(simd, a, b, keep, cols, out);
        }
        let width = panel_width::<S>();
        if a.depth == 0 && !keep {
            (0..a.rows).for_each(|i| out.row(i).fill(0.0));
        }
        for first in (0..a.depth).step_by(DEPTH) {
            let depth = first..a.depth.min(first + DEPTH);
            let keep = keep || first > 0;
            for top in (0..a.rows).step_by(ROWS) {
                let rows = top..a.rows.min(top + ROWS);
                for col in (0..cols.len()).step_by(width) {
                    let panel = panel_of(b, cols.start + col, width, first);
                    for (i, count) in groups(rows.clone(), most_rows::<S>()) {
                        let row = |n| a.row(i + n, &depth);
                        rows_by_panel(simd, row, count, panel, keep, [i, col], out);
                    }
                }
            }
        }
    }
}

/// The panel from column `col` and row `first` on.
#[inline(always)]
fn panel_of<'a>(b: Right<'a>, col: usize, width: usize, first: usize) -> Panel<'a> {
    match b {
        Right::Panels(panels) => Panel {
            data: panels.panel(col / width, first),
            stride: width,
        },
        Right::Rows(b) | Right::Columns(b) => Panel {
            data: &b.data[b.offset + first * b.row_stride.unsigned_abs() + col..],
            stride: b.row_stride.unsigned_abs(),
        },
    }
}

/// The first of each group and how many it has: as few groups as can be, of about the same size.
#[inline(always)]
fn groups(rows: Range<usize>, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let groups = rows.len().div_ceil(most);
    (0..groups).scan(rows.start, move |at, n| {
        let (first, count) = (*at, (rows.end - *at).div_ceil(groups - n));
        *at += count;
        Some((first, count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(len: usize) -> Vec<f32> {
        (0..len).map(|n| (n * 7 % 13) as f32 - 6.0).collect()
    }

    /// Small integers, so that every order of adding gives the same.
    fn expected(a: &[f32], b: Mat<'_>, rows: usize) -> Vec<f32> {
        let element = |n: usize| {
            let row = &a[n / b.cols * b.rows..][..b.rows];
            (0..b.rows)
                .map(|k| row[k] * b.at(k, n % b.cols))
                .sum::<f32>()
        };
        (0..rows * b.cols).map(element).collect()
    }

    #[test]
    fn products_of_all_shapes_and_ways_to_read_the_right_side() {
        let width = panels::width();
        for rows in [1, 2, 3, 5, 13, 300] {
            for depth in [0, 1, 7, 600] {
                for cols in [1, width, 2 * width + 3, 3 * width, 40 * width] {
                    let (a, b) = (numbers(rows * depth), numbers(depth * cols));
                    let row_major = Mat::packed(&b, [depth, cols]);
                    let col_major = Mat::packed(&b, [cols, depth]).transposed();
                    let same_rows = Mat {
                        row_stride: 0,
                        ..row_major
                    };
                    let overlapping = Mat {
                        row_stride: row_major.row_stride.min(3),
                        ..row_major
                    };
                    for b in [row_major, col_major, same_rows, overlapping] {
                        let expected = expected(&a, b, rows);
                        let panels = Panels::new(b);
                        let ways = [Some(Right::Panels(&panels)), Right::in_place(b, rows)];
                        for way in ways.into_iter().flatten() {
                            for threads in [Threads::One, Threads::All] {
                                let mut out = vec![5.0; rows * cols];
                                let left = Left::new(&a, [rows, depth], depth);
                                multiply(left, way, &mut out, cols, threads);
                                assert_eq!(out, expected, "{rows} {depth} {cols} {threads:?}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_product_is_added_to_what_is_there_and_rows_may_be_apart() {
        let (a, b) = (numbers(2 * 600), numbers(600 * 3));
        let b = Mat::packed(&b, [600, 3]);
        let sum = expected(&a, b, 2);
        let left = Left::new(&a, [2, 600], 600);
        let mut out = [1.0; 7];
        let panels = Panels::new(b);
        product(
            left,
            Right::Panels(&panels),
            true,
            0..3,
            &mut Strided::new(&mut out, 4, 3),
        );
        let [x, y] = [0, 3].map(|n| [sum[n] + 1.0, sum[n + 1] + 1.0, sum[n + 2] + 1.0]);
        assert_eq!(out, [x[0], x[1], x[2], 1.0, y[0], y[1], y[2]]);
        gemm(left, b, &mut out, 4, Threads::All);
        assert_eq!(
            [&out[..4], &out[4..]].concat(),
            [&sum[..3], &[1.0], &sum[3..]].concat()
        );
    }

    #[test]
    fn groups_are_of_about_the_same_size() {
        let all: Vec<_> = groups(3..16, 6).collect();
        assert_eq!(all, [(3, 5), (8, 4), (12, 4)]);
    }
}
