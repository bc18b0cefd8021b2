//! The first phase: is this a softmax over keys between two contractions?
//!
//! On exit: the scores as an expression of one product (`arg`) and of the softmax's index, the product and
//! the sum as nodes, and the certainty that all three agree on which axes are batch, query and key.

use super::Decline;
use super::guards::Guarded;
use super::path::between;
use crate::candidates::Candidate;
use crate::extract::{Extractor, Step};
use crate::source_name;
use attnc_ir::layout::row_major;
use attnc_ir::scalar::{ExprId, Scalar, ScalarBuilder, ScalarExpr};
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
    /// Values that the expressions load.
    pub(crate) captured: Vec<ValueId>,
    /// Query and key lengths.
    pub(crate) lengths: [Dim; 2],
    /// Factor already stated by an attention op.
    pub(crate) scale: f64,
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
    let scores = find_scores(graph, candidate, &shape)?;
    let (sum, sum_turned) = find_sum(graph, candidate, &shape)?;
    check_head_dim(graph, scores.product, 0, 1, "Q and K")?;
    match sum_turned {
        false => check_head_dim(graph, sum, 1, 1, "V")?,
        true => check_head_dim(graph, sum, 0, 2, "V")?,
    }
    let (batch, lengths) = shape.split_at(shape.len() - 2);
    Ok(Structure {
        node: softmax,
        score: Some(scores.product),
        score_turned: scores.turned,
        sum: Some(sum),
        sum_turned,
        result: sum,
        batch: batch.to_vec(),
        scores: scores.expr,
        mask: None,
        sink: None,
        weights: None,
        captured: scores.captured,
        lengths: [lengths[0].clone(), lengths[1].clone()],
        scale: 1.0,
    })
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
        captured: extractor.loads,
        lengths: [extents[2].clone(), extents[3].clone()],
        scale: attention.scale,
    })
}

/// The contraction that sums the probabilities over the keys, and whether they are its right operand.
fn find_sum(
    graph: &Graph,
    candidate: &Candidate,
    shape: &Shape,
) -> Result<(ValueId, bool), Decline> {
    let mut first = None;
    for &sum in &candidate.sums {
        for side in [0, 1] {
            match probabilities(graph, candidate.node, sum, side, shape) {
                Ok(true) => return Ok((sum, side == 1)),
                Ok(false) => {}
                Err(decline) => first = first.or(Some(decline)),
            }
        }
    }
    Err(first.unwrap_or_else(|| {
        Decline::at(
            candidate.node,
            "no contraction reads the probabilities elementwise",
        )
    }))
}

/// Whether operand `side` of `sum` is the probabilities, indexed as a product over keys needs them.
fn probabilities(
    graph: &Graph,
    softmax: ValueId,
    sum: ValueId,
    side: usize,
    shape: &Shape,
) -> Result<bool, Decline> {
    let operand = graph.node(sum).operands()[side];
    let extents = graph.ty(operand).shape.clone();
    let rank = extents.len();
    let mut e = ScalarBuilder::new(Extents::new(extents.clone()));
    let mut extractor = Extractor::new(graph, 0);
    let mut reads: Vec<Vec<ExprId>> = Vec::new();
    let index = indices(&mut e, &extents);
    let root = extractor.element(&mut e, operand, index, &mut |e, v, index| {
        if v == softmax {
            if !reads.iter().any(|r| r == index) {
                reads.push(index.to_vec());
            }
            return Step::Replace(e.arg());
        }
        step_through(graph, v)
    });
    let [read] = reads.as_slice() else {
        return if reads.is_empty() {
            Ok(false)
        } else {
            Err(Decline::at(
                sum,
                "the product with V reads each probability at several places",
            ))
        };
    };
    let root = Guarded {
        graph,
        softmax,
        e: &e,
        loads: &extractor.loads,
        read,
    }
    .strip(root);
    if *e.node(root) != Scalar::Arg {
        let changed = first_user(graph, softmax);
        return Err(Decline::at(
            changed,
            format!(
                "the probabilities are changed before the product with V: {}",
                e.finish(root)
            ),
        ));
    }
    let (q, kv) = if side == 0 {
        (rank - 2, rank - 1)
    } else {
        (rank - 1, rank - 2)
    };
    check_axes(&e, read, shape, &extents, (q, kv)).map_err(|reason| Decline::at(sum, reason))?;
    Ok(true)
}

