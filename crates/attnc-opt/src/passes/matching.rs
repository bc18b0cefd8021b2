//! Small questions that several recognisers ask.

use attnc_ir::{Dim, Graph, Op, ReduceOp, UnaryOp, ValueId};

/// The two operands of a binary node.
pub(super) fn pair(graph: &Graph, value: ValueId) -> [ValueId; 2] {
    let o = graph.node(value).operands();
    [o[0], o[1]]
}

/// The operand of that operation.
pub(super) fn unary_of(graph: &Graph, value: ValueId, op: UnaryOp) -> Option<ValueId> {
    (graph.node(value).op == Op::Unary(op)).then(|| graph.node(value).operands()[0])
}

/// The operand and first axis of a reduction over trailing axes that are kept with length 1, also where
/// the keeping is a reshape.
pub(super) fn kept_reduction(
    graph: &Graph,
    value: ValueId,
    wanted: ReduceOp,
) -> Option<(ValueId, usize)> {
    let reduced = match graph.node(value).op {
        Op::Reshape(_) => graph.node(value).operands()[0],
        _ => value,
    };
    let Op::Reduce { op, axes, .. } = &graph.node(reduced).op else {
        return None;
    };
    let x = graph.node(reduced).operands()[0];
    let shape = &graph.ty(x).shape;
    let first = shape.len() - axes.len();
    let keep = |(n, d): (usize, &Dim)| if n < first { d.clone() } else { Dim::one() };
    let kept: Vec<Dim> = shape.iter().enumerate().map(keep).collect();
    let trailing = axes.iter().copied().eq(first..shape.len());
    (*op == wanted && trailing && graph.ty(value).shape == kept).then_some((x, first))
}
