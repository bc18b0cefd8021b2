//! What stands between the operators of an expression: literals, names, loads and calls.

use super::expression::{Level, Reader};
use super::lexer::Kind;
use super::parse::{Read, Stop, closest};
use super::print::{ATTENTION_INDICES, named_operand};
use crate::scalar::{ExprId, Scalar};
use crate::{BinaryOp, DType, Dim, Extents, UnaryOp, verify};
use std::ops::Range;

impl Reader<'_, '_> {
    pub(super) fn atom(&mut self, negative: bool) -> Read<ExprId> {
        let token = self.p.peek().clone();
        let text = self.p.text_of(&token);
        let sign = if negative { "-" } else { "" };
        match &token.kind {
            Kind::Integer => {
                let Ok(n) = format!("{sign}{text}").parse::<i64>() else {
                    return self.p.fail(
                        "bad-number",
                        "a number of more than 63 bits",
                        token.span,
                        "too large",
                    );
                };
                self.p.next();
                self.int(Dim::from(n), token.span.start)
            }
            Kind::Decimal => {
                let value = format!("{sign}{text}")
                    .parse::<f32>()
                    .unwrap_or(f32::INFINITY);
                if value.is_infinite() {
                    return self.p.fail(
                        "bad-number",
                        "a number beyond f32",
                        token.span,
                        "too large",
                    );
                }
                self.p.next();
                Ok(self.builder.push(Scalar::float(value), DType::F32))
            }
            Kind::Symbol("(") => {
                self.p.next();
                let value = self.level(Level::Or)?;
                self.p.expect(")")?;
                Ok(value)
            }
            Kind::Value(name) => {
                self.p.next();
                self.load(name, token.span)
            }
            Kind::Word => {
                self.p.next();
                if self.p.at_symbol("(") {
                    self.call(text, token.span)
                } else {
                    self.named(text, negative, token.span)
                }
            }
            _ if self.scope.is_some() => self.p.expected("an expression"),
            _ => self.p.expected("a length"),
        }
    }

    /// A word that is no function.
    fn named(&mut self, word: &str, negative: bool, span: Range<usize>) -> Read<ExprId> {
        let index = word
            .strip_prefix('d')
            .filter(|n| n.len() == 1 || !n.starts_with('0'));
        let index = index
            .and_then(|n| n.parse::<u32>().ok())
            .filter(|_| !word.contains('+'));
        if let Some(scope) = self.scope {
            if scope.arg == Some(word) {
                return Ok(self.builder.push(Scalar::Arg, DType::F32));
            }
            if let Some(&bound) = self.bindings.get(word) {
                return Ok(bound);
            }
            match word {
                "true" | "false" => {
                    return Ok(self.builder.push(Scalar::Bool(word == "true"), DType::Bool));
                }
                "inf" => {
                    let value = if negative {
                        f32::NEG_INFINITY
                    } else {
                        f32::INFINITY
                    };
                    return Ok(self.builder.push(Scalar::float(value), DType::F32));
                }
                "nan" => return Ok(self.builder.push(Scalar::float(f32::NAN), DType::F32)),
                _ => {}
            }
            let short = ATTENTION_INDICES.iter().position(|name| *name == word);
            let short = short.filter(|_| scope.attention && !self.p.lengths.contains(word));
            if let Some(n) = index.or(short.and_then(|n| u32::try_from(n).ok())) {
                return self.int(Dim::index(n), span.start);
            }
        }
        if !verify::is_length_name(word) {
            let message = format!("`{word}` does not stand for a length");
            return self.p.fail("syntax", message, span, "expected a length");
        }
        self.int(Dim::sym(word), span.start)
    }

