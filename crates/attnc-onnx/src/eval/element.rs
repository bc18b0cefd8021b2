//! What can be computed at import: on lengths ([`Dim`], where it can be proved) and on numbers (`f64`,
//! rounded to the element type after every step, which is exact for the basic operations on f32).

use attnc_ir::{Atom, BinaryOp, CompareOp, DType, Dim, Extents, UnaryOp, to_odd};

/// Larger polynomials are computed at run time instead.
const MAX_WEIGHT: usize = 64;
/// Far from the ends of `i64`, so that no later step of arithmetic can overflow.
pub(crate) const MAX_INT: i64 = 1 << 62;

/// An element that importing can calculate with; `None` is "not here", never a wrong value.
pub(crate) trait Element: Clone {
    fn literal(value: f64, dtype: DType) -> Option<Self>;
    fn length(value: &Dim) -> Option<Self>;
    fn as_index(&self) -> Option<i64>;
    fn unary(op: UnaryOp, a: &Self, dtype: DType) -> Option<Self>;
    fn binary(op: BinaryOp, a: &Self, b: &Self, dtype: DType) -> Option<Self>;
    fn compare(op: CompareOp, a: &Self, b: &Self) -> Option<bool>;
    fn cast(&self, from: DType, to: DType) -> Option<Self>;
}

/// A measure of a polynomial's size: its coefficients and atoms, nested ones too.
pub(crate) fn weight(dim: &Dim) -> usize {
    dim.terms()
        .map(|(_, mono)| {
            let atoms = mono.iter().map(|(atom, power)| {
                let inner = match atom {
                    Atom::FloorDiv(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                        weight(a) + weight(b)
                    }
                    Atom::Sym(_) | Atom::Index(_) => 1,
                };
                inner + *power as usize
            });
            1 + atoms.sum::<usize>()
        })
        .sum()
}

/// Whether a polynomial is small enough to go on calculating with.
pub(crate) fn is_tame(dim: &Dim) -> bool {
    dim.terms().all(|(c, _)| (-MAX_INT..=MAX_INT).contains(&c)) && weight(dim) <= MAX_WEIGHT
}

fn tame(dim: Dim) -> Option<Dim> {
    is_tame(&dim).then_some(dim)
}

/// What leaves the same remainder and is not negative: `-S` modulo 4 is `3 * S` modulo 4.
fn residue(a: &Dim, by: i64) -> Option<Dim> {
    let mut out = Dim::zero();
    for (coeff, mono) in a.terms() {
        let mut term = Dim::from(coeff.checked_rem_euclid(by).filter(|_| by > 0)?);
        for (atom, power) in mono {
            let Atom::Sym(name) = atom else {
                return None;
            };
            term = (0..*power).fold(term, |term, _| term * Dim::sym(name));
        }
        out = out + term;
    }
    Some(out)
}

