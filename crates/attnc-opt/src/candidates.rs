//! Finding attention: every softmax over keys between two contractions, and every attention op.
//!
//! Structure only: nothing about scales, masks or layouts is asked here, so that a candidate that later
//! does not fuse is still counted, and its reason given.

use attnc_ir::{Graph, Op, ValueId};
use std::collections::BTreeSet;

/// A softmax between two contractions, or an attention op.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The softmax, or the attention op.
    pub node: ValueId,
    /// Whether it is an attention op already.
    pub is_op: bool,
    /// Contractions its input leads back to through pointwise ops, views, concatenations and padding, nearest first.
    pub scores: Vec<ValueId>,
    /// Contractions its output leads to through the same.
    pub sums: Vec<ValueId>,
}

/// All candidates of a graph, in program order.
#[must_use]
pub fn find_attention(graph: &Graph) -> Vec<Candidate> {
    let mut found = Vec::new();
    for node in graph.topo_order() {
        match &graph.node(node).op {
            Op::Attention(_) => found.push(Candidate {
                node,
                is_op: true,
                scores: Vec::new(),
                sums: Vec::new(),
            }),
            Op::Softmax { .. } => {
                let scores = reach(graph, node, |v| graph.node(v).operands().to_vec());
                let sums = reach(graph, node, |v| graph.users(v));
                if !scores.is_empty() && !sums.is_empty() {
                    found.push(Candidate {
                        node,
                        is_op: false,
                        scores,
                        sums,
                    });
                }
            }
            _ => {}
        }
    }
    found
}

/// Contractions reached from `start` through pointwise ops, views, concatenations and padding, breadth first.
fn reach(graph: &Graph, start: ValueId, next: impl Fn(ValueId) -> Vec<ValueId>) -> Vec<ValueId> {
    let mut seen = BTreeSet::from([start]);
    let mut queue = std::collections::VecDeque::from(next(start));
    let mut found = Vec::new();
    while let Some(value) = queue.pop_front() {
        if !seen.insert(value) {
            continue;
        }
        match &graph.node(value).op {
            Op::MatMul => found.push(value),
            op if op.is_pointwise()
                || op.is_view()
                || matches!(op, Op::Concat { .. } | Op::Pad { .. }) =>
            {
                queue.extend(next(value));
            }
            _ => {}
        }
    }
    found
}
