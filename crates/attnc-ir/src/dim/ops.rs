//! Arithmetic of polynomials, and what becomes one.

use super::{Dim, mul_monomial};
use std::ops::{Add, Mul, Neg, Sub};

impl From<i64> for Dim {
    fn from(n: i64) -> Self {
        let mut out = Self::default();
        out.add_term(Vec::new(), n);
        out
    }
}

impl From<i32> for Dim {
    fn from(n: i32) -> Self {
        Self::from(i64::from(n))
    }
}

impl From<usize> for Dim {
    fn from(n: usize) -> Self {
        Self::from(i64::try_from(n).unwrap_or(i64::MAX))
    }
}

impl From<&str> for Dim {
    fn from(name: &str) -> Self {
        Self::sym(name)
    }
}

impl Add for Dim {
    type Output = Self;
    fn add(mut self, rhs: Self) -> Self {
        if self.terms.is_empty() {
            return rhs;
        }
        for (mono, coeff) in rhs.terms {
            self.add_term(mono, coeff);
        }
        self
    }
}

impl Neg for Dim {
    type Output = Self;
    fn neg(mut self) -> Self {
        for (_, coeff) in &mut self.terms {
            *coeff = coeff.saturating_neg();
        }
        self
    }
}

impl Sub for Dim {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        self + -rhs
    }
}

impl Mul for Dim {
    type Output = Self;
    fn mul(self, rhs: Self) -> Self {
        if self.is(1) {
            return rhs;
        }
        if rhs.is(1) {
            return self;
        }
        let mut out = Self::zero();
        for (ma, ca) in &self.terms {
            for (mb, cb) in &rhs.terms {
                out.add_term(mul_monomial(ma, mb), ca.saturating_mul(*cb));
            }
        }
        out
    }
}

impl std::iter::Product for Dim {
    fn product<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::one(), Mul::mul)
    }
}

impl std::iter::Sum for Dim {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::zero(), Add::add)
    }
}
