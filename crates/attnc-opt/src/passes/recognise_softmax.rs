//! Softmax written out in primitive ops gets its name.
//!
//! ```text
//! %m = reduce_max %x     %d = sub %x, %m     %e = exp %d
//! %s = reduce_sum %e     %p = div %e, %s                        %p = softmax %x
//! ```
//!
//! Three rules, each an identity of real numbers:
//! `exp(y) / sum(exp(y)) = softmax(y)`; `exp(x - (m + log(sum(exp(x - m))))) = softmax(x)` (the exponential
//! of a log-softmax); `softmax(x - max(x)) = softmax(x)`. Reductions are over the last axis, kept with
//! length 1; a constant added to the sum (a guard, an extra logit) makes it something else, and is left.
//!
//! On exit no softmax written like this remains.

use super::matching::{kept_reduction, pair, unary_of};
use crate::{Change, Pass, RemarkKind, Trace};
use attnc_ir::{BinaryOp, Diagnostics, Graph, Op, ReduceOp, UnaryOp, ValueId};

/// See the module.
pub struct RecogniseSoftmax;

impl Pass for RecogniseSoftmax {
    fn name(&self) -> &'static str {
        "recognise-softmax"
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut changed = false;
        for value in graph.topo_order() {
            let rules = [normalised_exp, exp_of_log_softmax, shifted_softmax];
            let Some(x) = rules.iter().find_map(|rule| rule(graph, value)) else {
                continue;
            };
            if !trace.claim() {
                break;
            }
            let axis = graph.ty(x).rank() - 1;
            let new = graph.apply(Op::Softmax { axis }, &[x])?;
            graph.node_mut(new).origin = graph.node(value).origin.clone();
            let message = "the ops are a softmax over the last axis";
            trace.remark(RemarkKind::Recognised, graph, &[new], message);
            graph.supersede(value, new);
            changed = true;
        }
        if changed {
            graph.remove_dead();
        }
        Ok(Change::from(changed))
    }
}

/// `y`, without a shift by its own maximum, where the value is `exp(y) / sum(exp(y))`.
fn normalised_exp(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let (exp, sum) = match graph.node(value).op {
        Op::Binary(BinaryOp::Div) => {
            let [a, b] = pair(graph, value);
            (a, b)
        }
        Op::Binary(BinaryOp::Mul) => {
            let [a, b] = pair(graph, value);
            let inverse = |v| unary_of(graph, v, UnaryOp::Reciprocal);
            inverse(b)
                .map(|s| (a, s))
                .or_else(|| inverse(a).map(|s| (b, s)))?
        }
        _ => return None,
    };
    let y = unary_of(graph, exp, UnaryOp::Exp)?;
    (last_axis(graph, sum, ReduceOp::Sum)? == exp).then(|| unshifted(graph, y))
}

/// `x` where the value is `exp(x - (m + log(sum(exp(x - m)))))`, or that without `m`.
fn exp_of_log_softmax(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let log_softmax = unary_of(graph, value, UnaryOp::Exp)?;
    let [x, lse] = binary_of(graph, log_softmax, BinaryOp::Sub)?;
    let log = |v| unary_of(graph, v, UnaryOp::Log);
    let (max, sum) = match binary_of(graph, lse, BinaryOp::Add) {
        Some([a, b]) => log(b)
            .map(|s| (Some(a), s))
            .or_else(|| log(a).map(|s| (Some(b), s)))?,
        None => (None, log(lse)?),
    };
    let y = unary_of(graph, last_axis(graph, sum, ReduceOp::Sum)?, UnaryOp::Exp)?;
    let same = match max {
        Some(max) => binary_of(graph, y, BinaryOp::Sub)? == [x, max],
        None => y == x,
    };
    same.then(|| unshifted(graph, x))
}

/// `x` where the value is `softmax(x - max(x))`.
fn shifted_softmax(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let Op::Softmax { axis } = graph.node(value).op else {
        return None;
    };
    let y = graph.node(value).operands()[0];
    let x = unshifted(graph, y);
    (x != y && axis == graph.ty(value).rank() - 1).then_some(x)
}

/// `x` where the value is `x - max(x)`, else the value.
fn unshifted(graph: &Graph, value: ValueId) -> ValueId {
    match binary_of(graph, value, BinaryOp::Sub) {
        Some([x, max]) if last_axis(graph, max, ReduceOp::Max) == Some(x) => x,
        _ => value,
    }
}

fn binary_of(graph: &Graph, value: ValueId, op: BinaryOp) -> Option<[ValueId; 2]> {
    (graph.node(value).op == Op::Binary(op)).then(|| pair(graph, value))
}

/// The operand of a reduction over the last axis that is kept with length 1, also where the keeping is a
/// reshape.
fn last_axis(graph: &Graph, value: ValueId, wanted: ReduceOp) -> Option<ValueId> {
    let (x, first) = kept_reduction(graph, value, wanted)?;
    (first + 1 == graph.ty(x).rank()).then_some(x)
}
