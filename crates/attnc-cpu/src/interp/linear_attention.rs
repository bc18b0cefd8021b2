//! Linear attention, literally: the recurrence of [`attnc_ir::LinearAttention`], one head after the other.

use super::{At, Value};
use attnc_ir::{LinearAttention, LinearResult};

/// The rows that the queries read, or the last state.
pub(super) fn linear_attention(at: &At<'_>, linear: &LinearAttention) -> Vec<f64> {
    let head = Heads {
        q: at.operands[0],
        k: at.operands[1],
        v: at.operands[2],
        state: at.operands[3],
        decay: linear.rule.decay_operand().map(|n| at.operands[n]),
        beta: linear.rule.beta_operand().map(|n| at.operands[n]),
    };
    let mut out = vec![0.0; at.shape.iter().product()];
    let [batch, kv_heads, depth, width] = [0, 1, 2, 3].map(|n| head.state.shape[n]);
    let [heads, len] = [1, 2].map(|n| head.q.shape[n]);
    for b in 0..batch {
        for kv_head in 0..kv_heads {
            let mut state = vec![0.0; depth * width];
            for (d, row) in state.chunks_mut(width.max(1)).enumerate() {
                for (j, s) in row.iter_mut().enumerate() {
                    *s = element(head.state, [b, kv_head, d, j]);
                }
            }
            for t in 0..len {
                head.step(&mut state, [b, kv_head, t], [depth, width]);
                if linear.result == LinearResult::State {
                    continue;
                }
                let per_kv = heads / kv_heads;
                for h in kv_head * per_kv..(kv_head + 1) * per_kv {
                    for j in 0..width {
                        let read = (0..depth)
                            .map(|d| element(head.q, [b, h, t, d]) * state[d * width + j]);
                        out[((b * heads + h) * len + t) * width + j] =
                            linear.scale * read.sum::<f64>();
                    }
                }
            }
            if linear.result == LinearResult::State {
                let first = (b * kv_heads + kv_head) * depth * width;
                out[first..first + state.len()].copy_from_slice(&state);
            }
        }
    }
    out
}

struct Heads<'a> {
    q: &'a Value,
    k: &'a Value,
    v: &'a Value,
    state: &'a Value,
    decay: Option<&'a Value>,
    beta: Option<&'a Value>,
}

impl Heads<'_> {
    /// The state behind key `t` from that before it.
    fn step(&self, state: &mut [f64], [b, h, t]: [usize; 3], [depth, width]: [usize; 2]) {
        let key = |d| element(self.k, [b, h, t, d]);
        if let Some(decay) = self.decay {
            for d in 0..depth {
                let factor = element(decay, [b, h, t, d.min(decay.shape[3] - 1)]).exp();
                state[d * width..(d + 1) * width]
                    .iter_mut()
                    .for_each(|s| *s *= factor);
            }
        }
        for j in 0..width {
            let mut written = element(self.v, [b, h, t, j]);
            if let Some(beta) = self.beta {
                let held: f64 = (0..depth).map(|d| state[d * width + j] * key(d)).sum();
                written = element(beta, [b, h, t, 0]) * (written - held);
            }
            for d in 0..depth {
                state[d * width + j] += key(d) * written;
            }
        }
    }
}

fn element(x: &Value, index: [usize; 4]) -> f64 {
    x.data[index.iter().zip(&x.shape).fold(0, |at, (i, n)| at * n + i)]
}
