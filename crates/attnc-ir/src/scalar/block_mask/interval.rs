//! Interval arithmetic over scalar expressions: the values of every node on a tile.
//!
//! A number lies in a [`Range`], a bool has two bounds, a [`Truth`]. What does not depend on query or key is one
//! value, so are elements of tables that a tile looks up at one place. Floats take part while they are sums of
//! integers and literals, whose rounding is monotone and whose bounds are no infinities, since `inf - inf` and
//! NaN keep to no interval.

use super::length::ends;
use super::{KEY, QUERY};
use crate::scalar::{ExprId, Scalar, ScalarBuilder, ScalarExpr};
use crate::{Atom, BinaryOp, CompareOp, DType, Dim, Extents, UnaryOp};

/// Magnitude up to which sums of floats stay far from infinity.
const TAME: f64 = 1e30;

/// Whether a bool is true somewhere on a tile, and everywhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Truth {
    pub(super) some: ExprId,
    pub(super) all: ExprId,
}

/// The numbers that a node takes on a tile.
#[derive(Debug, Clone, Copy)]
struct Range {
    /// A bool: whether the range says anything on this tile.
    known: ExprId,
    low: ExprId,
    high: ExprId,
    /// Bound of the magnitude of a float; infinite where there is none.
    within: f64,
}

/// Evaluates one expression.
pub(super) struct Intervals<'a> {
    expr: &'a ScalarExpr,
    /// Over `b, h, q_first, q_last, kv_first, kv_last`.
    pub(super) e: ScalarBuilder,
    /// Of each node: whether it is one value on every tile.
    fixed: Vec<bool>,
    /// Of each node: whether query and key occur inside quotients alone, so that many elements share a value.
    coarse: Vec<bool>,
    copies: Vec<Option<ExprId>>,
    truths: Vec<Option<Truth>>,
    ranges: Vec<Option<Option<Range>>>,
}

impl<'a> Intervals<'a> {
    pub(super) fn new(expr: &'a ScalarExpr, extents: Extents) -> Self {
        let fixed = inherited(expr, |dim| dim.indices().iter().all(|&n| n < QUERY));
        let coarse = inherited(expr, only_in_quotients);
        Self {
            expr,
            e: ScalarBuilder::new(extents),
            copies: vec![None; fixed.len()],
            truths: vec![None; fixed.len()],
            ranges: vec![None; fixed.len()],
            fixed,
            coarse,
        }
    }

    fn dtype(&self, id: ExprId) -> DType {
        self.expr.dtype(id)
    }

    /// The bounds of a bool.
    pub(super) fn truth(&mut self, id: ExprId) -> Truth {
        if let Some(known) = self.truths[id.index()] {
            return known;
        }
        let truth = if self.fixed[id.index()] {
            let value = self.copy(id);
            Truth {
                some: value,
                all: value,
            }
        } else {
            self.truth_of(id)
        };
        self.truths[id.index()] = Some(truth);
        truth
    }

    fn truth_of(&mut self, id: ExprId) -> Truth {
        match self.expr.node(id).clone() {
            Scalar::Unary(UnaryOp::Not, a) => {
                let a = self.truth(a);
                self.negated(a)
            }
            Scalar::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => {
                let (a, b) = (self.truth(a), self.truth(b));
                Truth {
                    some: self.e.binary(op, a.some, b.some),
                    all: self.e.binary(op, a.all, b.all),
                }
            }
            Scalar::Binary(BinaryOp::Xor, a, b) => {
                let equal = self.equal_bools(a, b);
                self.negated(equal)
            }
            Scalar::Compare(op, a, b) if self.dtype(a) == DType::Bool => match op {
                CompareOp::Eq => self.equal_bools(a, b),
                CompareOp::Ne => {
                    let equal = self.equal_bools(a, b);
                    self.negated(equal)
                }
                _ => self.unknown(),
            },
            Scalar::Compare(op, a, b) => self.compare(op, a, b),
            Scalar::Cast(DType::Bool, a) => {
                let Some(range) = self.range(a) else {
                    return self.unknown();
                };
                let zero = self.e.literal(self.dtype(a), 0.0);
                let zero = self.point(zero, 0.0);
                self.compare_ranges(CompareOp::Ne, range, zero)
            }
            Scalar::Select(c, a, b) => {
                let (c, a, b) = (self.truth(c), self.truth(a), self.truth(b));
                // (c and a) or (not c and b), where c is either on the whole tile or on a part of it.
                let some = self.choose(c, a.some, b.some, BinaryOp::Or);
                let all = self.choose(c, a.all, b.all, BinaryOp::And);
                Truth { some, all }
            }
            Scalar::Load { operand, index } => match self.one_element(operand, &index, DType::Bool)
            {
                Some(Range { known, low, .. }) => self.truth_if(
                    known,
                    Truth {
                        some: low,
                        all: low,
                    },
                ),
                None => self.unknown(),
            },
            _ => self.unknown(),
        }
    }

