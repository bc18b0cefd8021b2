//! The right side of a matrix product as the micro-kernel reads it: panels of a few columns, each packed row
//! by row, so that it is read once, forwards.
//!
//! Invariant: a panel has [`width`] columns, the last one zeros where there are no more.

use super::mat::Mat;
use super::microkernel::panel_width;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Elements below which threads cost more than they save.
const SEQUENTIAL: usize = 1 << 15;

/// Columns of a panel on this machine.
pub(crate) fn width() -> usize {
    struct Width;
    impl WithSimd for Width {
        type Output = usize;
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> usize {
            panel_width::<S>()
        }
    }
    Arch::new().dispatch(Width)
}

/// A packed matrix.
#[derive(Debug, Clone, Default)]
pub(crate) struct Panels {
    depth: usize,
    cols: usize,
    width: usize,
    data: Vec<f32>,
}

impl Panels {
    /// A packed copy.
    pub(crate) fn new(b: Mat<'_>) -> Self {
        let mut panels = Self::default();
        panels.pack(b);
        panels
    }

    /// Packs another matrix into the same memory.
    pub(crate) fn pack(&mut self, b: Mat<'_>) {
        (self.depth, self.cols, self.width) = (b.rows, b.cols, width());
        let panel = self.depth * self.width;
        self.data
            .resize(self.cols.div_ceil(self.width) * panel, 0.0);
        if panel == 0 {
            return;
        }
        let width = self.width;
        let one = |(n, out): (usize, &mut [f32])| {
            Arch::new().dispatch(Pack {
                b,
                first: n * width,
                width,
                out,
            });
        };
        if self.data.len() <= SEQUENTIAL {
            self.data.chunks_exact_mut(panel).enumerate().for_each(one);
        } else {
            self.data
                .par_chunks_exact_mut(panel)
                .enumerate()
                .for_each(one);
        }
    }

    /// Rows, which are as many as the left side has columns.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Columns.
    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    /// The rows of a panel from `first` on.
    pub(crate) fn panel(&self, n: usize, first: usize) -> &[f32] {
        &self.data[(n * self.depth + first) * self.width..(n + 1) * self.depth * self.width]
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.data.len() * size_of::<f32>()
    }
}

/// One panel.
struct Pack<'a> {
    b: Mat<'a>,
    first: usize,
    width: usize,
    out: &'a mut [f32],
}

impl WithSimd for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self {
            b,
            first,
            width,
            out,
        } = self;
        let cols = width.min(b.cols - first);
        if cols < width {
            out.fill(0.0);
        }
        if b.col_stride == 1 {
            for (k, row) in out.chunks_exact_mut(width).enumerate() {
                row[..cols].copy_from_slice(b.row(k, first, cols));
            }
        } else if b.row_stride == 1 {
            transpose(b.transposed(), first, cols, width, out);
        } else {
            for (k, row) in out.chunks_exact_mut(width).enumerate() {
                for (j, x) in row[..cols].iter_mut().enumerate() {
                    *x = b.at(k, first + j);
                }
            }
        }
    }
}

/// Rows of `b` from `first` on as columns, a few elements of each row at a time, so that what is written stays
/// in the nearest cache.
#[inline(always)]
fn transpose(b: Mat<'_>, first: usize, cols: usize, width: usize, out: &mut [f32]) {
    const AT_ONCE: usize = 16;
    for (n, out) in out.chunks_mut(AT_ONCE * width).enumerate() {
        let len = out.len() / width;
        for j in 0..cols {
            let row = b.row(first + j, n * AT_ONCE, len);
            for (x, out) in row.iter().zip(out[j..].iter_mut().step_by(width)) {
                *out = *x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_hold_the_columns_however_the_matrix_lies() {
        let (rows, cols) = (19, width() + 3);
        let data: Vec<f32> = (0u16..).map(f32::from).take(rows * cols * 2).collect();
        let (r, c) = (rows as isize, cols as isize);
        for strides in [[c, 1], [1, r], [2 * c, 2]] {
            let b = Mat::new(&data, 0, [rows, cols], strides);
            let panels = Panels::new(b);
            for (n, k, j) in [(0, 0, 0), (0, 18, 5), (1, 17, 2)] {
                assert_eq!(
                    panels.panel(n, k)[j],
                    b.at(k, n * width() + j),
                    "{strides:?}"
                );
            }
            assert_eq!(panels.panel(1, 18)[3..], vec![0.0; width() - 3]);
        }
    }
}
