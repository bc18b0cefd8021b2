//! Polynomials as text, and in files: a number where it is one.

use super::{Atom, Dim};
use std::fmt;

impl Atom {
    fn write(&self, f: &mut dyn fmt::Write, index: &dyn Fn(u32) -> String) -> fmt::Result {
        let (name, a, b) = match self {
            Self::Sym(name) => return f.write_str(name),
            Self::Index(n) => return f.write_str(&index(*n)),
            Self::FloorDiv(a, b) => ("floordiv", a, b),
            Self::Max(a, b) => ("max", a, b),
            Self::Min(a, b) => ("min", a, b),
        };
        write!(f, "{name}(")?;
        a.write(f, index)?;
        f.write_str(", ")?;
        b.write(f, index)?;
        f.write_str(")")
    }
}

impl Dim {
    /// The text with index variables under the names that `index` gives.
    #[must_use]
    pub fn display_with(&self, index: &dyn Fn(u32) -> String) -> String {
        let mut out = String::new();
        self.write(&mut out, index).expect("writing to a string");
        out
    }

    fn write(&self, f: &mut dyn fmt::Write, index: &dyn Fn(u32) -> String) -> fmt::Result {
        let constant = self.constant();
        let terms: Vec<_> = self.terms.iter().filter(|(m, _)| !m.is_empty()).collect();
        if terms.is_empty() {
            return write!(f, "{}", constant.unwrap_or(0));
        }
        for (i, (mono, coeff)) in terms.into_iter().enumerate() {
            match (i, *coeff < 0) {
                (0, false) => {}
                (0, true) => f.write_str("-")?,
                (_, false) => f.write_str(" + ")?,
                (_, true) => f.write_str(" - ")?,
            }
            let mut sep = "";
            if coeff.unsigned_abs() != 1 {
                write!(f, "{}", coeff.unsigned_abs())?;
                sep = " * ";
            }
            for (atom, power) in mono {
                for _ in 0..*power {
                    f.write_str(sep)?;
                    atom.write(f, index)?;
                    sep = " * ";
                }
            }
        }
        match constant {
            Some(c) if c < 0 => write!(f, " - {}", c.unsigned_abs()),
            Some(c) => write!(f, " + {c}"),
            None => Ok(()),
        }
    }
}

/// `12 * B`, `P + S - 1`: monomials in order, the constant last.
impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &|n| format!("d{n}"))
    }
}

impl serde::Serialize for Dim {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.as_const() {
            Some(n) => s.serialize_i64(n),
            None => s.collect_str(self),
        }
    }
}

impl<'de> serde::Deserialize<'de> for Dim {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(i64),
            Text(String),
        }
        match Form::deserialize(d)? {
            Form::Number(n) => Ok(Self::from(n)),
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}
