//! Text to graph: a hand-written recursive descent over tokens that goes on at the next line after an error.
//!
//! All errors are collected, each with its place. A value whose line is wrong is *unknown*: lines that use it
//! are read but not typed, so that one mistake is reported once. No input panics: nesting, polynomials and
//! the memory that constants ask for are bounded.

use super::lexer::{Kind, Token, lex};
use crate::{DType, Diagnostic, Diagnostics, Dim, Graph, TensorType, ValueId, verify};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// Reads and verifies a graph.
///
/// # Errors
/// Everything that is wrong with the text, each with the bytes it stands at; see
/// [`CODES`](super::CODES) and [`verify::RULES`].
pub fn parse(text: &str) -> Result<Graph, Diagnostics> {
    let mut parser = Parser::new(text);
    parser.graph();
    parser.verify();
    parser
        .out
        .0
        .sort_by_key(|d| d.labels.first().map_or(0, |(span, _)| span.start));
    parser.out.into_result().map(|()| parser.graph)
}

impl std::str::FromStr for Graph {
    type Err = Diagnostics;

    fn from_str(text: &str) -> Result<Self, Diagnostics> {
        parse(text)
    }
}

/// Reading stopped; why has been reported, here or where an unknown value was defined.
pub(super) struct Stop;

pub(super) type Read<T> = Result<T, Stop>;

/// What a name stands for.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Known(ValueId),
    /// Its line is wrong; that has been reported.
    Unknown,
}

pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) tokens: Vec<Token>,
    pub(super) at: usize,
    pub(super) out: Diagnostics,
    pub(super) graph: Graph,
    /// Lengths in the types of inputs: in attention they win over `b`, `h`, `q_idx`, `kv_idx`.
    pub(super) lengths: BTreeSet<String>,
    /// The nodes of literals, so that equal ones are one node.
    pub(super) literals: HashMap<(DType, Vec<u8>), ValueId>,
    /// Every name that occurs anywhere in the text.
    pub(super) taken: BTreeSet<String>,
    values: HashMap<String, (Value, Range<usize>)>,
    /// Whether inputs are missing: values are then unknown without a report.
    pub(super) header_is_wrong: bool,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut out = Diagnostics::default();
        let tokens = lex(text, &mut out);
        let taken = tokens
            .iter()
            .filter_map(|t| {
                if let Kind::Value(name) = &t.kind {
                    Some(name.clone())
                } else {
                    None
                }
            })
            .collect();
        Self {
            text,
            tokens,
            at: 0,
            out,
            graph: Graph::default(),
            lengths: BTreeSet::new(),
            literals: HashMap::new(),
            taken,
            values: HashMap::new(),
            header_is_wrong: false,
        }
    }

    // Tokens.

    pub(super) fn peek(&self) -> &Token {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> &Token {
        &self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    pub(super) fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    /// The text of a token.
    pub(super) fn text_of(&self, token: &Token) -> &'a str {
        &self.text[token.span.clone()]
    }

    pub(super) fn at_symbol(&self, symbol: &str) -> bool {
        matches!(&self.peek().kind, Kind::Symbol(s) if *s == symbol)
    }

    pub(super) fn at_word(&self, word: &str) -> bool {
        self.peek().kind == Kind::Word && self.text_of(self.peek()) == word
    }

    pub(super) fn eat(&mut self, symbol: &str) -> bool {
        let found = self.at_symbol(symbol);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn expect(&mut self, symbol: &str) -> Read<()> {
        if self.eat(symbol) {
            Ok(())
        } else {
            self.expected(&format!("`{symbol}`"))
        }
    }

    pub(super) fn word(&mut self, what: &str) -> Read<(&'a str, Range<usize>)> {
        if self.peek().kind != Kind::Word {
            return self.expected(what);
        }
        let token = self.next();
        Ok((self.text_of(&token), token.span))
    }

    // Errors.

    /// Reports that something else was expected at the next token.
    pub(super) fn expected<T>(&mut self, what: &str) -> Read<T> {
        let token = self.peek().clone();
        let found = match &token.kind {
            Kind::Bad => return Err(Stop),
            Kind::End => "the end of the text".to_owned(),
            _ => format!("`{}`", self.text_of(&token)),
        };
        self.fail(
            "syntax",
            format!("expected {what}, found {found}"),
            token.span,
            format!("expected {what}"),
        )
    }

    pub(super) fn fail<T>(
        &mut self,
        code: &'static str,
        message: impl Into<String>,
        span: Range<usize>,
        label: impl Into<String>,
    ) -> Read<T> {
        self.report(Diagnostic::error(code, message).label(span, label))
    }

    pub(super) fn report<T>(&mut self, diagnostic: Diagnostic) -> Read<T> {
        self.out.push(diagnostic);
        Err(Stop)
    }

    /// Adds what the verifier finds; on a graph that is not whole, only what does not come from that.
    fn verify(&mut self) {
        let whole = self.out.0.is_empty();
        if let Err(found) = verify(&self.graph)
            && !self.header_is_wrong
        {
            let found = found
                .0
                .into_iter()
                .filter(|d| whole || d.code != "no-outputs");
            let placed: Vec<_> = found.map(|d| self.place(d)).collect();
            self.out.0.extend(placed);
        }
    }

    /// Gives a diagnostic that names a value the place where that is defined.
    fn place(&self, diagnostic: Diagnostic) -> Diagnostic {
        let name = diagnostic.at.as_deref().and_then(|at| at.strip_prefix('%'));
        let Some((_, span)) = name.and_then(|n| self.values.get(n)) else {
            let start = self.tokens.first().map_or(0, |t| t.span.start);
            let line = self.text[start..].lines().next().unwrap_or_default();
            return diagnostic.label(start..start + line.trim_end().len(), "in this graph");
        };
        diagnostic.label(span.clone(), "this value")
    }

    /// Goes to the start of the next line that is not the one of `from`.
    pub(super) fn recover(&mut self, from: usize) {
        self.at = self.at.max((from + 1).min(self.tokens.len() - 1));
        while self.peek().kind != Kind::End && !self.peek().starts_line {
            self.next();
        }
    }

    // Values.

    /// What a name stands for; unknown, with a report, where nothing above defines it.
    pub(super) fn lookup(&mut self, name: &str, span: Range<usize>) -> Value {
        if let Some((value, _)) = self.values.get(name) {
            return *value;
        }
        if !self.header_is_wrong {
            let shown = super::sigil_name('%', name);
            let mut diagnostic =
                Diagnostic::error("undefined-value", format!("{shown} is not defined above"))
                    .label(span, "no such value");
            if self.is_defined_below(name) {
                diagnostic =
                    diagnostic.note("it is defined further down; values stand before their uses");
            } else if let Some(close) = closest(name, self.values.keys().map(String::as_str)) {
                diagnostic =
                    diagnostic.note(format!("is {} meant?", super::sigil_name('%', close)));
            }
            self.out.push(diagnostic);
            self.values.insert(name.to_owned(), (Value::Unknown, 0..0));
        }
        Value::Unknown
    }

    fn is_defined_below(&self, name: &str) -> bool {
        self.tokens[self.at..].windows(2).any(|pair| {
            matches!(&pair[0].kind, Kind::Value(n) if n == name)
                && pair[1].kind == Kind::Symbol("=")
        })
    }

    /// Whether the name is free; reports where it is not.
    pub(super) fn is_free(&mut self, name: &str, span: &Range<usize>) -> bool {
        let Some((_, first)) = self.values.get(name).filter(|(_, first)| !first.is_empty()) else {
            return true;
        };
        let message = format!("{} is defined twice", super::sigil_name('%', name));
        let first = first.clone();
        self.out.push(
            Diagnostic::error("duplicate-name", message)
                .label(span.clone(), "defined again")
                .label(first, "defined first"),
        );
        false
    }

    pub(super) fn define(&mut self, name: &str, span: Range<usize>, value: Value) {
        self.values.insert(name.to_owned(), (value, span));
    }

    // Types.

    /// `f32[B, 64]`.
    pub(super) fn tensor_type(&mut self) -> Read<TensorType> {
        let start = self.peek().span.start;
        let dtype = self.dtype()?;
        let shape = self.dims()?;
        let ty = TensorType { dtype, shape };
        self.sized(&ty, start)?;
        Ok(ty)
    }

    /// Reports where a type is too large or too complex to be worked with.
    pub(super) fn sized(&mut self, ty: &TensorType, start: usize) -> Read<()> {
        let mut found = Vec::new();
        if verify::check_sizes(ty, &mut found) {
            return Ok(());
        }
        let span = start..self.previous_end();
        self.out.0.extend(
            found
                .into_iter()
                .map(|d| d.label(span.clone(), "this type")),
        );
        Err(Stop)
    }

    pub(super) fn dtype(&mut self) -> Read<DType> {
        let dtype = Some(self.peek()).filter(|t| t.kind == Kind::Word);
        match dtype.and_then(|t| DType::from_name(self.text_of(t))) {
            Some(dtype) => {
                self.next();
                Ok(dtype)
            }
            None => self.expected("an element type (f32 f16 bf16 i32 u32 bool)"),
        }
    }

    /// `[B, 2 * S]`.
    pub(super) fn dims(&mut self) -> Read<Vec<Dim>> {
        self.expect("[")?;
        let mut out = Vec::new();
        while !self.at_symbol("]") {
            out.push(self.dim()?);
            if !self.eat(",") {
                break;
            }
        }
        self.expect("]")?;
        Ok(out)
    }
}

/// The candidate that differs least from a name, if it differs little.
pub(super) fn closest<'n>(
    name: &str,
    candidates: impl Iterator<Item = &'n str>,
) -> Option<&'n str> {
    let limit = 1 + name.len() / 4;
    candidates
        .filter(|c| c.len().abs_diff(name.len()) <= limit && c.len() <= 64)
        .map(|c| (distance(name, c), c))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, c)| c)
}

/// Edits between two words. Wagner and Fischer 1974.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replace = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}
