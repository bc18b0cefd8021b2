//! The scalar form of a node: how an element of its result is computed from elements of its operands.
//!
//! Views change the index, pointwise ops compute, data ops choose. What has no scalar form is what
//! kernels are written for: reductions, contractions, attention.

use super::{ExprId, ScalarBuilder, ScalarExpr};
use crate::{Atom, BinaryOp, CompareOp, DType, Dim, Extents, Graph, Op, PadMode, Shape, ValueId};

/// The scalar form of the node that computes `value`, loads referring to its operands by number; `None` for
/// inputs, weights and what kernels are written for. A constant of one repeated value is that literal.
#[must_use]
pub fn of_node(graph: &Graph, value: ValueId) -> Option<ScalarExpr> {
    let node = graph.node(value);
    if node.epilogue.is_some() {
        return None;
    }
    if let Op::Map { expr, .. } = &node.op {
        return Some(expr.clone());
    }
    let operands: Vec<_> = node.operands().iter().map(|&o| graph.ty(o)).collect();
    let mut form = Form {
        e: ScalarBuilder::new(Extents::new(node.ty.shape.clone())),
        operands,
        shape: &node.ty.shape,
    };
    let root = form.node(&node.op)?;
    Some(form.e.finish(root))
}

/// Whether [`of_node`] gives a form, without making it.
#[must_use]
pub fn has_form(graph: &Graph, value: ValueId) -> bool {
    let node = graph.node(value);
    if node.epilogue.is_some() {
        return false;
    }
    match &node.op {
        Op::Iota { .. } | Op::Length(_) | Op::Map { .. } => true,
        Op::Concat { .. } | Op::Pad { .. } | Op::Gather { .. } | Op::GatherElements { .. } => true,
        Op::GatherNd { .. } => {
            let indices = &graph.ty(node.operands()[1]).shape;
            indices.last().is_some_and(|d| d.as_const().is_some())
        }
        Op::Constant(data) => data.splat_f64().is_some(),
        op => op.is_view() || op.is_pointwise(),
    }
}

/// For a view: the index into its operand as polynomials over `d0, d1, …` of the result.
#[must_use]
pub fn load_indices(op: &Op, from: &[Dim], to: &[Dim]) -> Option<Vec<Dim>> {
    let ext = Extents::new(to.to_vec());
    let index = |n: usize| Dim::index(u32::try_from(n).expect("few axes"));
    Some(match op {
        Op::Reshape(_) => {
            let linear = to
                .iter()
                .enumerate()
                .fold(Dim::zero(), |acc, (n, d)| acc * d.clone() + index(n));
            unravel(&linear, from, &ext)
        }
        Op::Transpose(perm) => {
            let mut out = vec![Dim::zero(); perm.len()];
            for (n, &p) in perm.iter().enumerate() {
                out[p] = index(n);
            }
            out
        }
        Op::Broadcast(_) => {
            let skip = to.len() - from.len();
            from.iter()
                .enumerate()
                .map(|(n, d)| {
                    if d.is(1) {
                        Dim::zero()
                    } else {
                        index(n + skip)
                    }
                })
                .collect()
        }
        Op::Slice {
            axis, start, step, ..
        } => (0..to.len())
            .map(|n| {
                if n == *axis {
                    start.clone() + index(n) * Dim::from(*step)
                } else {
                    index(n)
                }
            })
            .collect(),
        _ => return None,
    })
}

/// Row-major position `linear` as one index an axis.
fn unravel(linear: &Dim, shape: &[Dim], ext: &Extents) -> Vec<Dim> {
    let mut out = vec![Dim::zero(); shape.len()];
    let mut stride = Dim::one();
    for (n, dim) in shape.iter().enumerate().rev() {
        let quotient = linear.floor_div(&stride, ext);
        // The outermost axis needs no modulo, and an axis of length 1 has index 0.
        let outermost = shape[..n].iter().all(|d| d.is(1));
        out[n] = match (dim.is(1), outermost) {
            (true, _) => Dim::zero(),
            (false, true) => quotient,
            (false, false) => quotient.modulo(dim, ext),
        };
        stride = stride * dim.clone();
    }
    out
}