impl Element for Dim {
    fn literal(value: f64, _: DType) -> Option<Self> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "checked to be a small integer"
        )]
        (value.fract() == 0.0 && value.abs() < 1e15).then(|| Self::from(value as i64))
    }

    fn length(value: &Dim) -> Option<Self> {
        tame(value.clone())
    }

    fn as_index(&self) -> Option<i64> {
        self.as_const()
    }

    fn unary(op: UnaryOp, a: &Self, _: DType) -> Option<Self> {
        let none = Extents::none();
        match op {
            UnaryOp::Neg => tame(-a.clone()),
            UnaryOp::Abs if a.is_nonneg(&none) => Some(a.clone()),
            UnaryOp::Abs => a.as_const().map(|n| Self::from(n.saturating_abs())),
            UnaryOp::Relu => tame(a.maximum(&Self::zero(), &none)),
            UnaryOp::Sign => a.as_const().map(|n| Self::from(n.signum())),
            UnaryOp::Not => a.as_const().map(|n| Self::from(i64::from(n == 0))),
            // Lengths that a cast made f32 are whole numbers.
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round => Some(a.clone()),
            UnaryOp::IsNan | UnaryOp::IsInf => Some(Self::zero()),
            _ => None,
        }
    }

    fn binary(op: BinaryOp, a: &Self, b: &Self, dtype: DType) -> Option<Self> {
        let none = Extents::none();
        let nonneg = || a.is_nonneg(&none) && b.is_nonneg(&none) && !b.is(0);
        let small = |x: &Self, y: &Self| weight(x).saturating_mul(weight(y)) <= 16 * MAX_WEIGHT;
        let consts = a.as_const().zip(b.as_const());
        let out = match op {
            BinaryOp::Add => a.clone() + b.clone(),
            BinaryOp::Sub => a.clone() - b.clone(),
            BinaryOp::Mul if small(a, b) => a.clone() * b.clone(),
            BinaryOp::Min => a.minimum(b, &none),
            BinaryOp::Max => a.maximum(b, &none),
            BinaryOp::Div if dtype.is_float() => a.exact_div(b)?,
            BinaryOp::Div => match consts {
                Some((x, y)) => Self::from(x.checked_div(y)?),
                None => match a.exact_div(b) {
                    Some(exact) => exact,
                    None if nonneg() => a.floor_div(b, &none),
                    None => return None,
                },
            },
            BinaryOp::Rem if consts.is_some() => {
                let (x, y) = consts?;
                Self::from(x.checked_rem(y)?)
            }
            BinaryOp::Mod | BinaryOp::Rem if dtype.is_int() => match consts {
                Some((_, 0)) => return None,
                Some(_) => a.modulo(b, &none),
                None if nonneg() => a.modulo(b, &none),
                None => {
                    let reduced = residue(a, b.as_const().filter(|_| op == BinaryOp::Mod)?)?;
                    reduced.modulo(b, &none)
                }
            },
            BinaryOp::And => Self::from(i64::from(consts?.0 != 0 && consts?.1 != 0)),
            BinaryOp::Or => Self::from(i64::from(consts?.0 != 0 || consts?.1 != 0)),
            BinaryOp::Xor => Self::from(i64::from((consts?.0 != 0) != (consts?.1 != 0))),
            BinaryOp::Pow => {
                let (x, y) = consts?;
                Self::from(x.checked_pow(u32::try_from(y).ok()?)?)
            }
            _ => return None,
        };
        tame(out)
    }

    fn compare(op: CompareOp, a: &Self, b: &Self) -> Option<bool> {
        let none = Extents::none();
        let below = |x: &Self, y: &Self| x.is_below(y, &none);
        let at_most = |x: &Self, y: &Self| (y.clone() - x.clone()).is_nonneg(&none);
        let decide = |yes: bool, no: bool| (yes || no).then_some(yes);
        match op {
            CompareOp::Eq => decide(a == b, below(a, b) || below(b, a)),
            CompareOp::Ne => decide(below(a, b) || below(b, a), a == b),
            CompareOp::Lt => decide(below(a, b), at_most(b, a)),
            CompareOp::Le => decide(at_most(a, b), below(b, a)),
            CompareOp::Gt => decide(below(b, a), at_most(a, b)),
            CompareOp::Ge => decide(at_most(b, a), below(a, b)),
        }
    }

    fn cast(&self, from: DType, to: DType) -> Option<Self> {
        match (from, to) {
            (_, DType::Bool) => self.as_const().map(|n| Self::from(i64::from(n != 0))),
            (_, DType::F16 | DType::BF16) => None,
            (_, DType::U32) if !self.is_nonneg(&Extents::none()) => None,
            // Above 2^24 not every whole number is an f32.
            (_, DType::F32) if self.as_const().is_some_and(|n| n.abs() > 1 << 24) => None,
            _ => Some(self.clone()),
        }
    }
}

/// The nearest value of the element type; `None` where an integer does not fit.
pub(crate) fn round_to(value: f64, dtype: DType) -> Option<f64> {
    let integer = |low: f64, high: f64| (value >= low && value <= high).then_some(value.trunc());
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounding to f32 is what is wanted"
    )]
    match dtype {
        DType::F32 => Some(f64::from(value as f32)),
        DType::F16 => Some(half::f16::from_f32(to_odd(value)).to_f64()),
        DType::BF16 => Some(half::bf16::from_f32(to_odd(value)).to_f64()),
        DType::I32 => integer(f64::from(i32::MIN), f64::from(i32::MAX)),
        DType::U32 => integer(0.0, f64::from(u32::MAX)),
        DType::Bool => Some(f64::from(u8::from(value != 0.0))),
    }
}

impl Element for f64 {
    fn literal(value: f64, dtype: DType) -> Option<Self> {
        round_to(value, dtype)
    }