fn first_user(graph: &Graph, softmax: ValueId) -> ValueId {
    let mut at = softmax;
    loop {
        match graph.users(at).as_slice() {
            [user]
                if graph.node(*user).op.is_view()
                    || matches!(graph.node(*user).op, Op::Cast(_)) =>
            {
                at = *user;
            }
            [user, ..] => return *user,
            [] => return at,
        }
    }
}

/// The index of an element; along an axis of length 1 it is 0, however the axis is merged with others.
fn indices(e: &mut ScalarBuilder, shape: &Shape) -> Vec<ExprId> {
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
fn users_of(graph: &Graph, value: ValueId) -> BTreeSet<ValueId> {
    let mut found = BTreeSet::new();
    let mut stack = graph.users(value);
    while let Some(v) = stack.pop() {
        if found.insert(v) {
            stack.extend(graph.users(v));
        }
    }
    found
}

/// Tensors that `score_mod` and `mask_mod` may load: WebGPU guarantees 8 storage bindings a stage, and q,
/// k, v and the result take four.
const MAX_CAPTURED: usize = 4;

struct Scores {
    product: ValueId,
    turned: bool,
    expr: ScalarExpr,
    captured: Vec<ValueId>,
}

/// The expression from one product to the softmax's input. Of several products (a relative bias may be one
/// too) the nearest that is read with query and key as its last axes is the score.
fn find_scores(graph: &Graph, candidate: &Candidate, shape: &Shape) -> Result<Scores, Decline> {
    let masked = graph.node(candidate.node).operands()[0];
    let mut first = None;
    for &product in &candidate.scores {
        let along = users_of(graph, product);
        let deep = |v| step_through(graph, v);
        // Where that reads too much, only what depends on the product is taken in; the rest becomes tables.
        let shallow = |v| {
            if along.contains(&v) {
                step_through(graph, v)
            } else {
                Step::Load
            }
        };
        let policies: [&dyn Fn(ValueId) -> Step; 2] = [&deep, &shallow];
        for policy in policies {
            match scores_of(graph, masked, product, shape, policy) {
                Ok(scores) => return Ok(scores),
                Err(_) if first.is_some() => {}
                Err(decline) => {
                    first = Some(first_in_way(graph, masked, product, policy).unwrap_or(decline));
                }
            }
        }
    }
    Err(first.expect("candidates have a product"))
}

/// The first node between the product and the softmax after which there are no scores any more, and why.
fn first_in_way(
    graph: &Graph,
    masked: ValueId,
    product: ValueId,
    policy: &dyn Fn(ValueId) -> Step,
) -> Option<Decline> {
    let way = between(graph, product, masked).into_iter().rev();
    let declines = way.map_while(|v| {
        let shape = &graph.ty(v).shape;
        scores_of(graph, v, product, shape, policy).err()
    });
    let decline = declines.last()?;
    match decline.at {
        Some(at) if matches!(graph.node(at).op, Op::Concat { .. }) => Some(Decline::at(
            at,
            "other scores are joined to those of the product; attention needs one product over all keys",
        )),
        _ => Some(decline),
    }
}

/// A value of `shape` as an expression of the product with that query and that key, and of its index.
fn scores_of(
    graph: &Graph,
    value: ValueId,
    product: ValueId,
    shape: &Shape,
    policy: &dyn Fn(ValueId) -> Step,
) -> Result<Scores, Decline> {
    if shape.len() < 2 {
        let reason = "the scores lose an axis; attention needs one of queries and one of keys";
        return Err(Decline::at(value, reason));
    }
    let mut e = ScalarBuilder::new(Extents::new(shape.clone()));
    let mut extractor = Extractor::new(graph, 0);
    let mut reads: Vec<Vec<ExprId>> = Vec::new();
    let index = indices(&mut e, shape);
    let root = extractor.element(&mut e, value, index, &mut |e, v, index| {
        if v == product {
            if !reads.iter().any(|r| r == index) {
                reads.push(index.to_vec());
            }
            return Step::Replace(e.arg());
        }
        policy(v)
    });
    let [read] = reads.as_slice() else {
        let reason = format!(
            "each element reads {} scores; attention needs the one of its query and key",
            reads.len()
        );
        return Err(Decline::at(value, reason));
    };
    let extents = graph.ty(product).shape.clone();
    let last = extents.len() - 1;
    let axis = |n: usize| {
        e.as_int(read[n])
            .and_then(Dim::as_index)
            .map(|n| n as usize)
    };
    let (q, kv) = (shape.len() - 2, shape.len() - 1);
    let turned = match (axis(last - 1), axis(last)) {
        (row, column) if plain(row, q, shape) && plain(column, kv, shape) => false,
        (row, column) if plain(row, kv, shape) && plain(column, q, shape) => true,
        _ => {
            return Err(not_in_place(&e, read, product, value));
        }
    };
    let (rows, columns) = (&extents[last - 1], &extents[last]);
    let (m, n) = if turned {
        (columns, rows)
    } else {
        (rows, columns)
    };
    if (m, n) != (&shape[q], &shape[kv]) {
        let reason = format!(
            "there are {} queries and {} keys, in the product {m} and {n}: scores are cut off or added",
            shape[q], shape[kv]
        );
        return Err(Decline::at(value, reason));
    }
    let lead: Vec<Dim> = read[..last - 1]
        .iter()
        .map(|&i| e.as_int(i).cloned())
        .collect::<Option<_>>()
        .ok_or_else(|| Decline::at(value, "which product is read depends on data".to_owned()))?;
    check_batch(&lead, &extents[..last - 1], &shape[..q])
        .map_err(|reason| Decline::at(value, reason))?;
    let expr = e.finish(root);
    check_captured(graph, &expr, &extractor.loads).map_err(|reason| Decline::at(value, reason))?;
    Ok(Scores {
        product,
        turned,
        expr,
        captured: extractor.loads,
    })
}

/// Why scores that are read at `read` of the product are not in their places at `value`.
fn not_in_place(e: &ScalarBuilder, read: &[ExprId], product: ValueId, value: ValueId) -> Decline {
    let in_order = read
        .iter()
        .all(|&i| e.as_int(i).is_some_and(|d| d.as_index().is_some()));
    if in_order {
        let reason = "the rows and columns of this product are not queries and keys: it sums over something \
                      else than the features of a head";
        return Decline::at(product, reason);
    }
    let reason =
        "the scores are moved: query and key are no longer the axes of the product, in order";
    Decline::at(value, reason)
}

/// Whether a kernel can bind all that the expression loads.
fn check_captured(graph: &Graph, expr: &ScalarExpr, loads: &[ValueId]) -> Result<(), String> {
    let loaded = expr.loaded_operands();
    if loaded.len() <= MAX_CAPTURED {
        return Ok(());
    }
    let names: Vec<_> = loaded
        .iter()
        .map(|&n| source_name(graph, loads[n]))
        .collect();
    Err(format!(
        "what is done to the scores up to here reads {} tensors ({}); beside q, k, v and the result WebGPU \
         guarantees bindings for {MAX_CAPTURED}",
        names.len(),
        names.join(", ")
    ))
}

/// Whether an axis is read as it is; an axis of length 1 is index 0.
fn plain(axis: Option<usize>, wanted: usize, shape: &Shape) -> bool {
    axis == Some(wanted) || (axis.is_none() && shape[wanted].is(1))
}

/// Whether a softmax of `shape`, read at `read` by an operand of `extents`, has query and key at those
/// axes of the operand, and the same batch.
fn check_axes(
    e: &ScalarBuilder,
    read: &[ExprId],
    shape: &Shape,
    extents: &Shape,
    (q, kv): (usize, usize),
) -> Result<(), String> {
    let last = shape.len() - 1;
    let dims: Vec<Dim> = read
        .iter()
        .map(|&i| e.as_int(i).cloned())
        .collect::<Option<_>>()
        .ok_or("which probability is read depends on data")?;
    let is = |d: &Dim, axis: usize| {
        d.as_index().map(|n| n as usize) == Some(axis) || (d.is(0) && extents[axis].is(1))
    };
    if !is(&dims[last], kv) {
        return Err(
            "the softmax runs over another axis than the product with V sums over".to_owned(),
        );
    }
    if !is(&dims[last - 1], q) {
        return Err(
            "the query axis is changed between the softmax and the product with V".to_owned(),
        );
    }
    if (&extents[q], &extents[kv]) != (&shape[last - 1], &shape[last]) {
        return Err(format!(
            "the softmax has {} queries and {} keys, the product with V sums {} and {} of them",
            shape[last - 1],
            shape[last],
            extents[q],
            extents[kv]
        ));
    }
    // The operand's batch axes are its first ones, whatever the order of the last two.
    let lead = extents.len() - 2;
    check_batch(&dims[..last - 1], &shape[..last - 1], &extents[..lead])
}

/// Whether reading `of` at `index`, over axes `over`, is a reshape: the same elements in the same order.
fn check_batch(index: &[Dim], of: &[Dim], over: &[Dim]) -> Result<(), String> {
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
