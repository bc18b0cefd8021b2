//! The nodes between two, to name the first that is in the way.
//!
//! ```text
//! %s = matmul %q, %kt      between(%s, %f) = [%z, %c, %f]
//! %z = mul %s, 0.5
//! %c = slice %z, …         what holds of %z and no more of %c was broken by %c
//! %f = add %c, %bias
//! ```

use attnc_ir::{Graph, Op, ValueId};
use std::collections::BTreeSet;

/// The nodes on the ways from `from` to `to` through pointwise ops, views and concatenations, in program
/// order; with `to`, without `from`.
pub(super) fn between(graph: &Graph, from: ValueId, to: ValueId) -> Vec<ValueId> {
    let down = closure(graph, from, |v| graph.users(v));
    let up = closure(graph, to, |v| graph.node(v).operands().to_vec());
    let order = graph.topo_order().into_iter();
    order
        .filter(|v| down.contains(v) && (up.contains(v) || *v == to))
        .collect()
}

fn closure(
    graph: &Graph,
    start: ValueId,
    next: impl Fn(ValueId) -> Vec<ValueId>,
) -> BTreeSet<ValueId> {
    let mut found = BTreeSet::new();
    let mut stack = next(start);
    while let Some(value) = stack.pop() {
        let op = &graph.node(value).op;
        let walked = op.is_pointwise() || op.is_view() || matches!(op, Op::Concat { .. });
        if walked && found.insert(value) {
            stack.extend(next(value));
        }
    }
    found
}
