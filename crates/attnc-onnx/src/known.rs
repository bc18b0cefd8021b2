//! What one walk over a model finds out about its lengths, for the next walk.
//!
//! Exporters write `min(64, seq)` where the model works for no `seq` above 64, and leave numbers of the
//! example they traced in models whose axes they call dynamic. Both show only at some later node, so a walk
//! that ends in contradictions is repeated with what it learned:
//!
//! * its constraints, with which `min` and `max` are decided;
//! * lengths that can have only one value: `72 * seq` elements reshaped to `4 * seq + 4 * seq * seq` say
//!   that `seq` is 17. Such a length is that number from then on, and a note says so.

use crate::Constraint;
use crate::context::DERIVED;
use attnc_ir::{Atom, Dim, Extents};
use std::collections::BTreeMap;

/// What is known about lengths before a walk.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Known {
    pub(crate) constraints: Vec<Constraint>,
    /// Lengths that have one value only.
    pub(crate) fixed: BTreeMap<String, Dim>,
}

impl Known {
    /// The same, with what a walk found; `None` where that is nothing new.
    pub(crate) fn with(
        &self,
        constraints: Vec<Constraint>,
        fixed: BTreeMap<String, Dim>,
    ) -> Option<Self> {
        let mut next = self.clone();
        for (name, value) in fixed {
            next.fixed.entry(name).or_insert(value);
        }
        next.constraints = constraints
            .into_iter()
            .map(|c| Constraint {
                smaller: next.put_in(&c.smaller),
                larger: next.put_in(&c.larger),
                why: c.why,
            })
            .filter(|c| !(c.larger.clone() - c.smaller.clone()).is_nonneg(&Extents::none()))
            .collect();
        (next != *self).then_some(next)
    }

    /// The length with fixed ones replaced by their values.
    pub(crate) fn put_in(&self, dim: &Dim) -> Dim {
        if self.fixed.is_empty() {
            return dim.clone();
        }
        dim.substitute(&Extents::none(), &|atom| match atom {
            Atom::Sym(name) => self.fixed.get(&**name).cloned(),
            _ => None,
        })
    }

    /// The length with every `min` and `max` decided that the constraints decide.
    pub(crate) fn simplify(&self, dim: Dim) -> Dim {
        if self.constraints.is_empty() {
            return dim;
        }
        let mut out = Dim::zero();
        for (coeff, mono) in dim.terms() {
            let mut term = Dim::from(coeff);
            for (atom, power) in mono {
                let value = self.atom(atom);
                for _ in 0..*power {
                    term = term * value.clone();
                }
            }
            out = out + term;
        }
        out
    }

    fn atom(&self, atom: &Atom) -> Dim {
        let none = Extents::none();
        match atom {
            Atom::Sym(name) => Dim::sym(name),
            Atom::Index(n) => Dim::index(*n),
            Atom::FloorDiv(a, b) => self
                .simplify((**a).clone())
                .floor_div(&self.simplify((**b).clone()), &none),
            Atom::Min(a, b) | Atom::Max(a, b) => {
                let (a, b) = (self.simplify((**a).clone()), self.simplify((**b).clone()));
                let min = matches!(atom, Atom::Min(..));
                match (self.at_most(&a, &b), self.at_most(&b, &a)) {
                    (true, _) if min => a,
                    (_, true) if min => b,
                    (true, _) => b,
                    (_, true) => a,
                    _ if min => a.minimum(&b, &none),
                    _ => a.maximum(&b, &none),
                }
            }
        }
    }

    fn at_most(&self, a: &Dim, b: &Dim) -> bool {
        let none = Extents::none();
        let gap = b.clone() - a.clone();
        let follows = |c: &Constraint| {
            (gap.clone() - (c.larger.clone() - c.smaller.clone())).is_nonneg(&none)
        };
        gap.is_nonneg(&none) || self.constraints.iter().any(follows)
    }
}

/// The one length, and its value, for which two lengths that should be equal are; lengths are at least 1.
///
/// A length that follows from data is also what other lengths say it is; whether it is, is checked once the
/// data is there.
pub(crate) fn solve(a: &Dim, b: &Dim) -> Option<(String, Dim)> {
    let mut gap = a.clone() - b.clone();
    // What all terms share is not 0, so it can be divided out.
    for name in gap.symbols() {
        let factor = Dim::sym(&name);
        while let Some(rest) = gap.exact_div(&factor).filter(|_| !gap.is(0)) {
            gap = rest;
        }
    }
    let symbols = gap.symbols();
    if let Some(name) = symbols.iter().rev().find(|name| name.starts_with(DERIVED)) {
        return derived(&gap, name);
    }
    let name = symbols.first().filter(|_| symbols.len() == 1)?;
    let (mut slope, mut offset) = (0i64, 0i64);
    for (coeff, mono) in gap.terms() {
        match mono {
            [] => offset = coeff,
            [(Atom::Sym(_), 1)] => slope = coeff,
            _ => return None,
        }
    }
    let value = offset.checked_neg()?.checked_div(slope)?;
    let exact = value.checked_mul(slope)? == -offset;
    (exact && value >= 1).then(|| (name.to_string(), Dim::from(value)))
}