    /// `%x[i, j]` or, where `x` is an operand twice, `%x#3[i, j]`.
    fn load(&mut self, name: &str, span: Range<usize>) -> Read<ExprId> {
        let Some(scope) = self.scope else {
            return self.p.fail(
                "syntax",
                "a value where a length must stand",
                span,
                "expected a length",
            );
        };
        let names: Vec<_> = scope.operands.iter().map(|(n, _)| n.clone()).collect();
        let operand = if self.p.eat("#") {
            let n = self.p.count()?;
            (names.get(n).and_then(Option::as_deref) == Some(name)).then_some(n)
        } else {
            named_operand(&names, scope.captured_from, &Some(name.to_owned()))
        };
        let Some(operand) = operand else {
            let message = format!(
                "{} is not an operand of this op",
                super::sigil_name('%', name)
            );
            return self.p.fail(
                "bad-expression",
                message,
                span,
                "list it among the operands",
            );
        };
        self.p.expect("[")?;
        let mut index = Vec::new();
        while !self.p.at_symbol("]") {
            let start = self.p.peek().span.start;
            let at = self.level(Level::Or)?;
            if self.builder.dtype(at) != DType::I32 {
                let found = self.builder.dtype(at);
                return self.bad(format!("an index of type {found}; expected i32"), start);
            }
            index.push(at);
            if !self.p.eat(",") {
                break;
            }
        }
        self.p.expect("]")?;
        // An unknown operand was reported where it should have been defined.
        let ty = scope.operands[operand].1.as_ref().ok_or(Stop)?;
        if index.len() != ty.rank() {
            let message = format!(
                "{ty} has {} axes; found a load with {} indices",
                ty.rank(),
                index.len()
            );
            return self.bad(message, span.start);
        }
        Ok(self.builder.load(operand, ty.dtype, index))
    }

    /// `name(a, b)`.
    fn call(&mut self, name: &str, span: Range<usize>) -> Read<ExprId> {
        let start = span.start;
        self.p.expect("(")?;
        let mut arguments = Vec::new();
        while !self.p.at_symbol(")") {
            arguments.push(self.level(Level::Or)?);
            if !self.p.eat(",") {
                break;
            }
        }
        self.p.expect(")")?;
        let dtype = DType::from_name(name);
        match (name, dtype, arguments.as_slice()) {
            ("select", _, &[c, a, b]) => {
                let condition = self.builder.dtype(c);
                if condition != DType::Bool {
                    return self.bad(
                        format!("`select` takes a bool condition, found {condition}"),
                        start,
                    );
                }
                let dtype = self.same_type("select", a, b, start)?;
                Ok(self.builder.push(Scalar::Select(c, a, b), dtype))
            }
            ("floordiv", _, &[a, b]) => self.floor_div(a, b, start),
            (_, Some(dtype), &[a]) => {
                // The compute type of every float is f32.
                let dtype = if dtype.is_float() { DType::F32 } else { dtype };
                if self.builder.dtype(a) == dtype {
                    return Ok(a);
                }
                Ok(self.builder.push(Scalar::Cast(dtype, a), dtype))
            }
            (_, _, &[a]) if UnaryOp::from_name(name).is_some() => {
                let op = UnaryOp::from_name(name).unwrap_or(UnaryOp::Neg);
                self.unary(op, a, start)
            }
            (_, _, &[a, b]) if BinaryOp::from_name(name).is_some() => {
                let op = BinaryOp::from_name(name).unwrap_or(BinaryOp::Add);
                self.binary(op, name, a, b, start)
            }
            _ => self.no_such_function(name, arguments.len(), span),
        }
    }

    fn floor_div(&mut self, a: ExprId, b: ExprId, start: usize) -> Read<ExprId> {
        let (Some(x), Some(y)) = (self.builder.as_int(a), self.builder.as_int(b)) else {
            return self.bad(
                "`floordiv` takes lengths and indices; divide other values by `/`".to_owned(),
                start,
            );
        };
        if y.is(0) {
            return self.bad("division by zero".to_owned(), start);
        }
        let quotient = x.floor_div(y, &Extents::none());
        self.int(quotient, start)
    }

    fn no_such_function(&mut self, name: &str, count: usize, span: Range<usize>) -> Read<ExprId> {
        let known = UnaryOp::ALL
            .iter()
            .map(|op| (op.name(), 1))
            .chain(BinaryOp::ALL.iter().map(|op| (op.name(), 2)))
            .chain(DType::ALL.map(|d| (d.name(), 1)))
            .chain([("select", 3), ("floordiv", 2)]);
        let known: Vec<(&str, usize)> = known.collect();
        let message = match known.iter().find(|(n, _)| *n == name) {
            Some((_, wanted)) => format!("`{name}` takes {wanted} arguments, found {count}"),
            None => match closest(name, known.iter().map(|(n, _)| *n)) {
                Some(close) => format!("there is no function `{name}`; is `{close}` meant?"),
                None => format!("there is no function `{name}`"),
            },
        };
        self.p.fail("bad-expression", message, span, "here")
    }
}
