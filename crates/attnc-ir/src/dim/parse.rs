//! Reading a [`Dim`] back from its printed form.

use super::{Dim, Extents};
use std::str::FromStr;

/// Why a text is not a [`Dim`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a length: {what} at byte {at}")]
pub struct ParseDimError {
    text: String,
    what: &'static str,
    at: usize,
}

/// Deeper nesting than this is refused, so that hostile input cannot exhaust the stack.
const MAX_DEPTH: usize = 64;

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl FromStr for Dim {
    type Err = ParseDimError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut reader = Reader {
            text,
            at: 0,
            depth: 0,
        };
        let dim = reader.sum()?;
        match reader.peek() {
            None => Ok(dim),
            Some(_) => Err(reader.error("expected an operator")),
        }
    }
}

impl Reader<'_> {
    fn error(&self, what: &'static str) -> ParseDimError {
        ParseDimError {
            text: self.text.to_owned(),
            what,
            at: self.at,
        }
    }

    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn sum(&mut self) -> Result<Dim, ParseDimError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        let mut out = self.product()?;
        loop {
            if self.eat('+') {
                out = out + self.product()?;
            } else if self.eat('-') {
                out = out - self.product()?;
            } else {
                self.depth -= 1;
                return Ok(out);
            }
        }
    }

    fn product(&mut self) -> Result<Dim, ParseDimError> {
        let mut out = self.factor()?;
        while self.eat('*') {
            out = out * self.factor()?;
        }
        Ok(out)
    }

    fn factor(&mut self) -> Result<Dim, ParseDimError> {
        if self.eat('-') {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(self.error("nested too deeply"));
            }
            let value = self.factor()?;
            self.depth -= 1;
            return Ok(-value);
        }
        if self.eat('(') {
            let inner = self.sum()?;
            return if self.eat(')') {
                Ok(inner)
            } else {
                Err(self.error("expected `)`"))
            };
        }
        match self.peek() {
            Some(c) if c.is_ascii_digit() => {
                let digits = self.word(|c| c.is_ascii_digit());
                digits
                    .parse::<i64>()
                    .map(Dim::from)
                    .map_err(|_| self.error("number too large"))
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_');
                if self.eat('(') {
                    self.call(&name)
                } else {
                    Ok(name_or_index(&name))
                }
            }
            _ => Err(self.error("expected a number, a name or `(`")),
        }
    }

    fn word(&mut self, keep: impl Fn(char) -> bool) -> String {
        let rest = &self.text[self.at..];
        let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.at += end;
        rest[..end].to_owned()
    }

    fn call(&mut self, name: &str) -> Result<Dim, ParseDimError> {
        let a = self.sum()?;
        if !self.eat(',') {
            return Err(self.error("expected `,`"));
        }
        let b = self.sum()?;
        if !self.eat(')') {
            return Err(self.error("expected `)`"));
        }
        let none = Extents::none();
        match name {
            "floordiv" if b.is(0) => Err(self.error("division by zero")),
            "floordiv" => Ok(a.floor_div(&b, &none)),
            "mod" if b.is(0) => Err(self.error("division by zero")),
            "mod" => Ok(a.modulo(&b, &none)),
            "max" => Ok(a.maximum(&b, &none)),
            "min" => Ok(a.minimum(&b, &none)),
            _ => Err(self.error("expected floordiv, mod, max or min before `(`")),
        }
    }
}

/// `d0`, `d12` are index variables; every other name is a run-time length.
fn name_or_index(name: &str) -> Dim {
    match name.strip_prefix('d').map(str::parse::<u32>) {
        Some(Ok(n)) if name.len() == 2 || !name.starts_with("d0") => Dim::index(n),
        _ => Dim::sym(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_form_reads_back() {
        for text in [
            "0",
            "-3",
            "B",
            "B * S",
            "P + S - 1",
            "-B + 4",
            "2 * S * S",
            "floordiv(S + 1, 2)",
            "max(1, S)",
        ] {
            assert_eq!(text.parse::<Dim>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "B +",
            "12a$",
            "floordiv(1)",
            "foo(1, 2)",
            "floordiv(B, 0)",
            "99999999999999999999",
        ] {
            assert!(text.parse::<Dim>().is_err(), "{text}");
        }
        assert!("(".repeat(100_000).parse::<Dim>().is_err());
        assert!("-".repeat(100_000).parse::<Dim>().is_err());
    }
}
