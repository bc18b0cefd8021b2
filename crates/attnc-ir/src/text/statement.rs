//! One line: an op, its operands and attributes, and the node they make.

use super::attributes::Attributes;
use super::expression::Scope;
use super::lexer::Kind;
use super::literal::{encode, implied_dtype};
use super::operation::op_names;
use super::parse::{Parser, Read, Value, closest};
use super::print::epilogue_dtype;
use crate::{DType, Diagnostic, Dim, Op, TensorData, TensorType, ValueId, infer};
use std::ops::Range;

/// A literal as it is written.
pub(super) struct Literal {
    dtype: Option<DType>,
    text: String,
    span: Range<usize>,
}

enum Operand {
    Value(String, Value),
    Literal(Literal),
}

/// What stands between the op and the operands.
#[derive(Default)]
pub(super) struct Stated {
    pub(super) ty: Option<TensorType>,
    pub(super) length: Option<Dim>,
}

impl Parser<'_> {
    /// Reads what is right of `%name =` and adds the node.
    pub(super) fn statement(&mut self, name: &str) -> Read<Value> {
        let (op, op_span) = self.word("an op")?;
        let op = op.to_owned();
        if !op_names().any(|known| known == op) {
            let mut diagnostic = Diagnostic::error("unknown-op", format!("there is no op `{op}`"))
                .label(op_span, "unknown");
            if let Some(close) = closest(&op, op_names()) {
                diagnostic = diagnostic.note(format!("is `{close}` meant?"));
            }
            return self.report(diagnostic);
        }
        if op == "constant" {
            return self.constant(name, op_span).map(Value::Known);
        }
        let mut stated = Stated::default();
        match op.as_str() {
            "iota" | "map" => stated.ty = Some(self.tensor_type()?),
            "length" => stated.length = Some(self.dim()?),
            _ => {}
        }
        let needs_comma = stated.ty.is_some() || stated.length.is_some();
        let operands = if !needs_comma || self.eat(",") {
            self.operands()?
        } else {
            Vec::new()
        };
        let span = op_span.start..self.previous_end();
        let mut attributes = self.attributes(op_span)?;
        self.node(name, &op, stated, operands, &mut attributes, span)
    }

    /// `%x, 0.5, f32 1.0` up to the attributes or the end of the line.
    fn operands(&mut self) -> Read<Vec<Operand>> {
        let mut out = Vec::new();
        loop {
            let token = self.peek().clone();
            if let Kind::Value(name) = token.kind {
                self.next();
                let value = self.lookup(&name, token.span);
                out.push(Operand::Value(name, value));
            } else if self.at_literal() {
                out.push(Operand::Literal(self.literal()?));
            } else if self.at_attribute() || (out.is_empty() && token.starts_line) {
                return Ok(out);
            } else {
                return self.expected("an operand or an attribute");
            }
            if !self.eat(",") {
                return Ok(out);
            }
        }
    }

    fn at_literal(&self) -> bool {
        match self.peek().kind {
            Kind::Integer | Kind::Decimal | Kind::Symbol("-") => true,
            Kind::Word if !self.at_attribute() => {
                let word = self.text_of(self.peek());
                matches!(word, "true" | "false" | "inf" | "nan") || DType::from_name(word).is_some()
            }
            _ => false,
        }
    }

    pub(super) fn literal(&mut self) -> Read<Literal> {
        let start = self.peek().span.start;
        let stated = if self.peek().kind == Kind::Word {
            DType::from_name(self.text_of(self.peek()))
        } else {
            None
        };
        if stated.is_some() {
            self.next();
        }
        let sign = if self.eat("-") { "-" } else { "" };
        let token = self.peek().clone();
        let word = self.text_of(&token);
        let named = matches!(word, "true" | "false" | "inf" | "nan");
        if !(matches!(token.kind, Kind::Integer | Kind::Decimal)
            || token.kind == Kind::Word && named)
        {
            return self.expected("a literal");
        }
        self.next();
        Ok(Literal {
            dtype: stated,
            text: format!("{sign}{word}"),
            span: start..token.span.end,
        })
    }

    /// The bytes of a literal as an element of a type.
    pub(super) fn element(&mut self, literal: &Literal, dtype: DType) -> Read<Vec<u8>> {
        match encode(dtype, &literal.text) {
            Some(bytes) => Ok(bytes),
            None => self.fail(
                "bad-literal",
                format!(
                    "`{}` is not the text of a value of type {dtype}",
                    literal.text
                ),
                literal.span.clone(),
                format!("expected {dtype}"),
            ),
        }
    }

    /// The node of a literal operand; equal literals share one.
    fn literal_node(&mut self, literal: &Literal, implied: Option<DType>) -> Read<ValueId> {
        let Some(dtype) = literal.dtype.or(implied) else {
            return self.report(
                Diagnostic::error(
                    "bad-literal",
                    format!("the element type of `{}` is not known here", literal.text),
                )
                .label(literal.span.clone(), "of which type?")
                .note(format!("state it, as in `f32 {}`", literal.text)),
            );
        };
        let bytes = self.element(literal, dtype)?;
        if let Some(&id) = self.literals.get(&(dtype, bytes.clone())) {
            return Ok(id);
        }
        let name = (0..)
            .map(|n| format!("c{n}"))
            .find(|n| !self.taken.contains(n))
            .expect("endless");
        self.taken.insert(name.clone());
        let data = TensorData::new(dtype, Vec::new(), bytes.clone().into());
        let id = self.graph.insert(
            Op::Constant(data),
            &[],
            TensorType::scalar(dtype),
            Some(&name),
        );
        self.literals.insert((dtype, bytes), id);
        Ok(id)
    }

    /// The operands as nodes; `None` where one is unknown.
    fn operand_nodes(&mut self, op: &str, operands: &[Operand]) -> Read<Option<Vec<ValueId>>> {
        let known = |o: &Operand| match o {
            Operand::Value(_, Value::Known(id)) => Some(*id),
            _ => None,
        };
        if operands
            .iter()
            .any(|o| matches!(o, Operand::Value(_, Value::Unknown)))
        {
            return Ok(None);
        }
        let dtypes: Vec<_> = operands
            .iter()
            .map(|o| known(o).map(|id| self.graph.ty(id).dtype))
            .collect();
        let mut out = Vec::new();
        for (n, operand) in operands.iter().enumerate() {
            out.push(match operand {
                Operand::Value(..) => known(operand).expect("unknown ones were sorted out"),
                Operand::Literal(literal) => {
                    self.literal_node(literal, implied_dtype(op, n, &dtypes))?
                }
            });
        }
        Ok(Some(out))
    }

    fn node(
        &mut self,
        name: &str,
        op_name: &str,
        stated: Stated,
        operands: Vec<Operand>,
        attributes: &mut Attributes,
        span: Range<usize>,
    ) -> Read<Value> {
        let nodes = self.operand_nodes(op_name, &operands)?;
        let scope_operands = operands
            .iter()
            .enumerate()
            .map(|(n, o)| match o {
                Operand::Value(name, _) => (
                    Some(name.clone()),
                    nodes.as_ref().map(|ids| self.graph.ty(ids[n]).clone()),
                ),
                Operand::Literal(_) => (None, None),
            })
            .collect();
        let scope = Scope {
            operands: scope_operands,
            captured_from: 0,
            attention: false,
            arg: None,
        };
        let op = self.op(op_name, stated, attributes, &scope)?;
        let mut epilogue = None;
        if op.takes_epilogue() {
            let scope = Scope {
                captured_from: op.arity().0,
                arg: Some("acc"),
                ..scope
            };
            epilogue = self.optional(attributes, "epilogue", |p| {
                let dtype = if p.at_symbol("{") {
                    None
                } else {
                    Some(p.element_type()?)
                };
                Ok((dtype, p.expression(&scope)?))
            })?;
        }
        let storage = self.optional(attributes, "storage", Self::counts)?;
        self.no_others(attributes)?;
        let Some(nodes) = nodes else {
            return Ok(Value::Unknown);
        };

        let types: Vec<&TensorType> = nodes.iter().map(|&o| self.graph.ty(o)).collect();
        let mut ty = match infer::result_type(&op, &types) {
            Ok(ty) => ty,
            Err(diagnostic) => {
                return self.report(diagnostic.label(span, "these operands do not fit"));
            }
        };
        if let Some((dtype, expr)) = &epilogue {
            ty.dtype =
                dtype.unwrap_or_else(|| epilogue_dtype(expr, types.first().map(|t| t.dtype)));
        }
        self.sized(&ty, span.start)?;
        let id = self.graph.insert(op, &nodes, ty, Some(name));
        let node = self.graph.node_mut(id);
        node.epilogue = epilogue.map(|(_, expr)| expr);
        node.storage = storage;
        Ok(Value::Known(id))
    }
}
