//! What is done to the rows of a tile of scores, in vectors.
//!
//! Invariant: a row has room for whole vectors; what is beyond its keys is overwritten.

use super::BLOCK_N;
use crate::exec::math;
use pulp::{Arch, Simd, WithSimd};

/// Rows of scores and their running maxima and sums.
pub(super) struct Online<'a> {
    /// Rows of [`BLOCK_N`], turned into `exp(score - m)` with the new maximum.
    pub(super) scores: &'a mut [f32],
    /// Scores in a row.
    pub(super) keys: usize,
    /// Running maximum and sum; as many as there are rows.
    pub(super) m: &'a mut [f32],
    pub(super) l: &'a mut [f32],
    /// Out: the factor by which what was accumulated before counts.
    pub(super) shrink: &'a mut [f32],
}

impl Online<'_> {
    pub(super) fn run(self) {
        Arch::new().dispatch(self);
    }
}

impl WithSimd for Online<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let state = self.m.iter_mut().zip(self.l).zip(self.shrink);
        for (row, ((m, l), shrink)) in self.scores.chunks_exact_mut(BLOCK_N).zip(state) {
            let whole = self.keys.next_multiple_of(S::F32_LANES);
            row[self.keys..whole].fill(f32::NEG_INFINITY);
            *shrink = online(simd, &mut row[..whole], m, l);
        }
    }
}

#[inline(always)]
fn online<S: Simd>(simd: S, row: &mut [f32], m: &mut f32, l: &mut f32) -> f32 {
    let largest = max(simd, row);
    let new = if largest > *m || largest.is_nan() {
        largest
    } else {
        *m
    };
    if new == f32::NEG_INFINITY {
        row.fill(0.0);
        return 1.0;
    }
    let factor = if new == *m { 1.0 } else { math::exp(*m - new) };
    let (vectors, _) = S::as_mut_simd_f32s(row);
    let shift = simd.splat_f32s(new);
    let mut sum = simd.splat_f32s(0.0);
    for x in vectors {
        *x = math::exp_vector(simd, simd.sub_f32s(*x, shift));
        sum = simd.add_f32s(sum, *x);
    }
    *l = *l * factor + simd.reduce_sum_f32s(sum);
    *m = new;
    factor
}

/// The largest score; NaN, which vectors may lose, where it is all there is.
#[inline(always)]
fn max<S: Simd>(simd: S, row: &[f32]) -> f32 {
    let (vectors, _) = S::as_simd_f32s(row);
    let mut max = simd.splat_f32s(f32::NEG_INFINITY);
    for &x in vectors {
        max = simd.max_f32s(x, max);
    }
    let max = simd.reduce_max_f32s(max);
    if max == f32::NEG_INFINITY && row.iter().any(|x| x.is_nan()) {
        return f32::NAN;
    }
    max
}

/// Turns rows of scores into probabilities by final maxima and sums.
pub(super) struct Probabilities<'a> {
    pub(super) scores: &'a mut [f32],
    pub(super) keys: usize,
    pub(super) m: &'a [f32],
    pub(super) l: &'a [f32],
}

impl Probabilities<'_> {
    pub(super) fn run(self) {
        Arch::new().dispatch(self);
    }
}

impl WithSimd for Probabilities<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let state = self.m.iter().zip(self.l);
        for (row, (&m, &l)) in self.scores.chunks_exact_mut(BLOCK_N).zip(state) {
            let row = &mut row[..self.keys.next_multiple_of(S::F32_LANES)];
            if m == f32::NEG_INFINITY {
                row.fill(0.0);
                continue;
            }
            let (shift, sum) = (simd.splat_f32s(m), simd.splat_f32s(l));
            for x in S::as_mut_simd_f32s(row).0 {
                let e = math::exp_vector(simd, simd.sub_f32s(*x, shift));
                *x = simd.div_f32s(e, sum);
            }
        }
    }
}

/// -inf for the scores of keys that are not there.
pub(super) fn mask(scores: &mut [f32], live: &[u32], keys: usize) {
    Arch::new().dispatch(|| {
        let rows = scores.chunks_exact_mut(BLOCK_N);
        for (row, live) in rows.zip(live.chunks_exact(BLOCK_N)) {
            for (score, &live) in row[..keys].iter_mut().zip(live) {
                *score = if live != 0 { *score } else { f32::NEG_INFINITY };
            }
        }
    });
}

/// Rows of accumulators, each times its factor.
pub(super) fn scale(rows: &mut [f32], width: usize, factors: &[f32]) {
    Arch::new().dispatch(|| {
        for (row, &factor) in rows.chunks_exact_mut(width).zip(factors) {
            if factor != 1.0 {
                row.iter_mut().for_each(|x| *x *= factor);
            }
        }
    });
}

/// Whether no element is infinite or NaN.
pub(super) fn all_finite(values: &[f32]) -> bool {
    // Vectorises: a NaN or infinity makes `x * 0` NaN, and a sum of anything with it.
    let zeros = || {
        values
            .chunks(16)
            .fold([0.0; 16], |mut sums: [f32; 16], chunk| {
                sums.iter_mut()
                    .zip(chunk)
                    .for_each(|(sum, x)| *sum += x * 0.0);
                sums
            })
    };
    Arch::new().dispatch(zeros).iter().all(|&sum| sum == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[&[f32]]) -> Vec<f32> {
        let row = |row: &&[f32]| [row, &vec![9.0; BLOCK_N - row.len()][..]].concat();
        values.iter().flat_map(row).collect()
    }

    #[test]
    fn scores_in_two_tiles_have_the_sum_of_all() {
        let (mut m, mut l, mut shrink) = ([f32::NEG_INFINITY; 3], [0.0; 3], [0.0; 3]);
        let none = f32::NEG_INFINITY;
        for tile in [
            [[1.0, none], [none, none], [none, 2.0]],
            [[3.0, 2.0], [none, none], [f32::NAN, none]],
        ] {
            let mut scores = rows(&[&tile[0], &tile[1], &tile[2]]);
            let (m, l, shrink) = (&mut m, &mut l, &mut shrink);
            Online {
                scores: &mut scores,
                keys: 2,
                m,
                l,
                shrink,
            }
            .run();
        }
        assert_eq!((m[0], m[1], l[1], shrink[1]), (3.0, none, 0.0, 1.0));
        let expected = 1.0 + (-1.0f32).exp() + (-2.0f32).exp();
        assert!((l[0] - expected).abs() < 1e-6 && l[2].is_nan());
        assert!((shrink[0] - (-2.0f32).exp()).abs() < 1e-7);
        let mut scores = rows(&[&[3.0, none], &[none, none]]);
        Probabilities {
            scores: &mut scores,
            keys: 2,
            m: &m[..2],
            l: &l[..2],
        }
        .run();
        assert!((scores[0] - 1.0 / expected).abs() < 1e-7);
        assert_eq!([scores[1], scores[BLOCK_N], scores[BLOCK_N + 1]], [0.0; 3]);
    }

    #[test]
    fn what_is_not_finite_is_found() {
        assert!(all_finite(&[1e38; 37]));
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!all_finite(&[[0.0; 36].as_slice(), &[odd]].concat()));
        }
    }
}