    fn unknown(&mut self) -> Truth {
        Truth {
            some: self.e.bool(true),
            all: self.e.bool(false),
        }
    }

    fn negated(&mut self, a: Truth) -> Truth {
        Truth {
            some: self.e.unary(UnaryOp::Not, a.all),
            all: self.e.unary(UnaryOp::Not, a.some),
        }
    }

    /// What `truth` says where it is known to say something.
    fn truth_if(&mut self, known: ExprId, truth: Truth) -> Truth {
        let not_known = self.e.unary(UnaryOp::Not, known);
        Truth {
            some: self.e.binary(BinaryOp::Or, not_known, truth.some),
            all: self.e.binary(BinaryOp::And, known, truth.all),
        }
    }

    /// `a` where `c` holds everywhere, `b` where it holds nowhere, both joined where it varies.
    fn choose(&mut self, c: Truth, a: ExprId, b: ExprId, join: BinaryOp) -> ExprId {
        let both = self.e.binary(join, a, b);
        let otherwise = self.e.select(c.some, both, b);
        self.e.select(c.all, a, otherwise)
    }

    fn equal_bools(&mut self, a: ExprId, b: ExprId) -> Truth {
        let (a, b) = (self.truth(a), self.truth(b));
        let (not_a, not_b) = (self.negated(a), self.negated(b));
        let mut either = |x: [ExprId; 2], y: [ExprId; 2]| {
            let x = self.e.binary(BinaryOp::And, x[0], x[1]);
            let y = self.e.binary(BinaryOp::And, y[0], y[1]);
            self.e.binary(BinaryOp::Or, x, y)
        };
        Truth {
            some: either([a.some, b.some], [not_a.some, not_b.some]),
            all: either([a.all, b.all], [not_a.all, not_b.all]),
        }
    }

    fn compare(&mut self, op: CompareOp, a: ExprId, b: ExprId) -> Truth {
        if let (Scalar::Int(x), Scalar::Int(y)) = (self.expr.node(a), self.expr.node(b)) {
            // What both sides share cancels before the ends are taken.
            let difference = self.polynomial(&(x.clone() - y.clone()));
            let zero = self.e.int(0);
            let zero = self.point(zero, 0.0);
            return match difference {
                Some(range) => self.compare_ranges(op, range, zero),
                None => self.unknown(),
            };
        }
        match (self.range(a), self.range(b)) {
            (Some(a), Some(b)) => self.compare_ranges(op, a, b),
            _ => self.unknown(),
        }
    }

    fn compare_ranges(&mut self, op: CompareOp, x: Range, y: Range) -> Truth {
        let truth = match op {
            CompareOp::Lt | CompareOp::Le => Truth {
                some: self.e.compare(op, x.low, y.high),
                all: self.e.compare(op, x.high, y.low),
            },
            CompareOp::Gt | CompareOp::Ge => Truth {
                some: self.e.compare(op, x.high, y.low),
                all: self.e.compare(op, x.low, y.high),
            },
            CompareOp::Eq => self.equal_ranges(x, y),
            CompareOp::Ne => {
                let equal = self.equal_ranges(x, y);
                self.negated(equal)
            }
        };
        let known = self.e.binary(BinaryOp::And, x.known, y.known);
        self.truth_if(known, truth)
    }

    /// Equal somewhere if the ranges meet, everywhere if both are the same one value.
    fn equal_ranges(&mut self, x: Range, y: Range) -> Truth {
        let e = &mut self.e;
        let (below, above) = (
            e.compare(CompareOp::Le, x.low, y.high),
            e.compare(CompareOp::Le, y.low, x.high),
        );
        let (from, to) = (
            e.compare(CompareOp::Eq, x.low, y.high),
            e.compare(CompareOp::Eq, y.low, x.high),
        );
        // low = other high and other low = high, with low <= high, leave one value.
        Truth {
            some: e.binary(BinaryOp::And, below, above),
            all: e.binary(BinaryOp::And, from, to),
        }
    }

