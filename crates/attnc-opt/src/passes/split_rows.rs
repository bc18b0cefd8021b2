//! Products whose rows are several axes merged get an axis each.
//!
//! Grouped heads written as five axes end as products over merged rows, since exporters multiply with no more
//! than one axis of rows:
//!
//! ```text
//! %p = matmul %q[B, G, R * M, D], %k[B, G, D, N]        %p = matmul %q[B, G, R, M, D], %k[B, G, 1, D, N]
//! %s = reshape %p, shape = [B, G, R, M, N]
//! ```
//!
//! and the same, backwards, for the product with V. Only around a softmax between two products: elsewhere
//! merged rows are the better matrix.
//!
//! On exit the products next to such a softmax have its query axis as their rows, where a view was all that
//! stood between.

use crate::candidates::find_attention;
use crate::{Change, Pass, RemarkKind, Trace};
use attnc_ir::{Diagnostics, Dim, Graph, Op, Shape, ValueId};

/// See the module.
pub struct SplitRows;

impl Pass for SplitRows {
    fn name(&self) -> &'static str {
        "split-rows"
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut changed = false;
        for candidate in find_attention(graph) {
            let scores = candidate.scores.iter().filter_map(|&p| of_scores(graph, p));
            let sums = candidate.sums.iter().filter_map(|&s| of_sum(graph, s));
            for split in scores.chain(sums).collect::<Vec<_>>() {
                if !trace.claim() {
                    break;
                }
                let new = split.build(graph);
                let message = format!("rows of the product as [{}]", names(&split.rows));
                trace.remark(RemarkKind::Note, graph, &[new], message);
                changed = true;
            }
        }
        if changed {
            graph.remove_dead();
        }
        Ok(Change::from(changed))
    }
}

fn names(dims: &[Dim]) -> String {
    let names: Vec<_> = dims.iter().map(Dim::to_string).collect();
    names.join(", ")
}

/// A product to be written anew.
struct Split {
    /// The value that the new product, or a view of it, replaces.
    value: ValueId,
    operands: [ValueId; 2],
    /// Shape of the product: batch axes, then `rows`, then columns.
    batch: Shape,
    rows: Shape,
}

impl Split {
    fn build(&self, graph: &mut Graph) -> ValueId {
        let [a, b] = self.operands;
        let wanted = graph.ty(self.value).shape.clone();
        let view = |graph: &mut Graph, v: ValueId, shape: Shape| {
            if graph.ty(v).shape == shape {
                return v;
            }
            let op = Op::Reshape(shape);
            graph.apply(op, &[v]).expect("as many elements")
        };
        let inner = graph.ty(a).shape.last().expect("a matrix").clone();
        let columns = graph.ty(b).shape.last().expect("a matrix").clone();
        let ones = vec![Dim::one(); self.rows.len() - 1];
        let a_shape = [&*self.batch, &self.rows, std::slice::from_ref(&inner)].concat();
        let b_shape = [&*self.batch, &ones, &[inner, columns]].concat();
        let (a, b) = (view(graph, a, a_shape), view(graph, b, b_shape));
        let product = graph.apply(Op::MatMul, &[a, b]).expect("a product");
        let value = self.value;
        graph.node_mut(product).origin = graph.node(value).origin.clone();
        let new = view(graph, product, wanted);
        graph.supersede(value, new);
        product
    }
}

/// The operands, if both are matrices of the same batch.
fn operands(graph: &Graph, product: ValueId) -> Option<[ValueId; 2]> {
    let Op::MatMul = graph.node(product).op else {
        return None;
    };
    let &[a, b] = graph.node(product).operands() else {
        return None;
    };
    let (left, right) = (&graph.ty(a).shape, &graph.ty(b).shape);
    let same = left.len() == right.len()
        && left.len() > 2
        && left[..left.len() - 2] == right[..right.len() - 2];
    same.then_some([a, b])
}

/// The scores, where their only use is a view that splits the rows.
fn of_scores(graph: &Graph, product: ValueId) -> Option<Split> {
    let operands = operands(graph, product)?;
    let users = graph.users(product);
    let &[user] = users.as_slice() else {
        return None;
    };
    let Op::Reshape(split) = &graph.node(user).op else {
        return None;
    };
    let (batch, rows) = split_of(&graph.ty(product).shape, split)?;
    Some(Split {
        value: user,
        operands,
        batch,
        rows,
    })
}

/// The product with V, where the probabilities come through a view that merges the rows.
fn of_sum(graph: &Graph, sum: ValueId) -> Option<Split> {
    let [merged, v] = operands(graph, sum)?;
    let Op::Reshape(_) = &graph.node(merged).op else {
        return None;
    };
    let probabilities = graph.node(merged).operands()[0];
    let (batch, rows) = split_of(&graph.ty(merged).shape, &graph.ty(probabilities).shape)?;
    Some(Split {
        value: sum,
        operands: [probabilities, v],
        batch,
        rows,
    })
}

/// `split` as batch axes and at least two axes of rows of `merged`, whose last axis it has too.
fn split_of(merged: &Shape, split: &Shape) -> Option<(Shape, Shape)> {
    let ([lead @ .., rows, columns], [parts @ .., last]) = (&**merged, &**split) else {
        return None;
    };
    if columns != last {
        return None;
    }
    let product = |dims: &[Dim]| dims.iter().cloned().product::<Dim>();
    let fits = |&n: &usize| product(&parts[..n]) == product(lead) && product(&parts[n..]) == *rows;
    let at = (1..parts.len().saturating_sub(1)).find(fits)?;
    let rows = parts[at..].to_vec();
    // An axis of length 1 splits nothing.
    (rows.iter().filter(|d| !d.is(1)).count() > 1).then(|| (parts[..at].to_vec(), rows))
}
