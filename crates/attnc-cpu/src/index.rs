//! Row-major positions and multi-indices.

use smallvec::{SmallVec, smallvec};

/// One number an axis. Few tensors have more axes than that; those cost an allocation.
pub(crate) type Axes<T> = SmallVec<[T; 8]>;

/// Distance between neighbours along each axis of a row-major tensor of that shape.
pub(crate) fn strides(shape: &[usize]) -> Axes<usize> {
    let mut out: Axes<usize> = smallvec![1; shape.len()];
    for n in (1..shape.len()).rev() {
        out[n - 1] = out[n] * shape[n];
    }
    out
}

/// Counts through the indices of a shape, the last axis fastest.
#[derive(Debug, Clone)]
pub(crate) struct Odometer<'a> {
    shape: &'a [usize],
    index: Axes<usize>,
}

impl<'a> Odometer<'a> {
    /// Stands at row-major position `flat`, which is below the number of elements (or 0 if there are none).
    pub(crate) fn at(shape: &'a [usize], flat: usize) -> Self {
        let mut index: Axes<usize> = smallvec![0; shape.len()];
        let mut rest = flat;
        for (n, &size) in shape.iter().enumerate().rev() {
            if size > 0 {
                index[n] = rest % size;
                rest /= size;
            }
        }
        Self { shape, index }
    }

    /// The index it stands at.
    pub(crate) fn index(&self) -> &[usize] {
        &self.index
    }

    /// Steps to the next index; after the last comes the first.
    pub(crate) fn step(&mut self) {
        for (i, &size) in self.index.iter_mut().zip(self.shape).rev() {
            *i += 1;
            if *i < size {
                return;
            }
            *i = 0;
        }
    }
}

/// Calls `f` with every index of a shape in row-major order.
pub(crate) fn for_each_index(shape: &[usize], mut f: impl FnMut(&[usize])) {
    let mut odometer = Odometer::at(shape, 0);
    for _ in 0..shape.iter().product() {
        f(odometer.index());
        odometer.step();
    }
}

/// Position of an index given the strides.
pub(crate) fn position(index: &[usize], strides: &[usize]) -> usize {
    index.iter().zip(strides).map(|(i, s)| i * s).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odometers_count_in_row_major_order() {
        let shape = [2, 3, 2];
        let strides = strides(&shape);
        assert_eq!(strides.as_slice(), [6, 2, 1]);
        let mut seen = Vec::new();
        for_each_index(&shape, |i| seen.push(position(i, &strides)));
        assert_eq!(seen, (0..12).collect::<Vec<_>>());
        assert_eq!(Odometer::at(&shape, 7).index(), [1, 0, 1]);
        for_each_index(&[2, 0], |_| panic!("no elements"));
    }
}
