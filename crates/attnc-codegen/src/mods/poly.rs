//! Polynomials over indices and lengths as WGSL integers.
//!
//! Addresses are `u32`. Arithmetic modulo 2³² gives the right sum whatever the order of its terms, as long as
//! the sum itself is in range and every quotient is of numbers that are not negative; both hold for every
//! address by construction. Values that may be negative (`kv_idx - q_idx`) are `i32`.
//!
//! `64 * S * d0 + 64 * d1 + d2` prints as `shape.dim_64_S * d0 + 64u * d1 + d2`: a coefficient known only at
//! run time is one field of the uniform struct, computed on the host.

use super::{Body, Mods};
use attnc_ir::dim::Remainder;
use attnc_ir::{Atom, Dim};
use std::collections::BTreeMap;

/// The WGSL type a polynomial is computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Int {
    U32,
    I32,
}

/// What `Dim::index(n)` means in a polynomial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Logical index variables, then clamped ones.
    Logical,
    /// Parameters of the function, then clamped ones; no quotient is of a negative number.
    Parameters,
}

/// What a term is a multiple of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Factor {
    Atom(Atom),
    Remainder(Dim, Dim),
}

type Product = Vec<(Factor, u32)>;

const FLOOR_DIV: &str = "\
// Quotient rounded towards minus infinity, for y > 0.
fn floor_div(x: i32, y: i32) -> i32 {
    return x / y - select(0, 1, x % y < 0);
}
";

impl Mods<'_> {
    /// A polynomial of lengths that is known to start with a positive term.
    pub(super) fn lengths(&mut self, dim: &Dim, int: Int) -> String {
        if let Some(n) = dim.as_const() {
            return match int {
                Int::U32 => format!("{}u", n.rem_euclid(1 << 32)),
                Int::I32 => super::literal::int(n),
            };
        }
        let field = self.field(dim);
        match (int, field.signed) {
            (Int::U32, false) | (Int::I32, true) => format!("shape.{}", field.name),
            (Int::U32, true) => format!("u32(shape.{})", field.name),
            (Int::I32, false) => format!("i32(shape.{})", field.name),
        }
    }
}

impl Body<'_, '_> {
    /// The polynomial as text. Anything but a single operand is to be put in parentheses by the caller where
    /// it stands beside an operator; the flag says so.
    pub(super) fn poly(&mut self, dim: &Dim, int: Int, over: Over) -> (String, bool) {
        if dim.as_const().is_some() {
            return (self.lengths(dim, int), true);
        }
        let mut out = String::new();
        let mut terms = self.terms(dim);
        // A sum that starts with a positive term needs no sign in front.
        if let Some(at) = terms.iter().position(|(_, c)| !is_negative(c)) {
            let first = terms.remove(at);
            terms.insert(0, first);
        }
        let many = terms.len() > 1;
        let mut atom = !many;
        for (product, coefficient) in terms {
            let negative = is_negative(&coefficient);
            let magnitude = if negative { -coefficient } else { coefficient };
            let (text, single) = self.term(&product, &magnitude, int, over);
            atom &= single && !negative;
            out = match (out.is_empty(), negative) {
                (true, false) => text,
                (true, true) => format!("{} - {text}", zero(int)),
                (false, false) => format!("{out} + {text}"),
                (false, true) => format!("{out} - {text}"),
            };
        }
        (out, atom)
    }

    /// Products that have an index in them with their coefficients in lengths alone, the constant last.
    fn terms(&self, dim: &Dim) -> Vec<(Product, Dim)> {
        let (rest, remainders) = dim.take_remainders();
        let mut groups: BTreeMap<Product, Dim> = BTreeMap::new();
        for (coefficient, monomial) in rest.terms() {
            let mut product = Product::new();
            let mut scale = Dim::from(coefficient);
            for (atom, power) in monomial {
                if atom.has_index() {
                    product.push((Factor::Atom(atom.clone()), *power));
                } else {
                    for _ in 0..*power {
                        scale = scale * atom.to_dim();
                    }
                }
            }
            let sum = groups.remove(&product).unwrap_or_default() + scale;
            groups.insert(product, sum);
        }
        for Remainder { scale, of, by } in remainders {
            groups.insert(vec![(Factor::Remainder(of, by), 1)], scale);
        }
        let constant = groups.remove(&Product::new());
        let mut out: Vec<_> = groups.into_iter().filter(|(_, c)| !c.is(0)).collect();
        out.extend(constant.filter(|c| !c.is(0)).map(|c| (Product::new(), c)));
        out
    }

