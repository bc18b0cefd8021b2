//! The frame of a graph: header, lines, outputs.

use super::lexer::Kind;
use super::parse::{Parser, Read, Stop, Value};
use crate::{Dim, Graph};

impl Parser<'_> {
    pub(super) fn graph(&mut self) {
        if self.header().is_err() {
            self.header_is_wrong = true;
            while !self.at_symbol("{") && self.peek().kind != Kind::End {
                self.next();
            }
            self.next();
        }
        let mut returned = false;
        loop {
            let start = self.at;
            let token = self.peek().clone();
            let read = match token.kind {
                Kind::Symbol("}") => {
                    if !returned {
                        let _: Read<()> = self.expected("`return` and the outputs");
                    }
                    self.next();
                    break;
                }
                Kind::Value(_) if !returned => self.definition(),
                Kind::Word if !returned && self.at_word("return") => {
                    returned = true;
                    self.outputs()
                }
                Kind::End if !self.out.0.is_empty() => return,
                _ if returned => self.expected("`}`"),
                _ => self.expected("`%value = …`, `return` or `}`"),
            };
            if read.and_then(|()| self.end_of_line()).is_err() {
                self.recover(start);
            }
            if self.peek().kind == Kind::End && self.at == start {
                return;
            }
        }
        if self.peek().kind != Kind::End {
            let _: Read<()> = self.expected("the end of the text: a file holds one graph");
        }
    }

    fn end_of_line(&mut self) -> Read<()> {
        let token = self.peek();
        if token.starts_line || token.kind == Kind::End || self.at_symbol("}") {
            return Ok(());
        }
        self.expected("`,` or the end of the line")
    }

    fn header(&mut self) -> Read<()> {
        if !self.at_word("graph") {
            return self.expected("`graph @name(…) {`");
        }
        self.next();
        let Kind::GraphName(name) = self.peek().kind.clone() else {
            return self.expected("the graph's name, as in `@name`");
        };
        self.next();
        self.graph = Graph::new(&name);
        self.expect("(")?;
        let mut wrong = false;
        while !self.at_symbol(")") {
            if self.parameter().is_err() {
                wrong = true;
                self.skip_parameter();
            }
            if !self.eat(",") {
                break;
            }
        }
        self.expect(")")?;
        self.expect("{")?;
        self.header_is_wrong = wrong;
        Ok(())
    }

    fn skip_parameter(&mut self) {
        let mut depth = 0usize;
        loop {
            match self.peek().kind {
                Kind::End | Kind::Symbol("{") => return,
                Kind::Symbol("[" | "(") => depth += 1,
                Kind::Symbol("]") => depth = depth.saturating_sub(1),
                Kind::Symbol(")" | ",") if depth == 0 => return,
                Kind::Symbol(")") => depth -= 1,
                _ => {}
            }
            self.next();
        }
    }

    fn parameter(&mut self) -> Read<()> {
        let Kind::Value(name) = self.peek().kind.clone() else {
            return self.expected("an input, as in `%x: f32[B, 64]`");
        };
        let start = self.next().span.start;
        self.expect(":")?;
        let ty = self.tensor_type()?;
        let span = start..self.previous_end();
        if !self.is_free(&name, &span) {
            return Ok(());
        }
        self.lengths.extend(
            ty.shape
                .iter()
                .flat_map(Dim::symbols)
                .map(|s| s.to_string()),
        );
        let id = self.graph.add_input(&name, ty);
        self.define(&name, span, Value::Known(id));
        Ok(())
    }

    /// Where the last token that was read ends.
    pub(super) fn previous_end(&self) -> usize {
        self.tokens[self.at.saturating_sub(1)].span.end
    }

    fn definition(&mut self) -> Read<()> {
        let Kind::Value(name) = self.peek().kind.clone() else {
            return self.expected("`%value = …`");
        };
        let start = self.next().span.start;
        let read = self.expect("=").and_then(|()| self.statement(&name));
        let span = start..self.previous_end().max(start);
        if !self.is_free(
            &name,
            &(start..start + 1 + name.len().min(self.text.len() - start - 1)),
        ) {
            return read.map(|_| ());
        }
        let value = match &read {
            Ok(value) => *value,
            Err(Stop) => Value::Unknown,
        };
        self.define(&name, span, value);
        read.map(|_| ())
    }

    fn outputs(&mut self) -> Read<()> {
        self.next();
        let end = |p: &Self| {
            let token = p.peek();
            token.starts_line || token.kind == Kind::End || p.at_symbol("}")
        };
        if end(self) {
            return Ok(());
        }
        loop {
            let Kind::Value(name) = self.peek().kind.clone() else {
                return self.expected("an output, as in `%value` or `%value as \"name\"`");
            };
            let span = self.next().span;
            let value = self.lookup(&name, span);
            let mut output = name;
            if self.at_word("as") {
                self.next();
                let Kind::Text(text) = self.peek().kind.clone() else {
                    return self.expected("the name of the output in quotes");
                };
                self.next();
                output = text;
            }
            if let Value::Known(id) = value {
                self.graph.add_output(&output, id);
            }
            if !self.eat(",") {
                return Ok(());
            }
        }
    }
}
