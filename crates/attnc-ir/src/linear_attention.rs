//! Linear attention: a state that each key and value is written into, read by each query.
//!
//! The recurrence of one head, for `t = 0, 1, …`, with a state `S` of keys by values:
//!
//! ```text
//! S ← exp(decay_t) S                      (gated rules)
//! S ← S + k_t ⊗ v_t                       (linear, gated)
//! S ← S + beta_t k_t ⊗ (v_t − Sᵀ k_t)     (delta rules)
//! o_t = scale · q_tᵀ S
//! ```
//!
//! Katharopoulos et al. 2020, arXiv:2006.16236, eq. 18 to 20 (linear); Yang et al. 2024, arXiv:2406.06484,
//! §2.2 (delta); Yang et al. 2024, arXiv:2412.06464, eq. 10 (gated delta).
//!
//! The recurrence has two results, the rows `o` and the last `S`; a node gives one of them, so a model that
//! keeps its state has two nodes of equal operands.

use crate::infer::{Result, expect_float, expect_same_dtype, shape_error};
use crate::op::named_ops;
use crate::{Dim, TensorType};

/// Linear attention of `q, k, v, state`, then `decay` and `beta` where the rule has them.
///
/// Shapes: `q [B, H, M, D]`, `k [B, H_kv, M, D]`, `v [B, H_kv, M, Dv]`, `state [B, H_kv, D, Dv]` with
/// `H = heads_per_kv * H_kv`; `decay [B, H_kv, M, D]` or `[B, H_kv, M, 1]`, the logarithm of the factor on
/// the state; `beta [B, H_kv, M, 1]`. The result is `[B, H, M, Dv]` or `[B, H_kv, D, Dv]`.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearAttention {
    /// How a key changes the state.
    pub rule: UpdateRule,
    /// Factor on the rows of the result, as the source has it.
    pub scale: f64,
    /// Which of the two results this is.
    pub result: LinearResult,
}

named_ops! {
    /// How a key changes the state, by the recurrences of the module.
    UpdateRule {
        /// The product of key and value is added.
        Linear = "linear",
        /// The state decays, then the product is added.
        Gated = "gated",
        /// What the state holds for the key moves towards the value.
        Delta = "delta",
        /// The state decays, then moves.
        GatedDelta = "gated_delta",
    }
}

named_ops! {
    /// Which result of the recurrence a node gives.
    LinearResult {
        /// The rows that the queries read.
        Output = "output",
        /// The state behind the last key.
        State = "state",
    }
}

impl UpdateRule {
    /// Whether there is a `decay` operand.
    #[must_use]
    pub fn is_gated(self) -> bool {
        matches!(self, Self::Gated | Self::GatedDelta)
    }

    /// Whether there is a `beta` operand.
    #[must_use]
    pub fn is_delta(self) -> bool {
        matches!(self, Self::Delta | Self::GatedDelta)
    }

    /// Position of the `decay` operand.
    #[must_use]
    pub fn decay_operand(self) -> Option<usize> {
        self.is_gated().then_some(4)
    }

    /// Position of the `beta` operand.
    #[must_use]
    pub fn beta_operand(self) -> Option<usize> {
        self.is_delta().then_some(4 + usize::from(self.is_gated()))
    }

    /// How many operands there are.
    #[must_use]
    pub fn operands(self) -> usize {
        4 + usize::from(self.is_gated()) + usize::from(self.is_delta())
    }
}

impl LinearAttention {
    /// The type of the result.
    pub(crate) fn result_type(&self, operands: &[&TensorType]) -> Result<TensorType> {
        let (q, k, v, state) = (operands[0], operands[1], operands[2], operands[3]);
        expect_float("linear_attention", q)?;
        expect_float("linear_attention", state)?;
        for other in operands[1..3].iter().chain(&operands[4..]) {
            expect_same_dtype("linear_attention", q, other)?;
        }
        if let Some(odd) = operands.iter().find(|t| t.rank() != 4) {
            return Err(shape_error(format!(
                "linear_attention takes operands of 4 axes, found {odd}"
            )));
        }
        let fits = q.shape[0] == k.shape[0]
            && q.shape[2..] == k.shape[2..]
            && k.shape[..3] == v.shape[..3]
            && state.shape[..2] == k.shape[..2]
            && state.shape[2..] == [k.shape[3].clone(), v.shape[3].clone()]
            && q.shape[1].exact_div(&k.shape[1]).is_some();
        if !fits {
            return Err(shape_error(format!(
                "linear_attention takes q [B, H, M, D], k [B, H_kv, M, D], v [B, H_kv, M, Dv] and a state \
                 [B, H_kv, D, Dv], found {q}, {k}, {v} and {state}"
            )));
        }
        let gates = [
            ("decay", self.rule.decay_operand(), Some(&k.shape[3])),
            ("beta", self.rule.beta_operand(), None),
        ];
        for (name, position, columns) in gates {
            let Some(gate) = position.map(|n| operands[n]) else {
                continue;
            };
            let last = &gate.shape[3];
            if gate.shape[..3] != k.shape[..3] || !(last.is(1) || columns == Some(last)) {
                let or_columns = columns.map_or(String::new(), |d| format!(" or {d}"));
                return Err(shape_error(format!(
                    "linear_attention over k {k} takes a {name} of its first three axes and 1{or_columns} \
                     columns, found {gate}"
                )));
            }
        }
        let shape: Vec<Dim> = match self.result {
            LinearResult::Output => vec![
                q.shape[0].clone(),
                q.shape[1].clone(),
                q.shape[2].clone(),
                v.shape[3].clone(),
            ],
            LinearResult::State => state.shape.clone(),
        };
        let dtype = match self.result {
            LinearResult::Output => q.dtype,
            LinearResult::State => state.dtype,
        };
        Ok(TensorType { dtype, shape })
    }
}
