//! Four neighbouring elements at once.
//!
//! A load of a vector costs little more than that of one element (measured on lavapipe: 1.7 times for four), and
//! a GPU reads whole lines of its cache this way. So where rows are contiguous and a multiple of 4 long, functions
//! are printed for four elements: `vec4<f32>` where the scalar text has `f32`.
//!
//! ```wgsl
//! @group(1) @binding(0) var<storage, read> x: array<vec4<f32>>;
//! @group(1) @binding(1) var<storage, read> row_scale: array<f32>;
//!
//! // element: x[d0, d1] * row_scale[d0]; i counts vectors
//! fn element(i: u32) -> vec4<f32> {
//!     return x[i] * row_scale[i / 96u];
//! }
//! ```
//!
//! What does not differ between the four stays a number, and is made a vector where WGSL wants both sides alike.
//! A load is one of a vector if its address is a multiple of 4 plus the number of the element, four loads if the
//! address is any other affine function of that number. Indices that are compared may have the number of the
//! element in them where the comparison comes out the same for all four: `d3 < 32` does.
//!
//! On entry: a space made by [`IndexSpace::cover_vectors`]. On exit: a function of four elements, or the error
//! `no-vector-form`, for which the caller prints the function of one element.

use super::expr::Text;
use super::poly::{Int, Over};
use super::{Body, IndexSpace};
use crate::Stored;
use crate::stored::multiple_of;
use attnc_ir::scalar::ExprId;
use attnc_ir::{Atom, CompareOp, DType, Diagnostic, Dim, Extents, UnaryOp, ValueId};

/// Why an expression has no form for four elements.
pub(super) fn no_form(what: &str) -> Diagnostic {
    Diagnostic::error(
        "no-vector-form",
        format!("{what} has no form for four elements"),
    )
}

/// The WGSL type of four values.
pub(super) fn four(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => "vec4<f32>",
        DType::I32 => "vec4<i32>",
        DType::U32 => "vec4<u32>",
        DType::Bool => "vec4<bool>",
    }
}

impl IndexSpace {
    /// The variable that says which of the four an element is, as one that is clamped: it stands behind the
    /// parameters and is below 4. Nothing that is printed may have it.
    pub(super) fn elements(&self) -> Vec<(String, Dim)> {
        let element = || ("element".to_owned(), Dim::from(4));
        self.vectors.then(element).into_iter().collect()
    }
}

impl Body<'_, '_> {
    /// The variable of [`IndexSpace::elements`], in polynomials over parameters.
    fn element(&self) -> u32 {
        u32::try_from(self.space.parameters.len()).expect("few parameters")
    }

    /// Whether a polynomial over parameters differs between the four elements.
    pub(super) fn has_element(&self, dim: &Dim) -> bool {
        self.space.vectors && dim.indices().contains(&self.element())
    }

    /// A value as four equal ones if it does not differ.
    pub(super) fn spread(&self, id: ExprId, text: String) -> String {
        if self.varies[id.index()] {
            return text;
        }
        format!("{}({text})", four(self.expr.dtype(id)))
    }

    /// A value as a vector if one of `others` is.
    pub(super) fn alike(&self, id: ExprId, text: String, others: &[ExprId]) -> String {
        if others.iter().any(|o| self.varies[o.index()]) {
            return self.spread(id, text);
        }
        text
    }

    /// An operation on four values; what WGSL has no function for is computed one by one.
    pub(super) fn unary_of_four(
        &mut self,
        op: UnaryOp,
        dtype: DType,
        operand: &str,
        x: String,
    ) -> Result<Text, Diagnostic> {
        let float = dtype.is_float();
        let call = |name: &str| Ok((format!("{name}({x})"), true));
        match op {
            UnaryOp::Neg if dtype != DType::Bool => Ok((format!("-{operand}"), false)),
            UnaryOp::Not if dtype == DType::Bool => Ok((format!("!{operand}"), true)),
            UnaryOp::Reciprocal if float => Ok((format!("1.0 / {operand}"), false)),
            UnaryOp::Relu if float => Ok((format!("max({x}, vec4<f32>())"), true)),
            UnaryOp::Abs | UnaryOp::Sign if float => call(op.name()),
            UnaryOp::Sqrt | UnaryOp::Exp | UnaryOp::Log if float => call(op.name()),
            UnaryOp::Sin | UnaryOp::Cos if float => call(op.name()),
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round if float => call(op.name()),
            UnaryOp::Rsqrt if float => call("inverseSqrt"),
            _ => {
                let function = self.function_of(op).filter(|_| float);
                let f = function.ok_or_else(|| no_form(op.name()))?;
                let x = self.bind("v", x);
                Ok((
                    format!("vec4<f32>({f}({x}.x), {f}({x}.y), {f}({x}.z), {f}({x}.w))"),
                    true,
                ))
            }
        }
    }

