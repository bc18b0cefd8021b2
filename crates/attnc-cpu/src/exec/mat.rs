//! A strided f32 matrix in a slice.
//!
//! Invariant: every element lies inside of the slice, checked when it is made.

use std::ops::Range;

/// A matrix whose element `(i, j)` is at `offset + i * row_stride + j * col_stride`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mat<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) offset: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row_stride: isize,
    pub(crate) col_stride: isize,
}

impl<'a> Mat<'a> {
    /// A matrix of that shape.
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

    /// Some of its rows.
    pub(crate) fn of_rows(self, rows: &Range<usize>) -> Self {
        let distance = rows.start as isize * self.row_stride;
        Self {
            rows: rows.len(),
            offset: self.offset.wrapping_add_signed(distance),
            ..self
        }
    }

    /// An element.
    pub(crate) fn at(&self, i: usize, j: usize) -> f32 {
        self.data[self.position(i, j)]
    }

    /// `len` elements from `(i, j)` on along a row, where neighbours of a row are neighbours in memory.
    pub(crate) fn row(&self, i: usize, j: usize, len: usize) -> &'a [f32] {
        debug_assert!(self.col_stride == 1 || self.cols <= 1);
        &self.data[self.position(i, j)..][..len]
    }

    fn position(&self, i: usize, j: usize) -> usize {
        let distance = i as isize * self.row_stride + j as isize * self.col_stride;
        self.offset.wrapping_add_signed(distance)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_lie_where_the_strides_say() {
        let data = [1., 2., 3., 4., 5., 6.];
        let m = Mat::packed(&data, [2, 3]);
        assert_eq!([m.at(1, 0), m.transposed().at(2, 0)], [4., 3.]);
        assert_eq!(m.row(1, 1, 2), [5., 6.]);
        assert_eq!(Mat::new(&data, 5, [1, 3], [0, -1]).at(0, 2), 4.);
    }

    #[test]
    #[should_panic(expected = "leaves its 6 elements")]
    fn a_matrix_outside_of_its_slice_is_refused() {
        let _ = Mat::new(&[0.0; 6], 1, [2, 3], [3, 1]);
    }
}
