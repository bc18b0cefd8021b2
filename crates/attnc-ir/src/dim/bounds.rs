//! What can be proved about a [`Dim`] from the ranges of its atoms.
//!
//! Lengths are at least 0; index variable `dn` runs over `0 <= dn < extent(n)`. Where an element of an
//! expression is computed at all, every extent is at least 1, and that is used too.
//!
//! `floordiv(x, d)`: the part of `x` that `d` divides is taken out; what is left is dropped where it is
//! provably in `[0, d)`. That rule alone turns every reshape of a reshape back into plain indices.

use super::{Atom, Dim, floor_div_i64};

/// The extents of index variables `d0, d1, …`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extents(Vec<Dim>);

impl Extents {
    /// No index variables.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Index variable `n` runs below `extents[n]`.
    #[must_use]
    pub fn new(extents: Vec<Dim>) -> Self {
        Self(extents)
    }

    /// The extent of index variable `n`, if known.
    #[must_use]
    pub fn get(&self, n: u32) -> Option<&Dim> {
        self.0.get(n as usize)
    }

    /// All of them, in order.
    #[must_use]
    pub fn dims(&self) -> &[Dim] {
        &self.0
    }

    /// Lengths known to be at least 1, because an index runs below them.
    fn at_least_one(&self, name: &str) -> bool {
        self.0.iter().any(|d| d.as_sym() == Some(name))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Low,
    High,
}

impl Side {
    fn flip_if(self, negative: bool) -> Self {
        match (self, negative) {
            (s, false) => s,
            (Self::Low, true) => Self::High,
            (Self::High, true) => Self::Low,
        }
    }
}

impl Dim {
    /// Whether this is at least 0 for every value of its atoms.
    #[must_use]
    pub fn is_nonneg(&self, ext: &Extents) -> bool {
        let Some(low) = self.bound(Side::Low, ext) else {
            return false;
        };
        let shifted = if low.symbols().iter().any(|s| ext.at_least_one(s)) {
            low.substitute(&Extents::none(), &|atom| match atom {
                Atom::Sym(s) if ext.at_least_one(s) => Some(Self::atom(atom.clone()) + Self::one()),
                _ => None,
            })
        } else {
            low
        };
        shifted
            .terms
            .iter()
            .all(|(mono, c)| *c >= 0 && mono.iter().all(|(a, _)| a.is_nonneg(ext)))
    }

    /// Whether `self < other` always.
    #[must_use]
    pub fn is_below(&self, other: &Self, ext: &Extents) -> bool {
        (other.clone() - self.clone() - Self::one()).is_nonneg(ext)
    }

    /// The least or greatest value as a polynomial in lengths alone, index variables at their ends.
    fn bound(&self, side: Side, ext: &Extents) -> Option<Self> {
        let mut out = Self::zero();
        for (mono, coeff) in &self.terms {
            // A term of lengths alone is its own bound. (Simplifying its quotients again would take time
            // exponential in how deep they nest.)
            if !mono.iter().any(|(atom, _)| atom.has_index()) {
                out.add_term(mono.clone(), *coeff);
                continue;
            }
            let side = side.flip_if(*coeff < 0);
            let mut term = Self::from(*coeff);
            for (atom, power) in mono {
                let value = match atom {
                    Atom::Sym(_) => Self::atom(atom.clone()),
                    Atom::Index(_) if side == Side::Low => Self::zero(),
                    Atom::Index(n) => ext.get(*n)?.clone() - Self::one(),
                    Atom::FloorDiv(a, b) if b.indices().is_empty() => {
                        if mono.len() > 1 && !a.is_nonneg(ext) {
                            return None;
                        }
                        a.bound(side, ext)?.floor_div(b, &Extents::none())
                    }
                    Atom::FloorDiv(..) => return None,
                    Atom::Max(a, b) => a
                        .bound(side, ext)?
                        .maximum(&b.bound(side, ext)?, &Extents::none()),
                    Atom::Min(a, b) => a
                        .bound(side, ext)?
                        .minimum(&b.bound(side, ext)?, &Extents::none()),
                };
                for _ in 0..*power {
                    term = term * value.clone();
                }
            }
            out = out + term;
        }
        Some(out)
    }

