//! Guards around probabilities, which attention makes needless.
//!
//! ```text
//! select(isnan(p), 0.0, p)                            PyTorch's safe softmax
//! select(max over keys of bias == -inf, 0.0, p)       the body of ONNX's Attention function
//! ```
//!
//! Both put zeros where a row has no key and the softmax is NaN. Attention gives zeros there by definition, so
//! that a guard may go where its condition holds for rows without a key only. For the second that is so if the
//! score is a sum of which `bias` is a term: where all of its elements are -inf, so are all scores. It is also
//! so if no element of `bias` can be -inf, since the maximum of no elements is the only one left.

use super::structure::step_through;
use crate::extract::{Extractor, Step};
use attnc_ir::scalar::{ExprId, Scalar, ScalarBuilder, ScalarExpr};
use attnc_ir::{BinaryOp, CompareOp, Dim, Extents, Graph, Op, ReduceOp, UnaryOp, ValueId};

/// An expression of a probability (`arg`), as the product with V reads it.
pub(super) struct Guarded<'a> {
    pub(super) graph: &'a Graph,
    pub(super) softmax: ValueId,
    pub(super) e: &'a ScalarBuilder,
    /// The values that the expression loads.
    pub(super) loads: &'a [ValueId],
    /// Where the probability is read.
    pub(super) read: &'a [ExprId],
}

impl Guarded<'_> {
    /// The expression without guards, also where more is done with the probability.
    pub(super) fn strip_all(&self, root: ExprId) -> ScalarExpr {
        let mut e = self.e.clone();
        let root = self.rebuilt(&mut e, root);
        e.finish(root)
    }

    fn rebuilt(&self, e: &mut ScalarBuilder, id: ExprId) -> ExprId {
        let id = self.strip(id);
        let mut of = |id| self.rebuilt(e, id);
        match *self.e.node(id) {
            Scalar::Unary(op, a) => {
                let a = of(a);
                e.unary(op, a)
            }
            Scalar::Binary(op, a, b) => {
                let (a, b) = (of(a), of(b));
                e.binary(op, a, b)
            }
            Scalar::Compare(op, a, b) => {
                let (a, b) = (of(a), of(b));
                e.compare(op, a, b)
            }
            Scalar::Select(c, a, b) => {
                let (c, a, b) = (of(c), of(a), of(b));
                e.select(c, a, b)
            }
            Scalar::Cast(dtype, a) => {
                let a = of(a);
                e.cast(dtype, a)
            }
            Scalar::Int(_)
            | Scalar::Float(_)
            | Scalar::Bool(_)
            | Scalar::Arg
            | Scalar::Load { .. } => id,
        }
    }

    /// What is inside the guards.
    fn strip(&self, root: ExprId) -> ExprId {
        let Scalar::Select(condition, a, b) = *self.e.node(root) else {
            return root;
        };
        if self.e.as_float(a) == Some(0.0) && (self.is_nan(condition) || self.is_dead(condition)) {
            return self.strip(b);
        }
        root
    }

    /// Whether the probability is not a number.
    fn is_nan(&self, condition: ExprId) -> bool {
        let Scalar::Unary(UnaryOp::IsNan, of) = *self.e.node(condition) else {
            return false;
        };
        *self.e.node(self.strip(of)) == Scalar::Arg
    }

    /// Whether a row without a key is the only one whose largest bias is -inf, if that is the condition.
    fn is_dead(&self, condition: ExprId) -> bool {
        let Scalar::Compare(CompareOp::Eq, a, b) = *self.e.node(condition) else {
            return false;
        };
        let infinite = |id| self.e.as_float(id) == Some(f32::NEG_INFINITY);
        let largest = match (infinite(a), infinite(b)) {
            (false, true) => a,
            (true, false) => b,
            _ => return false,
        };
        let Scalar::Load { operand, index } = self.e.node(largest) else {
            return false;
        };
        let Some((bias, index)) = self.reduced(self.loads[*operand], index) else {
            return false;
        };
        self.is_never_infinite(bias) || self.is_term(bias, &index)
    }

    /// The tensor of which `max` is the largest element over the keys, and the index of the element that
    /// belongs to a score, over the softmax's index.
    fn reduced(&self, max: ValueId, index: &[ExprId]) -> Option<(ValueId, Vec<Dim>)> {
        let shape = &self.graph.ty(self.softmax).shape;
        let is_plain = |(n, &i): (usize, &ExprId)| {
            let dim = self.e.as_int(i)?;
            (axis(n) == *dim || dim.is(0) && shape[n].is(1)).then_some(())
        };
        // The probability is read at its own index: both indices are over the same axes.
        self.read
            .iter()
            .enumerate()
            .map(is_plain)
            .collect::<Option<()>>()?;
        let node = self.graph.node(max);
        let Op::Reduce {
            op: ReduceOp::Max,
            axes,
            keep_dims,
        } = &node.op
        else {
            return None;
        };
        let [reduced] = **axes else { return None };
        let mut index: Vec<Dim> = index
            .iter()
            .map(|&i| self.e.as_int(i).cloned())
            .collect::<Option<_>>()?;
        let key = axis(shape.len() - 1);
        if *keep_dims {
            index[reduced] = key;
        } else {
            index.insert(reduced, key);
        }
        Some((node.operands()[0], index))
    }

    /// Whether every element is one finite number.
    fn is_never_infinite(&self, bias: ValueId) -> bool {
        let shape = self.graph.ty(bias).shape.clone();
        let mut e = ScalarBuilder::new(Extents::new(shape));
        let index = e.indices();
        let element = Extractor::new(self.graph, 0).element(&mut e, bias, index, &mut |_, v, _| {
            step_through(self.graph, v)
        });
        e.as_float(element).is_some_and(f32::is_finite)
    }

    /// Whether the score is a sum, one of whose terms is this element.
    fn is_term(&self, bias: ValueId, index: &[Dim]) -> bool {
        let shape = self.graph.ty(self.softmax).shape.clone();
        let scores = self.graph.node(self.softmax).operands()[0];
        let mut e = ScalarBuilder::new(Extents::new(shape));
        let mut extractor = Extractor::new(self.graph, 0);
        let at = e.indices();
        let root = extractor.element(&mut e, scores, at, &mut |_, v, _| {
            if v == bias {
                Step::Load
            } else {
                step_through(self.graph, v)
            }
        });
        let operand = extractor.loads.iter().position(|&v| v == bias);
        operand.is_some_and(|operand| has_term(&e, root, operand, index))
    }
}

fn axis(n: usize) -> Dim {
    Dim::index(u32::try_from(n).expect("few axes"))
}

/// Whether a sum is -inf, or NaN, wherever this element of an operand is -inf.
fn has_term(e: &ScalarBuilder, id: ExprId, operand: usize, index: &[Dim]) -> bool {
    let has = |id| has_term(e, id, operand, index);
    match e.node(id) {
        Scalar::Load {
            operand: loaded,
            index: at,
        } => *loaded == operand && at.iter().map(|&i| e.as_int(i)).eq(index.iter().map(Some)),
        Scalar::Binary(BinaryOp::Add, a, b) => has(*a) || has(*b),
        Scalar::Cast(dtype, a) => dtype.is_float() && has(*a),
        _ => false,
    }
}
