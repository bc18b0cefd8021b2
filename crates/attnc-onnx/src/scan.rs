//! A look over the bytes of a model before they are decoded, so that decoding allocates no more than a
//! small multiple of them.
//!
//! An empty message inside another takes two bytes of a file and hundreds in memory, so a file of such
//! messages would unfold to a hundred times its size. The scan reads tags and lengths only, knows which
//! fields hold messages, and adds up what decoding will allocate for them; weights are skipped in one step.
//!
//! ```text
//! 0a 04 2a 00 2a 00      a node with two empty attributes: 6 bytes, 1.4 kB in memory
//! ```
//!
//! Invariant on exit: `Ok` says that decoding allocates at most [`FACTOR`] bytes for each byte of the file,
//! and [`SPARE`] more. Bytes that are no message end the scan early; decoding ends at the same place.

use crate::proto::{
    AttributeProto, DimensionProto, ElementTypeProto, FunctionProto, GraphProto, NodeProto,
    OperatorSetIdProto, SparseTensorProto, StringStringEntryProto, TensorProto, TensorShapeProto,
    TensorTypeProto, TypeProto, ValueInfoProto,
};
use std::mem::size_of;

/// Bytes of memory for a byte of the file. Files of exporters need at most two thirds of it.
const FACTOR: usize = 64;
/// Bytes of memory that every file may need.
const SPARE: usize = 1 << 20;
/// Messages in messages, so deep; decoding stops there too.
const MAX_DEPTH: usize = 100;

/// The messages of a file; see [`crate::proto`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Sparse,
    ValueInfo,
    Type,
    ElementType,
    TensorType,
    Shape,
    Dimension,
    Function,
    Opset,
    Entry,
}

/// What a field of a message holds.
enum Field {
    Message(Kind),
    /// A string or bytes, and bytes of memory for each in a list.
    Text(usize),
    /// A list of numbers, so large in memory; in the file one is at least a byte.
    Numbers(usize),
    Other,
}

impl Kind {
    /// Bytes of memory for one.
    fn size(self) -> usize {
        match self {
            Self::Model => 0,
            Self::Graph => size_of::<GraphProto>(),
            Self::Node => size_of::<NodeProto>(),
            Self::Attribute => size_of::<AttributeProto>(),
            Self::Tensor => size_of::<TensorProto>(),
            Self::Sparse => size_of::<SparseTensorProto>(),
            Self::ValueInfo => size_of::<ValueInfoProto>(),
            Self::Type => size_of::<TypeProto>(),
            Self::ElementType => size_of::<ElementTypeProto>(),
            Self::TensorType => size_of::<TensorTypeProto>(),
            Self::Shape => size_of::<TensorShapeProto>(),
            Self::Dimension => size_of::<DimensionProto>(),
            Self::Function => size_of::<FunctionProto>(),
            Self::Opset => size_of::<OperatorSetIdProto>(),
            Self::Entry => size_of::<StringStringEntryProto>(),
        }
    }

    fn field(self, number: u64) -> Field {
        use Field::{Message, Numbers, Text};
        const STRING: usize = size_of::<String>();
        const BYTES: usize = size_of::<bytes::Bytes>();
        match (self, number) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) => Message(Self::Graph),
            (Self::Model, 8) | (Self::Function, 9) => Message(Self::Opset),
            (Self::Model, 14) | (Self::Tensor, 13) => Message(Self::Entry),
            (Self::Model, 25) => Message(Self::Function),
            (Self::Graph, 1) | (Self::Function, 7) => Message(Self::Node),
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::Sparse, 1 | 2) => {
                Message(Self::Tensor)
            }
            (Self::Graph, 11 | 12) => Message(Self::ValueInfo),
            (Self::Graph, 15) | (Self::Attribute, 22) => Message(Self::Sparse),
            (Self::Node, 5) | (Self::Function, 11) => Message(Self::Attribute),
            (Self::ValueInfo, 2) => Message(Self::Type),
            (Self::Type, 1) => Message(Self::TensorType),
            (Self::Type, 4 | 5 | 8 | 9) => Message(Self::ElementType),
            (Self::TensorType, 2) => Message(Self::Shape),
            (Self::Shape, 1) => Message(Self::Dimension),
            (Self::Node, 1 | 2) | (Self::Function, 4..=6) => Text(STRING),
            (Self::Attribute, 9) | (Self::Tensor, 6) => Text(BYTES),
            (Self::Attribute | Self::Tensor, 7 | 8)
            | (Self::Tensor, 1 | 11)
            | (Self::Sparse, 3) => Numbers(8),
            (Self::Tensor, 5) => Numbers(4),
            _ => Field::Other,
        }
    }
}

