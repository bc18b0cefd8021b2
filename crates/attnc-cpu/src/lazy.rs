//! A scalar expression evaluated for one element, in f64, literally: only what the value needs.
//!
//! The branch of a select that is not chosen is never looked at, so an index out of range there is no
//! error. The oracle evaluates every expression this way; the f32 executor asks it which index was wrong.

use crate::poly::Poly;
use crate::{Dims, scalar64};
use attnc_ir::scalar::{ExprId, Scalar, ScalarExpr};
use attnc_ir::{BinaryOp, DType, DimError};

/// An index from data that is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfRange {
    /// The index.
    pub(crate) index: i64,
    /// Length of the axis.
    pub(crate) size: usize,
}

/// Gives the element of an operand of a type at an index, one i64 an axis.
pub(crate) type LoadElement<'a> =
    dyn Fn(usize, DType, &[i64]) -> Result<f64, OutOfRange> + Send + Sync + 'a;

/// An expression with its lengths known.
#[derive(Debug, Clone)]
pub(crate) struct BoundExpr<'a> {
    expr: &'a ScalarExpr,
    /// The polynomial of each [`Scalar::Int`], by node.
    polys: Vec<Option<Poly>>,
}

impl<'a> BoundExpr<'a> {
    /// `expr` with the lengths `dims`.
    pub(crate) fn new(expr: &'a ScalarExpr, dims: &Dims) -> Result<Self, DimError> {
        let polys = expr
            .nodes()
            .iter()
            .map(|node| match node {
                Scalar::Int(dim) => Poly::bind(dim, dims).map(Some),
                _ => Ok(None),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { expr, polys })
    }

    /// The value at `index` with argument `arg`.
    pub(crate) fn eval(
        &self,
        index: &[i64],
        arg: f64,
        load: &LoadElement<'_>,
    ) -> Result<f64, OutOfRange> {
        let mut at = Evaluation {
            bound: self,
            index,
            arg,
            load,
            known: vec![None; self.polys.len()],
        };
        at.value(self.expr.root())
    }
}

struct Evaluation<'a> {
    bound: &'a BoundExpr<'a>,
    index: &'a [i64],
    arg: f64,
    load: &'a LoadElement<'a>,
    known: Vec<Option<f64>>,
}

impl Evaluation<'_> {
    fn value(&mut self, id: ExprId) -> Result<f64, OutOfRange> {
        if let Some(value) = self.known[id.index()] {
            return Ok(value);
        }
        let value = self.compute(id)?;
        self.known[id.index()] = Some(value);
        Ok(value)
    }

    fn compute(&mut self, id: ExprId) -> Result<f64, OutOfRange> {
        let expr = self.bound.expr;
        Ok(match expr.node(id) {
            Scalar::Int(_) => {
                let poly = self.bound.polys[id.index()].as_ref();
                scalar64::wrap(DType::I32, poly.map_or(0, |p| p.eval(self.index)))
            }
            Scalar::Float(bits) => f64::from(f32::from_bits(*bits)),
            Scalar::Bool(b) => f64::from(u8::from(*b)),
            Scalar::Arg => self.arg,
            Scalar::Load { operand, index } => {
                let mut at = Vec::with_capacity(index.len());
                for &i in index {
                    #[expect(
                        clippy::cast_possible_truncation,
                        reason = "integers of 32 bits are exact in f64"
                    )]
                    at.push(self.value(i)? as i64);
                }
                (self.load)(*operand, expr.dtype(id), &at)?
            }
            Scalar::Unary(op, a) => scalar64::unary(*op, expr.dtype(*a), self.value(*a)?),
            // `select(c, x, false)` is written `c and x`: the second operand may be one not chosen.
            Scalar::Binary(BinaryOp::And, a, b) if self.value(*a)? != 0.0 => self.value(*b)?,
            Scalar::Binary(BinaryOp::And, ..) => 0.0,
            Scalar::Binary(BinaryOp::Or, a, b) if self.value(*a)? == 0.0 => self.value(*b)?,
            Scalar::Binary(BinaryOp::Or, ..) => 1.0,
            Scalar::Binary(op, a, b) => {
                let (x, y) = (self.value(*a)?, self.value(*b)?);
                scalar64::binary(*op, expr.dtype(*a), x, y)
            }
            Scalar::Compare(op, a, b) => {
                let (x, y) = (self.value(*a)?, self.value(*b)?);
                f64::from(u8::from(scalar64::compare(*op, x, y)))
            }
            Scalar::Select(c, a, b) => {
                let chosen = if self.value(*c)? != 0.0 { *a } else { *b };
                self.value(chosen)?
            }
            Scalar::Cast(to, a) => scalar64::cast(expr.dtype(*a), *to, self.value(*a)?),
        })
    }
}
