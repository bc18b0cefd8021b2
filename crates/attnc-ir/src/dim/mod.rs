//! Symbolic integers: the lengths of tensors and the index arithmetic over them.
//!
//! A [`Dim`] is a polynomial with integer coefficients over *atoms*: run-time lengths (`B`, `S`), the
//! index variables of a scalar expression (`d0`, `d1`), and the few operations that leave the ring
//! (`floordiv`, `max`, `min`). `mod(a, b)` is written `a - b * floordiv(a, b)`, so that the usual
//! cancellations (`a / n * n + a % n = a`) are plain polynomial arithmetic.
//!
//! ```
//! use attnc_ir::Dim;
//! let b = Dim::sym("B");
//! let s = Dim::sym("S");
//! let flat = b.clone() * s.clone() * Dim::from(32);
//! assert_eq!(flat.exact_div(&Dim::from(32)), Some(b * s));
//! assert_eq!("P + S".parse::<Dim>().unwrap().to_string(), "P + S");
//! ```
//!
//! Invariant: terms sorted by monomial, each once, no zero coefficients, factors of a monomial sorted, so
//! equal polynomials are equal values.
//! Arithmetic saturates at the ends of `i64`; sizes are refused long before that.

mod bounds;
mod ops;
mod parse;
mod print;
mod remainder;

pub use bounds::Extents;
pub use remainder::Remainder;

use std::collections::BTreeSet;
use std::sync::Arc;

/// What a polynomial is made of. Every atom but `FloorDiv`, `Max` and `Min` of negative numbers is >= 0.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// A length known at run time; at least 0.
    Sym(Arc<str>),
    /// Index variable `d<n>` of a scalar expression; at least 0 and below its extent.
    Index(u32),
    /// Quotient rounded towards minus infinity.
    FloorDiv(Box<Dim>, Box<Dim>),
    /// The larger of two.
    Max(Box<Dim>, Box<Dim>),
    /// The smaller of two.
    Min(Box<Dim>, Box<Dim>),
}

/// A product of powers of atoms, sorted; empty for the constant term.
type Monomial = Vec<(Atom, u32)>;

/// A polynomial over [`Atom`]s with integer coefficients.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim {
    /// Nearly always one to four, so a sorted list beats a tree.
    terms: Vec<(Monomial, i64)>,
}

/// Why a [`Dim`] has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DimError {
    /// A run-time length was not given.
    #[error("length `{0}` has no value")]
    Unbound(String),
    /// An index variable stands where only lengths may.
    #[error("index variable d{0} has no value here")]
    Index(u32),
    /// The value does not fit 63 bits.
    #[error("`{0}` is too large")]
    Overflow(String),
    /// A quotient by zero.
    #[error("`{0}` divides by zero")]
    DivisionByZero(String),
}

impl Dim {
    /// Zero.
    #[must_use]
    pub fn zero() -> Self {
        Self::default()
    }

    /// One.
    #[must_use]
    pub fn one() -> Self {
        Self::from(1)
    }

    /// The run-time length called `name`.
    #[must_use]
    pub fn sym(name: &str) -> Self {
        Self::atom(Atom::Sym(name.into()))
    }

    /// Index variable `d<n>`.
    #[must_use]
    pub fn index(n: u32) -> Self {
        Self::atom(Atom::Index(n))
    }

    fn atom(atom: Atom) -> Self {
        Self::term(vec![(atom, 1)], 1)
    }

    /// One term; the coefficient is not 0.
    fn term(mono: Monomial, coeff: i64) -> Self {
        Self {
            terms: vec![(mono, coeff)],
        }
    }

    /// The coefficient of the constant term, which is the first of the terms.
    fn constant(&self) -> Option<i64> {
        match self.terms.first() {
            Some((mono, coeff)) if mono.is_empty() => Some(*coeff),
            _ => None,
        }
    }

    /// The value, if this is a constant.
    #[must_use]
    pub fn as_const(&self) -> Option<i64> {
        match self.terms.len() {
            0 => Some(0),
            1 => self.constant(),
            _ => None,
        }
    }

    /// Whether this is the constant `n`.
    #[must_use]
    pub fn is(&self, n: i64) -> bool {
        self.as_const() == Some(n)
    }

    /// The name, if this is one run-time length and nothing else.
    #[must_use]
    pub fn as_sym(&self) -> Option<&str> {
        match self.as_atom()? {
            Atom::Sym(name) => Some(name),
            _ => None,
        }
    }