    /// The bounds of a number; `None` where nothing is known.
    fn range(&mut self, id: ExprId) -> Option<Range> {
        if let Some(known) = self.ranges[id.index()] {
            return known;
        }
        let range = if self.fixed[id.index()] {
            let value = self.copy(id);
            let within = self
                .e
                .as_float(value)
                .map_or(f64::INFINITY, |x| f64::from(x.abs()));
            Some(self.point(value, within))
        } else {
            self.range_of(id)
        };
        self.ranges[id.index()] = Some(range);
        range
    }

    fn range_of(&mut self, id: ExprId) -> Option<Range> {
        match self.expr.node(id).clone() {
            Scalar::Int(dim) => self.polynomial(&dim),
            Scalar::Load { operand, index } => {
                let dtype = self.dtype(id);
                self.one_element(operand, &index, dtype)
            }
            Scalar::Unary(op, a) => self.unary(op, a),
            Scalar::Binary(op, a, b) => self.binary(op, a, b),
            Scalar::Cast(to, a) => self.cast(to, a),
            Scalar::Select(c, a, b) => self.select(c, a, b),
            _ => None,
        }
    }

    fn point(&mut self, value: ExprId, within: f64) -> Range {
        let known = self.e.bool(true);
        Range {
            known,
            low: value,
            high: value,
            within,
        }
    }

    fn polynomial(&mut self, dim: &Dim) -> Option<Range> {
        let (low, high) = ends(dim, &self.e.extents().clone())?;
        Some(Range {
            known: self.e.bool(true),
            low: self.e.int(low),
            high: self.e.int(high),
            within: 0.0,
        })
    }

    /// An element of a table where the tile looks it up at one place: known if both ends of each index agree.
    fn one_element(&mut self, operand: usize, index: &[ExprId], dtype: DType) -> Option<Range> {
        let mut known = self.e.bool(true);
        let mut at = Vec::with_capacity(index.len());
        for &i in index {
            // At the query or key itself a tile has as many elements as it has rows: nothing to look up.
            if !self.coarse[i.index()] {
                return None;
            }
            let range = self.range(i)?;
            let one = self.e.compare(CompareOp::Eq, range.low, range.high);
            known = self.e.binary(BinaryOp::And, known, range.known);
            known = self.e.binary(BinaryOp::And, known, one);
            at.push(range.low);
        }
        let value = self.e.load(operand, dtype, at);
        Some(Range {
            known,
            low: value,
            high: value,
            within: f64::INFINITY,
        })
    }

    /// Whether arithmetic on this keeps within the numbers.
    fn tame(&self, id: ExprId, range: Range) -> bool {
        self.dtype(id) == DType::I32 || (self.dtype(id).is_float() && range.within <= TAME)
    }

    fn unary(&mut self, op: UnaryOp, a: ExprId) -> Option<Range> {
        let x = self.range(a).filter(|&x| self.tame(a, x))?;
        let [low, high] = [x.low, x.high];
        let (low, high) = match op {
            UnaryOp::Neg => (self.e.unary(op, high), self.e.unary(op, low)),
            UnaryOp::Abs => {
                let zero = self.e.literal(self.dtype(a), 0.0);
                let minus_low = self.e.unary(UnaryOp::Neg, low);
                let minus_high = self.e.unary(UnaryOp::Neg, high);
                let outside = self.e.binary(BinaryOp::Max, low, minus_high);
                let most = self.e.binary(BinaryOp::Max, high, minus_low);
                (self.e.binary(BinaryOp::Max, outside, zero), most)
            }
            UnaryOp::Sign | UnaryOp::Relu | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round => {
                (self.e.unary(op, low), self.e.unary(op, high))
            }
            _ => return None,
        };
        Some(Range {
            low,
            high,
            within: x.within + 1.0,
            ..x
        })
    }

