//! The line of a constant: its type, its elements in one of the forms there are, its weight name.

use super::attributes::Attributes;
use super::lexer::Kind;
use super::literal::{MAX_ELEMENTS, from_hex};
use super::parse::{Parser, Read};
use crate::{DType, Dim, Op, TensorData, ValueId};
use std::ops::Range;

impl Parser<'_> {
    /// `f32[2] [1.0, 2.0] weight "w"` and the other forms.
    pub(super) fn constant(&mut self, name: &str, op_span: Range<usize>) -> Read<ValueId> {
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
