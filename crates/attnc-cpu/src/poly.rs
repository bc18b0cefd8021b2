//! Index polynomials with their lengths filled in: what a [`Dim`] over index variables is at run time.
//!
//! `d0 * S + d1` at `S = 7` is `7 * d0 + d1`. Values are i64 and wrap; sizes are refused long before that.

use crate::Dims;
use attnc_ir::dim::floor_div_i64;
use attnc_ir::{Atom, Dim, DimError};

/// A polynomial over index variables.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Poly {
    constant: i64,
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Term {
    coeff: i64,
    /// At least one; repeated for powers.
    factors: Vec<Factor>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Factor {
    Index(usize),
    FloorDiv(Poly, Poly),
    Max(Poly, Poly),
    Min(Poly, Poly),
}

impl Factor {
    fn value(&self, index: &[i64]) -> i64 {
        match self {
            Self::Index(n) => index[*n],
            Self::FloorDiv(a, b) => match b.eval(index) {
                // Only over an empty axis, or in the branch of a select that is not taken: any value does.
                0 => 0,
                b => floor_div_i64(a.eval(index), b),
            },
            Self::Max(a, b) => a.eval(index).max(b.eval(index)),
            Self::Min(a, b) => a.eval(index).min(b.eval(index)),
        }
    }

    fn parts(&self) -> Option<(&Poly, &Poly)> {
        match self {
            Self::Index(_) => None,
            Self::FloorDiv(a, b) | Self::Max(a, b) | Self::Min(a, b) => Some((a, b)),
        }
    }
}

impl Poly {
    /// The polynomial with the values of `dims` for its lengths.
    pub(crate) fn bind(dim: &Dim, dims: &Dims) -> Result<Self, DimError> {
        let mut out = Self {
            constant: 0,
            terms: Vec::new(),
        };
        for (coeff, mono) in dim.terms() {
            let mut term = Term {
                coeff,
                factors: Vec::new(),
            };
            for (atom, power) in mono {
                for _ in 0..*power {
                    term.push(atom, dims)?;
                }
            }
            if term.factors.is_empty() {
                out.constant = out.constant.wrapping_add(term.coeff);
            } else {
                out.terms.push(term);
            }
        }
        Ok(out)
    }

    /// The value at an index.
    pub(crate) fn eval(&self, index: &[i64]) -> i64 {
        self.terms.iter().fold(self.constant, |sum, term| {
            let product = term
                .factors
                .iter()
                .fold(term.coeff, |p, f| p.wrapping_mul(f.value(index)));
            sum.wrapping_add(product)
        })
    }

    /// The value, where no index variable occurs.
    pub(crate) fn as_const(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// Constant and one coefficient an axis, where it is affine.
    pub(crate) fn as_affine(&self, rank: usize) -> Option<(i64, Vec<i64>)> {
        let mut slopes = vec![0i64; rank];
        for term in &self.terms {
            match term.factors.as_slice() {
                [Factor::Index(n)] => slopes[*n] += term.coeff,
                _ => return None,
            }
        }
        Some((self.constant, slopes))
    }

    /// Whether index variable `n` occurs.
    pub(crate) fn mentions(&self, n: usize) -> bool {
        self.terms.iter().flat_map(|t| &t.factors).any(|f| {
            *f == Factor::Index(n)
                || f.parts()
                    .is_some_and(|(a, b)| a.mentions(n) || b.mentions(n))
        })
    }

    /// The polynomial with index variables renumbered; those that `f` gives no number are 0.
    pub(crate) fn renumber(&self, f: &dyn Fn(usize) -> Option<usize>) -> Self {
        let mut out = Self {
            constant: self.constant,
            terms: Vec::new(),
        };
        'terms: for term in &self.terms {
            let mut new = Term {
                coeff: term.coeff,
                factors: Vec::new(),
            };
            for factor in &term.factors {
                new.factors.push(match factor {
                    Factor::Index(n) => match f(*n) {
                        Some(n) => Factor::Index(n),
                        None => continue 'terms,
                    },
                    Factor::FloorDiv(a, b) => Factor::FloorDiv(a.renumber(f), b.renumber(f)),
                    Factor::Max(a, b) => Factor::Max(a.renumber(f), b.renumber(f)),
                    Factor::Min(a, b) => Factor::Min(a.renumber(f), b.renumber(f)),
                });
            }
            out.terms.push(new);
        }
        out
    }
}

impl Term {
    fn push(&mut self, atom: &Atom, dims: &Dims) -> Result<(), DimError> {
        let both = |a: &Dim, b: &Dim| Ok((Poly::bind(a, dims)?, Poly::bind(b, dims)?));
        let factor = match atom {
            Atom::Sym(name) => {
                let value = dims
                    .get(&**name)
                    .ok_or_else(|| DimError::Unbound(name.to_string()))?;
                self.coeff = self.coeff.wrapping_mul(*value);
                return Ok(());
            }
            Atom::Index(n) => Factor::Index(*n as usize),
            Atom::FloorDiv(a, b) => {
                let (a, b) = both(a, b)?;
                Factor::FloorDiv(a, b)
            }
            Atom::Max(a, b) => {
                let (a, b) = both(a, b)?;
                Factor::Max(a, b)
            }
            Atom::Min(a, b) => {
                let (a, b) = both(a, b)?;
                Factor::Min(a, b)
            }
        };
        let constant = factor
            .parts()
            .is_some_and(|(a, b)| a.as_const().is_some() && b.as_const().is_some());
        if constant {
            self.coeff = self.coeff.wrapping_mul(factor.value(&[]));
        } else {
            self.factors.push(factor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_become_numbers() {
        let dims = Dims::from([("S".to_owned(), 7)]);
        let dim: Dim = "S".parse().unwrap();
        let dim = dim * Dim::index(0) + Dim::index(1) - Dim::from(2);
        let poly = Poly::bind(&dim, &dims).unwrap();
        assert_eq!(poly.as_affine(2), Some((-2, vec![7, 1])));
        assert_eq!(poly.eval(&[3, 4]), 23);
        assert!(poly.mentions(1) && !poly.mentions(2));
        assert_eq!(
            Poly::bind(&Dim::sym("T"), &dims),
            Err(DimError::Unbound("T".to_owned()))
        );
    }

    #[test]
    fn quotients_round_down() {
        let ext = attnc_ir::Extents::new(vec![100.into()]);
        let dim = (Dim::index(0) - Dim::from(5)).floor_div(&Dim::from(4), &ext);
        let poly = Poly::bind(&dim, &Dims::new()).unwrap();
        assert_eq!([0, 1, 4, 5, 9].map(|i| poly.eval(&[i])), [-2, -1, -1, 0, 1]);
        assert_eq!(poly.as_affine(1), None);
    }
}