    /// A comparison of sums of indices in which elements have their number: the same for all four, or an error.
    ///
    /// With everything else a multiple of 4, `4 a + n < 4 b` for n below 4 is `4 a < 4 b`.
    pub(super) fn compare_four(
        &mut self,
        op: CompareOp,
        symbol: &str,
        x: &Dim,
        y: &Dim,
    ) -> Result<Option<String>, Diagnostic> {
        let (x, y) = (self.over_parameters(x), self.over_parameters(y));
        let (on_left, on_right) = (self.has_element(&x), self.has_element(&y));
        if !on_left && !on_right {
            return Ok(None);
        }
        let refused = || no_form("a comparison that differs between elements");
        let element = self.element();
        let mut sides = [x, y].map(|side| side.split_index(element));
        let [Some((dx, x)), Some((dy, y))] = &mut sides else {
            return Err(refused());
        };
        let settled = match op {
            CompareOp::Lt | CompareOp::Ge => dx.is(1) && dy.is(0),
            CompareOp::Le | CompareOp::Gt => dx.is(0) && dy.is(1),
            CompareOp::Eq | CompareOp::Ne => false,
        };
        if !settled || !multiple_of(x, 4) || !multiple_of(y, 4) {
            return Err(refused());
        }
        let (x, y) = (x.clone(), y.clone());
        let (left, _) = self.poly(&x, Int::U32, Over::Parameters);
        let (right, _) = self.poly(&y, Int::U32, Over::Parameters);
        Ok(Some(format!("{left} {symbol} {right}")))
    }

    /// An index along an axis of `size` that four elements have, of which the first is clamped so that all four
    /// are inside.
    pub(super) fn four_clamped(&mut self, dim: &Dim, size: &Dim) -> Result<Dim, Diagnostic> {
        let quotients = dim.terms().any(|(_, monomial)| {
            let mut atoms = monomial.iter();
            atoms.any(|(atom, _)| !matches!(atom, Atom::Sym(_) | Atom::Index(_)))
        });
        let split = self.over_parameters(dim).split_index(self.element());
        let (Some((step, first)), false) = (split, quotients) else {
            return Err(no_form("an index with quotients"));
        };
        let four = Dim::from(4);
        let vectors = (first.exact_div(&four), size.exact_div(&four));
        let ((Some(first), Some(size)), true) = (vectors, step.is(1)) else {
            return Err(no_form("an index beside vectors"));
        };
        let last = size.clone() - Dim::one();
        if !last.is_nonneg(&Extents::none()) {
            return Err(no_form("an index into an axis that may be empty"));
        }
        // Below 0 it wraps to a large number.
        let (text, _) = self.poly(&first, Int::U32, Over::Parameters);
        let last = self.lengths(&last, Int::U32);
        let clamped = self.clamped_index(format!("min({text}, {last})"), &size);
        let element = u32::try_from(self.space.logical.len()).expect("few indices");
        Ok(four * clamped + Dim::index(element))
    }

    /// Four elements, at an address that has the number of the element in it.
    pub(super) fn load_four(
        &mut self,
        base: ValueId,
        operand: usize,
        index: &[Dim],
        address: &Dim,
        inside: bool,
    ) -> Result<Text, Diagnostic> {
        let ty = self.mods.graph.ty(base).clone();
        let Some((step, first)) = address.split_index(self.element()) else {
            return Err(no_form("an address that is not affine"));
        };
        if !inside && !(ty.elements() - Dim::one()).is_nonneg(&self.logical_extents()) {
            return Err(no_form("a load from what may be empty"));
        }
        if step.is(1) && multiple_of(&first, 4) {
            let (name, stored) = self.mods.capture(base, operand, index, true)?;
            let vector = first.exact_div(&Dim::from(4)).expect("a multiple of 4");
            let (mut text, _) = self.poly(&vector, Int::U32, Over::Parameters);
            if text.len() > 40 {
                text = self.bind("at", text);
            }
            return Ok((stored.load_vec4(&name, &text), stored != Stored::Bool));
        }
        let (name, stored) = self.mods.capture(base, operand, index, false)?;
        if stored.is_packed() {
            return Err(no_form("a packed tensor read across its rows"));
        }
        let (first, _) = self.poly(&first, Int::U32, Over::Parameters);
        let first = self.bind("at", first);
        let step = match self.poly(&step, Int::U32, Over::Parameters) {
            (text, true) => text,
            (text, false) => format!("({text})"),
        };
        let loads = [
            first.clone(),
            format!("{first} + {step}"),
            format!("{first} + 2u * {step}"),
            format!("{first} + 3u * {step}"),
        ];
        let loads = loads.map(|at| stored.load(&name, &at));
        Ok((format!("{}({})", four(ty.dtype), loads.join(", ")), true))
    }
}
