//! Where the elements of a value lie in its buffer: views are changes of this, not of the data.
//!
//! Everything counts elements. Invariant: every index of the shape stays inside the buffer, which holds for
//! a packed buffer and is kept by every view here.

use crate::LengthError;
use crate::index::Axes;
use smallvec::smallvec;

/// A strided window on a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Position of the first element.
    pub(crate) offset: usize,
    /// Sizes of the axes.
    pub(crate) shape: Axes<usize>,
    /// Distance of neighbours, per axis.
    pub(crate) strides: Axes<isize>,
}

fn signed(n: usize) -> isize {
    isize::try_from(n).expect("sizes are checked when lengths are bound")
}

impl Layout {
    /// A packed row-major buffer.
    pub(crate) fn packed(shape: &[usize]) -> Self {
        Self {
            offset: 0,
            shape: shape.into(),
            strides: crate::index::strides(shape)
                .into_iter()
                .map(signed)
                .collect(),
        }
    }

    /// Number of elements.
    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the elements lie one after another in row-major order.
    pub(crate) fn is_packed(&self) -> bool {
        let mut stride = 1;
        self.elements() == 0
            || (0..self.shape.len()).rev().all(|n| {
                let packed = self.shape[n] == 1 || self.strides[n] == stride;
                stride *= signed(self.shape[n]);
                packed
            })
    }

    /// Result axis `i` is axis `perm[i]`.
    pub(crate) fn transpose(&self, perm: &[usize]) -> Self {
        Self {
            offset: self.offset,
            shape: perm.iter().map(|&p| self.shape[p]).collect(),
            strides: perm.iter().map(|&p| self.strides[p]).collect(),
        }
    }

    /// Repeated along new leading axes and axes of length 1.
    pub(crate) fn broadcast(&self, to: &[usize]) -> Self {
        let mut strides: Axes<isize> = smallvec![0; to.len() - self.shape.len()];
        let own = self.shape.iter().zip(&self.strides);
        strides.extend(own.map(|(&d, &s)| if d == 1 { 0 } else { s }));
        Self {
            offset: self.offset,
            shape: to.into(),
            strides,
        }
    }

    /// Elements `start, start + step, …` along an axis, `len` of them.
    pub(crate) fn slice(
        &self,
        axis: usize,
        start: i64,
        step: i64,
        len: usize,
    ) -> Result<Self, LengthError> {
        let mut out = self.clone();
        out.shape[axis] = len;
        let size = self.shape[axis];
        let steps = i64::try_from(len.saturating_sub(1)).unwrap_or(i64::MAX);
        let last = start.saturating_add(steps.saturating_mul(step));
        let inside = |i: i64| usize::try_from(i).ok().filter(|&i| i < size);
        let (first, Some(_)) = (inside(start), inside(last)) else {
            return if len == 0 {
                Ok(out)
            } else {
                Err(LengthError::Slice {
                    first: start,
                    last,
                    size,
                })
            };
        };
        let first = first.ok_or(LengthError::Slice {
            first: start,
            last,
            size,
        })?;
        out.offset = out.at(self.strides[axis] * signed(first));
        out.strides[axis] *= isize::try_from(step).unwrap_or(0);
        Ok(out)
    }

    fn at(&self, distance: isize) -> usize {
        self.offset
            .checked_add_signed(distance)
            .expect("views stay inside of their buffer")
    }

    /// The same elements in row-major order under another shape, where that is a strided window again.
    pub(crate) fn reshape(&self, to: &[usize]) -> Option<Self> {
        if self.elements() == 0 {
            return Some(Self {
                offset: self.offset,
                ..Self::packed(to)
            });
        }
        let merged = self.merged();
        let mut strides: Axes<isize> = smallvec![0; to.len()];
        let mut from = merged.shape.iter().zip(&merged.strides).rev();
        // What is left of the merged axis being dealt out, and the distance of its neighbours.
        let (mut left, mut stride) = (1, 0);
        for (n, &size) in to.iter().enumerate().rev() {
            if size == 1 {
                continue;
            }
            if left == 1 {
                (left, stride) = from.next().map(|(&d, &s)| (d, s))?;
            }
            if left % size != 0 {
                return None;
            }
            strides[n] = stride;
            stride *= signed(size);
            left /= size;
        }
        Some(Self {
            offset: self.offset,
            shape: to.into(),
            strides,
        })
    }

    /// The same elements in the same order with as few axes as possible; none of length 1.
    pub(crate) fn merged(&self) -> Self {
        let mut out = Self {
            offset: self.offset,
            shape: Axes::new(),
            strides: Axes::new(),
        };
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            if size == 1 {
                continue;
            }
            match (out.shape.last_mut(), out.strides.last_mut()) {
                (Some(d), Some(s)) if *s == stride * signed(size) => {
                    *d *= size;
                    *s = stride;
                }
                _ => {
                    out.shape.push(size);
                    out.strides.push(stride);
                }
            }
        }
        out
    }

    /// Axes before `axis`, and the rest; the offset stays with the first.
    pub(crate) fn split(&self, axis: usize) -> (Self, Self) {
        let part = |offset, range: std::ops::Range<usize>| Self {
            offset,
            shape: self.shape[range.clone()].into(),
            strides: self.strides[range].into(),
        };
        (part(self.offset, 0..axis), part(0, axis..self.shape.len()))
    }

    /// Position of the element at a multi-index.
    pub(crate) fn position(&self, index: &[usize]) -> usize {
        let distance = index
            .iter()
            .zip(&self.strides)
            .map(|(&i, s)| signed(i) * s)
            .sum();
        self.at(distance)
    }
}