    fn length(value: &Dim) -> Option<Self> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "integers of an i32 tensor are small"
        )]
        value.as_const().map(|n| n as Self)
    }

    fn as_index(&self) -> Option<i64> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "checked to be a small integer"
        )]
        (self.fract() == 0.0 && self.abs() < 1e15).then_some(*self as i64)
    }

    fn unary(op: UnaryOp, a: &Self, dtype: DType) -> Option<Self> {
        let a = *a;
        let value = match op {
            UnaryOp::Neg => -a,
            UnaryOp::Abs => a.abs(),
            UnaryOp::Sqrt => a.sqrt(),
            UnaryOp::Rsqrt => 1.0 / a.sqrt(),
            UnaryOp::Reciprocal => 1.0 / a,
            UnaryOp::Exp => a.exp(),
            UnaryOp::Log => a.ln(),
            UnaryOp::Tanh => a.tanh(),
            UnaryOp::Sin => a.sin(),
            UnaryOp::Cos => a.cos(),
            UnaryOp::Sigmoid => 1.0 / (1.0 + (-a).exp()),
            UnaryOp::Floor => a.floor(),
            UnaryOp::Ceil => a.ceil(),
            UnaryOp::Round => a.round_ties_even(),
            UnaryOp::Sign if a == 0.0 || a.is_nan() => a,
            UnaryOp::Sign => a.signum(),
            UnaryOp::Relu if a.is_nan() => a,
            UnaryOp::Relu => a.max(0.0),
            UnaryOp::Softplus => a.max(0.0) + (-a.abs()).exp().ln_1p(),
            UnaryOp::Not => Self::from(u8::from(a == 0.0)),
            UnaryOp::IsNan => Self::from(u8::from(a.is_nan())),
            UnaryOp::IsInf => Self::from(u8::from(a.is_infinite())),
            UnaryOp::Erf | UnaryOp::Gelu | UnaryOp::GeluTanh | UnaryOp::Silu => return None,
        };
        round_to(value, dtype)
    }

    fn binary(op: BinaryOp, a: &Self, b: &Self, dtype: DType) -> Option<Self> {
        let (a, b) = (*a, *b);
        let truth = |v: bool| Self::from(u8::from(v));
        let value = match op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            BinaryOp::Div | BinaryOp::Mod | BinaryOp::Rem if dtype.is_int() && b == 0.0 => {
                return None;
            }
            BinaryOp::Div if dtype.is_int() => (a / b).trunc(),
            BinaryOp::Div => a / b,
            BinaryOp::Mod if dtype.is_int() => a - b * (a / b).floor(),
            BinaryOp::Rem => a % b,
            BinaryOp::Pow => a.powf(b),
            BinaryOp::Min | BinaryOp::Max if a.is_nan() || b.is_nan() => Self::NAN,
            BinaryOp::Min => a.min(b),
            BinaryOp::Max => a.max(b),
            BinaryOp::And => truth(a != 0.0 && b != 0.0),
            BinaryOp::Or => truth(a != 0.0 || b != 0.0),
            BinaryOp::Xor => truth((a != 0.0) != (b != 0.0)),
            BinaryOp::Mod => return None,
        };
        round_to(value, dtype)
    }

    fn compare(op: CompareOp, a: &Self, b: &Self) -> Option<bool> {
        Some(match op {
            CompareOp::Eq => a == b,
            CompareOp::Ne => a != b,
            CompareOp::Lt => a < b,
            CompareOp::Le => a <= b,
            CompareOp::Gt => a > b,
            CompareOp::Ge => a >= b,
        })
    }

    fn cast(&self, from: DType, to: DType) -> Option<Self> {
        if from.is_float() && to.is_int() {
            return round_to(self.trunc(), to);
        }
        round_to(*self, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(text: &str) -> Dim {
        text.parse().unwrap()
    }

    #[test]
    fn lengths_compare_only_where_it_is_certain() {
        assert_eq!(
            Dim::compare(CompareOp::Eq, &dim("S"), &dim("-1")),
            Some(false)
        );
        assert_eq!(
            Dim::compare(CompareOp::Eq, &dim("S"), &dim("S")),
            Some(true)
        );
        assert_eq!(Dim::compare(CompareOp::Eq, &dim("S"), &dim("1")), None);
        assert_eq!(
            Dim::compare(CompareOp::Lt, &dim("S"), &dim("S + 1")),
            Some(true)
        );
        assert_eq!(Dim::compare(CompareOp::Gt, &dim("S"), &dim("T")), None);
    }

    #[test]
    fn quotients_of_lengths_cancel() {
        let div = |a: &str, b: &str| Dim::binary(BinaryOp::Div, &dim(a), &dim(b), DType::I32);
        assert_eq!(div("B * S", "B"), Some(dim("S")));
        assert_eq!(div("-7", "2"), Some(dim("-3")));
        assert_eq!(div("S", "0"), None);
        assert_eq!(div("S", "2"), Some(dim("floordiv(S, 2)")));
    }

    #[test]
    fn polynomials_do_not_grow_without_end() {
        let mut x = Some(dim("S + T + 1"));
        for _ in 0..100 {
            x = x.and_then(|x| Dim::binary(BinaryOp::Mul, &x, &x, DType::I32));
        }
        assert_eq!(x, None);
        assert_eq!(
            Dim::unary(UnaryOp::Neg, &Dim::from(i64::MAX), DType::I32),
            None
        );
    }

    #[test]
    fn integers_that_do_not_fit_are_not_folded() {
        assert_eq!(
            f64::binary(BinaryOp::Mul, &65536.0, &65536.0, DType::I32),
            None
        );
        assert_eq!(
            f64::binary(BinaryOp::Mod, &-7.0, &3.0, DType::I32),
            Some(2.0)
        );
        assert_eq!(
            f64::binary(BinaryOp::Rem, &-7.0, &3.0, DType::I32),
            Some(-1.0)
        );
        assert_eq!(f64::binary(BinaryOp::Div, &1.0, &0.0, DType::I32), None);
    }
}