    /// `floor(self / divisor)`, simplified as far as the extents prove.
    #[must_use]
    pub fn floor_div(&self, divisor: &Self, ext: &Extents) -> Self {
        if divisor.is(1) || self.is(0) {
            return self.clone();
        }
        if let (Some(a), Some(b)) = (self.as_const(), divisor.as_const())
            && b != 0
        {
            return Self::from(floor_div_i64(a, b));
        }
        // Where the divisor is 0 no element exists to ask for the quotient.
        if let Some(exact) = self.exact_div(divisor) {
            return exact;
        }
        let (whole, rest) = self.split_multiple(divisor);
        if rest.is_nonneg(ext) && rest.is_below(divisor, ext) {
            return whole;
        }
        whole
            + match rest.without_common_factor(divisor, ext) {
                Some((rest, divisor)) => rest.floor_div(&divisor, ext),
                None => rest.nested_floor_div(divisor),
            }
    }

    /// `floordiv(g * x + r, g * d)` is `floordiv(x, d)` where `0 <= r < g`: gives `x` and `d`, for a
    /// divisor of one term and the first factor `g` it shares with a term of `self` for which that holds.
    fn without_common_factor(&self, divisor: &Self, ext: &Extents) -> Option<(Self, Self)> {
        let mut terms = divisor.terms.iter();
        let ((mono, coeff), None) = (terms.next()?, terms.next()) else {
            return None;
        };
        self.terms.iter().find_map(|(m, c)| {
            let shared: Vec<(Atom, u32)> = m
                .iter()
                .filter_map(|(atom, p)| {
                    let (_, q) = mono.iter().find(|(a, _)| a == atom)?;
                    Some((atom.clone(), *p.min(q)))
                })
                .collect();
            let number = gcd(c.unsigned_abs(), coeff.unsigned_abs());
            let factor = Self::term(shared, i64::try_from(number).ok()?);
            if factor.is(1) || factor == *divisor {
                return None;
            }
            let (whole, rest) = self.split_multiple(&factor);
            let bounded = rest.is_nonneg(ext) && rest.is_below(&factor, ext);
            bounded.then(|| Some((whole, divisor.exact_div(&factor)?)))?
        })
    }

    /// `floordiv(floordiv(x, a), b)` is `floordiv(x, a * b)` for positive `a`, `b`.
    fn nested_floor_div(&self, divisor: &Self) -> Self {
        if let Some(Atom::FloorDiv(inner, by)) = self.as_atom() {
            let product = (**by).clone() * divisor.clone();
            return Self::atom(Atom::FloorDiv(inner.clone(), Box::new(product)));
        }
        Self::atom(Atom::FloorDiv(
            Box::new(self.clone()),
            Box::new(divisor.clone()),
        ))
    }

    /// `self = whole * divisor + rest`, with in `whole` every term the divisor divides exactly.
    fn split_multiple(&self, divisor: &Self) -> (Self, Self) {
        let (mut whole, mut rest) = (Self::zero(), Self::zero());
        for (mono, coeff) in &self.terms {
            if let Some(q) = Self::term(mono.clone(), *coeff).exact_div(divisor) {
                whole = whole + q;
                continue;
            }
            // 13 * x / 4: take 3 * x out, leave x.
            match divisor.as_const() {
                Some(d) if d > 0 && coeff.unsigned_abs() >= d.unsigned_abs() => {
                    let q = floor_div_i64(*coeff, d);
                    whole = whole + Self::term(mono.clone(), q);
                    rest.add_term(mono.clone(), coeff.rem_euclid(d));
                }
                _ => rest.add_term(mono.clone(), *coeff),
            }
        }
        (whole, rest)
    }

    /// `self mod divisor`, the remainder with the sign of the divisor.
    #[must_use]
    pub fn modulo(&self, divisor: &Self, ext: &Extents) -> Self {
        self.clone() - divisor.clone() * self.floor_div(divisor, ext)
    }

    /// `ceil(self / divisor)` for positive divisors.
    #[must_use]
    pub fn ceil_div(&self, divisor: &Self, ext: &Extents) -> Self {
        (self.clone() + divisor.clone() - Self::one()).floor_div(divisor, ext)
    }

    /// The larger of two, simplified where one provably is.
    #[must_use]
    pub fn maximum(&self, other: &Self, ext: &Extents) -> Self {
        if (self.clone() - other.clone()).is_nonneg(ext) {
            self.clone()
        } else if (other.clone() - self.clone()).is_nonneg(ext) {
            other.clone()
        } else {
            let (a, b) = if self <= other {
                (self, other)
            } else {
                (other, self)
            };
            Self::atom(Atom::Max(Box::new(a.clone()), Box::new(b.clone())))
        }
    }

