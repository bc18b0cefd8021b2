//! What must come out, in f64.
//!
//! Attention and matmul are computed here by their formulas, one row after the other, so that the check
//! does not rest on any code that is measured; of large shapes, evenly spaced rows. A model's reference is
//! attnc's f64 oracle; a batch of a model is checked by its first element.

use crate::shape::{Attention, Shape, Work};
use attnc::inputs::BoundInputs;
use attnc::plan::DimValues;
use attnc::{Error, HostTensor, Model, Tensors, oracle};
use rayon::prelude::*;

/// Products and sums that a reference may take.
const AFFORDABLE: usize = 1 << 30;

/// Pieces of the first output, by the place where each starts.
pub struct Reference {
    pieces: Vec<(usize, Vec<f64>)>,
    /// Elements of the whole output.
    len: usize,
}

impl Reference {
    /// Computes it.
    pub(crate) fn new(
        shape: &Shape,
        model: &Model,
        operands: &Tensors,
        bound: &BoundInputs,
    ) -> Result<Self, Error> {
        let read = |name: &str| operands[name].to_f64();
        Ok(match &shape.work {
            Work::Attention(a) => attention(a, &read("q"), &read("k"), &read("v")),
            Work::Matmul { m, k, n } => matmul([*m, *k, *n], &read("a"), &read("b")),
            Work::Model { batch, .. } => first_of_batch(model, operands, bound, *batch)?,
        })
    }

    /// The largest difference of a result. Infinite where its length is wrong or an element is NaN.
    #[must_use]
    pub fn error_of(&self, found: &[f64]) -> f64 {
        if found.len() != self.len {
            return f64::INFINITY;
        }
        let differences = self.pieces.iter().flat_map(|(start, piece)| {
            piece
                .iter()
                .zip(&found[*start..])
                .map(|(x, y)| (x - y).abs())
        });
        differences.fold(0.0, |worst, d| {
            if d.is_nan() {
                f64::INFINITY
            } else {
                worst.max(d)
            }
        })
    }
}

/// All rows where that is affordable, else evenly spaced ones, the first and the last among them.
fn rows(of: usize, cost_of_all: usize) -> Vec<usize> {
    let count = of
        .min((of as u128 * AFFORDABLE as u128 / cost_of_all.max(1) as u128) as usize)
        .max(2);
    if count >= of {
        return (0..of).collect();
    }
    (0..count).map(|i| i * (of - 1) / (count - 1)).collect()
}

fn attention(a: &Attention, q: &[f64], k: &[f64], v: &[f64]) -> Reference {
    let Attention {
        heads,
        kv_heads,
        q: queries,
        kv,
        d,
        ..
    } = *a;
    let rows = rows(queries, 2 * heads * queries * kv * d);
    let piece = |(head, row): (usize, usize)| {
        let start = (head * queries + row) * d;
        let first = head / (heads / kv_heads) * kv * d;
        let (k, v) = (&k[first..first + kv * d], &v[first..first + kv * d]);
        (
            start,
            attention_row(&q[start..start + d], k, v, a.keys(row)),
        )
    };
    let places: Vec<_> = (0..heads)
        .flat_map(|head| rows.iter().map(move |&row| (head, row)))
        .collect();
    Reference {
        pieces: places.into_par_iter().map(piece).collect(),
        len: q.len(),
    }
}

fn attention_row(q: &[f64], k: &[f64], v: &[f64], keys: std::ops::Range<usize>) -> Vec<f64> {
    let d = q.len();
    let scale = 1.0 / (d as f64).sqrt();
    let row_of = |x: &'_ [f64], key: usize| -> std::ops::Range<usize> {
        debug_assert!((key + 1) * d <= x.len());
        key * d..(key + 1) * d
    };
    let dot = |key| -> f64 { k[row_of(k, key)].iter().zip(q).map(|(x, y)| x * y).sum() };
    let scores: Vec<f64> = keys.clone().map(|key| scale * dot(key)).collect();
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (mut sum, mut out) = (0.0, vec![0.0; d]);
    for (key, score) in keys.zip(scores) {
        let p = (score - top).exp();
        sum += p;
        out.iter_mut()
            .zip(&v[row_of(v, key)])
            .for_each(|(o, x)| *o += p * x);
    }
    out.iter_mut().for_each(|o| *o /= sum);
    out
}

fn matmul([m, k, n]: [usize; 3], a: &[f64], b: &[f64]) -> Reference {
    let piece = |row: usize| {
        let mut out = vec![0.0; n];
        for (x, b) in a[row * k..(row + 1) * k].iter().zip(b.chunks_exact(n)) {
            out.iter_mut().zip(b).for_each(|(o, y)| *o += x * y);
        }
        (row * n, out)
    };
    Reference {
        pieces: rows(m, m * k * n).into_par_iter().map(piece).collect(),
        len: m * n,
    }
}

/// The oracle on the first element of each input, which is what the first element of the output follows from.
fn first_of_batch(
    model: &Model,
    operands: &Tensors,
    bound: &BoundInputs,
    batch: usize,
) -> Result<Reference, Error> {
    let first = |tensor: &HostTensor| {
        let mut shape = tensor.shape().to_vec();
        shape[0] = 1;
        let bytes = tensor.bytes()[..tensor.bytes().len() / batch].to_vec();
        HostTensor::from_bytes(tensor.dtype(), shape, bytes)
            .map_err(|e| Error::Usage(e.to_string()))
    };
    let outputs = if batch == 1 {
        oracle::run_bound(model, bound)?
    } else {
        let given = operands
            .iter()
            .map(|(name, t)| Ok((name.clone(), first(t)?)));
        oracle::run(
            model,
            &given.collect::<Result<Tensors, Error>>()?,
            &DimValues::default(),
        )?
    };
    let piece = outputs
        .values()
        .next()
        .map(HostTensor::to_f64)
        .unwrap_or_default();
    let len = piece.len() * batch;
    Ok(Reference {
        pieces: vec![(0, piece)],
        len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes;
    use crate::task::Task;

    #[test]
    fn rows_that_cannot_all_be_computed_are_spread() {
        assert_eq!(rows(4, 1000), [0, 1, 2, 3]);
        assert_eq!(rows(9, 3 * AFFORDABLE), [0, 4, 8]);
    }

    #[test]
    fn formulas_agree_with_the_oracle() {
        for shape in shapes::smoke() {
            let task = Task::new(&shape).unwrap();
            let oracle = oracle::run_bound(&task.model, &task.bound).unwrap();
            let found = oracle["out"].to_f64();
            let error = task.reference.error_of(&found);
            assert!(error < 1e-12, "{}: {error}", shape.title);
            let mut wrong = found;
            wrong[0] += 1.0;
            assert!(task.reference.error_of(&wrong) > 0.9);
            assert_eq!(task.reference.error_of(&wrong[1..]), f64::INFINITY);
        }
    }
}
