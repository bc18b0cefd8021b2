//! Linear attention: the recurrence of [`attnc_ir::LinearAttention`], heads in parallel.
//!
//! Rows of the state are contiguous, so each step is a few passes over a `D × Dv` table that stays in cache.

use super::floats;
use super::view::View;
use attnc_ir::{LinearAttention, LinearResult, UpdateRule};
use rayon::prelude::*;

/// All operands packed.
pub(crate) fn linear_attention(operands: &[View<'_>], linear: &LinearAttention, out: &mut [u32]) {
    let out = floats(out);
    if out.is_empty() {
        return;
    }
    let shape = |operand: usize| &operands[operand].layout.shape;
    let kv_heads = shape(1)[1];
    let heads = shape(0)[0] * kv_heads;
    let head = Head {
        rule: linear.rule,
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the executor computes in f32"
        )]
        scale: linear.scale as f32,
        per_kv: shape(0)[1] / kv_heads,
        len: shape(0)[2],
        depth: shape(3)[2],
        width: shape(3)[3],
    };
    out.par_chunks_exact_mut(out.len() / heads)
        .enumerate()
        .for_each(|(n, out)| {
            let state = head.block(&operands[3], n, head.depth * head.width);
            match linear.result {
                LinearResult::State => {
                    out.copy_from_slice(state);
                    head.run(operands, n, out, None);
                }
                LinearResult::Output => head.run(operands, n, &mut state.to_vec(), Some(out)),
            }
        });
}

/// What all heads of the keys have in common.
struct Head {
    rule: UpdateRule,
    scale: f32,
    /// Query heads a key head.
    per_kv: usize,
    len: usize,
    depth: usize,
    width: usize,
}

impl Head {
    /// Block `n` of an operand: that of key head `n`, which counts over the batch.
    fn block<'a>(&self, operand: &View<'a>, n: usize, size: usize) -> &'a [f32] {
        &operand.f32()[n * size..(n + 1) * size]
    }

    /// Walks the keys of head `n`; its rows go to `out`, query heads one after the other.
    fn run(&self, operands: &[View<'_>], n: usize, state: &mut [f32], out: Option<&mut [f32]>) {
        let (len, depth, width) = (self.len, self.depth, self.width);
        let q = self.block(&operands[0], n, self.per_kv * len * depth);
        let k = self.block(&operands[1], n, len * depth);
        let v = self.block(&operands[2], n, len * width);
        let gate = |operand: usize| {
            let columns = operands[operand].layout.shape[3];
            (self.block(&operands[operand], n, len * columns), columns)
        };
        let (decay, beta) = (
            self.rule.decay_operand().map(gate),
            self.rule.beta_operand().map(gate),
        );
        let mut written = vec![0.0; width];
        let mut out = out;
        for t in 0..len {
            let key = &k[t * depth..(t + 1) * depth];
            if let Some((decay, columns)) = decay {
                let decay = &decay[t * columns..(t + 1) * columns];
                for (d, row) in state.chunks_exact_mut(width).enumerate() {
                    let factor = decay[d.min(columns - 1)].exp();
                    row.iter_mut().for_each(|s| *s *= factor);
                }
            }
            written.copy_from_slice(&v[t * width..(t + 1) * width]);
            if let Some((beta, _)) = beta {
                add_rows(state, key, -1.0, &mut written);
                written.iter_mut().for_each(|w| *w *= beta[t]);
            }
            for (row, k) in state.chunks_exact_mut(width).zip(key) {
                for (s, w) in row.iter_mut().zip(&written) {
                    *s += k * w;
                }
            }
            for g in 0..self.per_kv {
                let Some(out) = out.as_deref_mut() else { break };
                let row = g * len + t;
                let out = &mut out[row * width..(row + 1) * width];
                out.fill(0.0);
                add_rows(state, &q[row * depth..(row + 1) * depth], self.scale, out);
            }
        }
    }
}

/// `out += factor · weightsᵀ state`.
fn add_rows(state: &[f32], weights: &[f32], factor: f32, out: &mut [f32]) {
    for (row, weight) in state.chunks_exact(out.len()).zip(weights) {
        for (o, s) in out.iter_mut().zip(row) {
            *o += factor * weight * s;
        }
    }
}
