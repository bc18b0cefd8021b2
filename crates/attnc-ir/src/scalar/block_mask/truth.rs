//! Intervals of bools: what of a comparison, a choice and the logical operations is true on a tile.

use super::interval::{Intervals, Range, Truth};
use crate::scalar::{ExprId, Scalar};
use crate::{BinaryOp, CompareOp, DType, UnaryOp};

impl Intervals<'_> {
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
}
