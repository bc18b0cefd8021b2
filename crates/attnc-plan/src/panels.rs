//! A weight in panels: the right side of products, in the order in which they read it.
//!
//! Four terms of a sum at a time, of neighbouring columns: B of K × N lies as `[N / columns][K / 4][columns][4]`. A
//! kernel whose workgroups own some columns then reads one stream from beginning to end, where rows or columns of a
//! matrix lie on as many pages (Goto and van de Geijn 2008, Anatomy of High-Performance Matrix Multiplication,
//! section 4.2.3, on packing). Sources keep their order; who uploads a weight brings it into this one.
//!
//! ```
//! use attnc_plan::Panels;
//! // Two columns of four terms, as the rows of a 2 × 4 matrix: those of either lie behind each other already.
//! let panels = Panels { columns: 2, k_axis: 1 };
//! let mut out = [0; 8];
//! panels.pack(&[0, 1, 2, 3, 4, 5, 6, 7], 4, 1, 0, &mut out);
//! assert_eq!(out, [0, 1, 2, 3, 4, 5, 6, 7]);
//! // The same as a 4 × 2 matrix, row by row.
//! let panels = Panels { columns: 2, k_axis: 0 };
//! panels.pack(&[0, 4, 1, 5, 2, 6, 3, 7], 4, 1, 0, &mut out);
//! assert_eq!(out, [0, 1, 2, 3, 4, 5, 6, 7]);
//! ```
//!
//! On entry: a matrix whose K is a multiple of 4 and whose N is one of `columns`. On exit: the same elements.

use crate::Dim;

/// The order of a weight's elements on the device.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Panels {
    /// Columns of a panel.
    pub columns: u32,
    /// Which axis of the matrix sums run along, 0 or 1.
    pub k_axis: u32,
}

/// Terms that lie beside each other.
const TERMS: usize = 4;

impl Panels {
    /// Whether a tensor of that shape has such panels; why not.
    ///
    /// # Errors
    /// What would have to be otherwise.
    pub fn check(&self, shape: &[Dim]) -> Result<(), String> {
        let ([first, second], 0 | 1) = (shape, self.k_axis) else {
            return Err("panels need a matrix, and axis 0 or 1 for k".to_owned());
        };
        let (k, n) = if self.k_axis == 0 {
            (first, second)
        } else {
            (second, first)
        };
        let multiple = |dim: &Dim, of: i64| of > 0 && dim.exact_div(&Dim::from(of)).is_some();
        if !multiple(k, 4) || !multiple(n, i64::from(self.columns)) {
            return Err(format!(
                "panels need k by fours and columns by {}, found {k} and {n}",
                self.columns
            ));
        }
        Ok(())
    }

    /// Elements of a panel where sums have `k` terms.
    #[must_use]
    pub fn elements(&self, k: usize) -> usize {
        self.columns as usize * k
    }

    /// Writes one panel of a matrix of `k` terms whose elements have so many `bytes`.
    ///
    /// # Panics
    /// Where `out` is no panel, or `matrix` has not as many.
    pub fn pack(&self, matrix: &[u8], k: usize, bytes: usize, panel: usize, out: &mut [u8]) {
        let width = self.columns as usize;
        assert_eq!(out.len(), self.elements(k) * bytes, "a panel");
        let columns = matrix.len() / (k * bytes);
        let (k_stride, n_stride) = if self.k_axis == 0 {
            (columns, 1)
        } else {
            (1, k)
        };
        for (column, n) in (panel * width..(panel + 1) * width).enumerate() {
            for four in 0..k / TERMS {
                let to = (four * width + column) * TERMS;
                let from = four * TERMS * k_stride + n * n_stride;
                if k_stride == 1 {
                    let (to, from, len) = (to * bytes, from * bytes, TERMS * bytes);
                    out[to..to + len].copy_from_slice(&matrix[from..from + len]);
                    continue;
                }
                for term in 0..TERMS {
                    let (to, from) = ((to + term) * bytes, (from + term * k_stride) * bytes);
                    out[to..to + bytes].copy_from_slice(&matrix[from..from + bytes]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_lies_where_its_panel_its_terms_and_its_column_say() {
        let (k, n, width) = (8usize, 6usize, 2usize);
        let id = |k: usize, column: usize| (10 * k + column) as u16;
        for k_axis in [0, 1] {
            let at = |i: usize| {
                if k_axis == 0 {
                    id(i / n, i % n)
                } else {
                    id(i % k, i / k)
                }
            };
            let matrix: Vec<u8> = (0..k * n).flat_map(|i| at(i).to_le_bytes()).collect();
            let panels = Panels { columns: 2, k_axis };
            for panel in 0..n / width {
                let mut out = vec![0; 2 * panels.elements(k)];
                panels.pack(&matrix, k, 2, panel, &mut out);
                for (i, bytes) in out.chunks(2).enumerate() {
                    let (four, column, term) = (i / (4 * width), i / 4 % width, i % 4);
                    let expected = id(4 * four + term, panel * width + column);
                    assert_eq!(
                        bytes,
                        expected.to_le_bytes(),
                        "k axis {k_axis}, element {i}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_has_no_panels_is_told_why() {
        let panels = Panels {
            columns: 8,
            k_axis: 0,
        };
        let dims = |sizes: &[i64]| sizes.iter().map(|&n| Dim::from(n)).collect::<Vec<_>>();
        assert_eq!(panels.check(&dims(&[4, 16])), Ok(()));
        assert!(
            panels
                .check(&dims(&[16, 4]))
                .unwrap_err()
                .contains("found 16 and 4")
        );
        assert!(panels.check(&dims(&[16])).unwrap_err().contains("matrix"));
        let transposed = Panels {
            k_axis: 1,
            ..panels
        };
        assert!(transposed.check(&dims(&[4, 16])).is_err());
        assert!(
            Panels {
                columns: 0,
                k_axis: 0
            }
            .check(&dims(&[4, 16]))
            .is_err()
        );
    }
}
