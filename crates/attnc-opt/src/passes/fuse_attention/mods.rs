//! Clean-up of what stands between the product and the softmax: a factor, `mask_mod`, `score_mod`.
//!
//! ```text
//! select(%mask[b, kv_idx], score * 0.125, -inf)     scale = 0.125, mask_mod = { %mask[b, kv_idx] }
//! score + select(kv_idx <= q_idx, 0.0, -inf)        mask_mod = { kv_idx <= q_idx }
//! score + select(kv_idx <= q_idx, 0.0, -3.4e38)     score_mod, as it is: a finite fill is a number
//! ```
//!
//! On exit an infinite fill is a `mask_mod`, also one that only the data of an additive mask brings; the factor
//! nearest the product is the scale; the rest is `score_mod`, in the order of the source.

use super::operands::batch_and_heads;
use super::structure::Structure;
use attnc_ir::layout::source_index;
use attnc_ir::scalar::{ExprId, Scalar, ScalarBuilder, ScalarExpr};
use attnc_ir::{Attention, BinaryOp, CompareOp, Dim, Extents, Graph, Op, UnaryOp, ValueId};

/// An attention's functions and what they load, from operand 3 on.
pub(crate) struct Mods {
    pub(crate) attention: Attention,
    pub(crate) captured: Vec<ValueId>,
}

/// Splits the score expression of a structure whose operands carried the factor `scale`.
pub(crate) fn split(graph: &Graph, found: &Structure, scale: f64) -> Mods {
    let scores = over_heads(found, &found.scores);
    let stated = found.mask.as_ref().map(|m| over_heads(found, m));
    let (factor, scores) = take_scale(&scores);

    let mut e = ScalarBuilder::new(extents(found));
    let indices = e.indices();
    let keep = &mut |e: &mut ScalarBuilder, operand, dtype, index| e.load(operand, dtype, index);
    let root = e.inline(&scores, &indices, None, keep);
    let may_mask: Vec<bool> = found
        .captured
        .iter()
        .map(|&v| may_be_infinite(graph, v))
        .collect();
    let mut peeled = Peeler {
        may_mask,
        needs_score: Vec::new(),
        mask: e.bool(true),
        e,
    };
    if let Some(stated) = &stated {
        peeled.mask = peeled.e.inline(stated, &indices, None, keep);
    }
    let root = peeled.peel(root);
    let Peeler { e, mask, .. } = peeled;

    let score_mod = (*e.node(root) != Scalar::Arg).then(|| e.finish(root));
    let mask_mod = (e.as_bool(mask) != Some(true)).then(|| e.finish(mask));
    let attention = Attention {
        scale: scale * factor,
        score_mod,
        mask_mod,
        sink: found.sink.as_ref().map(|s| over_heads(found, s)),
        prob_mod: found.weights.as_ref().map(|w| over_heads(found, w)),
    };
    renumber(found, attention)
}

fn extents(found: &Structure) -> Extents {
    let [b, h] = batch_and_heads(&found.batch);
    Extents::new(vec![
        b,
        h,
        found.lengths[0].clone(),
        found.lengths[1].clone(),
    ])
}

/// The expression over the softmax's index as one over `b, h, q_idx, kv_idx`.
pub(super) fn over_heads(found: &Structure, expr: &ScalarExpr) -> ScalarExpr {
    let ext = extents(found);
    let rank = found.batch.len();
    let mut indices: Vec<Dim> = match rank {
        0 => Vec::new(),
        1 => vec![Dim::index(1)],
        _ => {
            let mut rest = Dim::index(0);
            let mut lead = vec![Dim::zero(); rank - 1];
            for n in (0..rank - 1).rev() {
                lead[n] = if n == 0 {
                    rest.clone()
                } else {
                    rest.modulo(&found.batch[n], &ext)
                };
                rest = rest.floor_div(&found.batch[n], &ext);
            }
            lead.push(Dim::index(1));
            lead
        }
    };
    indices.extend([Dim::index(2), Dim::index(3)]);
    let mut e = ScalarBuilder::new(ext);
    let indices: Vec<ExprId> = indices.into_iter().map(|d| e.int(d)).collect();
    let root = e.inline(expr, &indices, None, &mut |e, operand, dtype, index| {
        e.load(operand, dtype, index)
    });
    e.finish(root)
}

/// Takes the literal factors nearest the product off it.
fn take_scale(expr: &ScalarExpr) -> (f64, ScalarExpr) {
    let (mut factor, mut expr) = (1.0, expr.clone());
    while let Some((user, f)) = scaled_arg(&expr) {
        factor *= f;
        expr = expr.replace(user, Scalar::Arg);
    }
    (factor, expr)
}

/// The only node that reads the argument, if it multiplies it by a literal.
fn scaled_arg(expr: &ScalarExpr) -> Option<(ExprId, f64)> {
    let is_arg = |id: ExprId| *expr.node(id) == Scalar::Arg;
    let literal = |id: ExprId| match expr.node(id) {
        Scalar::Float(bits) => {
            Some(f64::from(f32::from_bits(*bits))).filter(|f| f.is_finite() && *f != 0.0)
        }
        _ => None,
    };
    let mut users = expr
        .ids()
        .filter(|&id| expr.node(id).operands().into_iter().any(is_arg));
    let (user, None) = (users.next()?, users.next()) else {
        return None;
    };
    match *expr.node(user) {
        Scalar::Binary(BinaryOp::Mul, a, b) if is_arg(a) => literal(b).map(|f| (user, f)),
        Scalar::Binary(BinaryOp::Mul, a, b) if is_arg(b) => literal(a).map(|f| (user, f)),
        Scalar::Binary(BinaryOp::Div, a, b) if is_arg(a) => literal(b).map(|f| (user, 1.0 / f)),
        Scalar::Unary(UnaryOp::Neg, _) => Some((user, -1.0)),
        _ => None,
    }
}