    fn term(&mut self, product: &Product, scale: &Dim, int: Int, over: Over) -> (String, bool) {
        let mut factors = Vec::new();
        if !scale.is(1) || product.is_empty() {
            factors.push(self.lengths(scale, int));
        }
        for (factor, power) in product {
            let text = self.factor(factor, int, over);
            factors.extend(std::iter::repeat_n(text, *power as usize));
        }
        (factors.join(" * "), factors.len() == 1)
    }

    /// A polynomial of lengths that is known to start with a positive term.
    pub(super) fn lengths(&mut self, dim: &Dim, int: Int) -> String {
        self.mods.lengths(dim, int)
    }

    fn factor(&mut self, factor: &Factor, int: Int, over: Over) -> String {
        let text = match factor {
            Factor::Atom(Atom::Index(n)) => self.index(*n, over),
            Factor::Atom(Atom::FloorDiv(a, b)) if self.not_negative(a, b, over) => {
                let (a, b) = (self.operand(a, over), self.operand(b, over));
                self.bind("quotient", format!("{a} / {b}"))
            }
            Factor::Remainder(a, b) if self.not_negative(a, b, over) => {
                let (a, b) = (self.operand(a, over), self.operand(b, over));
                self.bind("remainder", format!("{a} % {b}"))
            }
            signed => return self.signed_factor(signed, int, over),
        };
        match int {
            Int::U32 => text,
            Int::I32 => format!("i32({text})"),
        }
    }

    /// What has to be computed in i32, because its parts may be negative.
    fn signed_factor(&mut self, factor: &Factor, int: Int, over: Over) -> String {
        let mut part = |d: &Dim| self.poly(d, Int::I32, over).0;
        let text = match factor {
            Factor::Atom(Atom::FloorDiv(a, b)) => {
                let call = format!("floor_div({}, {})", part(a), part(b));
                self.mods.helpers.insert(FLOOR_DIV);
                call
            }
            Factor::Remainder(a, b) => {
                let (a, b) = (part(a), part(b));
                self.mods.helpers.insert(FLOOR_DIV);
                format!("({a} - {b} * floor_div({a}, {b}))")
            }
            Factor::Atom(Atom::Max(a, b)) => format!("max({}, {})", part(a), part(b)),
            Factor::Atom(Atom::Min(a, b)) => format!("min({}, {})", part(a), part(b)),
            Factor::Atom(Atom::Sym(_) | Atom::Index(_)) => {
                unreachable!("lengths are coefficients, indices are unsigned")
            }
        };
        match int {
            Int::I32 => text,
            Int::U32 => format!("u32({text})"),
        }
    }

    fn not_negative(&self, a: &Dim, b: &Dim, over: Over) -> bool {
        let extents = self.logical_extents();
        over == Over::Parameters || (a.is_nonneg(&extents) && b.is_nonneg(&extents))
    }

    /// A `u32` polynomial as the operand of an operator that binds tightly.
    fn operand(&mut self, dim: &Dim, over: Over) -> String {
        match self.poly(dim, Int::U32, over) {
            (text, true) => text,
            (text, false) => format!("({text})"),
        }
    }

    /// The `u32` variable of that number.
    fn index(&mut self, n: u32, over: Over) -> String {
        let n = n as usize;
        let variables = match over {
            Over::Logical => self.space.logical.len(),
            Over::Parameters => self.space.parameters.len(),
        };
        if let Some(clamped) = n.checked_sub(variables) {
            return self.clamped[clamped].0.clone();
        }
        if over == Over::Parameters {
            return self.space.parameters[n].0.to_owned();
        }
        let index = self.space.index[n].clone();
        if let Some(parameter) = index.as_index() {
            return self.space.parameters[parameter as usize].0.to_owned();
        }
        if let Some(name) = self.known.get(&format!("d{n}")) {
            return name.clone();
        }
        let (text, single) = self.poly(&index, Int::U32, Over::Parameters);
        if single {
            return text;
        }
        self.statements.push(format!("let d{n} = {text};"));
        self.known.insert(format!("d{n}"), format!("d{n}"));
        format!("d{n}")
    }
}

fn zero(int: Int) -> String {
    match int {
        Int::U32 => "0u".to_owned(),
        Int::I32 => "0i".to_owned(),
    }
}

/// Whether every term is negative, so that the polynomial is better subtracted.
fn is_negative(dim: &Dim) -> bool {
    dim.terms().all(|(c, _)| c < 0)
}
