//! Sinks, and functions of probabilities: whatever stands beside or behind the softmax.

use super::families::{BOOLEAN, CAUSAL};
use super::{Family, Fill, Lengths};

/// f32 against f64: scores of a few units, sums of some hundred terms.
const RTOL: f64 = 2e-5;

pub(super) fn families() -> Vec<Family> {
    let mut all = sinks();
    all.extend(weights());
    all
}

/// `behind` are lines that make `%w` of `%m`, the masked scores.
fn family(name: &'static str, masked: &str, behind: &str, mask: Fill) -> Family {
    let text = format!(
        "graph @functions(%q: f32[B, 2, M, 8], %k: f32[B, 2, N, 8], %v: f32[B, 2, N, 12], \
         %mask: bool[B, 1, 1, N], %logits: f32[2], %gate: f32[B, 1, M, N]) {{
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %r = matmul %q, %kt
  %s = mul %r, 0.6
{masked}
{behind}
  %o = matmul %w, %v
  return %o
}}"
    );
    Family {
        name,
        text,
        lengths: vec![
            ("B", Lengths::To(3)),
            ("M", Lengths::SmallEdges),
            ("N", Lengths::SmallEdges),
        ],
        fills: vec![("mask", mask), ("logits", Fill::Times(3.0))],
        fused: 1,
        rtol: RTOL,
        cases: 32,
    }
}

/// A row with a sink is no dead row: without a key it is literally zeros.
fn sinks() -> Vec<Family> {
    let appended = "  %l0 = reshape %logits, shape = [1, 2, 1, 1]
  %l = broadcast %l0, shape = [B, 2, M, 1]
  %all = concat %m, %l, axis = 3
  %p = softmax %all, axis = 3
  %w = slice %p, axis = 3, start = 0, len = N";
    let softmax1 = "  %e = exp %m
  %sum = reduce_sum %e, axes = [3], keep_dims = true
  %more = add %sum, 1.0
  %w = div %e, %more";
    let shifted = "  %max = reduce_max %m, axes = [3], keep_dims = true
  %d = sub %m, %max
  %e = exp %d
  %sum = reduce_sum %e, axes = [3], keep_dims = true
  %more = add %sum, 1.0
  %w = div %e, %more";
    let gated = "  %l0 = reshape %logits, shape = [1, 2, 1, 1]
  %l = broadcast %l0, shape = [B, 2, M, 1]
  %all = concat %l, %m, axis = 3
  %p = softmax %all, axis = 3
  %own = slice %p, axis = 3, start = 1, len = N
  %square = mul %own, %own
  %w = mul %square, %gate";
    let dead = Fill::MaskWithDeadRows;
    vec![
        family("sink of a head", BOOLEAN, appended, dead),
        family("sink under a causal mask", CAUSAL, appended, dead),
        family("softmax1", BOOLEAN, softmax1, dead),
        family("softmax1 of shifted scores", CAUSAL, shifted, dead),
        family("sink and squared weights", BOOLEAN, gated, dead),
    ]
}

fn weights() -> Vec<Family> {
    let softmax = |then: &str| format!("  %p = softmax %m, axis = 3\n{then}");
    let gated = softmax("  %w = mul %p, %gate");
    let zeroed = softmax("  %w1 = where %mask, %p, 0.0\n  %w = div %w1, 0.9");
    let squared = softmax("  %w1 = mul %p, %p\n  %w = mul %w1, %gate");
    // A weight also for keys that are not there.
    let lifted = softmax("  %w = add %p, 0.125");
    let renormalised = softmax(
        "  %w1 = where %mask, %p, 0.0
  %sum = reduce_sum %w1, axes = [3], keep_dims = true
  %guarded = add %sum, 1e-6
  %w = div %w1, %guarded",
    );
    let finite = "  %m = where %mask, %s, -3.4028235e38";
    let dead = Fill::MaskWithDeadRows;
    vec![
        family("weights gated", BOOLEAN, &gated, dead),
        family("weights zeroed behind a fill", finite, &zeroed, dead),
        family("weights squared", BOOLEAN, &squared, dead),
        family("weights lifted", BOOLEAN, &lifted, Fill::Mask),
        family("weights renormalised", finite, &renormalised, Fill::Mask),
    ]
}
