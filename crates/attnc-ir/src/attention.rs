//! Fused attention: one pass over the keys, and the four functions that make it this or that attention.
//!
//! ```text
//! s[n] = score_mod(scale * q · k[n])          for the keys where mask_mod is true
//! p[n] = exp(s[n]) / (exp(sink(max s)) + Σ exp(s))   0 for the other keys
//! o    = Σ prob_mod(p[n]) * v[n]
//! ```
//!
//! ```
//! use attnc_ir::scalar::ScalarBuilder;
//! use attnc_ir::{Attention, Extents};
//! // softmax1: every row may attend to nothing.
//! let mut e = ScalarBuilder::new(Extents::none());
//! let zero = e.float(0.0);
//! let softmax1 = Attention { sink: Some(e.finish(zero)), ..Attention::new(0.125) };
//! assert!(softmax1.skips_absent_keys());
//! ```
//!
//! Dao 2023, arXiv:2307.08691 (one pass). `score_mod` and `mask_mod` are FlexAttention's (arXiv:2412.05496),
//! `prob_mod` that of ONNX's operator of the same name; sinks are those of Xiao et al. 2023,
//! arXiv:2309.17453, §3.2, as learned logits.

use crate::scalar::ScalarExpr;

/// Fused attention; see the module.
///
/// Shapes: `q [B, H, M, D]`, `k [B, H_kv, N, D]`, `v [B, H_kv, N, Dv]` with `H = heads_per_kv * H_kv`; the
/// result is `[B, H, M, Dv]`. Rank is always 4. The functions are over `b = d0, h = d1, q_idx = d2,
/// kv_idx = d3` with extents `B, H, M, N`; their loads refer to operands 3 and later.
///
/// Where `mask_mod` is false, or the score is -inf, there is *no key*: its probability is 0, whatever its
/// score. A row without a key has no other probability. A causal mask is a `mask_mod`, so the corner it is
/// aligned to is always written out.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// Factor on the product, as the source has it; never assumed.
    pub scale: f64,
    /// f32 from the scaled score (the argument) and the indices; `None` is the identity.
    pub score_mod: Option<ScalarExpr>,
    /// bool from the indices: true = attend; `None` is always true.
    pub mask_mod: Option<ScalarExpr>,
    /// f32 from the row's largest score (the argument; -inf without a key) and `b, h, q_idx`: the logit of one
    /// more key, whose value is zero. Neither scaled nor changed by `score_mod`; -inf is no such key, and
    /// `None` is -inf. Of the argument there are softmaxes whose sum gets a term after the largest score was
    /// taken off: `exp(s - max) / (1 + Σ exp(s - max))` has the sink `row_max`.
    pub sink: Option<ScalarExpr>,
    /// f32 from the probability (the argument) and the indices: the weight of the value; `None` is the
    /// identity. The sum that the probability was divided by stays what it is.
    pub prob_mod: Option<ScalarExpr>,
}

impl Attention {
    /// `softmax(scale * q kᵀ) v`.
    #[must_use]
    pub fn new(scale: f64) -> Self {
        Self {
            scale,
            score_mod: None,
            mask_mod: None,
            sink: None,
            prob_mod: None,
        }
    }

    /// The functions that there are, with their names in the text form.
    pub fn functions(&self) -> impl Iterator<Item = (&'static str, &ScalarExpr)> {
        let all = [
            ("score_mod", &self.score_mod),
            ("mask_mod", &self.mask_mod),
            ("sink", &self.sink),
            ("prob_mod", &self.prob_mod),
        ];
        all.into_iter()
            .filter_map(|(name, expr)| expr.as_ref().map(|e| (name, e)))
    }

    /// The argument's name in the text form of a function, where it has one.
    #[must_use]
    pub fn argument(function: &str) -> Option<&'static str> {
        match function {
            "score_mod" => Some("score"),
            "sink" => Some("row_max"),
            "prob_mod" => Some("prob"),
            _ => None,
        }
    }

    /// Whether a key that is not there has weight 0. Such keys are not looked at, so that garbage in their
    /// values never reaches the result; otherwise their values count as `prob_mod(0)` says.
    #[must_use]
    pub fn skips_absent_keys(&self) -> bool {
        self.prob_mod.as_ref().is_none_or(ScalarExpr::keeps_zero)
    }

    /// Whether weights may be taken before the sum of the row is known, because `prob_mod(c * p)` is
    /// `c * prob_mod(p)`.
    #[must_use]
    pub fn weighs_before_sum(&self) -> bool {
        self.prob_mod
            .as_ref()
            .is_none_or(ScalarExpr::is_homogeneous)
    }
}
