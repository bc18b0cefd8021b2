//! Remainders: `a mod b` is written `a - b * floordiv(a, b)`, and found again here.

use super::{Atom, Dim, Extents};

/// `scale * (of mod by)`, where `scale` is a polynomial of lengths alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remainder {
    /// The factor in front.
    pub scale: Dim,
    /// What is divided.
    pub of: Dim,
    /// What it is divided by.
    pub by: Dim,
}

impl Dim {
    /// Takes out `c * (a - b * floordiv(a, b))`, which is `c * (a mod b)`, as often as it occurs whole with an
    /// index variable in it: what is left, and the remainders.
    ///
    /// ```
    /// # use attnc_ir::Dim;
    /// let dim: Dim = "d0 - 8 * floordiv(d0, 8) + d1".parse().unwrap();
    /// let (rest, remainders) = dim.take_remainders();
    /// assert_eq!(rest, Dim::index(1));
    /// assert_eq!((&remainders[0].of, &remainders[0].by), (&Dim::index(0), &Dim::from(8)));
    /// ```
    #[must_use]
    pub fn take_remainders(&self) -> (Self, Vec<Remainder>) {
        let mut rest = self.clone();
        let mut found = Vec::new();
        while let Some((left, remainder)) = rest.first_remainder() {
            rest = left;
            found.push(remainder);
        }
        (rest, found)
    }

    fn first_remainder(&self) -> Option<(Self, Remainder)> {
        self.terms().find_map(|(coefficient, monomial)| {
            let quotients = monomial.iter().filter(|(a, _)| a.has_index());
            let [(Atom::FloorDiv(of, by), 1)] = quotients.collect::<Vec<_>>()[..] else {
                return None;
            };
            let scale: Self = monomial
                .iter()
                .filter(|(a, _)| !a.has_index())
                .flat_map(|(a, power)| std::iter::repeat_n(a.to_dim(), *power as usize))
                .fold(Self::from(-coefficient), |acc, d| acc * d);
            let scale = scale.exact_div(by)?;
            let quotient = Atom::FloorDiv(of.clone(), by.clone()).to_dim();
            let left = self.clone() + scale.clone() * (**by).clone() * quotient
                - scale.clone() * (**of).clone();
            let whole = left.terms().count() + 1 + of.terms().count() <= self.terms().count();
            let remainder = Remainder {
                scale,
                of: (**of).clone(),
                by: (**by).clone(),
            };
            whole.then_some((left, remainder))
        })
    }
}

impl Atom {
    /// The polynomial that is this atom.
    #[must_use]
    pub fn to_dim(&self) -> Dim {
        let none = Extents::none();
        match self {
            Self::Sym(name) => Dim::sym(name),
            Self::Index(n) => Dim::index(*n),
            Self::FloorDiv(a, b) => a.floor_div(b, &none),
            Self::Max(a, b) => a.maximum(b, &none),
            Self::Min(a, b) => a.minimum(b, &none),
        }
    }
}