    /// The smaller of two, simplified where one provably is.
    #[must_use]
    pub fn minimum(&self, other: &Self, ext: &Extents) -> Self {
        if (self.clone() - other.clone()).is_nonneg(ext) {
            other.clone()
        } else if (other.clone() - self.clone()).is_nonneg(ext) {
            self.clone()
        } else {
            let (a, b) = if self <= other {
                (self, other)
            } else {
                (other, self)
            };
            Self::atom(Atom::Min(Box::new(a.clone()), Box::new(b.clone())))
        }
    }
}

impl Atom {
    /// Whether an index variable is in it.
    #[must_use]
    pub fn has_index(&self) -> bool {
        let in_dim = |d: &Dim| {
            let mut atoms = d.terms.iter().flat_map(|(mono, _)| mono);
            atoms.any(|(atom, _)| atom.has_index())
        };
        match self {
            Self::Sym(_) => false,
            Self::Index(_) => true,
            Self::FloorDiv(a, b) | Self::Max(a, b) | Self::Min(a, b) => in_dim(a) || in_dim(b),
        }
    }

    fn is_nonneg(&self, ext: &Extents) -> bool {
        match self {
            Self::Sym(_) | Self::Index(_) => true,
            Self::FloorDiv(a, b) => a.is_nonneg(ext) && b.is_nonneg(ext),
            Self::Max(a, b) => a.is_nonneg(ext) || b.is_nonneg(ext),
            Self::Min(a, b) => a.is_nonneg(ext) && b.is_nonneg(ext),
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(text: &str) -> Dim {
        text.parse().unwrap()
    }

    #[test]
    fn reshape_of_a_reshape_gives_the_index_back() {
        // (b * H + h) over extents B, 12: divided by 12 it is b, modulo 12 it is h.
        let ext = Extents::new(vec![dim("B"), dim("12")]);
        let flat = dim("12 * d0 + d1");
        assert_eq!(flat.floor_div(&dim("12"), &ext), dim("d0"));
        assert_eq!(flat.modulo(&dim("12"), &ext), dim("d1"));
    }

    #[test]
    fn symbolic_extents_work_as_numbers_do() {
        let ext = Extents::new(vec![dim("B"), dim("S"), dim("64")]);
        let flat = dim("64 * S * d0 + 64 * d1 + d2");
        assert_eq!(flat.floor_div(&dim("64 * S"), &ext), dim("d0"));
        assert_eq!(flat.floor_div(&dim("64"), &ext), dim("S * d0 + d1"));
        assert_eq!(
            flat.floor_div(&dim("64"), &ext).modulo(&dim("S"), &ext),
            dim("d1")
        );
    }

    #[test]
    fn rows_split_out_of_a_flat_axis_are_seen_through() {
        // [34, 32] as [2, 17, 32]: row and column of the flat position come back as one affine index.
        let ext = Extents::new(vec![dim("34"), dim("32")]);
        let flat = dim("32 * d0 + d1");
        assert_eq!(flat.floor_div(&dim("544"), &ext), dim("floordiv(d0, 17)"));
        assert_eq!(
            flat.floor_div(&dim("544"), &ext) * dim("544")
                + flat.floor_div(&dim("32"), &ext).modulo(&dim("17"), &ext) * dim("32")
                + flat.modulo(&dim("32"), &ext),
            flat
        );
        let ext = Extents::new(vec![dim("B * S"), dim("32")]);
        assert_eq!(flat.floor_div(&dim("32 * S"), &ext), dim("floordiv(d0, S)"));
    }

    #[test]
    fn what_cannot_be_proved_stays() {
        let ext = Extents::new(vec![dim("S")]);
        assert_eq!(
            dim("d0 + 1").floor_div(&dim("S"), &ext).to_string(),
            "floordiv(d0 + 1, S)"
        );
        assert!(!dim("S - 2").is_nonneg(&ext));
        assert!(dim("S - 1").is_nonneg(&ext));
        assert!(dim("S - 1 - d0").is_nonneg(&ext));
        assert!(!dim("d0 - 1").is_nonneg(&ext));
    }

    #[test]
    fn max_and_min_fold_where_one_side_wins() {
        let none = Extents::none();
        assert_eq!(dim("P + S").maximum(&dim("S"), &none), dim("P + S"));
        assert_eq!(dim("P + S").minimum(&dim("S"), &none), dim("S"));
        assert_eq!(dim("S").maximum(&dim("1"), &none).to_string(), "max(1, S)");
    }
}