/// Whether a value may hold infinities on purpose: tables are looked at; results of products and norms are
/// no masks.
fn may_be_infinite(graph: &Graph, value: ValueId) -> bool {
    let base = source_index(graph, value).0;
    match &graph.node(base).op {
        _ if !graph.ty(base).dtype.is_float() => false,
        Op::Constant(data) => (0..data.len()).any(|i| data.get_f64(i).is_none_or(f64::is_infinite)),
        Op::MatMul | Op::LayerNorm { .. } | Op::RmsNorm { .. } | Op::Softmax { .. } => false,
        _ => true,
    }
}

/// Takes infinite fills off a score, from the outside in.
struct Peeler {
    e: ScalarBuilder,
    mask: ExprId,
    /// For each captured value, whether it may hold an infinity that means "no key".
    may_mask: Vec<bool>,
    /// Memo: whether a node reads the score.
    needs_score: Vec<Option<bool>>,
}

impl Peeler {
    fn reads_score(&mut self, id: ExprId) -> bool {
        if self.needs_score.len() <= id.index() {
            self.needs_score.resize(id.index() + 1, None);
        }
        if let Some(known) = self.needs_score[id.index()] {
            return known;
        }
        let node = self.e.node(id).clone();
        let reads = node == Scalar::Arg || node.operands().into_iter().any(|o| self.reads_score(o));
        self.needs_score[id.index()] = Some(reads);
        reads
    }

    fn is_minus_infinity(&self, id: ExprId) -> bool {
        self.e.as_float(id) == Some(f32::NEG_INFINITY)
    }

    fn require(&mut self, condition: ExprId, holds: bool) {
        let condition = if holds {
            condition
        } else {
            self.e.unary(UnaryOp::Not, condition)
        };
        self.mask = self.e.binary(BinaryOp::And, self.mask, condition);
    }

    /// A term from data may be -inf at run time: then there is no key, whatever the score is, even NaN.
    fn require_finite(&mut self, bias: ExprId) {
        if !self.reads_data(bias) {
            return;
        }
        let infinite = self.e.unary(UnaryOp::IsInf, bias);
        let zero = self.e.float(0.0);
        let negative = self.e.compare(CompareOp::Lt, bias, zero);
        let none = self.e.binary(BinaryOp::And, infinite, negative);
        self.require(none, false);
    }

    /// Whether an element of such a tensor is in the value by sums and choices alone; products with finite
    /// literals, as masks are built from 0 and 1, make no infinity out of finite data.
    fn reads_data(&self, id: ExprId) -> bool {
        match self.e.node(id) {
            Scalar::Load { operand, .. } => self.may_mask[*operand],
            Scalar::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) | Scalar::Select(_, a, b) => {
                self.reads_data(*a) || self.reads_data(*b)
            }
            _ => false,
        }
    }

    /// The score without its infinite fills, which go to the mask.
    fn peel(&mut self, id: ExprId) -> ExprId {
        match self.e.node(id).clone() {
            Scalar::Select(c, a, b) if !self.reads_score(c) => {
                if self.is_minus_infinity(b) {
                    self.require(c, true);
                    self.peel(a)
                } else if self.is_minus_infinity(a) {
                    self.require(c, false);
                    self.peel(b)
                } else {
                    id
                }
            }
            Scalar::Binary(BinaryOp::Add, a, b) => {
                let (a, b) = if self.reads_score(a) { (a, b) } else { (b, a) };
                if self.reads_score(b) {
                    return id;
                }
                let score = self.peel(a);
                match self.peel_bias(b) {
                    Some(bias) => {
                        self.require_finite(bias);
                        self.e.binary(BinaryOp::Add, score, bias)
                    }
                    None => score,
                }
            }
            _ => id,
        }
    }

    /// What is left of an additive term, `None` where it was a mask and nothing else.
    fn peel_bias(&mut self, id: ExprId) -> Option<ExprId> {
        match *self.e.node(id) {
            Scalar::Select(c, a, b) if self.is_minus_infinity(b) => {
                self.require(c, true);
                self.peel_bias(a)
            }
            Scalar::Select(c, a, b) if self.is_minus_infinity(a) => {
                self.require(c, false);
                self.peel_bias(b)
            }
            Scalar::Binary(BinaryOp::Add, a, b) => match (self.peel_bias(a), self.peel_bias(b)) {
                (Some(a), Some(b)) => Some(self.e.binary(BinaryOp::Add, a, b)),
                (a, b) => a.or(b),
            },
            Scalar::Float(bits) if f32::from_bits(bits) == 0.0 => None,
            _ => Some(id),
        }
    }
}

/// Only what is still loaded is captured, from operand 3 on.
fn renumber(found: &Structure, mut attention: Attention) -> Mods {
    let mut used: Vec<usize> = attention
        .functions()
        .flat_map(|(_, expr)| expr.loaded_operands())
        .collect();
    used.sort_unstable();
    used.dedup();
    let number = |n: usize| 3 + used.iter().position(|&u| u == n).expect("loaded");
    let Attention {
        score_mod,
        mask_mod,
        sink,
        prob_mod,
        ..
    } = &mut attention;
    for expr in [score_mod, mask_mod, sink, prob_mod].into_iter().flatten() {
        *expr = expr.map_operands(number);
    }
    Mods {
        attention,
        captured: used.iter().map(|&n| found.captured[n]).collect(),
    }
}