    /// The number of the index variable, if this is one and nothing else.
    #[must_use]
    pub fn as_index(&self) -> Option<u32> {
        match self.as_atom()? {
            Atom::Index(n) => Some(*n),
            _ => None,
        }
    }

    /// The atom, if this is one atom and nothing else.
    #[must_use]
    pub fn as_atom(&self) -> Option<&Atom> {
        match self.terms.as_slice() {
            [(mono, 1)] => match mono.as_slice() {
                [(atom, 1)] => Some(atom),
                _ => None,
            },
            _ => None,
        }
    }

    /// The terms: each a coefficient and the factors of its monomial, constant term first.
    pub fn terms(&self) -> impl Iterator<Item = (i64, &[(Atom, u32)])> {
        self.terms.iter().map(|(m, c)| (*c, m.as_slice()))
    }

    /// The run-time lengths that occur, also inside quotients.
    #[must_use]
    pub fn symbols(&self) -> BTreeSet<Arc<str>> {
        let mut out = BTreeSet::new();
        self.visit_atoms(&mut |a| {
            if let Atom::Sym(s) = a {
                out.insert(s.clone());
            }
        });
        out
    }

    /// The index variables that occur, also inside quotients.
    #[must_use]
    pub fn indices(&self) -> BTreeSet<u32> {
        let mut out = BTreeSet::new();
        self.visit_atoms(&mut |a| {
            if let Atom::Index(n) = a {
                out.insert(*n);
            }
        });
        out
    }

    fn visit_atoms(&self, f: &mut dyn FnMut(&Atom)) {
        for (atom, _) in self.terms.iter().flat_map(|(mono, _)| mono) {
            f(atom);
            match atom {
                Atom::FloorDiv(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                    a.visit_atoms(f);
                    b.visit_atoms(f);
                }
                Atom::Sym(_) | Atom::Index(_) => {}
            }
        }
    }

    /// `self / divisor` where the division is exact for every value of the atoms, else `None`.
    ///
    /// Exact polynomial division by the leading monomial, as in any textbook.
    #[must_use]
    pub fn exact_div(&self, divisor: &Self) -> Option<Self> {
        let (lead, lead_coeff) = divisor.leading()?;
        if divisor.terms.len() == 1 {
            let mut quotient = Self::zero();
            for (mono, coeff) in &self.terms {
                if coeff.checked_rem(*lead_coeff)? != 0 {
                    return None;
                }
                quotient.add_term(div_monomial(mono, lead)?, coeff / lead_coeff);
            }
            return Some(quotient);
        }
        let (mut rest, mut quotient) = (self.clone(), Self::zero());
        // Each round removes the leading term of `rest`; the bound only guards against a bug.
        for _ in 0..=64 {
            let Some((mono, coeff)) = rest.leading() else {
                return Some(quotient);
            };
            if coeff.checked_rem(*lead_coeff)? != 0 {
                return None;
            }
            let term = Self::term(div_monomial(mono, lead)?, coeff / lead_coeff);
            rest = rest - term.clone() * divisor.clone();
            quotient = quotient + term;
        }
        None
    }

    /// The leading term in the lexicographic order of powers, which multiplying keeps; the order of the
    /// terms is another.
    fn leading(&self) -> Option<&(Monomial, i64)> {
        self.terms.iter().max_by(|(a, _), (b, _)| {
            let differ = a.iter().zip(b).find(|(x, y)| x != y);
            match differ {
                Some(((x, p), (y, q))) => y.cmp(x).then(p.cmp(q)),
                None => a.len().cmp(&b.len()),
            }
        })
    }

    /// Replaces atoms: `f` gives the polynomial for a symbol or an index variable, or `None` to keep it.
    /// Quotients are rebuilt, and simplified where `ext` allows.
    #[must_use]
    pub fn substitute(&self, ext: &Extents, f: &dyn Fn(&Atom) -> Option<Self>) -> Self {
        let mut out = Self::zero();
        for (mono, coeff) in &self.terms {
            let mut term = Self::from(*coeff);
            for (atom, power) in mono {
                let value = match atom {
                    Atom::Sym(_) | Atom::Index(_) => {
                        f(atom).unwrap_or_else(|| Self::atom(atom.clone()))
                    }
                    Atom::FloorDiv(a, b) => {
                        a.substitute(ext, f).floor_div(&b.substitute(ext, f), ext)
                    }
                    Atom::Max(a, b) => a.substitute(ext, f).maximum(&b.substitute(ext, f), ext),
                    Atom::Min(a, b) => a.substitute(ext, f).minimum(&b.substitute(ext, f), ext),
                };
                for _ in 0..*power {
                    term = term * value.clone();
                }
            }
            out = out + term;
        }
        out
    }

