//! Substitution: an expression put into another, with its indices, argument and loads replaced.

use super::builder::ScalarBuilder;
use super::{ExprId, Scalar, ScalarExpr};
use crate::{Atom, BinaryOp, DType, Dim};

/// What a load becomes: from the operand's number, its element type and the index.
pub type LoadFn<'a> = dyn FnMut(&mut ScalarBuilder, usize, DType, Vec<ExprId>) -> ExprId + 'a;

impl ScalarBuilder {
    /// Puts `expr` in here, with index variable `dn` replaced by `indices[n]`, the argument by `arg`, and
    /// each load by what `load` makes of the operand, its type and its (already replaced) index.
    pub fn inline(
        &mut self,
        expr: &ScalarExpr,
        indices: &[ExprId],
        arg: Option<ExprId>,
        load: &mut LoadFn<'_>,
    ) -> ExprId {
        let mut done: Vec<ExprId> = Vec::with_capacity(expr.nodes.len());
        for (node, &dtype) in expr.nodes.iter().zip(&expr.dtypes) {
            let at = |id: ExprId| done[id.index()];
            let new = match node {
                Scalar::Int(d) => self.replace_indices(d, indices),
                Scalar::Float(bits) => self.float(f32::from_bits(*bits)),
                Scalar::Bool(b) => self.bool(*b),
                Scalar::Arg => arg.unwrap_or_else(|| self.arg()),
                Scalar::Load { operand, index } => {
                    let index = index.iter().map(|&i| at(i)).collect();
                    load(self, *operand, dtype, index)
                }
                Scalar::Unary(op, a) => self.unary(*op, at(*a)),
                Scalar::Binary(op, a, b) => self.binary(*op, at(*a), at(*b)),
                Scalar::Compare(op, a, b) => self.compare(*op, at(*a), at(*b)),
                Scalar::Select(c, a, b) => self.select(at(*c), at(*a), at(*b)),
                Scalar::Cast(to, a) => self.cast(*to, at(*a)),
            };
            done.push(new);
        }
        done[expr.root.index()]
    }

    /// The polynomial with `dn` replaced by `indices[n]`: a polynomial where those are, arithmetic on
    /// values where one is not (a gathered index).
    pub fn replace_indices(&mut self, dim: &Dim, indices: &[ExprId]) -> ExprId {
        let used = dim.indices();
        let polys: Vec<Option<Dim>> = indices.iter().map(|&i| self.as_int(i).cloned()).collect();
        if used
            .iter()
            .all(|&n| polys.get(n as usize).is_some_and(Option::is_some))
        {
            let replaced = dim.substitute(&self.extents().clone(), &|atom| match atom {
                Atom::Index(n) => polys[*n as usize].clone(),
                _ => None,
            });
            return self.int(replaced);
        }
        self.arithmetic(dim, indices)
    }

    fn arithmetic(&mut self, dim: &Dim, indices: &[ExprId]) -> ExprId {
        let mut sum: Option<ExprId> = None;
        let terms: Vec<(i64, Vec<(Atom, u32)>)> =
            dim.terms().map(|(c, m)| (c, m.to_vec())).collect();
        for (coeff, mono) in terms {
            let mut term = self.int(coeff);
            for (atom, power) in mono {
                let value = self.atom_value(&atom, indices);
                for _ in 0..power {
                    term = self.binary(BinaryOp::Mul, term, value);
                }
            }
            sum = Some(match sum {
                Some(s) => self.binary(BinaryOp::Add, s, term),
                None => term,
            });
        }
        sum.unwrap_or_else(|| self.int(0))
    }

    fn atom_value(&mut self, atom: &Atom, indices: &[ExprId]) -> ExprId {
        let (op, a, b) = match atom {
            Atom::Index(n) => return indices[*n as usize],
            Atom::Sym(name) => return self.int(Dim::sym(name)),
            // Indices that come from data are clamped to be in range, so floor and truncation agree.
            Atom::FloorDiv(a, b) => (BinaryOp::Div, a, b),
            Atom::Max(a, b) => (BinaryOp::Max, a, b),
            Atom::Min(a, b) => (BinaryOp::Min, a, b),
        };
        let (a, b) = (
            self.replace_indices(a, indices),
            self.replace_indices(b, indices),
        );
        self.binary(op, a, b)
    }
}
