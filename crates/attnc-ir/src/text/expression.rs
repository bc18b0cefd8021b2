//! Scalar expressions and lengths: precedence climbing over tokens.
//!
//! Nothing is simplified, so that what was printed reads back to the same nodes; only sums, products, minima
//! and maxima of lengths and indices become polynomials, as they are in every [`ScalarExpr`].

use super::lexer::Kind;
use super::parse::{Parser, Read};
use crate::scalar::{ExprId, Scalar, ScalarBuilder, ScalarExpr};
use crate::{BinaryOp, CompareOp, DType, Dim, Extents, TensorType, UnaryOp, verify};
use std::collections::HashMap;

/// Deeper nesting is refused, so that hostile input cannot exhaust the stack.
const MAX_DEPTH: usize = 128;

/// What an expression may refer to.
#[derive(Clone)]
pub(super) struct Scope {
    /// Name and type of each operand; no type where it is unknown, no name where it is a literal.
    pub(super) operands: Vec<(Option<String>, Option<TensorType>)>,
    /// Names mean operands from here on first.
    pub(super) captured_from: usize,
    /// Whether `b, h, q_idx, kv_idx` are index variables.
    pub(super) attention: bool,
    /// The argument's name, where there is one.
    pub(super) arg: Option<&'static str>,
}

pub(super) struct Reader<'p, 'a> {
    pub(super) p: &'p mut Parser<'a>,
    /// `None` in a type or attribute, where only lengths stand.
    pub(super) scope: Option<&'p Scope>,
    pub(super) builder: ScalarBuilder,
    pub(super) bindings: HashMap<String, ExprId>,
    depth: usize,
}

impl<'a> Parser<'a> {
    /// `{ e0 = …; e0 * 2.0 }`.
    pub(super) fn expression(&mut self, scope: &Scope) -> Read<ScalarExpr> {
        self.expect("{")?;
        let mut reader = self.reader(Some(scope));
        while reader.binding()? {}
        let root = reader.level(Level::Or)?;
        let expr = reader.builder.finish(root);
        self.expect("}")?;
        Ok(expr)
    }

    /// A length: `2 * S + 1`.
    pub(super) fn dim(&mut self) -> Read<Dim> {
        let start = self.peek().span.start;
        let mut reader = self.reader(None);
        let id = reader.level(Level::Sum)?;
        match reader.builder.as_int(id) {
            Some(dim) => Ok(dim.clone()),
            None => {
                let span = start..self.previous_end();
                self.fail(
                    "syntax",
                    "expected a length",
                    span,
                    "not made of numbers and lengths",
                )
            }
        }
    }

    fn reader<'p>(&'p mut self, scope: Option<&'p Scope>) -> Reader<'p, 'a> {
        Reader {
            p: self,
            scope,
            builder: ScalarBuilder::new(Extents::none()),
            bindings: HashMap::new(),
            depth: 0,
        }
    }
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(super) enum Level {
    Or,
    And,
    Compare,
    Sum,
    Product,
    Prefix,
}

impl Level {
    fn next(self) -> Self {
        match self {
            Self::Or => Self::And,
            Self::And => Self::Compare,
            Self::Compare => Self::Sum,
            Self::Sum => Self::Product,
            Self::Product | Self::Prefix => Self::Prefix,
        }
    }
}

#[derive(Clone, Copy)]
enum Infix {
    Binary(BinaryOp),
    Compare(CompareOp),
}

fn infix(symbol: &str) -> Option<(Infix, Level)> {
    Some(match symbol {
        "|" => (Infix::Binary(BinaryOp::Or), Level::Or),
        "&" => (Infix::Binary(BinaryOp::And), Level::And),
        "==" => (Infix::Compare(CompareOp::Eq), Level::Compare),
        "!=" => (Infix::Compare(CompareOp::Ne), Level::Compare),
        "<" => (Infix::Compare(CompareOp::Lt), Level::Compare),
        "<=" => (Infix::Compare(CompareOp::Le), Level::Compare),
        ">" => (Infix::Compare(CompareOp::Gt), Level::Compare),
        ">=" => (Infix::Compare(CompareOp::Ge), Level::Compare),
        "+" => (Infix::Binary(BinaryOp::Add), Level::Sum),
        "-" => (Infix::Binary(BinaryOp::Sub), Level::Sum),
        "*" => (Infix::Binary(BinaryOp::Mul), Level::Product),
        "/" => (Infix::Binary(BinaryOp::Div), Level::Product),
        _ => return None,
    })
}