struct Form<'a> {
    e: ScalarBuilder,
    operands: Vec<&'a crate::TensorType>,
    shape: &'a Shape,
}

impl Form<'_> {
    fn node(&mut self, op: &Op) -> Option<ExprId> {
        Some(match op {
            Op::Reshape(_) | Op::Transpose(_) | Op::Broadcast(_) | Op::Slice { .. } => {
                let index = load_indices(op, &self.operands[0].shape, self.shape)?;
                let index = index.into_iter().map(|d| self.e.int(d)).collect();
                self.load(0, index)
            }
            Op::Unary(op) => {
                let a = self.element(0);
                self.e.unary(*op, a)
            }
            Op::Binary(op) => {
                let (a, b) = (self.element(0), self.element(1));
                self.e.binary(*op, a, b)
            }
            Op::Compare(op) => {
                let (a, b) = (self.element(0), self.element(1));
                self.e.compare(*op, a, b)
            }
            Op::Where => {
                let (c, a, b) = (self.element(0), self.element(1), self.element(2));
                self.e.select(c, a, b)
            }
            Op::Cast(to) => {
                let a = self.element(0);
                self.e.cast(*to, a)
            }
            Op::Iota {
                axis, start, step, ..
            } => {
                let n = u32::try_from(*axis).ok()?;
                self.e.int(start.clone() + Dim::index(n) * step.clone())
            }
            Op::Length(dim) => self.e.int(dim.clone()),
            Op::Constant(data) => {
                let value = data.splat_f64()?;
                self.e.literal(data.dtype, value)
            }
            Op::Concat { axis } => self.concat(*axis),
            Op::Pad { before, mode, .. } => self.pad(before, *mode),
            Op::Gather { axis } => self.gather(*axis),
            Op::GatherElements { axis } => self.gather_elements(*axis),
            Op::GatherNd { batch_dims } => self.gather_nd(*batch_dims)?,
            _ => return None,
        })
    }

    fn load(&mut self, operand: usize, index: Vec<ExprId>) -> ExprId {
        self.e.load(operand, self.operands[operand].dtype, index)
    }

    /// The operand's element at the result's index, broadcast.
    fn element(&mut self, operand: usize) -> ExprId {
        let from = self.operands[operand].shape.clone();
        let skip = self.shape.len() - from.len();
        let index = from
            .iter()
            .enumerate()
            .map(|(n, d)| {
                if d.is(1) {
                    self.e.int(0)
                } else {
                    self.axis(n + skip)
                }
            })
            .collect();
        self.load(operand, index)
    }

    fn axis(&mut self, n: usize) -> ExprId {
        self.e.index(u32::try_from(n).expect("few axes"))
    }

    fn concat(&mut self, axis: usize) -> ExprId {
        let mut starts = Vec::new();
        let mut end = Dim::zero();
        for operand in &self.operands {
            starts.push(end.clone());
            end = end + operand.shape[axis].clone();
        }
        let at = self.axis(axis);
        let mut out: Option<ExprId> = None;
        for (operand, start) in starts.iter().enumerate().rev() {
            let mut index = self.e.indices();
            let start = self.e.int(start.clone());
            index[axis] = self.e.binary(BinaryOp::Sub, at, start);
            let part = self.load(operand, index);
            out = Some(match out {
                None => part,
                Some(later) => {
                    let end = self.e.int(starts[operand + 1].clone());
                    let here = self.e.compare(CompareOp::Lt, at, end);
                    self.e.select(here, part, later)
                }
            });
        }
        out.expect("concat has operands")
    }

    fn pad(&mut self, before: &[Dim], mode: PadMode) -> ExprId {
        let from = self.operands[0].shape.clone();
        let mut inside = self.e.bool(true);
        let mut index = Vec::new();
        for (n, (start, size)) in before.iter().zip(&from).enumerate() {
            let start = self.e.int(start.clone());
            let at = self.axis(n);
            let at = self.e.binary(BinaryOp::Sub, at, start);
            let (zero, last) = (self.e.int(0), self.e.int(size.clone() - Dim::one()));
            index.push(match mode {
                PadMode::Constant(_) => {
                    let end = self.e.int(size.clone());
                    let (low, high) = (
                        self.e.compare(CompareOp::Ge, at, zero),
                        self.e.compare(CompareOp::Lt, at, end),
                    );
                    inside = self.e.binary(BinaryOp::And, inside, low);
                    inside = self.e.binary(BinaryOp::And, inside, high);
                    at
                }
                PadMode::Edge => {
                    let at = self.e.binary(BinaryOp::Max, at, zero);
                    self.e.binary(BinaryOp::Min, at, last)
                }
                PadMode::Reflect => {
                    let negative = self.e.unary(crate::UnaryOp::Neg, at);
                    let at = self.e.binary(BinaryOp::Max, at, negative);
                    let twice = self.e.int((size.clone() - Dim::one()) * Dim::from(2));
                    let back = self.e.binary(BinaryOp::Sub, twice, at);
                    self.e.binary(BinaryOp::Min, at, back)
                }
            });
        }
        let value = self.load(0, index);
        match mode {
            PadMode::Constant(fill) => {
                let dtype = self.e.dtype(value);
                let fill = self.e.literal(dtype, fill);
                self.e.select(inside, value, fill)
            }
            PadMode::Edge | PadMode::Reflect => value,
        }
    }

    /// An index from data: negative ones count from the end. Polynomials known to be in range stay.
    fn wrap_index(&mut self, index: ExprId, size: &Dim) -> ExprId {
        let index = self.e.cast(DType::I32, index);
        if self
            .e
            .as_int(index)
            .is_some_and(|d| d.is_nonneg(self.e.extents()))
        {
            return index;
        }
        let (zero, size) = (self.e.int(0), self.e.int(size.clone()));
        let negative = self.e.compare(CompareOp::Lt, index, zero);
        let wrapped = self.e.binary(BinaryOp::Add, index, size);
        self.e.select(negative, wrapped, index)
    }

    fn gather(&mut self, axis: usize) -> ExprId {
        let rank = self.operands[1].rank();
        let index = (axis..axis + rank).map(|n| self.axis(n)).collect();
        let at = self.load(1, index);
        let size = self.operands[0].shape[axis].clone();
        let at = self.wrap_index(at, &size);
        let mut index = self.e.indices();
        index.splice(axis..axis + rank, [at]);
        self.load(0, index)
    }

    fn gather_elements(&mut self, axis: usize) -> ExprId {
        let mut index = self.e.indices();
        let at = self.load(1, index.clone());
        let size = self.operands[0].shape[axis].clone();
        index[axis] = self.wrap_index(at, &size);
        self.load(0, index)
    }

    fn gather_nd(&mut self, batch_dims: usize) -> Option<ExprId> {
        let indices = self.operands[1].shape.clone();
        let count = usize::try_from(indices.last()?.as_const()?).ok()?;
        let lead: Vec<_> = (0..indices.len() - 1).map(|n| self.axis(n)).collect();
        let mut index: Vec<_> = lead[..batch_dims].to_vec();
        for n in 0..count {
            let mut at = lead.clone();
            at.push(self.e.int(n));
            let at = self.load(1, at);
            let size = self.operands[0].shape[batch_dims + n].clone();
            index.push(self.wrap_index(at, &size));
        }
        index.extend((lead.len()..self.shape.len()).map(|n| self.axis(n)));
        Some(self.load(0, index))
    }
}

impl Dim {
    /// Whether this is an index variable plus lengths only, with no quotient: cheap to compute.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.terms().all(|(_, mono)| {
            mono.iter()
                .all(|(a, _)| matches!(a, Atom::Sym(_) | Atom::Index(_)))
        })
    }
}