    /// The coefficient of index variable `n`, and the rest, if this is affine in it.
    #[must_use]
    pub fn split_index(&self, n: u32) -> Option<(Self, Self)> {
        let (mut coeff, mut rest) = (Self::zero(), Self::zero());
        for (mono, c) in &self.terms {
            match mono.iter().position(|(a, _)| *a == Atom::Index(n)) {
                Some(at) if mono[at].1 == 1 => {
                    let mut left = mono.clone();
                    left.remove(at);
                    coeff.add_term(left, *c);
                }
                Some(_) => return None,
                None => rest.add_term(mono.clone(), *c),
            }
        }
        let hidden = coeff.indices().contains(&n) || rest.indices().contains(&n);
        (!hidden).then_some((coeff, rest))
    }

    /// The value, with `lookup` giving the run-time lengths.
    ///
    /// # Errors
    /// Where a length is missing, the value does not fit an `i64`, or a divisor is zero.
    pub fn eval(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> Result<i64, DimError> {
        self.eval_with(&|atom| match atom {
            Atom::Sym(name) => lookup(name).ok_or_else(|| DimError::Unbound(name.to_string())),
            Atom::Index(n) => Err(DimError::Index(*n)),
            _ => unreachable!("eval_with asks for symbols and indices only"),
        })
    }

    /// The value, with `leaf` giving the run-time lengths and the index variables.
    ///
    /// # Errors
    /// As [`Dim::eval`], and whatever `leaf` says.
    pub fn eval_with(
        &self,
        leaf: &dyn Fn(&Atom) -> Result<i64, DimError>,
    ) -> Result<i64, DimError> {
        let overflow = || DimError::Overflow(self.to_string());
        let mut sum = 0i64;
        for (mono, coeff) in &self.terms {
            let mut term = *coeff;
            for (atom, power) in mono {
                let value = match atom {
                    Atom::FloorDiv(a, b) => {
                        let (a, b) = (a.eval_with(leaf)?, b.eval_with(leaf)?);
                        if b == 0 {
                            return Err(DimError::DivisionByZero(self.to_string()));
                        }
                        floor_div_i64(a, b)
                    }
                    Atom::Max(a, b) => a.eval_with(leaf)?.max(b.eval_with(leaf)?),
                    Atom::Min(a, b) => a.eval_with(leaf)?.min(b.eval_with(leaf)?),
                    leaf_atom => leaf(leaf_atom)?,
                };
                for _ in 0..*power {
                    term = term.checked_mul(value).ok_or_else(overflow)?;
                }
            }
            sum = sum.checked_add(term).ok_or_else(overflow)?;
        }
        Ok(sum)
    }

    fn add_term(&mut self, mono: Monomial, coeff: i64) {
        match self.terms.binary_search_by(|(m, _)| m.cmp(&mono)) {
            Ok(at) => {
                let sum = self.terms[at].1.saturating_add(coeff);
                if sum == 0 {
                    self.terms.remove(at);
                } else {
                    self.terms[at].1 = sum;
                }
            }
            Err(at) if coeff != 0 => self.terms.insert(at, (mono, coeff)),
            Err(_) => {}
        }
    }
}

/// Quotient rounded towards minus infinity; `b` is not 0.
#[must_use]
pub fn floor_div_i64(a: i64, b: i64) -> i64 {
    let q = a.saturating_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) {
        q - 1
    } else {
        q
    }
}

fn position(mono: &[(Atom, u32)], atom: &Atom) -> Result<usize, usize> {
    mono.binary_search_by(|(a, _)| a.cmp(atom))
}

fn div_monomial(mono: &Monomial, by: &Monomial) -> Option<Monomial> {
    let divides =
        |(atom, power): &(Atom, u32)| position(mono, atom).is_ok_and(|at| mono[at].1 >= *power);
    if !by.iter().all(divides) {
        return None;
    }
    let left = mono.iter().filter_map(|(atom, power)| {
        let taken = position(by, atom).map_or(0, |at| by[at].1);
        (*power > taken).then(|| (atom.clone(), power - taken))
    });
    Some(left.collect())
}

fn mul_monomial(a: &Monomial, b: &Monomial) -> Monomial {
    let mut out = a.clone();
    for (atom, power) in b {
        match position(&out, atom) {
            Ok(at) => out[at].1 += power,
            Err(at) => out.insert(at, (atom.clone(), *power)),
        }
    }
    out
}
