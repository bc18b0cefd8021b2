//! Intervals of numbers: arithmetic on the ends.

use super::interval::{Intervals, Range};
use super::length::ends;
use crate::scalar::{ExprId, Scalar};
use crate::{BinaryOp, CompareOp, DType, Dim, UnaryOp};

/// Magnitude up to which sums of floats stay far from infinity.
const TAME: f64 = 1e30;

impl Intervals<'_> {
    /// The bounds of a number; `None` where nothing is known.
    pub(super) fn range(&mut self, id: ExprId) -> Option<Range> {
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

    pub(super) fn point(&mut self, value: ExprId, within: f64) -> Range {
        let known = self.e.bool(true);
        Range {
            known,
            low: value,
            high: value,
            within,
        }
    }

    pub(super) fn polynomial(&mut self, dim: &Dim) -> Option<Range> {
        let (low, high) = ends(dim, &self.e.extents().clone())?;
        Some(Range {
            known: self.e.bool(true),
            low: self.e.int(low),
            high: self.e.int(high),
            within: 0.0,
        })
    }

    /// An element of a table where the tile looks it up at one place: known if both ends of each index agree.
    pub(super) fn one_element(
        &mut self,
        operand: usize,
        index: &[ExprId],
        dtype: DType,
    ) -> Option<Range> {
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
}
