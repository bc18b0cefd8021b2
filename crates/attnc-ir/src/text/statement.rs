//! One line: an op, its operands and attributes, and the node they make.

use super::attributes::Attributes;
use super::expression::Scope;
use super::lexer::Kind;
use super::literal::{MAX_ELEMENTS, encode, from_hex, implied_dtype};
use super::parse::{Parser, Read, Value, closest};
use super::print::epilogue_dtype;
use crate::{
    Attention, BinaryOp, CompareOp, Conv, DType, Diagnostic, Dim, Op, PadMode, ReduceOp,
    TensorData, TensorType, UnaryOp, ValueId, infer,
};
use std::ops::Range;

/// The ops with a name of their own; the pointwise ones and reductions are listed by their enums.
const NAMED: [&str; 22] = [
    "constant",
    "reshape",
    "transpose",
    "broadcast",
    "slice",
    "concat",
    "pad",
    "gather",
    "gather_elements",
    "gather_nd",
    "iota",
    "length",
    "where",
    "cast",
    "cumsum",
    "softmax",
    "layer_norm",
    "rms_norm",
    "matmul",
    "conv",
    "attention",
    "map",
];

fn op_names() -> impl Iterator<Item = &'static str> {
    let reductions = [
        "reduce_sum",
        "reduce_mean",
        "reduce_min",
        "reduce_max",
        "reduce_prod",
        "reduce_any",
        "reduce_all",
    ];
    NAMED
        .into_iter()
        .chain(UnaryOp::ALL.iter().map(|op| op.name()))
        .chain(BinaryOp::ALL.iter().map(|op| op.name()))
        .chain(CompareOp::ALL.iter().map(|op| op.name()))
        .chain(reductions)
}

/// A literal as it is written.
struct Literal {
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
struct Stated {
    ty: Option<TensorType>,
    length: Option<Dim>,
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

    fn literal(&mut self) -> Read<Literal> {
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
    fn element(&mut self, literal: &Literal, dtype: DType) -> Read<Vec<u8>> {
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
        let stated_dtype = stated.ty.as_ref().map(|t| t.dtype);
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
        } else if let Some(dtype) = stated_dtype {
            ty.dtype = dtype;
        }
        self.sized(&ty, span.start)?;
        let id = self.graph.insert(op, &nodes, ty, Some(name));
        let node = self.graph.node_mut(id);
        node.epilogue = epilogue.map(|(_, expr)| expr);
        node.storage = storage;
        Ok(Value::Known(id))
    }

    fn op(&mut self, name: &str, stated: Stated, a: &mut Attributes, scope: &Scope) -> Read<Op> {
        if let Some(op) = UnaryOp::from_name(name) {
            return Ok(Op::Unary(op));
        }
        if let Some(op) = BinaryOp::from_name(name) {
            return Ok(Op::Binary(op));
        }
        if let Some(op) = CompareOp::from_name(name) {
            return Ok(Op::Compare(op));
        }
        if let Some(op) = name.strip_prefix("reduce_").and_then(ReduceOp::from_name) {
            let axes = self.required(a, "axes", Self::counts)?;
            let keep_dims = self.optional(a, "keep_dims", Self::flag)?.unwrap_or(false);
            return Ok(Op::Reduce {
                op,
                axes,
                keep_dims,
            });
        }
        Ok(match name {
            "reshape" => Op::Reshape(self.shape(a)?),
            "broadcast" => Op::Broadcast(self.shape(a)?),
            "transpose" => Op::Transpose(self.required(a, "perm", Self::counts)?),
            "slice" => Op::Slice {
                axis: self.axis(a)?,
                start: self.required(a, "start", Self::dim)?,
                len: self.required(a, "len", Self::dim)?,
                step: self.optional(a, "step", Self::integer)?.unwrap_or(1),
            },
            "concat" => Op::Concat {
                axis: self.axis(a)?,
            },
            "pad" => self.pad(a)?,
            "gather" => Op::Gather {
                axis: self.axis(a)?,
            },
            "gather_elements" => Op::GatherElements {
                axis: self.axis(a)?,
            },
            "gather_nd" => Op::GatherNd {
                batch_dims: self.required(a, "batch_dims", Self::count)?,
            },
            "iota" => Op::Iota {
                shape: stated.ty.unwrap_or(TensorType::scalar(DType::I32)).shape,
                axis: self.axis(a)?,
                start: self.optional(a, "start", Self::dim)?.unwrap_or_default(),
                step: self.optional(a, "step", Self::dim)?.unwrap_or(Dim::one()),
            },
            "length" => Op::Length(stated.length.unwrap_or_default()),
            "where" => Op::Where,
            "cast" => Op::Cast(self.required(a, "to", Self::element_type)?),
            "cumsum" => Op::CumSum {
                axis: self.axis(a)?,
                exclusive: self.optional(a, "exclusive", Self::flag)?.unwrap_or(false),
                reverse: self.optional(a, "reverse", Self::flag)?.unwrap_or(false),
            },
            "softmax" => Op::Softmax {
                axis: self.axis(a)?,
            },
            "layer_norm" => Op::LayerNorm {
                axis: self.axis(a)?,
                eps: self.required(a, "eps", Self::double)?,
            },
            "rms_norm" => Op::RmsNorm {
                axis: self.axis(a)?,
                eps: self.required(a, "eps", Self::double)?,
            },
            "matmul" => Op::MatMul,
            "conv" => Op::Conv(Conv {
                strides: self.required(a, "strides", Self::counts)?,
                dilations: self.required(a, "dilations", Self::counts)?,
                pads_before: self.required(a, "pads_before", Self::counts)?,
                pads_after: self.required(a, "pads_after", Self::counts)?,
                groups: self.optional(a, "groups", Self::count)?.unwrap_or(1),
            }),
            "attention" => self.attention(a, scope)?,
            _ => Op::Map {
                expr: self.required(a, "expr", |p| p.expression(scope))?,
                shape: stated.ty.unwrap_or(TensorType::scalar(DType::F32)).shape,
            },
        })
    }

