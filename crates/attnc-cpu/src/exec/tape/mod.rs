//! Scalar expressions as tapes: straight-line code over vectors of lanes.
//!
//! An expression is compiled once for bound lengths. It is evaluated for up to [`CHUNK`] neighbours along
//! the innermost axis at a time, one instruction after another, each a loop over registers that stay in
//! the first-level cache. What does not vary along the innermost axis is computed once a chunk.
//!
//! Invariant: instructions write a register before others read it; a register of a uniform instruction has
//! its value in lane 0. Both branches of a select are computed, so loads clamp their position; a position
//! out of range is an error only if a literal evaluation ([`crate::lazy`]) comes to it.

mod axes;
mod compile;
mod lanes;
mod run;

pub(crate) use run::Scratch;

use super::layout::Layout;
use crate::poly::Poly;
use crate::{Dims, lazy::BoundExpr};
use attnc_ir::scalar::ScalarExpr;
use attnc_ir::{BinaryOp, CompareOp, DType, DimError, UnaryOp};

/// Lanes of a register.
pub(crate) const CHUNK: usize = 512;

/// A compiled expression.
#[derive(Debug, Clone)]
pub(crate) struct Tape {
    code: Vec<Instr>,
    /// Number of registers.
    registers: usize,
    /// Registers that hold one literal for good.
    literals: Vec<(usize, u32)>,
    /// The register of the result, and whether it varies along the innermost axis.
    result: (usize, bool),
    /// Sizes of the axes it is evaluated over; neighbours that behave as one are merged.
    extents: Vec<usize>,
    /// The expression itself, the lengths and the sizes of its own axes, to find a wrong index.
    source: ScalarExpr,
    dims: Dims,
    source_extents: Vec<usize>,
}

/// One instruction.
#[derive(Debug, Clone)]
struct Instr {
    code: Code,
    dst: usize,
    /// Whether the value varies along the innermost axis.
    varies: bool,
}

#[derive(Debug, Clone)]
enum Code {
    Arg,
    Ramp(Affine),
    Poly(Poly),
    Load(Load),
    /// Lane 0 of a register, in every lane.
    Splat(usize),
    Unary(UnaryOp, DType, usize),
    Binary(BinaryOp, DType, [usize; 2]),
    Compare(CompareOp, DType, [usize; 2]),
    Select([usize; 3]),
    Cast(DType, DType, usize),
}

/// `base + slopes · index`.
#[derive(Debug, Clone, Default)]
struct Affine {
    base: i64,
    slopes: Vec<i64>,
}

impl Affine {
    fn at(&self, index: &[i64]) -> i64 {
        index
            .iter()
            .zip(&self.slopes)
            .fold(self.base, |sum, (i, s)| sum + i * s)
    }
}

/// A load from an operand: position `affine + Σ register * stride`.
#[derive(Debug, Clone)]
struct Load {
    operand: usize,
    dtype: DType,
    affine: Affine,
    parts: Vec<Part>,
}

/// An axis of an operand whose index is in a register.
#[derive(Debug, Clone)]
struct Part {
    register: usize,
    varies: bool,
    stride: i64,
    /// Length of the axis where the index comes from data and so may be out of range.
    checked: Option<usize>,
}

impl Tape {
    /// Compiles `expr` over axes of sizes `extents`; `layouts` are those of the operands.
    ///
    /// Where `merge` is set, axes are merged as far as possible and only [`Tape::fill`] and
    /// [`Tape::transform`] may be used.
    pub(crate) fn new(
        expr: &ScalarExpr,
        dims: &Dims,
        extents: &[usize],
        layouts: &[&Layout],
        merge: bool,
    ) -> Result<Self, DimError> {
        compile::compile(expr, dims, extents, layouts, merge)
    }

    /// Whether the value may differ along an axis; for tapes whose axes are not merged.
    pub(crate) fn varies_along(&self, axis: usize) -> bool {
        self.code.iter().any(|instr| match &instr.code {
            Code::Ramp(affine) | Code::Load(Load { affine, .. }) => affine.slopes[axis] != 0,
            Code::Poly(poly) => poly.mentions(axis),
            // The argument is another one for every element.
            Code::Arg => true,
            _ => false,
        })
    }

    fn literal(&self) -> BoundExpr<'_> {
        BoundExpr::new(&self.source, &self.dims)
            .expect("the same lengths bound when it was compiled")
    }

    fn inner(&self) -> usize {
        self.extents.last().copied().unwrap_or(1)
    }
}
