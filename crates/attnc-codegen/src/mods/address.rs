//! Loads: where an operand's element lies in its buffer.
//!
//! The operand's views are polynomials already ([`layout::flat_index`]). Putting the load's index into them
//! and simplifying with the extents gives one polynomial, in which a reshape, a transpose or a merge of axes
//! costs nothing.

use super::poly::{Int, Over};
use super::{Body, literal, vector};
use crate::Stored;
use attnc_ir::scalar::{ExprId, Scalar};
use attnc_ir::{Atom, DType, Diagnostic, Dim, Op, layout};

impl Body<'_, '_> {
    /// An element of operand `operand`, or four; whether the text is a single operand, and whether it is four.
    pub(super) fn load(
        &mut self,
        operand: usize,
        index: &[ExprId],
    ) -> Result<(String, bool, bool), Diagnostic> {
        let value = self.operands[operand];
        if let Some(literal) = self.one_element(value) {
            return Ok((literal, true, false));
        }
        let shape = self.mods.graph.ty(value).shape.clone();
        let mut inside = true;
        let mut index_of_axis = Vec::with_capacity(index.len());
        for (&id, size) in index.iter().zip(&shape) {
            let (poly, proved) = self.axis_index(id, size)?;
            index_of_axis.push(poly);
            inside &= proved;
        }
        let (base, flat) = layout::flat_index(self.mods.graph, value);
        let logical = flat.substitute(&self.address_extents(), &|atom| match atom {
            Atom::Index(n) => Some(index_of_axis[*n as usize].clone()),
            _ => None,
        });
        let address = self.over_parameters(&logical);
        if self.has_element(&address) {
            let (text, single) = self.load_four(base, operand, &index_of_axis, &address, inside)?;
            return Ok((text, single, true));
        }
        let (name, stored) = self.mods.capture(base, operand, &index_of_axis, false)?;
        let (mut text, _) = self.poly(&address, Int::U32, Over::Parameters);
        let last = self.mods.graph.ty(base).elements() - Dim::one();
        if !inside && !last.is_nonneg(&self.logical_extents()) {
            // Clamping to an empty axis leaves no valid index; every buffer has a first element.
            let last = last.maximum(&Dim::zero(), &attnc_ir::Extents::none());
            text = format!("min({text}, {})", self.lengths(&last, Int::U32));
        }
        // A packed element is its word, and which half of it.
        let twice = stored.is_packed() && !text.chars().all(char::is_alphanumeric);
        if text.len() > 40 || twice {
            text = self.bind("at", text);
        }
        Ok((stored.load(&name, &text), stored != Stored::Bool, false))
    }

    /// A constant of one element needs no buffer.
    fn one_element(&mut self, value: attnc_ir::ValueId) -> Option<String> {
        let (base, _) = layout::source_index(self.mods.graph, value);
        let Op::Constant(data) = &self.mods.graph.node(base).op else {
            return None;
        };
        if data.len() != 1 {
            return None;
        }
        let number = data.splat_f64()?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the stored values are of 32 bits"
        )]
        Some(match data.dtype {
            DType::F32 | DType::F16 | DType::BF16 => self.float(number as f32),
            DType::I32 => literal::int(number as i64),
            DType::U32 => format!("{}u", number as i64),
            DType::Bool => (number != 0.0).to_string(),
        })
    }

    /// One index of a load as a polynomial over logical and clamped variables, and whether it is provably
    /// inside `0 <= index < size` without clamping.
    fn axis_index(&mut self, id: ExprId, size: &Dim) -> Result<(Dim, bool), Diagnostic> {
        if size.is(1) {
            return Ok((Dim::zero(), true));
        }
        let text = match self.expr.node(id) {
            Scalar::Int(dim) => {
                let extents = self.logical_extents();
                if dim.is_nonneg(&extents) && dim.is_below(size, &extents) {
                    return Ok((dim.clone(), true));
                }
                let dim = dim.clone();
                if self.has_element(&self.over_parameters(&dim)) {
                    return Ok((self.four_clamped(&dim, size)?, false));
                }
                self.wrapping(&dim)
            }
            _ => {
                let text = self.value(id)?.0;
                if self.varies[id.index()] {
                    return Err(vector::no_form("an index that differs between elements"));
                }
                match self.expr.dtype(id) {
                    DType::U32 => text,
                    _ => format!("u32({text})"),
                }
            }
        };
        let last = self.lengths(&(size.clone() - Dim::one()), Int::U32);
        Ok((
            self.clamped_index(format!("min({text}, {last})"), size),
            false,
        ))
    }

    /// A variable for a clamped index, along an axis of `size`.
    pub(super) fn clamped_index(&mut self, text: String, size: &Dim) -> Dim {
        let name = self.bind("clamped", text);
        let known = self.clamped.iter().position(|(n, _)| *n == name);
        let at = known.unwrap_or_else(|| {
            self.clamped.push((name, size.clone()));
            self.clamped.len() - 1
        });
        let number = u32::try_from(self.space.logical.len() + at).expect("few indices");
        Dim::index(number)
    }

    /// A polynomial that may be negative, as a u32 that then is large.
    fn wrapping(&mut self, dim: &Dim) -> String {
        let quotients = dim.terms().any(|(_, m)| {
            m.iter()
                .any(|(a, _)| !matches!(a, Atom::Sym(_) | Atom::Index(_)))
        });
        if quotients {
            format!("u32({})", self.poly(dim, Int::I32, Over::Logical).0)
        } else {
            self.poly(dim, Int::U32, Over::Logical).0
        }
    }
}