/// What the length `name` is where `gap` is 0, if it stands there once, by itself.
fn derived(gap: &Dim, name: &str) -> Option<(String, Dim)> {
    let alone = |mono: &[(Atom, u32)]| matches!(mono, [(Atom::Sym(s), 1)] if **s == *name);
    let slope = gap.terms().find(|(_, mono)| alone(mono)).map(|(c, _)| c)?;
    let rest = gap.clone() - Dim::from(slope) * Dim::sym(name);
    let value = (-rest).exact_div(&Dim::from(slope))?;
    let elsewhere = value.symbols().iter().any(|s| **s == *name);
    (!elsewhere).then(|| (name.to_owned(), value))
}

/// What makes two lengths equal, or one of them 1 where `or_one`, by deciding their `min` and `max`:
/// pairs of lengths, the first at most the second.
pub(crate) fn decide(a: &Dim, b: &Dim, or_one: bool) -> Vec<(Dim, Dim)> {
    let fits = |a: &Dim, b: &Dim| a == b || (or_one && (a.is(1) || b.is(1)));
    let (mut a, mut b) = (a.clone(), b.clone());
    let mut decided = Vec::new();
    for _ in 0..MAX_CHOICES {
        let Some(atom) = [&a, &b].into_iter().find_map(first_choice) else {
            break;
        };
        let (Atom::Min(x, y) | Atom::Max(x, y)) = &atom else {
            break;
        };
        let fitting = |by: &Dim| fits(&put(&a, &atom, by), &put(&b, &atom, by));
        let (by, other) = if fitting(x) || !fitting(y) {
            (x, y)
        } else {
            (y, x)
        };
        decided.push(match &atom {
            Atom::Min(..) => ((**by).clone(), (**other).clone()),
            _ => ((**other).clone(), (**by).clone()),
        });
        (a, b) = (put(&a, &atom, by), put(&b, &atom, by));
        if fits(&a, &b) {
            return decided;
        }
    }
    Vec::new()
}

/// Lengths with more choices than this are not looked into.
const MAX_CHOICES: usize = 4;

/// The length with an atom replaced where it is a factor of a term.
fn put(dim: &Dim, atom: &Atom, by: &Dim) -> Dim {
    let mut out = Dim::zero();
    for (coeff, mono) in dim.terms() {
        let mut term = Dim::from(coeff);
        for (factor, power) in mono {
            let value = match factor {
                found if found == atom => by.clone(),
                Atom::Sym(name) => Dim::sym(name),
                Atom::Index(n) => Dim::index(*n),
                Atom::FloorDiv(a, b) => a.floor_div(b, &Extents::none()),
                Atom::Min(a, b) => a.minimum(b, &Extents::none()),
                Atom::Max(a, b) => a.maximum(b, &Extents::none()),
            };
            term = (0..*power).fold(term, |term, _| term * value.clone());
        }
        out = out + term;
    }
    out
}

fn first_choice(dim: &Dim) -> Option<Atom> {
    let atoms = dim.terms().flat_map(|(_, mono)| mono.iter());
    atoms
        .map(|(atom, _)| atom)
        .find(|atom| matches!(atom, Atom::Min(..) | Atom::Max(..)))
        .cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(text: &str) -> Dim {
        text.parse().unwrap()
    }

    #[test]
    fn equations_in_one_length_are_solved() {
        let solved = |a: &str, b: &str| solve(&dim(a), &dim(b));
        assert_eq!(
            solved("72 * B * S", "4 * B * S + 4 * B * S * S"),
            Some(("S".to_owned(), dim("17")))
        );
        assert_eq!(solved("512 * B", "512"), Some(("B".to_owned(), dim("1"))));
        assert_eq!(solved("B * S", "B"), Some(("S".to_owned(), dim("1"))));
        assert_eq!(solved("2 * S", "3"), None);
        assert_eq!(solved("S", "T"), None);
        assert_eq!(solved("S + 4", "2"), None);
        assert_eq!(
            solved("8 * data_length_1", "8 * data_length_0 + 8 * S"),
            Some(("data_length_1".to_owned(), dim("data_length_0 + S")))
        );
        assert_eq!(solved("S", "S"), None);
        assert_eq!(solved("7", "8"), None);
    }

    #[test]
    fn choices_are_decided_so_that_lengths_fit() {
        let decided = |a: &str, b: &str| decide(&dim(a), &dim(b), true);
        // A table of 64 cut to the last S entries.
        assert_eq!(
            decided("S", "64 - max(0, 64 - S)"),
            [(dim("0"), dim("64 - S"))]
        );
        assert_eq!(
            decided("S", "1 - max(0, 1 - S)"),
            [(dim("1 - S"), dim("0"))]
        );
        assert_eq!(decided("S", "min(T, S)"), [(dim("S"), dim("T"))]);
        assert_eq!(decided("S", "min(T, 2 * S)"), []);
        assert_eq!(decided("S", "T"), []);
    }

    #[test]
    fn constraints_decide_which_is_smaller() {
        let known = Known::default()
            .with(
                vec![Constraint {
                    smaller: dim("S"),
                    larger: dim("64"),
                    why: String::new(),
                }],
                BTreeMap::new(),
            )
            .unwrap();
        assert_eq!(known.simplify(dim("2 * min(64, S) + 1")), dim("2 * S + 1"));
        assert_eq!(known.simplify(dim("max(70, S)")), dim("70"));
        assert_eq!(known.simplify(dim("min(32, S)")), dim("min(32, S)"));
    }
}
