//! The attributes of a statement: found first, read when the op asks for them by name.

use super::lexer::Kind;
use super::parse::{Parser, Read, Stop, closest};
use crate::{DType, Diagnostic, Dim};
use std::ops::Range;

/// One `name = value`.
struct Attribute {
    name: String,
    name_span: Range<usize>,
    /// The tokens of the value.
    value: Range<usize>,
    used: bool,
}

/// Those of one statement.
pub(super) struct Attributes {
    list: Vec<Attribute>,
    /// The names the op asked for.
    asked: Vec<&'static str>,
    /// The op, for messages about what is missing.
    pub(super) op_span: Range<usize>,
}

impl Attributes {
    pub(super) fn none(op_span: Range<usize>) -> Self {
        Self {
            list: Vec::new(),
            asked: Vec::new(),
            op_span,
        }
    }
}

impl Parser<'_> {
    /// Whether `name =` is next.
    pub(super) fn at_attribute(&self) -> bool {
        self.peek().kind == Kind::Word && self.peek_at(1).kind == Kind::Symbol("=")
    }

    /// Finds `name = value, name = value` up to the end of the line.
    pub(super) fn attributes(&mut self, op_span: Range<usize>) -> Read<Attributes> {
        let mut out = Attributes::none(op_span);
        while self.at_attribute() {
            let name = self.next();
            self.next();
            let value = self.skip_value();
            if value.is_empty() {
                return self.expected("a value");
            }
            let text = self.text_of(&name).to_owned();
            if out.list.iter().any(|a| a.name == text) {
                let message = format!("`{text}` is given twice");
                self.out.push(
                    Diagnostic::error("duplicate-attribute", message).label(name.span, "again"),
                );
            } else {
                out.list.push(Attribute {
                    name: text,
                    name_span: name.span,
                    value,
                    used: false,
                });
            }
            if !self.eat(",") {
                return Ok(out);
            }
            if !self.at_attribute() {
                return self.expected("an attribute, as in `axis = 0`");
            }
        }
        Ok(out)
    }

    /// Moves over one value: up to a `,`, `}` or line outside of brackets.
    fn skip_value(&mut self) -> Range<usize> {
        let start = self.at;
        let mut depth = 0usize;
        loop {
            let token = self.peek();
            match token.kind {
                Kind::End => break,
                _ if depth == 0 && self.at > start && token.starts_line => break,
                Kind::Symbol("[" | "(" | "{") => depth += 1,
                Kind::Symbol("," | "]" | ")" | "}") if depth == 0 => break,
                Kind::Symbol("]" | ")" | "}") => depth -= 1,
                _ => {}
            }
            self.next();
        }
        start..self.at
    }

    /// Reads the attribute of that name, if it is given.
    pub(super) fn optional<T>(
        &mut self,
        attributes: &mut Attributes,
        name: &'static str,
        read: impl FnOnce(&mut Self) -> Read<T>,
    ) -> Read<Option<T>> {
        attributes.asked.push(name);
        let Some(attribute) = attributes.list.iter_mut().find(|a| a.name == name) else {
            return Ok(None);
        };
        attribute.used = true;
        let (back, end) = (self.at, attribute.value.end);
        self.at = attribute.value.start;
        let result = read(self).and_then(|value| {
            if self.at == end {
                return Ok(Some(value));
            }
            self.expected("`,` or the end of the line")
        });
        self.at = back;
        result
    }

    /// Reads the attribute of that name, which must be there.
    pub(super) fn required<T>(
        &mut self,
        attributes: &mut Attributes,
        name: &'static str,
        read: impl FnOnce(&mut Self) -> Read<T>,
    ) -> Read<T> {
        match self.optional(attributes, name, read)? {
            Some(value) => Ok(value),
            None => {
                let span = attributes.op_span.clone();
                let op = &self.text[span.clone()];
                let mut diagnostic =
                    Diagnostic::error("missing-attribute", format!("{op} needs `{name} = …`"))
                        .label(span, format!("no `{name}`"));
                let others = attributes.list.iter().filter(|a| !a.used);
                if let Some(close) = closest(name, others.map(|a| a.name.as_str())) {
                    diagnostic = diagnostic.note(format!("`{close}` is not an attribute of it"));
                }
                self.report(diagnostic)
            }
        }
    }

    /// Reports the attributes that the op did not ask for.
    pub(super) fn no_others(&mut self, attributes: &Attributes) -> Read<()> {
        let op = self.text[attributes.op_span.clone()].to_owned();
        let mut result = Ok(());
        for attribute in attributes.list.iter().filter(|a| !a.used) {
            let mut diagnostic = Diagnostic::error(
                "unknown-attribute",
                format!("{op} has no attribute `{}`", attribute.name),
            )
            .label(attribute.name_span.clone(), "unknown");
            if let Some(close) = closest(&attribute.name, attributes.asked.iter().copied()) {
                diagnostic = diagnostic.note(format!("is `{close}` meant?"));
            } else {
                diagnostic = diagnostic.note(format!("it has: {}", attributes.asked.join(", ")));
            }
            self.out.push(diagnostic);
            result = Err(Stop);
        }
        result
    }

    fn bad_attribute<T>(&mut self, what: &str) -> Read<T> {
        let token = self.peek().clone();
        if token.kind == Kind::Bad {
            return Err(Stop);
        }
        let found = self.text_of(&token).to_owned();
        self.fail(
            "bad-attribute",
            format!("expected {what}, found `{found}`"),
            token.span,
            format!("expected {what}"),
        )
    }

    /// A number that is not negative.
    pub(super) fn count(&mut self) -> Read<usize> {
        if self.peek().kind == Kind::Integer
            && let Ok(n) = self.text_of(self.peek()).parse()
        {
            self.next();
            return Ok(n);
        }
        self.bad_attribute("a whole number that is not negative")
    }

    /// A whole number.
    pub(super) fn integer(&mut self) -> Read<i64> {
        let sign = if self.eat("-") { "-" } else { "" };
        if self.peek().kind == Kind::Integer
            && let Ok(n) = format!("{sign}{}", self.text_of(self.peek())).parse()
        {
            self.next();
            return Ok(n);
        }
        self.bad_attribute("a whole number")
    }

    /// A number as f64: `0.125`, `1`, `-inf`, `nan`.
    pub(super) fn double(&mut self) -> Read<f64> {
        let sign = if self.eat("-") { "-" } else { "" };
        let token = self.peek().clone();
        let text = self.text_of(&token);
        let is_number =
            matches!(token.kind, Kind::Integer | Kind::Decimal) || text == "inf" || text == "nan";
        match format!("{sign}{text}").parse::<f64>() {
            Ok(value) if is_number && (value.is_finite() || token.kind == Kind::Word) => {
                self.next();
                Ok(value)
            }
            _ => self.bad_attribute("a number"),
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self) -> Read<bool> {
        for (word, value) in [("true", true), ("false", false)] {
            if self.at_word(word) {
                self.next();
                return Ok(value);
            }
        }
        self.bad_attribute("true or false")
    }

    /// One of some words.
    pub(super) fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Read<T> {
        for (word, value) in choices {
            if self.at_word(word) {
                self.next();
                return Ok(*value);
            }
        }
        let words: Vec<_> = choices.iter().map(|(w, _)| *w).collect();
        self.bad_attribute(&words.join(" or "))
    }

    /// An element type.
    pub(super) fn element_type(&mut self) -> Read<DType> {
        if self.peek().kind == Kind::Word && DType::from_name(self.text_of(self.peek())).is_some() {
            return self.dtype();
        }
        self.bad_attribute("an element type")
    }

    /// `[0, 2, 1]`.
    pub(super) fn counts(&mut self) -> Read<Vec<usize>> {
        if !self.eat("[") {
            return self.bad_attribute("a list of whole numbers");
        }
        let mut out = Vec::new();
        while !self.at_symbol("]") {
            out.push(self.count()?);
            if !self.eat(",") {
                break;
            }
        }
        self.expect("]")?;
        Ok(out)
    }

    /// `[B, 64]`.
    pub(super) fn dim_list(&mut self) -> Read<Vec<Dim>> {
        if self.at_symbol("[") {
            self.dims()
        } else {
            self.bad_attribute("a list of lengths")
        }
    }
}
