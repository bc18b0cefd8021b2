//! A softmax whose one query lost its axis gets it back, so that the structure is the ordinary one.
//!
//! ```text
//! %s = matmul %q, %kt            [B, H, S, 1, W]: each place has one query, and keys of its own
//! %z = reshape %s                [B, H, S, W]        %z1 = reshape %z    [B, H, S, 1, W]
//! %p = softmax %z, axis = 3                          %p1 = softmax %z1, axis = 4
//!                                                    %p  = reshape %p1   [B, H, S, W]
//! ```
//!
//! Pooling by attention and windows unfolded for each query are written so.

use crate::{Candidate, source_name};
use attnc_ir::{Diagnostics, Dim, Graph, Op};

/// The graph and the candidate with the axis restored, where a product of the candidate has one row and the
/// softmax has no axis for it.
pub(super) fn restored(
    graph: &Graph,
    candidate: &Candidate,
) -> Result<Option<(Graph, Candidate)>, Diagnostics> {
    let softmax = candidate.node;
    let shape = &graph.ty(softmax).shape;
    let last = shape.len() - 1;
    let one_row = candidate.scores.iter().any(|&product| {
        let extents = &graph.ty(product).shape;
        extents[extents.len() - 2..].iter().any(|d| d.is(1))
    });
    let has_axis = last > 0 && shape[last - 1].is(1);
    if !one_row || has_axis || graph.node(softmax).op != (Op::Softmax { axis: last }) {
        return Ok(None);
    }
    let (flat, mut wide) = (shape.clone(), shape.clone());
    wide.insert(last, Dim::one());
    let mut graph = graph.clone();
    let x = graph.node(softmax).operands()[0];
    let x = graph.apply(Op::Reshape(wide), &[x])?;
    let node = graph.apply(Op::Softmax { axis: last + 1 }, &[x])?;
    graph.node_mut(node).origin = vec![source_name(&graph, softmax)];
    let p = graph.apply(Op::Reshape(flat), &[node])?;
    graph.supersede(softmax, p);
    let candidate = Candidate {
        node,
        ..candidate.clone()
    };
    Ok(Some((graph, candidate)))
}