    fn binary(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> Option<Range> {
        let x = self.range(a).filter(|&x| self.tame(a, x))?;
        let y = self.range(b).filter(|&y| self.tame(b, y))?;
        let known = self.e.binary(BinaryOp::And, x.known, y.known);
        let within = x.within + y.within;
        let (low, high) = match op {
            BinaryOp::Add | BinaryOp::Min | BinaryOp::Max => (
                self.e.binary(op, x.low, y.low),
                self.e.binary(op, x.high, y.high),
            ),
            BinaryOp::Sub => (
                self.e.binary(op, x.low, y.high),
                self.e.binary(op, x.high, y.low),
            ),
            // By a positive number; products of floats might be contracted differently in two functions.
            BinaryOp::Mul | BinaryOp::Div if self.positive(b).is_some() => (
                self.e.binary(op, x.low, y.low),
                self.e.binary(op, x.high, y.low),
            ),
            BinaryOp::Mul if self.positive(a).is_some() => (
                self.e.binary(op, x.low, y.low),
                self.e.binary(op, x.low, y.high),
            ),
            BinaryOp::Mod | BinaryOp::Rem => {
                let most = self.positive(b)? - 1;
                let least = if op == BinaryOp::Mod { 0 } else { -most };
                (self.e.int(least), self.e.int(most))
            }
            _ => return None,
        };
        Some(Range {
            known,
            low,
            high,
            within,
        })
    }

    /// The literal, if it is a positive i32.
    fn positive(&self, id: ExprId) -> Option<i64> {
        match self.expr.node(id) {
            Scalar::Int(dim) => dim.as_const().filter(|&n| n > 0),
            _ => None,
        }
    }

    fn cast(&mut self, to: DType, a: ExprId) -> Option<Range> {
        let from = self.dtype(a);
        if from == DType::Bool {
            let truth = self.truth(a);
            return Some(Range {
                known: self.e.bool(true),
                low: self.e.cast(to, truth.all),
                high: self.e.cast(to, truth.some),
                within: 1.0,
            });
        }
        let x = self.range(a)?;
        let within = match (from, to) {
            (DType::I32, to) if to.is_float() => f64::from(u32::MAX),
            (from, DType::I32) if from.is_float() && x.within <= TAME => 0.0,
            _ => return None, // of u32, which wraps
        };
        let (low, high) = (self.e.cast(to, x.low), self.e.cast(to, x.high));
        Some(Range {
            low,
            high,
            within,
            ..x
        })
    }

    fn select(&mut self, c: ExprId, a: ExprId, b: ExprId) -> Option<Range> {
        let c = self.truth(c);
        let x = self.range(a).filter(|&x| self.tame(a, x))?;
        let y = self.range(b).filter(|&y| self.tame(b, y))?;
        Some(Range {
            known: self.choose(c, x.known, y.known, BinaryOp::And),
            low: self.choose(c, x.low, y.low, BinaryOp::Min),
            high: self.choose(c, x.high, y.high, BinaryOp::Max),
            within: x.within.max(y.within),
        })
    }

    /// The node as it is: it does not depend on query or key.
    fn copy(&mut self, id: ExprId) -> ExprId {
        if let Some(done) = self.copies[id.index()] {
            return done;
        }
        let node = self.expr.node(id).clone();
        let of: Vec<ExprId> = node.operands().into_iter().map(|o| self.copy(o)).collect();
        let copy = match node {
            Scalar::Int(dim) => self.e.int(dim),
            Scalar::Float(bits) => self.e.float(f32::from_bits(bits)),
            Scalar::Bool(b) => self.e.bool(b),
            Scalar::Arg => unreachable!("a mask does not read the score"),
            Scalar::Load { operand, .. } => self.e.load(operand, self.expr.dtype(id), of),
            Scalar::Unary(op, _) => self.e.unary(op, of[0]),
            Scalar::Binary(op, ..) => self.e.binary(op, of[0], of[1]),
            Scalar::Compare(op, ..) => self.e.compare(op, of[0], of[1]),
            Scalar::Select(..) => self.e.select(of[0], of[1], of[2]),
            Scalar::Cast(to, _) => self.e.cast(to, of[0]),
        };
        self.copies[id.index()] = Some(copy);
        copy
    }
}

/// Whether what holds for a polynomial holds for all that a node is computed from; not for the score.
fn inherited(expr: &ScalarExpr, holds: impl Fn(&Dim) -> bool) -> Vec<bool> {
    let mut out: Vec<bool> = Vec::with_capacity(expr.nodes().len());
    for node in expr.nodes() {
        let own = match node {
            Scalar::Int(dim) => holds(dim),
            Scalar::Arg => false,
            _ => true,
        };
        out.push(own && node.operands().iter().all(|o| out[o.index()]));
    }
    out
}

/// Whether query and key occur inside quotients alone.
fn only_in_quotients(dim: &Dim) -> bool {
    dim.terms()
        .flat_map(|(_, mono)| mono)
        .all(|(atom, _)| match atom {
            Atom::Sym(_) | Atom::FloorDiv(..) => true,
            Atom::Index(n) => ![QUERY, KEY].contains(n),
            Atom::Max(a, b) | Atom::Min(a, b) => only_in_quotients(a) && only_in_quotients(b),
        })
}
