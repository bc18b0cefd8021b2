//! Fused attention, literally: all scores of a row, then their softmax, then the weighted sum.

use super::At;
use super::map::load;
use crate::ExecError;
use crate::lazy::{BoundExpr, OutOfRange};
use attnc_ir::Attention;
use attnc_ir::scalar::ScalarExpr;
use rayon::prelude::*;

/// `prob_mod(softmax(score_mod(scale * q kᵀ), mask_mod)) v`, with the sink as one more logit of the softmax. A key
/// is there where `mask_mod` is true and its score is not -inf; only such keys are looked at, so NaN elsewhere
/// never reaches the result, unless `prob_mod` gives keys that are not there a weight. A row without a key
/// gives zeros.
pub(super) fn attention(at: &At<'_>, attention: &Attention) -> Result<Vec<f64>, ExecError> {
    let (k, v) = (at.operands[1], at.operands[2]);
    let row = Row {
        at,
        scale: attention.scale,
        score_mod: bind_mod(at, attention.score_mod.as_ref())?,
        mask_mod: bind_mod(at, attention.mask_mod.as_ref())?,
        sink: bind_mod(at, attention.sink.as_ref())?,
        prob_mod: bind_mod(at, attention.prob_mod.as_ref())?,
        skips_absent: attention.skips_absent_keys(),
    };
    let mut out = vec![0.0; at.shape.iter().product()];
    let width = v.shape[3];
    if width == 0 || k.shape[2] == 0 {
        return Ok(out);
    }
    out.par_chunks_mut(width)
        .enumerate()
        .try_for_each(|(n, out)| row.compute(n, out))
        .map_err(|e| at.out_of_range(e))?;
    Ok(out)
}

fn bind_mod<'a>(
    at: &At<'_>,
    expr: Option<&'a ScalarExpr>,
) -> Result<Option<BoundExpr<'a>>, ExecError> {
    expr.map(|e| BoundExpr::new(e, &at.bound.dims))
        .transpose()
        .map_err(|e| at.dim_error(e))
}

struct Row<'a> {
    at: &'a At<'a>,
    scale: f64,
    score_mod: Option<BoundExpr<'a>>,
    mask_mod: Option<BoundExpr<'a>>,
    sink: Option<BoundExpr<'a>>,
    prob_mod: Option<BoundExpr<'a>>,
    /// Whether a key that is not there has weight 0 after `prob_mod`.
    skips_absent: bool,
}

impl Row<'_> {
    /// Row `n` of the result, which is `b, h, q_idx` in row-major order; `out` is zero.
    fn compute(&self, n: usize, out: &mut [f64]) -> Result<(), OutOfRange> {
        let (k, v) = (self.at.operands[1], self.at.operands[2]);
        let (heads, queries) = (self.at.shape[1], self.at.shape[2]);
        let (b, h, q_idx) = (n / queries / heads, n / queries % heads, n % queries);
        let (kv_heads, keys, width) = (k.shape[1], k.shape[2], v.shape[3]);
        let kv_head = b * kv_heads + h / (heads / kv_heads);
        let scores = self.scores([b, h, q_idx], n, kv_head * keys)?;
        let largest = scores.iter().flatten();
        let largest = largest.fold(f64::NEG_INFINITY, |m, s| m.max(*s));
        let sink = self.sink(largest, [b, h, q_idx])?;
        let max = largest.max(sink);
        // Neither a sink of -inf nor a key that is not there is part of the sum.
        let exp = |s: f64| {
            if s == f64::NEG_INFINITY {
                0.0
            } else {
                (s - max).exp()
            }
        };
        let sum = exp(sink) + scores.iter().flatten().map(|s| exp(*s)).sum::<f64>();
        for (key, score) in scores.into_iter().enumerate() {
            let p = match score {
                Some(score) => exp(score) / sum,
                None if self.skips_absent => continue,
                None => 0.0,
            };
            let weight = self.weight(p, [b, h, q_idx, key])?;
            let start = (kv_head * keys + key) * width;
            for (o, x) in out.iter_mut().zip(&v.data[start..start + width]) {
                *o += weight * x;
            }
        }
        Ok(())
    }

    /// The logit of the key whose value is zero; -inf where there is none.
    fn sink(&self, largest: f64, index: [usize; 3]) -> Result<f64, OutOfRange> {
        let Some(sink) = &self.sink else {
            return Ok(f64::NEG_INFINITY);
        };
        sink.eval(&index.map(to_i64), largest, &|operand, _, index: &[i64]| {
            load(self.at.operands[operand], index)
        })
    }

    /// What the value of a key of probability `p` counts.
    fn weight(&self, p: f64, index: [usize; 4]) -> Result<f64, OutOfRange> {
        let Some(prob_mod) = &self.prob_mod else {
            return Ok(p);
        };
        prob_mod.eval(&index.map(to_i64), p, &|operand, _, index: &[i64]| {
            load(self.at.operands[operand], index)
        })
    }

    /// The score of each key; `None` where the key is not there.
    fn scores(
        &self,
        [b, h, q_idx]: [usize; 3],
        q_row: usize,
        first_k_row: usize,
    ) -> Result<Vec<Option<f64>>, OutOfRange> {
        let (q, k) = (self.at.operands[0], self.at.operands[1]);
        let (depth, keys) = (q.shape[3], k.shape[2]);
        let elements = |operand: usize, _, index: &[i64]| load(self.at.operands[operand], index);
        let q_row = &q.data[q_row * depth..(q_row + 1) * depth];
        let mut scores = Vec::with_capacity(keys);
        for key in 0..keys {
            let index = [b, h, q_idx, key].map(to_i64);
            if let Some(mask) = &self.mask_mod
                && mask.eval(&index, 0.0, &elements)? == 0.0
            {
                scores.push(None);
                continue;
            }
            let start = (first_k_row + key) * depth;
            let k_row = &k.data[start..start + depth];
            let product: f64 = q_row.iter().zip(k_row).map(|(x, y)| x * y).sum();
            let mut score = self.scale * product;
            if let Some(score_mod) = &self.score_mod {
                score = score_mod.eval(&index, score, &elements)?;
            }
            scores.push(Some(score).filter(|s| *s != f64::NEG_INFINITY));
        }
        Ok(scores)
    }
}

fn to_i64(i: usize) -> i64 {
    i64::try_from(i).unwrap_or(i64::MAX)
}
