//! From the softmax to the sum: which contraction sums the values under which weights.
//!
//! ```text
//! %c = slice %p, axis = 3, start = 0, len = N      keys 0 .. N have a value
//! %w = mul %c, %keep                               weights = { prob * %keep[b, kv_idx] }
//! %o = matmul %w, %v
//! ```
//!
//! On exit the weight is an expression of the probability and of the softmax's index, with keys counted from
//! the first that has a value.

use super::Decline;
use super::guards::Guarded;
use super::path::between;
use super::renormalise::{self, Rows, summed};
use super::structure::{Window, check_batch, indices, step_through, users_of};
use crate::candidates::Candidate;
use crate::extract::{Extractor, Step};
use attnc_ir::layout::row_major;
use attnc_ir::scalar::{ExprId, Scalar, ScalarBuilder, ScalarExpr};
use attnc_ir::{Dim, Extents, Graph, Op, Shape, ValueId};

/// The contraction with V.
#[derive(Clone)]
pub(super) struct Sum {
    pub(super) node: ValueId,
    /// Whether the probabilities are its right operand, key by query.
    pub(super) turned: bool,
    /// The softmax's keys that have a value.
    pub(super) keys: Window,
    /// The row of V for the first of them.
    pub(super) first_value: Dim,
    /// The weight from the probability (`arg`) over batch, query and key, where it is another.
    pub(super) weights: Option<ScalarExpr>,
    /// What is done with the sum of each row, over the same index without the key.
    pub(super) rows: Option<Rows>,
    /// Values that both load.
    pub(super) captured: Vec<ValueId>,
}

