//! Merging the axes of an expression: two neighbours are one where every position treats them as one.
//!
//! `x[d0, d1] + y[d0, d1]` over packed operands is one axis, so its chunks are long; a bias `b[d1]` keeps
//! two. Axes of length 1 go.

use super::Affine;
use crate::poly::Poly;

/// New sizes, and the new number of each old axis that still counts by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Axes {
    pub(super) extents: Vec<usize>,
    /// The old axis whose slope a new axis has: the innermost of those merged.
    pub(super) innermost: Vec<usize>,
}

impl Axes {
    /// Every axis as it is.
    pub(super) fn unmerged(extents: &[usize]) -> Self {
        Self {
            extents: extents.to_vec(),
            innermost: (0..extents.len()).collect(),
        }
    }

    /// As few axes as the affine positions and the other polynomials allow.
    pub(super) fn merged(extents: &[usize], affine: &[&Affine], polys: &[&Poly]) -> Self {
        let mut out = Self {
            extents: Vec::new(),
            innermost: Vec::new(),
        };
        for (n, &size) in extents.iter().enumerate() {
            if size == 1 {
                continue;
            }
            let joins = |outer: usize| {
                let size = i64::try_from(size).unwrap_or(i64::MAX);
                affine
                    .iter()
                    .all(|a| a.slopes[outer] == a.slopes[n].wrapping_mul(size))
                    && !polys.iter().any(|p| p.mentions(outer) || p.mentions(n))
            };
            match (out.extents.last_mut(), out.innermost.last_mut()) {
                (Some(extent), Some(outer)) if joins(*outer) => {
                    *extent *= size;
                    *outer = n;
                }
                _ => {
                    out.extents.push(size);
                    out.innermost.push(n);
                }
            }
        }
        out
    }

    pub(super) fn affine(&self, a: &Affine) -> Affine {
        Affine {
            base: a.base,
            slopes: self.innermost.iter().map(|&n| a.slopes[n]).collect(),
        }
    }

    pub(super) fn poly(&self, p: &Poly) -> Poly {
        p.renumber(&|n| self.innermost.iter().position(|&m| m == n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn affine(slopes: &[i64]) -> Affine {
        Affine {
            base: 0,
            slopes: slopes.to_vec(),
        }
    }

    #[test]
    fn packed_axes_merge_and_a_bias_keeps_its_axis() {
        let x = affine(&[12, 99, 4, 1]);
        let bias = affine(&[0, 0, 0, 1]);
        let extents = [2, 1, 3, 4];
        assert_eq!(Axes::merged(&extents, &[&x], &[]).extents, [24]);
        let both = Axes::merged(&extents, &[&x, &bias], &[]);
        assert_eq!((both.extents, both.innermost), (vec![6, 4], vec![2, 3]));
    }
}
