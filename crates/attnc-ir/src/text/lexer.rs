//! Text to tokens. Every byte of the text is either in a token, blank, in a comment, or reported.

use super::names;
use crate::{Diagnostic, Diagnostics};
use std::ops::Range;

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// `%name`.
    Value(String),
    /// `@name`.
    GraphName(String),
    /// A word: op, attribute, element type, length, keyword.
    Word,
    /// Digits only.
    Integer,
    /// Digits with a point or an exponent.
    Decimal,
    /// `"…"`, unescaped.
    Text(String),
    /// An operator or bracket, one or two characters.
    Symbol(&'static str),
    /// Something that is no token, already reported.
    Bad,
    /// The end of the text.
    End,
}

/// A token and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) span: Range<usize>,
    /// Whether it is the first of its line: where statements begin, and errors recover.
    pub(super) starts_line: bool,
}

const SYMBOLS: [&str; 23] = [
    "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ",", "=", "<", ">", "+", "-", "*", "/",
    "&", "|", ";", ":", "#",
];

/// The tokens of a text, always with [`Kind::End`] at the end; what is none is reported and [`Kind::Bad`].
pub(super) fn lex(text: &str, out: &mut Diagnostics) -> Vec<Token> {
    let mut lexer = Lexer {
        text,
        at: 0,
        tokens: Vec::new(),
        starts_line: true,
    };
    while lexer.skip_blank() {
        let start = lexer.at;
        match lexer.token() {
            Ok(kind) => lexer.push(kind, start),
            Err(diagnostic) => {
                out.push(diagnostic);
                lexer.push(Kind::Bad, start);
            }
        }
    }
    lexer.push(Kind::End, text.len());
    lexer.tokens
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    tokens: Vec<Token>,
    starts_line: bool,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn push(&mut self, kind: Kind, start: usize) {
        let starts_line = std::mem::replace(&mut self.starts_line, false);
        self.tokens.push(Token {
            kind,
            span: start..self.at.max(start),
            starts_line,
        });
    }

    /// Goes to the next token; false at the end.
    fn skip_blank(&mut self) -> bool {
        loop {
            let rest = &self.text[self.at..];
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            match rest.chars().next() {
                Some(c) if c.is_whitespace() => {
                    self.starts_line |= c == '\n';
                    self.at += c.len_utf8();
                }
                Some(_) => return true,
                None => return false,
            }
        }
    }

    /// Moves over the characters that `keep` accepts.
    fn take(&mut self, keep: impl Fn(char) -> bool) -> Range<usize> {
        let start = self.at;
        self.at += self.rest().find(|c| !keep(c)).unwrap_or(self.rest().len());
        start..self.at
    }

    fn token(&mut self) -> Result<Kind, Diagnostic> {
        let start = self.at;
        let first = self.rest().chars().next().unwrap_or(' ');
        match first {
            '%' | '@' => self.sigil(first),
            '"' => self.string().map(Kind::Text),
            c if c.is_ascii_alphabetic() || c == '_' => {
                self.take(|c| c.is_ascii_alphanumeric() || c == '_');
                Ok(Kind::Word)
            }
            c if c.is_ascii_digit() => self.number(),
            _ => {
                if let Some(symbol) = SYMBOLS.into_iter().find(|s| self.rest().starts_with(s)) {
                    self.at += symbol.len();
                    return Ok(Kind::Symbol(symbol));
                }
                self.at += first.len_utf8();
                Err(Diagnostic::error(
                    "unexpected-character",
                    format!("`{}` means nothing here", first.escape_debug()),
                )
                .label(start..self.at, "unexpected"))
            }
        }
    }

    fn sigil(&mut self, sigil: char) -> Result<Kind, Diagnostic> {
        let start = self.at;
        self.at += 1;
        let name = if self.rest().starts_with('"') {
            self.string()?
        } else {
            let mut span = self.take(names::is_bare);
            while self.text[span.clone()].ends_with(':') {
                span.end -= 1;
            }
            self.at = span.end;
            self.text[span].to_owned()
        };
        if name.is_empty() && sigil == '%' {
            return Err(
                Diagnostic::error("unexpected-character", "`%` without a name")
                    .label(start..self.at, "expected a name")
                    .note("names are made of letters, digits and _ . / : -, or stand in quotes"),
            );
        }
        Ok(if sigil == '%' {
            Kind::Value(name)
        } else {
            Kind::GraphName(name)
        })
    }

    /// A string ends on its line.
    fn string(&mut self) -> Result<String, Diagnostic> {
        let start = self.at;
        let body = start + 1;
        let mut escaped = false;
        for (i, c) in self.text[body..].char_indices() {
            match c {
                '\n' => break,
                '"' if !escaped => {
                    self.at = body + i + 1;
                    return names::unescape(&self.text[body..body + i]).map_err(|at| {
                        Diagnostic::error("bad-string", "an escape that is not known")
                            .label(body + at..body + i, "here")
                            .note(r#"escapes are \" \\ \n \t \r and \u{hex}"#)
                    });
                }
                _ => escaped = c == '\\' && !escaped,
            }
        }
        self.take(|c| c != '\n');
        Err(Diagnostic::error("bad-string", "a string without an end")
            .label(start..self.at, "expected `\"` on this line"))
    }

    fn number(&mut self) -> Result<Kind, Diagnostic> {
        let start = self.at;
        let mut kind = Kind::Integer;
        self.take(|c| c.is_ascii_digit());
        let digit =
            |s: Option<&str>| s.is_some_and(|s| s.starts_with(|c: char| c.is_ascii_digit()));
        if digit(self.rest().strip_prefix('.')) {
            self.at += 1;
            self.take(|c| c.is_ascii_digit());
            kind = Kind::Decimal;
        }
        if let Some(exponent) = self.rest().strip_prefix(['e', 'E']) {
            let signed = exponent.strip_prefix(['+', '-']);
            if digit(Some(signed.unwrap_or(exponent))) {
                self.at += 1 + usize::from(signed.is_some());
                self.take(|c| c.is_ascii_digit());
                kind = Kind::Decimal;
            }
        }
        let tail = self.take(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if tail.is_empty() {
            return Ok(kind);
        }
        Err(Diagnostic::error(
            "bad-number",
            format!("`{}` is not a number", &self.text[start..tail.end]),
        )
        .label(start..tail.end, "numbers look like 12, 0.5 and 1e-5"))
    }
}
