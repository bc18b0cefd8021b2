//! From the product to the softmax: the score of each key, and of keys without a value.
//!
//! ```text
//! %s = matmul %q, %kt
//! %c = concat %s, %sinks, axis = 3        scores = { arg }, sink = { %sinks[b, h, q_idx, 0] }
//! %p = softmax %c, axis = 3
//! ```
//!
//! On exit the score of a key that has a value is an expression of one product (`arg`) and of the softmax's
//! index, with keys counted from the first that has a value; the other keys are one sink.

use super::path::between;
use super::structure::{Window, check_batch, indices, step_through, users_of};
use super::weights::is_zero_row;
use super::{Decline, MAX_CAPTURED};
use crate::candidates::Candidate;
use crate::extract::{Extractor, Step};
use crate::passes::matching::kept_reduction;
use crate::source_name;
use attnc_ir::scalar::{ExprId, ScalarBuilder, ScalarExpr};
use attnc_ir::{BinaryOp, CompareOp, Dim, Extents, Graph, Op, ReduceOp, Shape, UnaryOp, ValueId};
use std::collections::BTreeSet;

/// The contraction of queries and keys.
pub(super) struct Scores {
    pub(super) product: ValueId,
    /// Whether it is key by query.
    pub(super) turned: bool,
    /// The score from the product (`arg`) over the softmax's index.
    pub(super) expr: ScalarExpr,
    /// The logit of the keys without a value, over the same index without the key.
    pub(super) sink: Option<ScalarExpr>,
    /// Values that both load.
    pub(super) captured: Vec<ValueId>,
    /// The product's key for the first key that has a value.
    pub(super) first_key: Dim,
}

impl Scores {
    fn loaded(&self) -> BTreeSet<usize> {
        let functions = [Some(&self.expr), self.sink.as_ref()];
        let functions = functions.into_iter().flatten();
        functions.flat_map(ScalarExpr::loaded_operands).collect()
    }
}

/// The expression from one product to the softmax's input. Of several products (a relative bias may be one
/// too) the nearest that is read with query and key as its last axes is the score.
pub(super) fn find(
    graph: &Graph,
    candidate: &Candidate,
    shape: &Shape,
    keys: &Window,
) -> Result<Scores, Decline> {
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
            let around = Around {
                graph,
                value: masked,
                product,
                along: &along,
                shape,
                keys,
                policy,
            };
            match around.scores() {
                Ok(scores) => return Ok(scores),
                Err(_) if first.is_some() => {}
                Err(decline) => first = Some(around.first_in_way().unwrap_or(decline)),
            }
        }
    }
    Err(first.expect("candidates have a product"))
}

/// A product and a value behind it, and how to walk between them.
#[derive(Clone, Copy)]
struct Around<'a> {
    graph: &'a Graph,
    /// The scores: what the softmax is of.
    value: ValueId,
    product: ValueId,
    /// What depends on the product.
    along: &'a BTreeSet<ValueId>,
    /// Of the value.
    shape: &'a Shape,
    /// Its keys that have a value.
    keys: &'a Window,
    policy: &'a dyn Fn(ValueId) -> Step,
}

