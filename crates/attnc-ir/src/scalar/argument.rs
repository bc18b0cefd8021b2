//! What an expression makes of its argument: whether 0 stays 0, and whether a factor passes through.
//!
//! ```
//! use attnc_ir::{BinaryOp, DType, Extents, scalar::ScalarBuilder};
//! let mut e = ScalarBuilder::new(Extents::new(vec!["N".into()]));
//! let (p, n) = (e.arg(), e.index(0));
//! let keep = e.load(3, DType::F32, vec![n]);
//! let dropped = e.binary(BinaryOp::Mul, p, keep);
//! let squared = e.binary(BinaryOp::Mul, p, p);
//! assert!(e.finish(dropped).is_homogeneous());
//! assert!(e.finish(squared).keeps_zero() && !e.finish(squared).is_homogeneous());
//! ```
//!
//! Both answers are proofs: `false` means only that none was found. What is loaded counts as finite here: a
//! key that is not there stays away even where data holds an infinity, as masked keys do everywhere.

use super::{ExprId, Scalar, ScalarBuilder, ScalarExpr};
use crate::{BinaryOp, Extents, UnaryOp};

impl ScalarExpr {
    /// Whether the value for an argument of 0 is 0, whatever the index and the (finite) data.
    #[must_use]
    pub fn keeps_zero(&self) -> bool {
        let mut e = ScalarBuilder::new(Extents::none());
        let indices: Vec<ExprId> = (0..self.index_count()).map(|n| e.index(n)).collect();
        let zero = e.float(0.0);
        // Building folds what the literal decides, such as `arg > 0.5`.
        let root = e.inline(
            self,
            &indices,
            Some(zero),
            &mut |e, operand, dtype, index| e.load(operand, dtype, index),
        );
        e.finish(root).is_zero(None)
    }

    /// Whether `f(c * arg)` is `c * f(arg)` for every factor c > 0 and argument ≥ 0.
    #[must_use]
    pub fn is_homogeneous(&self) -> bool {
        let mut degrees = Vec::with_capacity(self.nodes().len());
        for node in self.nodes() {
            let degree = self.degree(node, &degrees);
            degrees.push(degree);
        }
        matches!(degrees[self.root().index()], Degree::Zero | Degree::One)
    }

    fn index_count(&self) -> u32 {
        let last = |node: &Scalar| match node {
            Scalar::Int(dim) => dim.indices().last().map(|n| n + 1),
            _ => None,
        };
        self.nodes().iter().filter_map(last).max().unwrap_or(0)
    }

    /// Whether a node, the root if none is named, is 0 for all data.
    fn is_zero(&self, node: Option<ExprId>) -> bool {
        let mut known = Vec::with_capacity(self.nodes().len());
        for node in self.nodes() {
            let zero = match node {
                Scalar::Float(bits) => f32::from_bits(*bits) == 0.0,
                Scalar::Int(dim) => dim.is(0),
                Scalar::Bool(value) => !value,
                Scalar::Arg | Scalar::Load { .. } | Scalar::Compare(..) => false,
                Scalar::Unary(op, a) => known[a.index()] && maps_zero_to_zero(*op),
                Scalar::Cast(_, a) => known[a.index()],
                Scalar::Select(_, a, b) => known[a.index()] && known[b.index()],
                Scalar::Binary(op, a, b) => {
                    let (x, y) = (known[a.index()], known[b.index()]);
                    match op {
                        BinaryOp::Mul => {
                            (x && !self.is_not_finite(*b)) || (y && !self.is_not_finite(*a))
                        }
                        BinaryOp::Div => x && !y && !self.is_nan(*b),
                        _ if x && y => matches!(
                            op,
                            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max
                        ),
                        _ => false,
                    }
                }
            };
            known.push(zero);
        }
        known[node.unwrap_or(self.root()).index()]
    }

    fn is_not_finite(&self, id: ExprId) -> bool {
        matches!(self.node(id), Scalar::Float(bits) if !f32::from_bits(*bits).is_finite())
    }

    fn is_nan(&self, id: ExprId) -> bool {
        matches!(self.node(id), Scalar::Float(bits) if f32::from_bits(*bits).is_nan())
    }

    /// How a node grows with the argument, from those in front of it.
    fn degree(&self, node: &Scalar, known: &[Degree]) -> Degree {
        let of = |id: &ExprId| known[id.index()];
        match node {
            Scalar::Arg => Degree::One,
            Scalar::Float(bits) if f32::from_bits(*bits) == 0.0 => Degree::Zero,
            Scalar::Int(_) | Scalar::Float(_) | Scalar::Bool(_) => Degree::Free,
            Scalar::Load { index, .. } => Degree::free_if(index.iter().all(|i| of(i).is_free())),
            Scalar::Unary(op, a) => match (op, of(a)) {
                (_, Degree::Free) => Degree::Free,
                (op, Degree::Zero) => {
                    if maps_zero_to_zero(*op) {
                        Degree::Zero
                    } else {
                        Degree::Free
                    }
                }
                (UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu, Degree::One) => Degree::One,
                _ => Degree::Other,
            },
            // A rounding to a storage type is none in an expression; other types are no weights.
            Scalar::Cast(_, a) => Degree::free_if(of(a).is_free()),
            Scalar::Compare(_, a, b) => Degree::free_if(of(a).is_free() && of(b).is_free()),
            Scalar::Binary(op, a, b) => self.binary_degree(*op, *a, *b, known),
            Scalar::Select(c, a, b) if of(c).is_free() => of(a).joined(of(b)),
            Scalar::Select(..) => Degree::Other,
        }
    }