/// A layout read row by row: the axes before `axis` count the rows.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    outer: Layout,
    row: Layout,
    len: usize,
}

impl Rows {
    /// The rows of a layout.
    pub(crate) fn new(layout: &Layout, axis: usize) -> Self {
        let (outer, row) = layout.split(axis);
        Self {
            outer: Layout {
                offset: outer.offset,
                ..outer.merged()
            },
            len: row.elements(),
            row: row.merged(),
        }
    }

    /// Elements of a row.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Row `n`, in place where it is packed, else copied to `scratch`.
    pub(crate) fn get<'a>(
        &self,
        data: &'a [u32],
        n: usize,
        scratch: &'a mut Vec<u32>,
    ) -> &'a [u32] {
        if let Some(start) = self.packed_start(n) {
            return &data[start..start + self.len];
        }
        scratch.resize(self.len, 0);
        self.copy(data, n, scratch);
        scratch
    }

    /// Copies row `n`.
    pub(crate) fn copy(&self, data: &[u32], n: usize, out: &mut [u32]) {
        if self.len == 0 {
            return;
        }
        if let Some(start) = self.packed_start(n) {
            out.copy_from_slice(&data[start..start + self.len]);
            return;
        }
        let start = self.start(n);
        let last = self.row.shape.len() - 1;
        let (run, stride) = (self.row.shape[last], self.row.strides[last]);
        let outer = &self.row.shape[..last];
        let mut at = crate::index::Odometer::at(outer, 0);
        for out in out.chunks_exact_mut(run) {
            let distance: isize = at
                .index()
                .iter()
                .zip(&self.row.strides)
                .map(|(&i, s)| signed(i) * s)
                .sum();
            copy_run(data, start.wrapping_add_signed(distance), stride, out);
            at.step();
        }
    }

    fn start(&self, n: usize) -> usize {
        let at = crate::index::Odometer::at(&self.outer.shape, n);
        self.outer.position(at.index())
    }

    fn packed_start(&self, n: usize) -> Option<usize> {
        match self.row.strides.as_slice() {
            [] | [1] => Some(self.start(n)),
            _ => None,
        }
    }
}

/// Elements `start, start + stride, …`.
fn copy_run(data: &[u32], start: usize, stride: isize, out: &mut [u32]) {
    match stride {
        1 => out.copy_from_slice(&data[start..start + out.len()]),
        0 => out.fill(data[start]),
        _ => {
            let mut at = start;
            for x in out {
                *x = data[at];
                at = at.wrapping_add_signed(stride);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(layout: &Layout) -> Vec<usize> {
        let mut out = Vec::new();
        crate::index::for_each_index(&layout.shape, |i| out.push(layout.position(i)));
        out
    }

    #[test]
    fn reshapes_split_and_merge_where_they_can() {
        let heads = Layout::packed(&[2, 3, 8])
            .reshape(&[2, 3, 4, 2])
            .unwrap()
            .transpose(&[0, 2, 1, 3]);
        assert_eq!(heads.strides.as_slice(), [24, 2, 8, 1]);
        assert_eq!(heads.reshape(&[2, 4, 3, 1, 2]).unwrap().strides[1], 2);
        assert!(heads.reshape(&[2, 4, 6]).is_none());
        assert_eq!(heads.reshape(&[8, 6]), None);
        let column = Layout::packed(&[6, 1]).broadcast(&[6, 4]);
        assert_eq!(
            column.reshape(&[2, 3, 2, 2]).unwrap().strides.as_slice(),
            [3, 1, 0, 0]
        );
    }

    #[test]
    fn slices_step_backwards_and_stay_inside() {
        let back = Layout::packed(&[5]).slice(0, 4, -2, 3).unwrap();
        assert_eq!(elements(&back), [4, 2, 0]);
        assert!(Layout::packed(&[5]).slice(0, 4, -2, 4).is_err());
        assert!(Layout::packed(&[5]).slice(0, 5, 1, 1).is_err());
        assert_eq!(
            Layout::packed(&[5]).slice(0, 5, 1, 0).unwrap().elements(),
            0
        );
    }

    #[test]
    fn rows_follow_the_strides() {
        let data: Vec<u32> = (0..24).collect();
        let layout = Layout::packed(&[2, 3, 4]).transpose(&[1, 0, 2]);
        let rows = Rows::new(&layout, 1);
        let mut scratch = Vec::new();
        assert_eq!(
            rows.get(&data, 1, &mut scratch),
            [4, 5, 6, 7, 16, 17, 18, 19]
        );
        let rows = Rows::new(&layout, 2);
        assert_eq!(rows.get(&data, 3, &mut scratch), [16, 17, 18, 19]);
    }
}