impl Reader<'_, '_> {
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth >= MAX_DEPTH {
            let span = self.p.peek().span.clone();
            let message = format!("an expression nests more than {MAX_DEPTH} deep");
            return self.p.fail("too-complex", message, span, "too deep");
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    pub(super) fn bad<T>(&mut self, message: String, start: usize) -> Read<T> {
        let span = start..self.p.previous_end();
        self.p.fail("bad-expression", message, span, "here")
    }

    pub(super) fn int(&mut self, dim: Dim, start: usize) -> Read<ExprId> {
        if !verify::is_workable(&dim) {
            let span = start..self.p.previous_end();
            let diagnostic = verify::too_complex().label(span, "too complex");
            return self.p.report(diagnostic);
        }
        Ok(self.builder.push(Scalar::Int(dim), DType::I32))
    }

    /// `e0 = …;`, if one is next.
    fn binding(&mut self) -> Read<bool> {
        if !self.p.at_attribute() {
            return Ok(false);
        }
        let (name, span) = self.p.word("a binding")?;
        let name = name.to_owned();
        let numbered = name.len() > 1
            && name.starts_with('e')
            && name[1..].bytes().all(|b| b.is_ascii_digit());
        if !numbered || self.bindings.contains_key(&name) {
            return self.p.fail(
                "syntax",
                "bindings are called e0, e1, …, each once",
                span,
                "not a new one",
            );
        }
        self.p.expect("=")?;
        let value = self.level(Level::Or)?;
        self.p.expect(";")?;
        self.bindings.insert(name, value);
        Ok(true)
    }

    /// Operators of that level or tighter.
    pub(super) fn level(&mut self, least: Level) -> Read<ExprId> {
        self.deeper(|r| {
            let start = r.p.peek().span.start;
            let mut left = r.prefix()?;
            let mut compared = false;
            loop {
                let Kind::Symbol(symbol) = r.p.peek().kind else {
                    return Ok(left);
                };
                let Some((op, level)) = infix(symbol).filter(|(_, level)| *level >= least) else {
                    return Ok(left);
                };
                if level == Level::Compare && std::mem::replace(&mut compared, true) {
                    return r.p.expected("parentheses: comparisons do not chain");
                }
                compared &= level >= Level::Compare;
                r.p.next();
                let right = r.level(level.next())?;
                left = r.infix(op, symbol, left, right, start)?;
            }
        })
    }

    fn infix(
        &mut self,
        op: Infix,
        symbol: &str,
        a: ExprId,
        b: ExprId,
        start: usize,
    ) -> Read<ExprId> {
        match op {
            Infix::Binary(op) => self.binary(op, symbol, a, b, start),
            Infix::Compare(op) => {
                self.same_type(symbol, a, b, start)?;
                Ok(self.builder.push(Scalar::Compare(op, a, b), DType::Bool))
            }
        }
    }

    pub(super) fn same_type(
        &mut self,
        name: &str,
        a: ExprId,
        b: ExprId,
        start: usize,
    ) -> Read<DType> {
        let (x, y) = (self.builder.dtype(a), self.builder.dtype(b));
        if x == y {
            return Ok(x);
        }
        self.bad(
            format!(
                "`{name}` of {x} and {y}; expected one type: write 1.0 for 1, or cast as in f32(…)"
            ),
            start,
        )
    }

    pub(super) fn binary(
        &mut self,
        op: BinaryOp,
        name: &str,
        a: ExprId,
        b: ExprId,
        start: usize,
    ) -> Read<ExprId> {
        let dtype = self.same_type(name, a, b, start)?;
        let logical = matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor);
        if logical != (dtype == DType::Bool) {
            let wanted = if logical { "bools" } else { "numbers" };
            return self.bad(format!("`{name}` takes {wanted}, found {dtype}"), start);
        }
        if let (Some(x), Some(y)) = (self.builder.as_int(a), self.builder.as_int(b)) {
            let (x, y) = (x.clone(), y.clone());
            let none = Extents::none();
            let folded = match op {
                BinaryOp::Add => Some(x + y),
                BinaryOp::Sub => Some(x - y),
                BinaryOp::Mul => Some(x * y),
                BinaryOp::Min => Some(x.minimum(&y, &none)),
                BinaryOp::Max => Some(x.maximum(&y, &none)),
                _ => None,
            };
            if let Some(folded) = folded {
                return self.int(folded, start);
            }
        }
        Ok(self.builder.push(Scalar::Binary(op, a, b), dtype))
    }

    fn prefix(&mut self) -> Read<ExprId> {
        let start = self.p.peek().span.start;
        if !self.p.eat("-") {
            return self.atom(false);
        }
        // The sign belongs to a literal, as in the printed form.
        let token = self.p.peek();
        if matches!(token.kind, Kind::Integer | Kind::Decimal) || self.p.at_word("inf") {
            return self.atom(true);
        }
        let value = self.deeper(Self::prefix)?;
        self.negated(value, start)
    }

    fn negated(&mut self, value: ExprId, start: usize) -> Read<ExprId> {
        if let Some(dim) = self.builder.as_int(value) {
            let dim = -dim.clone();
            return self.int(dim, start);
        }
        self.unary(UnaryOp::Neg, value, start)
    }

    pub(super) fn unary(&mut self, op: UnaryOp, a: ExprId, start: usize) -> Read<ExprId> {
        let dtype = self.builder.dtype(a);
        let (fits, result) = match op {
            UnaryOp::Not => (dtype == DType::Bool, DType::Bool),
            UnaryOp::IsNan | UnaryOp::IsInf => (dtype.is_float(), DType::Bool),
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Relu => {
                (dtype != DType::Bool, dtype)
            }
            _ => (dtype.is_float(), dtype),
        };
        if !fits {
            return self.bad(format!("`{}` does not take {dtype}", op.name()), start);
        }
        Ok(self.builder.push(Scalar::Unary(op, a), result))
    }
}
