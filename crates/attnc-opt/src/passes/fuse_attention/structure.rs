//! The first phase: is this a softmax over keys between two contractions?
//!
//! On exit: the scores as an expression of one product (`arg`) and of the softmax's index, the weights as one
//! of the probability, the product and the sum as nodes, and the certainty that all agree on which axes are
//! batch, query and key. The two sides of the softmax are [`super::scores`] and [`super::weights`].
//!
//! The softmax may run over more keys than the sum: those are keys whose value is zero. [`Window`] says which
//! of its keys have a value, the others become the sink.

use super::renormalise::Rows;
use super::scores::{self, Scores};
use super::weights::{self, Sum};
use super::{Decline, MAX_CAPTURED};
use crate::candidates::Candidate;
use crate::extract::{Extractor, Step};
use crate::source_name;
use attnc_ir::layout::row_major;
use attnc_ir::scalar::{ExprId, ScalarBuilder, ScalarExpr};
use attnc_ir::{Dim, Extents, Graph, Op, Shape, ValueId};
use std::collections::BTreeSet;

/// What was found.
pub(crate) struct Structure {
    /// The softmax, or the attention op.
    pub(crate) node: ValueId,
    /// The contraction that gives the scores; none for an attention op.
    pub(crate) score: Option<ValueId>,
    /// Whether the product is key by query.
    pub(crate) score_turned: bool,
    /// The contraction over the keys; none for an attention op.
    pub(crate) sum: Option<ValueId>,
    /// Whether the probabilities are its right operand, key by query.
    pub(crate) sum_turned: bool,
    /// The value that the attention replaces.
    pub(crate) result: ValueId,
    /// Axes in front of query and key, as the softmax has them.
    pub(crate) batch: Shape,
    /// The masked score from the product (`arg`) over the softmax's index; loads refer to `captured`.
    pub(crate) scores: ScalarExpr,
    /// Where there is a key, over the same index; only attention ops state it by itself.
    pub(crate) mask: Option<ScalarExpr>,
    /// The logit of a key whose value is zero, over the same index without the key.
    pub(crate) sink: Option<ScalarExpr>,
    /// The weight of a value from its probability (`arg`), over the same index.
    pub(crate) weights: Option<ScalarExpr>,
    /// What is done with each row of the result.
    pub(super) rows: Option<Rows>,
    /// Values that the expressions load.
    pub(crate) captured: Vec<ValueId>,
    /// Query and key lengths.
    pub(crate) lengths: [Dim; 2],
    /// The first of the product's keys, and of the values, that is one of these.
    pub(crate) first_key: Dim,
    pub(crate) first_value: Dim,
    /// Factor already stated by an attention op.
    pub(crate) scale: f64,
}

/// Some neighbouring keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Window {
    pub(super) start: Dim,
    pub(super) len: Dim,
}

/// The structure around a softmax.
pub(crate) fn of_softmax(graph: &Graph, candidate: &Candidate) -> Result<Structure, Decline> {
    let softmax = candidate.node;
    let shape = graph.ty(softmax).shape.clone();
    let Op::Softmax { axis } = graph.node(softmax).op else {
        unreachable!("candidates that are no ops are softmaxes")
    };
    if shape.len() < 2 || axis != shape.len() - 1 {
        return Err(Decline::at(
            softmax,
            format!(
                "the softmax is over axis {axis} of {}; attention needs one over keys, after a query axis",
                shape.len()
            ),
        ));
    }
    let whole = Window {
        start: Dim::zero(),
        len: shape[axis].clone(),
    };
    let sum = match weights::find(graph, candidate, &shape) {
        Ok(sum) => sum,
        // What is in the way first is said first.
        Err(decline) => {
            scores::find(graph, candidate, &shape, &whole)?;
            return Err(decline);
        }
    };
    // Keys whose value is zero need no value, if their scores can be a sink.
    let narrow = weights::without_zero_values(graph, &sum)
        .and_then(|sum| Some((scores::find(graph, candidate, &shape, &sum.keys).ok()?, sum)));
    let (scores, sum) = match narrow {
        Some(found) => found,
        None => (scores::find(graph, candidate, &shape, &sum.keys)?, sum),
    };
    check_head_dim(graph, scores.product, 0, 1, "Q and K")?;
    match sum.turned {
        false => check_head_dim(graph, sum.node, 1, 1, "V")?,
        true => check_head_dim(graph, sum.node, 0, 2, "V")?,
    }
    let structure = joined(candidate, &shape, scores, sum);
    check_captured(graph, &structure)?;
    Ok(structure)
}

/// Both sides of a softmax.
fn joined(candidate: &Candidate, shape: &Shape, scores: Scores, sum: Sum) -> Structure {
    let (batch, lengths) = shape.split_at(shape.len() - 2);
    let mut captured = scores.captured;
    let place: Vec<usize> = sum
        .captured
        .iter()
        .map(|value| match captured.iter().position(|v| v == value) {
            Some(known) => known,
            None => {
                captured.push(*value);
                captured.len() - 1
            }
        })
        .collect();
    Structure {
        node: candidate.node,
        score: Some(scores.product),
        score_turned: scores.turned,
        sum: Some(sum.node),
        sum_turned: sum.turned,
        result: sum.node,
        batch: batch.to_vec(),
        scores: scores.expr,
        mask: None,
        sink: scores.sink,
        weights: sum.weights.map(|w| w.map_operands(|n| place[n])),
        rows: sum.rows.map(|rows| Rows {
            expr: rows.expr.map_operands(|n| place[n]),
            sum: place[rows.sum],
        }),
        captured,
        lengths: [lengths[0].clone(), sum.keys.len],
        first_key: scores.first_key,
        first_value: sum.first_value,
        scale: 1.0,
    }
}

