//! Matrix products of strided f32 matrices through the `gemm` crate, which takes raw pointers.
//!
//! This is the only unsafe code of the executor: `gemm` picks its kernel for the machine at run time and is
//! an order of magnitude faster than loops compiled for the least machine, so it is worth the wrapper.
//!
//! Invariant: a [`Mat`] and a [`MatMut`] lie inside of their slice, checked when they are made.

use gemm::Parallelism;

/// A matrix in a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mat<'a> {
    data: &'a [f32],
    offset: usize,
    rows: usize,
    cols: usize,
    row_stride: isize,
    col_stride: isize,
}

impl<'a> Mat<'a> {
    /// The matrix whose element `(i, j)` is at `offset + i * row_stride + j * col_stride`.
    ///
    /// # Panics
    /// Where an element is outside of `data`.
    pub(crate) fn new(
        data: &'a [f32],
        offset: usize,
        [rows, cols]: [usize; 2],
        [row_stride, col_stride]: [isize; 2],
    ) -> Self {
        assert_inside(data.len(), offset, [rows, cols], [row_stride, col_stride]);
        Self {
            data,
            offset,
            rows,
            cols,
            row_stride,
            col_stride,
        }
    }

    /// A packed row-major matrix.
    pub(crate) fn packed(data: &'a [f32], shape: [usize; 2]) -> Self {
        let row = isize::try_from(shape[1]).expect("sizes are checked");
        Self::new(data, 0, shape, [row, 1])
    }

    /// Rows and columns changed over.
    pub(crate) fn transposed(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
}

/// A matrix to write, row-major with `row_stride >= cols`, so that no two elements are the same.
#[derive(Debug)]
pub(crate) struct MatMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    row_stride: isize,
}

impl<'a> MatMut<'a> {
    /// The matrix whose element `(i, j)` is at `i * row_stride + j`.
    ///
    /// # Panics
    /// Where an element is outside of `data`, or rows overlap.
    pub(crate) fn new(data: &'a mut [f32], [rows, cols]: [usize; 2], row_stride: usize) -> Self {
        assert!(row_stride >= cols, "rows of the result overlap");
        let row_stride = isize::try_from(row_stride).expect("sizes are checked");
        assert_inside(data.len(), 0, [rows, cols], [row_stride, 1]);
        Self {
            data,
            rows,
            cols,
            row_stride,
        }
    }
}

fn assert_inside(len: usize, offset: usize, shape: [usize; 2], strides: [isize; 2]) {
    if shape.contains(&0) {
        return;
    }
    let (mut low, mut high) = (offset as i128, offset as i128);
    for (size, stride) in shape.into_iter().zip(strides) {
        let span = (size as i128 - 1) * stride as i128;
        low += span.min(0);
        high += span.max(0);
    }
    assert!(
        low >= 0 && high < len as i128,
        "a matrix of {shape:?} with strides {strides:?} at {offset} leaves its {len} elements"
    );
}

/// Whether a product is shared among threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// The calling thread only.
    One,
    /// All of the pool.
    All,
}

/// `dst = keep * dst + a b`; where `keep` is false, `dst` is not read.
///
/// # Panics
/// Where the shapes do not fit.
pub(crate) fn gemm(dst: MatMut<'_>, keep: bool, a: Mat<'_>, b: Mat<'_>, threads: Threads) {
    assert!(
        a.rows == dst.rows && b.cols == dst.cols && a.cols == b.rows,
        "shapes of a matrix product"
    );
    if dst.rows == 0 || dst.cols == 0 {
        return;
    }
    if a.cols == 0 {
        if !keep {
            let stride = dst.row_stride.unsigned_abs();
            for row in dst.data.chunks_mut(stride) {
                let cols = dst.cols.min(row.len());
                row[..cols].fill(0.0);
            }
        }
        return;
    }
    let parallelism = match threads {
        Threads::One => Parallelism::None,
        Threads::All => Parallelism::Rayon(0),
    };
    // SAFETY: `gemm` reads `a` and `b` and writes `dst` at the positions their shapes and strides span,
    // which the constructors have checked to be inside of the slices. `dst` is borrowed mutably, so it
    // overlaps neither, and its own elements are distinct because `row_stride >= cols`. All floats are
    // valid, and with `read_dst` false `dst` is written only.
    unsafe {
        gemm::gemm(
            dst.rows,
            dst.cols,
            a.cols,
            dst.data.as_mut_ptr(),
            1,
            dst.row_stride,
            keep,
            a.data.as_ptr().add(a.offset),
            a.col_stride,
            a.row_stride,
            b.data.as_ptr().add(b.offset),
            b.col_stride,
            b.row_stride,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_strided_matrices() {
        let a = [1., 2., 3., 4., 5., 6.];
        let mut out = [9.; 6];
        // a aᵀ of the 2 x 3 matrix, into the first two columns of rows of 3.
        let m = Mat::packed(&a, [2, 3]);
        gemm(
            MatMut::new(&mut out[..5], [2, 2], 3),
            false,
            m,
            m.transposed(),
            Threads::One,
        );
        assert_eq!(out, [14., 32., 9., 32., 77., 9.]);
        let reversed = Mat::new(&a, 5, [1, 3], [0, -1]);
        let mut out = [1.; 1];
        gemm(
            MatMut::new(&mut out, [1, 1], 1),
            true,
            reversed,
            Mat::packed(&a[..3], [3, 1]),
            Threads::One,
        );
        assert_eq!(out, [1. + 6. + 10. + 12.]);
    }

    #[test]
    #[should_panic(expected = "leaves its 6 elements")]
    fn a_matrix_outside_of_its_slice_is_refused() {
        let _ = Mat::new(&[0.0; 6], 1, [2, 3], [3, 1]);
    }
}
