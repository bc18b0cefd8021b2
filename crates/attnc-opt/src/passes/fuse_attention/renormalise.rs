//! Weights that are divided by their own sum: the division is by one number a row, so it may wait.
//!
//! ```text
//! %w = mul %p, %keep                  %v1 = pad %v (columns of ones)
//! %s = reduce_sum %w (over keys)      %o1 = attention .., %v1, prob_mod = { prob * %keep[..] }
//! %n = div %w, %s                     %o  = %o1[.., d] / %o1[.., D]
//! %o = matmul %n, %v
//! ```
//!
//! `Σ (w / r) v = (Σ w v) / r`, and the sum of the weights is what a column of ones in V gives.
//!
//! On exit nothing of the attention's result depends on a table of probabilities.

use super::mods::over_heads;
use super::structure::Structure;
use attnc_ir::scalar::{ExprId, Scalar, ScalarBuilder, ScalarExpr};
use attnc_ir::{
    BinaryOp, DType, Diagnostic, Dim, Extents, Graph, Op, PadMode, ReduceOp, TensorType, ValueId,
};

/// What is done with a row once it is summed.
#[derive(Clone)]
pub(super) struct Rows {
    /// From `Σ weights v` (`arg`), over batch and query.
    pub(super) expr: ScalarExpr,
    /// The operand whose loads stand for `Σ weights`.
    pub(super) sum: usize,
}

/// What a sum over keys adds up, if the value is one.
pub(super) fn summed(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let node = graph.node(value);
    let Op::Reduce {
        op: ReduceOp::Sum,
        axes,
        ..
    } = &node.op
    else {
        return None;
    };
    let weights = node.operands()[0];
    (axes.as_slice() == [graph.ty(weights).rank() - 1]).then_some(weights)
}

/// The expression `root` of weights with `weights` replaced by the argument, if what is done with them is the
/// same for the whole row: factors that depend on neither key nor probability. `operand` is their sum, which
/// is read at its own row only.
pub(super) fn rows(
    e: &mut ScalarBuilder,
    root: ExprId,
    weights: ExprId,
    operand: usize,
) -> Option<ExprId> {
    if root == weights {
        return Some(e.arg());
    }
    let (op, a, b) = match *e.node(root) {
        Scalar::Binary(op @ (BinaryOp::Mul | BinaryOp::Div), a, b) => (op, a, b),
        _ => return None,
    };
    if is_row(e, b, operand)
        && let Some(a) = rows(e, a, weights, operand)
    {
        return Some(e.binary(op, a, b));
    }
    if op == BinaryOp::Mul && is_row(e, a, operand) {
        let b = rows(e, b, weights, operand)?;
        return Some(e.binary(op, a, b));
    }
    None
}

/// Whether a value is one number for all keys of a row, and reads the sum of the same row only.
fn is_row(e: &ScalarBuilder, id: ExprId, operand: usize) -> bool {
    let axes = u32::try_from(e.extents().dims().len()).expect("few axes");
    match e.node(id) {
        Scalar::Arg => false,
        Scalar::Int(dim) => !dim.indices().contains(&(axes - 1)),
        Scalar::Load { operand: o, index } if *o == operand => {
            (0..axes - 1).zip(index).all(|(n, &i)| {
                let same = e.as_int(i) == Some(&Dim::index(n));
                let only =
                    e.extents().dims()[n as usize].is(1) && e.as_int(i) == Some(&Dim::zero());
                same || only
            })
        }
        node => node.operands().iter().all(|&o| is_row(e, o, operand)),
    }
}

/// V with columns of ones behind it.
pub(super) fn with_ones(graph: &mut Graph, v: ValueId) -> Result<ValueId, Diagnostic> {
    let width = &graph.ty(v).shape[3];
    // Rows of whole vectors stay that.
    let ones = match width.as_const() {
        Some(n) if n % 4 == 0 => 4,
        _ => 1,
    };
    let after = vec![Dim::zero(), Dim::zero(), Dim::zero(), Dim::from(ones)];
    let before = vec![Dim::zero(); 4];
    let mode = PadMode::Constant(1.0);
    graph.apply(
        Op::Pad {
            before,
            after,
            mode,
        },
        &[v],
    )
}

impl Rows {
    /// The result from that of the attention, whose values had columns of ones behind `width` others.
    pub(super) fn apply(
        &self,
        graph: &mut Graph,
        found: &Structure,
        fused: ValueId,
        width: &Dim,
    ) -> Result<ValueId, Diagnostic> {
        let TensorType { dtype, mut shape } = graph.ty(fused).clone();
        shape[3] = width.clone();
        let expr = over_heads(found, &self.expr);
        let used: Vec<usize> = expr
            .loaded_operands()
            .into_iter()
            .filter(|&n| n != self.sum)
            .collect();
        let mut e = ScalarBuilder::new(Extents::new(shape.clone()));
        let index = e.indices();
        let sum = e.load(0, DType::F32, index.clone());
        let mut ones = index.clone();
        ones[3] = e.int(width.clone());
        let weights = e.load(0, DType::F32, ones);
        let root = e.inline(
            &expr,
            &index,
            Some(sum),
            &mut |e, operand, dtype, index| match used.iter().position(|&n| n == operand) {
                Some(n) => e.load(1 + n, dtype, index),
                None => weights,
            },
        );
        let mut operands = vec![fused];
        operands.extend(used.iter().map(|&n| found.captured[n]));
        let expr = e.finish(root);
        graph.apply(Op::Map { expr, shape, dtype }, &operands)
    }
}