fn check_captured(graph: &Graph, found: &Structure) -> Result<(), Decline> {
    let functions = [
        Some(&found.scores),
        found.sink.as_ref(),
        found.weights.as_ref(),
    ];
    let loaded: BTreeSet<usize> = functions
        .into_iter()
        .flatten()
        .flat_map(ScalarExpr::loaded_operands)
        .collect();
    if loaded.len() <= MAX_CAPTURED {
        return Ok(());
    }
    let names = loaded
        .iter()
        .map(|&n| source_name(graph, found.captured[n]));
    let names: Vec<_> = names.collect();
    let message = format!(
        "what stands between the products reads {} tensors ({}); beside q, k, v and the result WebGPU \
         guarantees bindings for {MAX_CAPTURED}",
        names.len(),
        names.join(", ")
    );
    Err(Decline::at(found.node, message))
}

/// Whether an operand's axis, counted from the last, is a head dim that a kernel can be written for.
fn check_head_dim(
    graph: &Graph,
    contraction: ValueId,
    operand: usize,
    from_last: usize,
    name: &str,
) -> Result<(), Decline> {
    let shape = &graph.ty(graph.node(contraction).operands()[operand]).shape;
    let columns = &shape[shape.len() - from_last];
    if columns.as_const().is_some_and(|n| n > 0) {
        return Ok(());
    }
    let reason =
        format!("the head dim of {name} is {columns}; attention needs a constant one, above 0");
    Err(Decline::at(contraction, reason))
}

/// The structure of an attention op of the source: its captured tables may still be index arithmetic.
pub(crate) fn of_op(graph: &Graph, value: ValueId) -> Result<Structure, Decline> {
    let node = graph.node(value);
    let Op::Attention(attention) = &node.op else {
        unreachable!("candidates that are ops are attention")
    };
    let (q, k) = (graph.ty(node.operands()[0]), graph.ty(node.operands()[1]));
    let extents = [
        q.shape[0].clone(),
        q.shape[1].clone(),
        q.shape[2].clone(),
        k.shape[2].clone(),
    ];
    let mut extractor = Extractor::new(graph, 0);
    let mut pull = |expr: &ScalarExpr, axes: usize| {
        let mut e = ScalarBuilder::new(Extents::new(extents[..axes].to_vec()));
        let indices = e.indices();
        let root = e.inline(expr, &indices, None, &mut |e, operand, _, index| {
            extractor.element(e, node.operands()[operand], index, &mut |_, _, _| {
                Step::Inline
            })
        });
        e.finish(root)
    };
    let scores = match &attention.score_mod {
        Some(expr) => pull(expr, 4),
        None => {
            let mut e = ScalarBuilder::new(Extents::none());
            let arg = e.arg();
            e.finish(arg)
        }
    };
    let mask = attention.mask_mod.as_ref().map(|e| pull(e, 4));
    let sink = attention.sink.as_ref().map(|e| pull(e, 3));
    let weights = attention.prob_mod.as_ref().map(|e| pull(e, 4));
    Ok(Structure {
        node: value,
        score: None,
        score_turned: false,
        sum: None,
        sum_turned: false,
        result: value,
        batch: extents[..2].to_vec(),
        scores,
        mask,
        sink,
        weights,
        rows: None,
        captured: extractor.loads,
        lengths: [extents[2].clone(), extents[3].clone()],
        first_key: Dim::zero(),
        first_value: Dim::zero(),
        scale: attention.scale,
    })
}

/// The index of an element; along an axis of length 1 it is 0, however the axis is merged with others.
pub(super) fn indices(e: &mut ScalarBuilder, shape: &Shape) -> Vec<ExprId> {
    let all = e.indices().into_iter().zip(shape);
    let all: Vec<_> = all.map(|(i, d)| (i, d.is(1))).collect();
    let zero = e.int(Dim::zero());
    all.into_iter()
        .map(|(i, one)| if one { zero } else { i })
        .collect()
}

pub(super) fn step_through(graph: &Graph, value: ValueId) -> Step {
    match &graph.node(value).op {
        Op::MatMul | Op::Softmax { .. } => Step::Load,
        _ => Step::Inline,
    }
}

/// Everything that depends on a value.
pub(super) fn users_of(graph: &Graph, value: ValueId) -> BTreeSet<ValueId> {
    let mut found = BTreeSet::new();
    let mut stack = graph.users(value);
    while let Some(v) = stack.pop() {
        if found.insert(v) {
            stack.extend(graph.users(v));
        }
    }
    found
}

/// Whether reading `of` at `index`, over axes `over`, is a reshape: the same elements in the same order.
pub(super) fn check_batch(index: &[Dim], of: &[Dim], over: &[Dim]) -> Result<(), String> {
    let flat: Dim = index
        .iter()
        .cloned()
        .zip(row_major(of))
        .map(|(i, s)| i * s)
        .sum();
    let linear: Dim = row_major(over)
        .into_iter()
        .enumerate()
        .filter(|(n, _)| !over[*n].is(1))
        .map(|(n, s)| Dim::index(u32::try_from(n).expect("few axes")) * s)
        .sum();
    if flat == linear {
        return Ok(());
    }
    // A product that several heads or batches share: each axis is read as it is or not at all.
    let broadcast = index.len() == over.len()
        && index.iter().enumerate().all(|(n, d)| {
            (d.is(0) && of[n].is(1)) || d.as_index() == u32::try_from(n).ok() && of[n] == over[n]
        });
    if broadcast {
        Ok(())
    } else {
        Err("batch and heads are permuted between the products and the softmax".to_owned())
    }
}