/// The contraction that sums the values over the keys of a softmax of that shape.
pub(super) fn find(graph: &Graph, candidate: &Candidate, shape: &Shape) -> Result<Sum, Decline> {
    let mut first = None;
    for &sum in &candidate.sums {
        for side in [0, 1] {
            match probabilities(graph, candidate.node, sum, side, shape) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
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

/// The sum, if operand `side` of `sum` is weights, indexed as a product over keys needs them.
fn probabilities(
    graph: &Graph,
    softmax: ValueId,
    sum: ValueId,
    side: usize,
    shape: &Shape,
) -> Result<Option<Sum>, Decline> {
    let operand = graph.node(sum).operands()[side];
    let extents = graph.ty(operand).shape.clone();
    let rank = extents.len();
    let mut e = ScalarBuilder::new(Extents::new(extents.clone()));
    let mut extractor = Extractor::new(graph, 0);
    let mut reads: Vec<Vec<ExprId>> = Vec::new();
    let index = indices(&mut e, &extents);
    let policy = &mut |e: &mut ScalarBuilder, v, index: &[ExprId]| {
        if v == softmax {
            if !reads.iter().any(|r| r == index) {
                reads.push(index.to_vec());
            }
            return Step::Replace(e.arg());
        }
        step_through(graph, v)
    };
    let mut root = extractor.element(&mut e, operand, index.clone(), policy);
    let whole = e.finish(root);
    if !whole.uses_arg() {
        return Ok(None);
    }
    let users = users_of(graph, softmax);
    let mut loaded = whole.loaded_operands().into_iter();
    let of_softmax = loaded.find(|&n| users.contains(&extractor.loads[n]));
    let mut rows = None;
    if let Some(n) = of_softmax {
        let value = extractor.loads[n];
        // The sum of the weights, if it is that and divides them.
        let weights = summed(graph, value).filter(|w| graph.ty(*w).shape == extents && side == 0);
        let weights = weights.map(|w| extractor.element(&mut e, w, index, policy));
        let after = weights.and_then(|w| Some((w, renormalise::rows(&mut e, root, w, n)?)));
        let Some((weights, after)) = after else {
            let reason =
                format!("the probabilities are changed by what is computed from them: {whole}");
            return Err(Decline::at(value, reason));
        };
        root = weights;
        rows = Some(Rows {
            expr: e.finish(after),
            sum: n,
        });
    }
    let [read] = reads.as_slice() else {
        let reason = "the product with V reads each probability at several places";
        return Err(Decline::at(sum, reason));
    };
    let (q, kv) = if side == 0 {
        (rank - 2, rank - 1)
    } else {
        (rank - 1, rank - 2)
    };
    let start = check_axes(&e, read, shape, &extents, (q, kv)).map_err(|wrong| {
        let moved = match wrong {
            Axes::Keys(_) => None,
            Axes::Others(_) => {
                let path = between(graph, softmax, operand);
                let kept = path
                    .iter()
                    .rposition(|&v| keeps_axes(graph, softmax, v, shape));
                path.get(kept.map_or(0, |n| n + 1)).copied()
            }
        };
        let (Axes::Keys(reason) | Axes::Others(reason)) = wrong;
        Decline::at(moved.unwrap_or(sum), reason)
    })?;
    let guarded = Guarded {
        graph,
        softmax,
        e: &e,
        loads: &extractor.loads,
        read,
    };
    let expr = guarded.strip_all(root);
    // Of several softmaxes none alone is what the product sums.
    let loaded = expr.loaded_operands();
    let another = |n: &usize| matches!(graph.node(extractor.loads[*n]).op, Op::Softmax { .. });
    if loaded.iter().any(another) {
        let reason = format!("the probabilities are changed before the product with V: {expr}");
        return Err(Decline::at(first_user(graph, softmax), reason));
    }
    let over = |expr: &ScalarExpr| over_softmax(graph, softmax, expr, &extents, shape, (q, kv));
    let weights = match expr.node(expr.root()) {
        Scalar::Arg => None,
        _ => Some(over(&expr)?),
    };
    if let Some(rows) = &mut rows {
        rows.expr = over(&rows.expr)?;
    }
    let changed = weights.iter().chain(rows.iter().map(|r| &r.expr));
    let mut loaded = changed.flat_map(ScalarExpr::loaded_operands);
    if let Some(n) = loaded.find(|&n| users.contains(&extractor.loads[n]) && Some(n) != of_softmax)
    {
        let reason = format!("the probabilities are changed by what is computed from them: {expr}");
        return Err(Decline::at(extractor.loads[n], reason));
    }
    drop(loaded);
    Ok(Some(Sum {
        node: sum,
        turned: side == 1,
        keys: Window {
            start,
            len: extents[kv].clone(),
        },
        first_value: Dim::zero(),
        weights,
        rows,
        captured: extractor.loads,
    }))
}

/// Whether a value on the way to the product has the softmax's queries and keys as its last axes, either first.
fn keeps_axes(graph: &Graph, softmax: ValueId, value: ValueId, shape: &Shape) -> bool {
    let extents = graph.ty(value).shape.clone();
    let rank = extents.len();
    if rank < 2 {
        return false;
    }
    let mut e = ScalarBuilder::new(Extents::new(extents.clone()));
    let mut reads: Vec<Vec<ExprId>> = Vec::new();
    let index = indices(&mut e, &extents);
    Extractor::new(graph, 0).element(&mut e, value, index, &mut |e, v, index| {
        if v == softmax {
            reads.push(index.to_vec());
            return Step::Replace(e.arg());
        }
        step_through(graph, v)
    });
    let sides = [(rank - 2, rank - 1), (rank - 1, rank - 2)];
    let keeps = |read| {
        sides
            .iter()
            .any(|&side| check_axes(&e, read, shape, &extents, side).is_ok())
    };
    !reads.is_empty() && reads.iter().all(|read| keeps(read))
}

/// The weights over the index of their operand as those over the index of the softmax.
fn over_softmax(
    graph: &Graph,
    softmax: ValueId,
    expr: &ScalarExpr,
    extents: &Shape,
    shape: &Shape,
    (q, kv): (usize, usize),
) -> Result<ScalarExpr, Decline> {
    let (lead, batch) = (&extents[..extents.len() - 2], &shape[..shape.len() - 2]);
    let count = |dims: &[Dim]| dims.iter().cloned().product::<Dim>();
    if count(lead) != count(batch) {
        return Err(Decline::at(
            first_user(graph, softmax),
            format!("probabilities that several products share are changed: {expr}"),
        ));
    }
    let mut over = shape.clone();
    let last = over.len() - 1;
    over[last] = extents[kv].clone();
    let over = Extents::new(over);
    // The batch axes are the same elements in the same order, perhaps under another shape.
    let flat: Dim = row_major(batch)
        .into_iter()
        .zip(0..)
        .filter(|(_, n)| !batch[*n as usize].is(1))
        .map(|(stride, n)| Dim::index(n) * stride)
        .sum();
    let mut rest = flat;
    let mut index = vec![Dim::zero(); extents.len()];
    for n in (0..lead.len()).rev() {
        index[n] = if n == 0 {
            rest.clone()
        } else {
            rest.modulo(&lead[n], &over)
        };
        rest = rest.floor_div(&lead[n], &over);
    }
    let axis = |n: usize| Dim::index(u32::try_from(n).expect("few axes"));
    (index[q], index[kv]) = (axis(last - 1), axis(last));
    let mut e = ScalarBuilder::new(over);
    let index: Vec<ExprId> = index.into_iter().map(|d| e.int(d)).collect();
    let root = e.inline(expr, &index, None, &mut |e, operand, dtype, index| {
        e.load(operand, dtype, index)
    });
    Ok(e.finish(root))
}

/// The node that first changes the probabilities.
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

/// Which axes are not those of the softmax, and why.
enum Axes {
    /// The product sums over something else than keys.
    Keys(String),
    Others(String),
}

/// Whether a softmax of `shape`, read at `read` by an operand of `extents`, has query and key at those
/// axes of the operand, and the same batch. Gives the key that is read first.
fn check_axes(
    e: &ScalarBuilder,
    read: &[ExprId],
    shape: &Shape,
    extents: &Shape,
    (q, kv): (usize, usize),
) -> Result<Dim, Axes> {
    let last = shape.len() - 1;
    let dims: Vec<Dim> = read
        .iter()
        .map(|&i| e.as_int(i).cloned())
        .collect::<Option<_>>()
        .ok_or_else(|| Axes::Others("which probability is read depends on data".to_owned()))?;
    let axis = |n: usize| match &extents[n] {
        // An axis of length 1 is index 0.
        one if one.is(1) && dims.iter().all(|d| !d.indices().contains(&index_of(n))) => Dim::zero(),
        _ => Dim::index(index_of(n)),
    };
    let start = dims[last].clone() - axis(kv);
    if !start.indices().is_empty() {
        let reason = "the softmax runs over another axis than the product with V sums over";
        return Err(Axes::Keys(reason.to_owned()));
    }
    if dims[last - 1] != axis(q) {
        let reason = "the query axis is changed between the softmax and the product with V";
        return Err(Axes::Others(reason.to_owned()));
    }
    if extents[q] != shape[last - 1] {
        return Err(Axes::Others(format!(
            "the softmax has {} queries, the product with V sums for {}",
            shape[last - 1],
            extents[q],
        )));
    }
    // The operand's batch axes are its first ones, whatever the order of the last two.
    let lead = extents.len() - 2;
    check_batch(&dims[..last - 1], &shape[..last - 1], &extents[..lead]).map_err(Axes::Others)?;
    Ok(start)
}

fn index_of(axis: usize) -> u32 {
    u32::try_from(axis).expect("few axes")
}

/// The sum without the keys at either end whose values are zeros, if there are any.
pub(super) fn without_zero_values(graph: &Graph, sum: &Sum) -> Option<Sum> {
    let v = graph.node(sum.node).operands()[usize::from(!sum.turned)];
    let rank = graph.ty(v).rank();
    let axis = if sum.turned { rank - 1 } else { rank - 2 };
    let mut narrow = sum.clone();
    let mut rest = MAX_ZEROS;
    while rest > 0 && is_zero_row(graph, v, axis, &(narrow.keys.len.clone() - Dim::one())) {
        narrow.keys.len = narrow.keys.len - Dim::one();
        rest -= 1;
    }
    while rest > 0 && is_zero_row(graph, v, axis, &narrow.first_value) {
        narrow.first_value = narrow.first_value + Dim::one();
        narrow.keys.start = narrow.keys.start + Dim::one();
        narrow.keys.len = narrow.keys.len - Dim::one();
        rest -= 1;
    }
    if narrow.keys == sum.keys || narrow.weights.is_some() {
        return None;
    }
    Some(narrow)
}

/// Keys without a value that are looked for.
const MAX_ZEROS: usize = 2;

/// Whether a value is 0 wherever its index along `axis` is `at`.
pub(super) fn is_zero_row(graph: &Graph, value: ValueId, axis: usize, at: &Dim) -> bool {
    if at.as_const().is_some_and(|n| n < 0) {
        return false;
    }
    let mut e = ScalarBuilder::new(Extents::new(graph.ty(value).shape.clone()));
    let mut index = e.indices();
    index[axis] = e.int(at.clone());
    let root = Extractor::new(graph, 0)
        .element(&mut e, value, index, &mut |_, v, _| step_through(graph, v));
    e.as_float(root) == Some(0.0)
}