impl Around<'_> {
    fn decline<T>(&self, reason: impl Into<String>) -> Result<T, Decline> {
        Err(Decline::at(self.value, reason))
    }

    /// The first node between the product and the softmax after which there are no scores any more, and why.
    fn first_in_way(&self) -> Option<Decline> {
        let way = between(self.graph, self.product, self.value);
        let declines = way.into_iter().rev().map_while(|value| {
            let shape = &self.graph.ty(value).shape;
            let keys = Window {
                start: Dim::zero(),
                len: shape.last().cloned().unwrap_or_else(Dim::one),
            };
            let up_to = Around {
                value,
                shape,
                keys: &keys,
                ..*self
            };
            up_to.scores().err()
        });
        let decline = declines.last()?;
        match decline.at {
            Some(at) if matches!(self.graph.node(at).op, Op::Concat { .. }) => Some(Decline::at(
                at,
                "other scores are joined to those of the product; attention needs one product over all keys",
            )),
            _ => Some(decline),
        }
    }

    fn scores(&self) -> Result<Scores, Decline> {
        if self.shape.len() < 2 {
            return self.decline(
                "the scores lose an axis; attention needs one of queries and one of keys",
            );
        }
        let kv = self.shape.len() - 1;
        let mut over = self.shape.clone();
        over[kv] = self.keys.len.clone();
        let mut e = ScalarBuilder::new(Extents::new(over.clone()));
        let mut extractor = Extractor::new(self.graph, 0);
        let mut reads: Vec<Vec<ExprId>> = Vec::new();
        let mut index = indices(&mut e, &over);
        let axis = e.as_int(index[kv]).expect("an index").clone();
        index[kv] = e.int(axis + self.keys.start.clone());
        let root = extractor.element(&mut e, self.value, index, &mut |e, v, index| {
            if v == self.product {
                if !reads.iter().any(|r| r == index) {
                    reads.push(index.to_vec());
                }
                return Step::Replace(e.arg());
            }
            (self.policy)(v)
        });
        let [read] = reads.as_slice() else {
            return self.decline(format!(
                "each element reads {} scores; attention needs the one of its query and key",
                reads.len()
            ));
        };
        let (turned, first_key) = self.product_axes(&e, read, &over)?;
        let maxima = self.maxima(&mut e, &mut extractor, root, &over);
        let sink = self.sink(&mut e, &mut extractor, &over, turned, &maxima)?;
        let scores = Scores {
            product: self.product,
            turned,
            expr: e.finish(root),
            sink: sink.map(|logit| e.finish(logit)),
            captured: extractor.loads,
            first_key,
        };
        self.check_captured(&scores)?;
        Ok(scores)
    }

    /// Whether a kernel can bind all that is loaded, and none of it is made of the scores.
    fn check_captured(&self, scores: &Scores) -> Result<(), Decline> {
        let loaded: Vec<ValueId> = scores
            .loaded()
            .iter()
            .map(|&n| scores.captured[n])
            .collect();
        if let Some(&value) = loaded.iter().find(|v| self.along.contains(v)) {
            let reason = "the scores are changed by what is computed from them";
            return Err(Decline::at(value, reason));
        }
        if loaded.len() <= MAX_CAPTURED {
            return Ok(());
        }
        let names: Vec<_> = loaded.iter().map(|&v| source_name(self.graph, v)).collect();
        self.decline(format!(
            "what is done to the scores up to here reads {} tensors ({}); beside q, k, v and the result WebGPU \
             guarantees bindings for {MAX_CAPTURED}",
            names.len(),
            names.join(", ")
        ))
    }

    /// Whether the product, read there over query and key as the last of the axes `over`, is key by query;
    /// and its first key.
    fn product_axes(
        &self,
        e: &ScalarBuilder,
        read: &[ExprId],
        over: &Shape,
    ) -> Result<(bool, Dim), Decline> {
        let extents = self.graph.ty(self.product).shape.clone();
        let last = extents.len() - 1;
        let (q, kv) = (over.len() - 2, over.len() - 1);
        let dims: Option<Vec<Dim>> = read.iter().map(|&i| e.as_int(i).cloned()).collect();
        let Some(dims) = dims else {
            return Err(not_in_place(e, read, self.product, self.value));
        };
        // How far the product's index is from the softmax's, if by nothing that varies.
        let distance = |of: usize, axis: usize| {
            let index = u32::try_from(axis).expect("few axes");
            let plain = dims[of].clone() - Dim::index(index);
            match &dims[of] {
                fixed if over[axis].is(1) && fixed.indices().is_empty() => Some(fixed.clone()),
                _ => Some(plain).filter(|d| d.indices().is_empty()),
            }
        };
        let (turned, at, first_key) = match (
            (distance(last - 1, q), distance(last, kv)),
            (distance(last - 1, kv), distance(last, q)),
        ) {
            ((Some(at), Some(first)), _) => (false, at, first),
            (_, (Some(first), Some(at))) => (true, at, first),
            _ => return Err(not_in_place(e, read, self.product, self.value)),
        };
        let (rows, columns) = (&extents[last - 1], &extents[last]);
        let (m, n) = if turned {
            (columns, rows)
        } else {
            (rows, columns)
        };
        // Keys without a value may have no product, those with a value have one each.
        let known = [&self.keys.len, &self.shape[kv]].contains(&n);
        if !at.is(0) || *m != over[q] || !known {
            return self.decline(format!(
                "there are {} queries and {} keys, in the product {m} and {n}: scores are cut off or added",
                over[q], self.shape[kv]
            ));
        }
        check_batch(&dims[..last - 1], &extents[..last - 1], &over[..q])
            .or_else(|reason| self.decline(reason))?;
        Ok((turned, first_key))
    }

    /// Reductions that give the largest score of each row.
    fn maxima(
        &self,
        e: &mut ScalarBuilder,
        extractor: &mut Extractor<'_>,
        score: ExprId,
        over: &Shape,
    ) -> Vec<ValueId> {
        let mut found = Vec::new();
        for value in users_of(self.graph, self.product) {
            let Some((row, axis)) = kept_reduction(self.graph, value, ReduceOp::Max) else {
                continue;
            };
            if axis + 1 != over.len() || self.graph.ty(row).shape != *over {
                continue;
            }
            let index = indices(e, over);
            let element = extractor.element(e, row, index, &mut |e, v, _| {
                if v == self.product {
                    return Step::Replace(e.arg());
                }
                (self.policy)(v)
            });
            if element == score {
                found.push(value);
            }
        }
        found
    }

    /// The logit of the keys without a value.
    fn sink(
        &self,
        e: &mut ScalarBuilder,
        extractor: &mut Extractor<'_>,
        over: &Shape,
        turned: bool,
        maxima: &[ValueId],
    ) -> Result<Option<ExprId>, Decline> {
        let kv = over.len() - 1;
        let others = self.shape[kv].clone() - self.keys.len.clone();
        let Some(others) = others.as_const().filter(|n| *n <= MAX_SINKS) else {
            return self.decline(format!(
                "the softmax has {} keys, and only {} have a value",
                self.shape[kv], self.keys.len
            ));
        };
        // Walking to the scores may have come by the maxima: of a concatenation all operands are walked.
        extractor.forget();
        let mut logits = Vec::new();
        let mut at = Dim::zero();
        for _ in 0..others {
            if at == self.keys.start {
                at = at + self.keys.len.clone();
            }
            let mut index = indices(e, over);
            index[kv] = e.int(at.clone());
            logits.push(self.logit(e, extractor, index, turned, maxima)?);
            at = at + Dim::one();
        }
        Ok(log_sum_exp(e, &logits))
    }

    /// The softmax's input at one key without a value.
    fn logit(
        &self,
        e: &mut ScalarBuilder,
        extractor: &mut Extractor<'_>,
        index: Vec<ExprId>,
        turned: bool,
        maxima: &[ValueId],
    ) -> Result<ExprId, Decline> {
        let last = index.len() - 1;
        let row = index[..last].to_vec();
        let at = e.as_int(index[last]).cloned().unwrap_or_default();
        let logit = extractor.element(e, self.value, index, &mut |e, v, index| {
            if maxima.contains(&v) && index[..last] == row {
                return Step::Replace(e.arg());
            }
            if v != self.product {
                return (self.policy)(v);
            }
            let key = index[index.len() - if turned { 2 } else { 1 }];
            let key = e.as_int(key).cloned();
            if key.is_some_and(|key| self.is_zero_key(turned, &key)) {
                return Step::Replace(e.float(0.0));
            }
            Step::Load
        });
        // Only what the logit needs: of a concatenation, the other operands are walked as well.
        let loaded = e.finish(logit).loaded_operands();
        if loaded.iter().any(|&n| extractor.loads[n] == self.product) {
            return self.decline(format!(
                "a key without a value has a score that is computed: key {at} of the softmax"
            ));
        }
        Ok(logit)
    }

    /// Whether a key of the product is zeros, so that its scores are 0.
    fn is_zero_key(&self, turned: bool, at: &Dim) -> bool {
        let k = self.graph.node(self.product).operands()[usize::from(!turned)];
        let rank = self.graph.ty(k).rank();
        let axis = if turned { rank - 2 } else { rank - 1 };
        is_zero_row(self.graph, k, axis, at)
    }
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

/// Keys without a value that become one sink.
const MAX_SINKS: i64 = 8;

/// `log(Σ exp(x))`: one logit that counts as much as all of them.
fn log_sum_exp(e: &mut ScalarBuilder, logits: &[ExprId]) -> Option<ExprId> {
    let (&first, rest) = logits.split_first()?;
    if rest.is_empty() {
        return Some(first);
    }
    let max = rest
        .iter()
        .fold(first, |m, &x| e.binary(BinaryOp::Max, m, x));
    let mut sum = None;
    for &x in logits {
        let difference = e.binary(BinaryOp::Sub, x, max);
        let term = e.unary(UnaryOp::Exp, difference);
        sum = Some(match sum {
            Some(sum) => e.binary(BinaryOp::Add, sum, term),
            None => term,
        });
    }
    let log = e.unary(UnaryOp::Log, sum?);
    let joined = e.binary(BinaryOp::Add, max, log);
    // Of nothing but -inf it is -inf, not NaN.
    let none = e.float(f32::NEG_INFINITY);
    let nothing = e.compare(CompareOp::Eq, max, none);
    Some(e.select(nothing, none, joined))
}
