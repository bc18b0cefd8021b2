//! Interval arithmetic over scalar expressions: the values of every node on a tile.
//!
//! A number lies in a [`Range`], a bool has two bounds, a [`Truth`]. What does not depend on query or key is one
//! value, so are elements of tables that a tile looks up at one place. Floats take part while they are sums of
//! integers and literals, whose rounding is monotone and whose bounds are no infinities, since `inf - inf` and
//! NaN keep to no interval.

use super::{KEY, QUERY};
use crate::scalar::{ExprId, Scalar, ScalarBuilder, ScalarExpr};
use crate::{Atom, BinaryOp, DType, Dim, Extents};

/// Whether a bool is true somewhere on a tile, and everywhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Truth {
    pub(super) some: ExprId,
    pub(super) all: ExprId,
}

/// The numbers that a node takes on a tile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    /// A bool: whether the range says anything on this tile.
    pub(super) known: ExprId,
    pub(super) low: ExprId,
    pub(super) high: ExprId,
    /// Bound of the magnitude of a float; infinite where there is none.
    pub(super) within: f64,
}

/// Evaluates one expression.
pub(super) struct Intervals<'a> {
    pub(super) expr: &'a ScalarExpr,
    /// Over `b, h, q_first, q_last, kv_first, kv_last`.
    pub(super) e: ScalarBuilder,
    /// Of each node: whether it is one value on every tile.
    pub(super) fixed: Vec<bool>,
    /// Of each node: whether query and key occur inside quotients alone, so that many elements share a value.
    pub(super) coarse: Vec<bool>,
    copies: Vec<Option<ExprId>>,
    pub(super) truths: Vec<Option<Truth>>,
    pub(super) ranges: Vec<Option<Option<Range>>>,
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

    pub(super) fn dtype(&self, id: ExprId) -> DType {
        self.expr.dtype(id)
    }

    /// `a` where `c` holds everywhere, `b` where it holds nowhere, both joined where it varies.
    pub(super) fn choose(&mut self, c: Truth, a: ExprId, b: ExprId, join: BinaryOp) -> ExprId {
        let both = self.e.binary(join, a, b);
        let otherwise = self.e.select(c.some, both, b);
        self.e.select(c.all, a, otherwise)
    }

    /// The node as it is: it does not depend on query or key.
    pub(super) fn copy(&mut self, id: ExprId) -> ExprId {
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