/// A message that is being scanned: where it ends, and its field before.
struct Open {
    kind: Kind,
    end: usize,
    last: u64,
}

/// Refuses a model whose decoding would allocate out of proportion, with the reason.
pub(crate) fn check(bytes: &[u8]) -> Result<(), String> {
    let budget = bytes.len().saturating_mul(FACTOR).saturating_add(SPARE);
    match memory(bytes, budget) {
        needed if needed <= budget => Ok(()),
        _ => Err(format!(
            "its messages would unfold to more than {FACTOR} times the file: they are mostly empty"
        )),
    }
}

/// Bytes of memory that decoding allocates, counted until there are more than `budget`.
fn memory(bytes: &[u8], budget: usize) -> usize {
    let mut at = 0;
    let mut needed = 0usize;
    let mut open = vec![Open {
        kind: Kind::Model,
        end: bytes.len(),
        last: 0,
    }];
    while let Some(message) = open.last_mut() {
        if needed > budget {
            break;
        }
        if at >= message.end {
            open.pop();
            continue;
        }
        let Some((number, wire)) = tag(bytes, &mut at) else {
            break;
        };
        // The first of a list makes room for four; later the room is at most doubled.
        let room = if message.last == number { 2 } else { 4 };
        message.last = number;
        let field = message.kind.field(number);
        let Some(len) = payload(bytes, &mut at, wire) else {
            break;
        };
        let cost = match (&field, wire) {
            (Field::Message(kind), LEN) => kind.size() * room,
            (Field::Text(size), LEN) => size * room + len,
            (Field::Numbers(size), LEN) => size * len * 2,
            (Field::Numbers(size), _) => size * room,
            _ => 0,
        };
        needed = needed.saturating_add(cost);
        match field {
            Field::Message(kind) if wire == LEN && open.len() < MAX_DEPTH => open.push(Open {
                kind,
                end: at + len,
                last: 0,
            }),
            _ => at += len,
        }
    }
    needed
}

/// The wire type of strings, messages and packed lists.
const LEN: u8 = 2;

fn tag(bytes: &[u8], at: &mut usize) -> Option<(u64, u8)> {
    let key = varint(bytes, at)?;
    Some((key >> 3, (key & 7) as u8))
}

/// Bytes between here and the next field, inside the file; a message's are its own fields.
fn payload(bytes: &[u8], at: &mut usize, wire: u8) -> Option<usize> {
    let len = match wire {
        0 => {
            varint(bytes, at)?;
            0
        }
        1 => 8,
        LEN => usize::try_from(varint(bytes, at)?).ok()?,
        // The ends of a group: its fields are scanned as if they were the message's.
        3 | 4 => 0,
        5 => 4,
        _ => return None,
    };
    (len <= bytes.len() - *at).then_some(len)
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in 0..10 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << (7 * shift);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | LEN];
        let mut len = payload.len();
        while len >= 0x80 {
            out.push(u8::try_from(len & 0x7f).unwrap() | 0x80);
            len >>= 7;
        }
        out.push(u8::try_from(len).unwrap());
        out.extend(payload);
        out
    }

    #[test]
    fn empty_messages_are_counted_where_they_lie() {
        let attributes = field(5, &[]).repeat(100_000);
        assert!(check(&field(7, &field(1, &attributes))).is_err());
        // The same bytes where no message is expected: a producer's name.
        assert!(check(&field(2, &attributes)).is_ok());
        let nodes = field(1, &field(5, &[])).repeat(100_000);
        assert!(check(&field(7, &nodes)).is_err());
        let nested = field(6, &field(1, &field(5, &[])));
        assert!(check(&field(7, &field(1, &field(5, &nested)))).is_ok());
    }

    #[test]
    fn bytes_that_are_no_message_end_the_scan() {
        assert!(check(&[0xff; 1000]).is_ok());
        assert!(check(&[0x3a, 0xff, 0xff, 0xff, 0x7f, 0x2a]).is_ok());
        assert!(check(&[]).is_ok());
        let mut at = 0;
        assert_eq!(varint(&[0x96, 0x01], &mut at), Some(150));
    }

    #[test]
    fn weights_cost_nothing() {
        let raw = vec![0u8; 1 << 22];
        let model = field(7, &field(5, &field(9, &raw)));
        assert!(memory(&model, usize::MAX) < 4096);
    }
}
