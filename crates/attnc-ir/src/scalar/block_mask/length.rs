//! The least and the greatest value of a polynomial on a tile, as polynomials over the tile's corners.
//!
//! Every term is bounded by itself, which is exact where each index variable occurs once: `q_idx - kv_idx`
//! lies in `q_first - kv_last ..= q_last - kv_first`. A remainder is the exception, and is taken as a whole:
//! `a mod n` lies in `max(0, a₀ - n⌊a₁/n⌋) ..= min(n - 1, a₁ - n⌊a₀/n⌋)`, exactly where `a₀` and `a₁`
//! have one quotient.

use super::{KEY, QUERY};
use crate::{Atom, Dim, Extents};

/// Both ends of a polynomial over `b, h, q_idx, kv_idx`; `None` where they are not known. `ext` are the
/// extents of the tile's corners.
pub(super) fn ends(dim: &Dim, ext: &Extents) -> Option<(Dim, Dim)> {
    let (rest, remainders) = dim.take_remainders();
    let mut sum = (Dim::zero(), Dim::zero());
    for (coefficient, mono) in rest.terms() {
        let factors = mono
            .iter()
            .flat_map(|(atom, power)| std::iter::repeat_n(atom, *power as usize));
        let product = product(factors, ext)?;
        sum = add(sum, scaled(product, &Dim::from(coefficient))?);
    }
    for remainder in remainders {
        let by = fixed(&remainder.by, ext)?;
        let (low, high) = ends(&remainder.of, ext)?;
        let multiple = |d: &Dim| by.clone() * d.floor_div(&by, ext);
        let least = (low.clone() - multiple(&high)).maximum(&Dim::zero(), ext);
        let most = (high.clone() - multiple(&low)).minimum(&(by.clone() - Dim::one()), ext);
        sum = add(sum, scaled((least, most), &remainder.scale)?);
    }
    Some(sum)
}

fn add(a: (Dim, Dim), b: (Dim, Dim)) -> (Dim, Dim) {
    (a.0 + b.0, a.1 + b.1)
}

/// Times a factor of one sign; lengths are at least 0.
fn scaled((low, high): (Dim, Dim), factor: &Dim) -> Option<(Dim, Dim)> {
    let none = Extents::none();
    let (a, b) = (low * factor.clone(), high * factor.clone());
    if factor.is_nonneg(&none) {
        Some((a, b))
    } else if (-factor.clone()).is_nonneg(&none) {
        Some((b, a))
    } else {
        None
    }
}

/// A product of atoms, none of which may be negative if there are several.
fn product<'a>(factors: impl Iterator<Item = &'a Atom>, ext: &Extents) -> Option<(Dim, Dim)> {
    let ends = factors
        .map(|f| atom_ends(f, ext))
        .collect::<Option<Vec<_>>>()?;
    if ends.len() > 1 && !ends.iter().all(|(low, _)| low.is_nonneg(ext)) {
        return None;
    }
    let one = (Dim::one(), Dim::one());
    Some(
        ends.into_iter()
            .fold(one, |(a, b), (low, high)| (a * low, b * high)),
    )
}

fn atom_ends(atom: &Atom, ext: &Extents) -> Option<(Dim, Dim)> {
    Some(match atom {
        Atom::Sym(_) => (atom.to_dim(), atom.to_dim()),
        // b, h, then q_first, q_last, kv_first, kv_last.
        Atom::Index(QUERY) => (Dim::index(2), Dim::index(3)),
        Atom::Index(KEY) => (Dim::index(4), Dim::index(5)),
        Atom::Index(n) => (Dim::index(*n), Dim::index(*n)),
        Atom::FloorDiv(a, b) => {
            let (by, (low, high)) = (fixed(b, ext)?, ends(a, ext)?);
            (low.floor_div(&by, ext), high.floor_div(&by, ext))
        }
        Atom::Max(a, b) => {
            let (a, b) = (ends(a, ext)?, ends(b, ext)?);
            (a.0.maximum(&b.0, ext), a.1.maximum(&b.1, ext))
        }
        Atom::Min(a, b) => {
            let (a, b) = (ends(a, ext)?, ends(b, ext)?);
            (a.0.minimum(&b.0, ext), a.1.minimum(&b.1, ext))
        }
    })
}

/// A divisor, if it is the same on the whole tile and not negative.
fn fixed(dim: &Dim, ext: &Extents) -> Option<Dim> {
    let same = dim.indices().iter().all(|&n| n < QUERY);
    (same && dim.is_nonneg(ext)).then(|| dim.clone())
}
