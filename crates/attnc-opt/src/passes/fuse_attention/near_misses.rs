//! What looks like attention and is none: a note says which node makes it something else.
//!
//! | what | for example |
//! | --- | --- |
//! | two products of activations with a function between that is no softmax | sigmoid attention |
//! | a softmax that more than pointwise ops and views part from its two products | the best k scores, pooled heads |
//!
//! None of these counts as an attention that was found. Products with weights are no scores: neither a
//! feed-forward layer nor a router of experts is meant.

use crate::Candidate;
use attnc_ir::{Graph, Op, UnaryOp, ValueId};
use std::collections::{BTreeSet, VecDeque};

/// Something that is not attention, and the node that makes it so.
pub(super) struct NearMiss {
    pub(super) node: ValueId,
    pub(super) at: ValueId,
    pub(super) reason: String,
}

/// All of a graph whose attention is `candidates`, in program order.
pub(super) fn near_misses(graph: &Graph, candidates: &[Candidate]) -> Vec<NearMiss> {
    let activations = Activations::of(graph);
    let found: BTreeSet<ValueId> = candidates.iter().map(|c| c.node).collect();
    let order = graph.topo_order().into_iter();
    let missed = order.filter_map(|value| match graph.node(value).op {
        Op::Softmax { .. } if !found.contains(&value) => parted_softmax(graph, &activations, value),
        Op::MatMul => other_function(graph, &activations, value),
        _ => None,
    });
    missed.collect()
}

/// Values that depend on an input.
struct Activations(BTreeSet<ValueId>);

impl Activations {
    fn of(graph: &Graph) -> Self {
        let mut found = BTreeSet::new();
        for value in graph.topo_order() {
            let node = graph.node(value);
            if node.op == Op::Input || node.operands().iter().any(|v| found.contains(v)) {
                found.insert(value);
            }
        }
        Self(found)
    }

    /// Whether the value is a product of two of them.
    fn product(&self, graph: &Graph, value: ValueId) -> bool {
        let node = graph.node(value);
        node.op == Op::MatMul && node.operands().iter().all(|v| self.0.contains(v))
    }
}

/// A softmax with a product of activations before and after, and other ops on the way.
fn parted_softmax(graph: &Graph, activations: &Activations, softmax: ValueId) -> Option<NearMiss> {
    let parts = |v| {
        let op = &graph.node(v).op;
        matches!(
            op,
            Op::Gather { .. }
                | Op::GatherElements { .. }
                | Op::GatherNd { .. }
                | Op::Pad { .. }
                | Op::Reduce { .. }
                | Op::CumSum { .. }
        )
    };
    let up = |v| graph.node(v).operands().to_vec();
    let down = |v| graph.users(v);
    // The last on the way up is the first after the product.
    let before = nearest_product(graph, activations, softmax, &up, &|seen, v| {
        parts(v).then_some(v).or(seen)
    })?;
    let after = nearest_product(graph, activations, softmax, &down, &|seen, v| {
        seen.or(parts(v).then_some(v))
    })?;
    let (at, place) = match (before, after) {
        (Some(at), _) => (at, "the product and the softmax"),
        (None, Some(at)) => (at, "the softmax and the product with V"),
        (None, None) => return None,
    };
    let op = graph.node(at).op.name();
    Some(NearMiss {
        node: softmax,
        at,
        reason: format!(
            "no attention: `{op}` stands between {place}; expected pointwise ops and views"
        ),
    })
}

/// What `note` made of the ops on the way to the nearest product of activations, if there is one.
fn nearest_product(
    graph: &Graph,
    activations: &Activations,
    start: ValueId,
    next: &dyn Fn(ValueId) -> Vec<ValueId>,
    note: &dyn Fn(Option<ValueId>, ValueId) -> Option<ValueId>,
) -> Option<Option<ValueId>> {
    let mut seen = BTreeSet::from([start]);
    let mut queue: VecDeque<_> = next(start).into_iter().map(|v| (v, None)).collect();
    while let Some((value, noted)) = queue.pop_front() {
        if !seen.insert(value) {
            continue;
        }
        if activations.product(graph, value) {
            return Some(noted);
        }
        let stops = matches!(
            graph.node(value).op,
            Op::MatMul
                | Op::Conv(_)
                | Op::Attention(_)
                | Op::Softmax { .. }
                | Op::LayerNorm { .. }
                | Op::RmsNorm { .. }
        );
        if !stops {
            let noted = note(noted, value);
            queue.extend(next(value).into_iter().map(|v| (v, noted)));
        }
    }
    None
}

/// A product of activations that another one is made of, with a non-linear function of each element between.
fn other_function(graph: &Graph, activations: &Activations, product: ValueId) -> Option<NearMiss> {
    if !activations.product(graph, product) {
        return None;
    }
    let mut seen = BTreeSet::from([product]);
    let mut queue: VecDeque<_> = graph
        .users(product)
        .into_iter()
        .map(|v| (v, None))
        .collect();
    while let Some((value, function)) = queue.pop_front() {
        if !seen.insert(value) {
            continue;
        }
        let op = &graph.node(value).op;
        if let Some(at) = function.filter(|_| activations.product(graph, value)) {
            let name = graph.node(at).op.name();
            let reason =
                format!("no attention: `{name}` stands where a softmax over the keys is expected");
            return Some(NearMiss {
                node: value,
                at,
                reason,
            });
        }
        if op.is_pointwise() || op.is_view() {
            let function = function.or(is_function(op).then_some(value));
            queue.extend(graph.users(value).into_iter().map(|v| (v, function)));
        }
    }
    None
}

/// Whether the op bends its argument; guards, signs and roundings do not count.
fn is_function(op: &Op) -> bool {
    use UnaryOp::{Abs, Ceil, Floor, IsInf, IsNan, Neg, Not, Round, Sign};
    matches!(op, Op::Unary(f) if !matches!(f, Abs | Ceil | Floor | IsInf | IsNan | Neg | Not | Round | Sign))
}