    fn axis(&mut self, a: &mut Attributes) -> Read<usize> {
        self.required(a, "axis", Self::count)
    }

    fn shape(&mut self, a: &mut Attributes) -> Read<Vec<Dim>> {
        self.required(a, "shape", |p| {
            let start = p.peek().span.start;
            let shape = p.dim_list()?;
            p.sized(
                &TensorType {
                    dtype: DType::F32,
                    shape: shape.clone(),
                },
                start,
            )?;
            Ok(shape)
        })
    }

    fn pad(&mut self, a: &mut Attributes) -> Read<Op> {
        let before = self.required(a, "before", Self::dim_list)?;
        let after = self.required(a, "after", Self::dim_list)?;
        let modes = [("edge", PadMode::Edge), ("reflect", PadMode::Reflect)];
        let mode = match self.optional(a, "mode", |p| p.choice(&modes))? {
            Some(mode) => mode,
            None => PadMode::Constant(self.required(a, "value", Self::double)?),
        };
        Ok(Op::Pad {
            before,
            after,
            mode,
        })
    }

    fn attention(&mut self, a: &mut Attributes, scope: &Scope) -> Read<Op> {
        let scale = self.required(a, "scale", Self::double)?;
        let mask = Scope {
            captured_from: 3,
            attention: true,
            ..scope.clone()
        };
        let score = Scope {
            arg: Some("score"),
            ..mask.clone()
        };
        let score_mod = self.optional(a, "score_mod", |p| p.expression(&score))?;
        let mask_mod = self.optional(a, "mask_mod", |p| p.expression(&mask))?;
        Ok(Op::Attention(Attention {
            scale,
            score_mod,
            mask_mod,
        }))
    }

    /// `f32[2] [1.0, 2.0] weight "w"` and the other forms.
    fn constant(&mut self, name: &str, op_span: Range<usize>) -> Read<ValueId> {
        let start = self.peek().span.start;
        let ty = self.tensor_type()?;
        let span = start..self.previous_end();
        let size = |d: &Dim| d.as_const().and_then(|n| usize::try_from(n).ok());
        let Some(shape) = ty.shape.iter().map(size).collect::<Option<Vec<_>>>() else {
            return self.fail(
                "bad-literal",
                "a constant needs a shape of numbers",
                span,
                "not known now",
            );
        };
        let bytes = self.constant_bytes(ty.dtype, &shape, span)?;
        let mut weight = None;
        if self.at_word("weight") {
            self.next();
            weight = Some(self.string("the weight's name in quotes")?).filter(|n| !n.is_empty());
        }
        let mut attributes = Attributes::none(op_span);
        if self.eat(",") {
            attributes = self.attributes(attributes.op_span)?;
        }
        let storage = self.optional(&mut attributes, "storage", Self::counts)?;
        self.no_others(&attributes)?;
        let data = TensorData {
            dtype: ty.dtype,
            shape,
            name: weight.map(Into::into),
            bytes: bytes.map(Into::into),
        };
        let id = self.graph.insert(Op::Constant(data), &[], ty, Some(name));
        self.graph.node_mut(id).storage = storage;
        Ok(id)
    }

    fn string(&mut self, what: &str) -> Read<String> {
        let Kind::Text(text) = self.peek().kind.clone() else {
            return self.expected(what);
        };
        self.next();
        Ok(text)
    }

    /// The elements; `None` where only a weight is named.
    fn constant_bytes(
        &mut self,
        dtype: DType,
        shape: &[usize],
        span: Range<usize>,
    ) -> Read<Option<Vec<u8>>> {
        // No product can overflow: the type has fewer than 2^40 elements.
        let elements: usize = if shape.contains(&0) {
            0
        } else {
            shape.iter().product()
        };
        if self.at_word("weight") {
            return Ok(None);
        }
        let bytes = if self.at_word("splat") {
            self.next();
            if elements > MAX_ELEMENTS {
                let message = format!("{elements} elements; a splat has at most {MAX_ELEMENTS}");
                return self.fail("too-large", message, span, "too large");
            }
            let literal = self.literal()?;
            self.element(&literal, dtype)?.repeat(elements)
        } else if self.at_word("hex") {
            self.next();
            let at = self.peek().span.clone();
            let text = self.string("the bytes in quotes")?;
            match from_hex(&text) {
                Some(bytes) => bytes,
                None => {
                    return self.fail(
                        "bad-literal",
                        "not pairs of hex digits",
                        at,
                        "expected hex digits",
                    );
                }
            }
        } else if self.eat("[") {
            let mut bytes = Vec::new();
            while !self.at_symbol("]") {
                let literal = self.literal()?;
                bytes.extend(self.element(&literal, dtype)?);
                if !self.eat(",") {
                    break;
                }
            }
            self.expect("]")?;
            bytes
        } else if shape.is_empty() {
            let literal = self.literal()?;
            self.element(&literal, dtype)?
        } else {
            return self.expected("`[`, `splat`, `hex` or `weight`");
        };
        if bytes.len() != elements * dtype.bytes() {
            let found = bytes.len() / dtype.bytes();
            let message = format!("expected {elements} elements, found {found}");
            return self.fail("bad-literal", message, span, "of this type");
        }
        Ok(Some(bytes))
    }
}
