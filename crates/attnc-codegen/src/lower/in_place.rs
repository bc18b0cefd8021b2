//! Scores that nothing but their softmax reads lie where the probabilities will: one table, not two.
//!
//! ```text
//! %s = matmul %q, %kt      buffer p: scores
//! %p = softmax %s          buffer p: probabilities, each row over its own scores
//! ```
//!
//! Where probabilities are a result of the model, so is this the only table that is made for them.
//!
//! On entry: buffers of inputs and outputs. On exit `in_place` holds, for each such value, its softmax. Both
//! are f32 in row-major order, so that an element is written where the same invocation has read it last.

use super::Lowerer;
use attnc_ir::{DType, Op, ValueId, layout};
use std::collections::HashSet;

impl Lowerer<'_> {
    /// Looks at every softmax that is computed.
    pub(super) fn find_in_place(&mut self, live: &HashSet<ValueId>) {
        for value in self.graph.topo_order() {
            let softmax = matches!(self.graph.node(value).op, Op::Softmax { .. });
            if softmax
                && live.contains(&value)
                && let Some(scores) = self.overwritten(value, live)
            {
                self.in_place.insert(scores, value);
            }
        }
    }

    /// The value that the softmax may be written over.
    fn overwritten(&self, softmax: ValueId, live: &HashSet<ValueId>) -> Option<ValueId> {
        let graph = self.graph;
        let node = graph.node(softmax);
        let base = self.whole(node.operands()[0])?;
        let scores = graph.node(base);
        let plain = [node, scores]
            .iter()
            .all(|n| n.ty.dtype == DType::F32 && n.storage.is_none());
        let base_of = |v: ValueId| layout::source_index(graph, v).0;
        let is_output = graph.outputs().iter().any(|&(_, v)| base_of(v) == base);
        let read_again = node.operands()[1..].iter().any(|&v| base_of(v) == base);
        let free = !self.buffers.contains_key(&base) && !is_output && !read_again;
        (plain && free && self.is_only_reader(base, softmax, live)).then_some(base)
    }

    /// Whether `value` is read by one node only, through views or not.
    fn is_only_reader(&self, value: ValueId, reader: ValueId, live: &HashSet<ValueId>) -> bool {
        let users = self.graph.users(value).into_iter();
        let mut users = users.filter(|user| live.contains(user));
        users.all(|user| {
            user == reader
                || self.graph.node(user).op.is_view() && self.is_only_reader(user, reader, live)
        })
    }
}