    fn binary_degree(&self, op: BinaryOp, a: ExprId, b: ExprId, known: &[Degree]) -> Degree {
        let (x, y) = (known[a.index()], known[b.index()]);
        match (op, x, y) {
            (BinaryOp::Mul, Degree::One, y) if y.is_free() && !self.is_not_finite(b) => Degree::One,
            (BinaryOp::Mul, x, Degree::One) if x.is_free() && !self.is_not_finite(a) => Degree::One,
            (BinaryOp::Div, Degree::One, Degree::Free) => Degree::One,
            (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max, x, y)
                if x == Degree::One || y == Degree::One =>
            {
                x.joined(y)
            }
            (_, x, y) => Degree::free_if(x.is_free() && y.is_free()),
        }
    }
}

/// How a value grows with the argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Degree {
    /// It is 0.
    Zero,
    /// It does not depend on the argument.
    Free,
    /// It is homogeneous of degree 1.
    One,
    /// Anything else.
    Other,
}

impl Degree {
    fn free_if(free: bool) -> Self {
        if free { Self::Free } else { Self::Other }
    }

    fn is_free(self) -> bool {
        matches!(self, Self::Zero | Self::Free)
    }

    /// Of a value that is one or the other, or a sum of both.
    fn joined(self, other: Self) -> Self {
        match (self, other) {
            (x, y) if x == y => x,
            (Self::Zero | Self::One, Self::Zero | Self::One) => Self::One,
            (x, y) => Self::free_if(x.is_free() && y.is_free()),
        }
    }
}

fn maps_zero_to_zero(op: UnaryOp) -> bool {
    matches!(
        op,
        UnaryOp::Neg
            | UnaryOp::Abs
            | UnaryOp::Sqrt
            | UnaryOp::Tanh
            | UnaryOp::Sin
            | UnaryOp::Erf
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Round
            | UnaryOp::Sign
            | UnaryOp::Relu
            | UnaryOp::Gelu
            | UnaryOp::GeluTanh
            | UnaryOp::Silu
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CompareOp, DType};

    fn expression(make: impl Fn(&mut ScalarBuilder, ExprId) -> ExprId) -> ScalarExpr {
        let mut e = ScalarBuilder::new(Extents::new(vec!["M".into(), "N".into()]));
        let arg = e.arg();
        let root = make(&mut e, arg);
        e.finish(root)
    }

    #[track_caller]
    fn check(zero: bool, homogeneous: bool, expr: &ScalarExpr) {
        assert_eq!(expr.keeps_zero(), zero, "keeps zero: {expr}");
        assert_eq!(expr.is_homogeneous(), homogeneous, "is homogeneous: {expr}");
    }

    #[test]
    fn factors_pass_through() {
        check(true, true, &expression(|_, p| p));
        let data = |e: &mut ScalarBuilder| {
            let n = e.index(1);
            e.load(0, DType::F32, vec![n])
        };
        check(
            true,
            true,
            &expression(|e, p| {
                let x = data(e);
                e.binary(BinaryOp::Mul, x, p)
            }),
        );
        check(
            true,
            true,
            &expression(|e, p| {
                let (m, n, zero) = (e.index(0), e.index(1), e.float(0.0));
                let later = e.compare(CompareOp::Gt, n, m);
                let x = data(e);
                let scaled = e.binary(BinaryOp::Div, p, x);
                e.select(later, zero, scaled)
            }),
        );
        check(
            true,
            true,
            &expression(|e, p| {
                let twice = e.binary(BinaryOp::Add, p, p);
                let (zero, nan) = (e.float(0.0), e.unary(UnaryOp::Neg, twice));
                e.binary(BinaryOp::Max, nan, zero)
            }),
        );
    }

    #[test]
    fn what_is_not_linear_may_keep_zero() {
        check(
            true,
            false,
            &expression(|e, p| e.binary(BinaryOp::Mul, p, p)),
        );
        check(true, false, &expression(|e, p| e.unary(UnaryOp::Sqrt, p)));
        // A threshold: what the literal 0 decides.
        check(
            true,
            false,
            &expression(|e, p| {
                let (half, one, zero) = (e.float(0.5), e.float(1.0), e.float(0.0));
                let high = e.compare(CompareOp::Gt, p, half);
                e.select(high, one, zero)
            }),
        );
    }

    #[test]
    fn what_may_give_weight_is_seen() {
        check(false, false, &expression(|e, p| e.unary(UnaryOp::Exp, p)));
        for op in [BinaryOp::Add, BinaryOp::Max] {
            check(
                false,
                false,
                &expression(|e, p| {
                    let x = e.float(0.25);
                    e.binary(op, p, x)
                }),
            );
        }
        // 0 * inf, 0 / 0.
        check(
            false,
            false,
            &expression(|e, p| {
                let x = e.float(f32::INFINITY);
                e.binary(BinaryOp::Mul, p, x)
            }),
        );
        check(
            false,
            false,
            &expression(|e, p| {
                let x = e.float(0.0);
                e.binary(BinaryOp::Div, p, x)
            }),
        );
        check(
            false,
            false,
            &expression(|e, p| {
                let (n, zero) = (e.index(1), e.int(0));
                let first = e.compare(CompareOp::Eq, n, zero);
                let one = e.float(1.0);
                e.select(first, one, p)
            }),
        );
    }
}
