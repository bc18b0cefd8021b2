//! Elements and constants as text, exactly: what is written reads back to the same bits.

use super::names::quoted;
use crate::scalar::ScalarExpr;
use crate::scalar::print::float_text;
use crate::{DType, Graph, Node, Op, TensorData, ValueId};
use std::fmt::Write as _;

/// Constants of at most this many elements are written out.
pub(super) const MAX_LISTED: usize = 64;
/// `splat` and `hex` constants of more elements are refused: a short text must not ask for much memory.
pub(super) const MAX_ELEMENTS: usize = 1 << 24;

/// The bytes of an element from its text (`-0.5`, `3`, `true`, `inf`), if it is one of that type.
pub(super) fn encode(dtype: DType, text: &str) -> Option<Vec<u8>> {
    let float = || {
        let value: f32 = text.parse().ok()?;
        (value.is_finite() || text.ends_with("inf") || text.ends_with("nan")).then_some(value)
    };
    let nan = |value: f32| if value.is_nan() { f32::NAN } else { value };
    Some(match dtype {
        DType::F32 => nan(float()?).to_le_bytes().to_vec(),
        DType::F16 => {
            let (value, half) = (float()?, half::f16::from_f32(nan(float()?)));
            (half.is_infinite() == value.is_infinite())
                .then_some(half)?
                .to_le_bytes()
                .to_vec()
        }
        DType::BF16 => {
            let (value, half) = (float()?, half::bf16::from_f32(nan(float()?)));
            (half.is_infinite() == value.is_infinite())
                .then_some(half)?
                .to_le_bytes()
                .to_vec()
        }
        DType::I32 => text.parse::<i32>().ok()?.to_le_bytes().to_vec(),
        DType::U32 => text.parse::<u32>().ok()?.to_le_bytes().to_vec(),
        DType::Bool => u32::from(text.parse::<bool>().ok()?).to_le_bytes().to_vec(),
    })
}

/// The text of an element, if there is one that reads back to the same bits: odd NaNs have none.
fn element_text(dtype: DType, raw: &[u8]) -> Option<String> {
    let text = match dtype {
        DType::F32 => float_text(f32::from_le_bytes(raw.try_into().ok()?)),
        DType::F16 => float_text(half::f16::from_le_bytes(raw.try_into().ok()?).to_f32()),
        DType::BF16 => float_text(half::bf16::from_le_bytes(raw.try_into().ok()?).to_f32()),
        DType::I32 => i32::from_le_bytes(raw.try_into().ok()?).to_string(),
        DType::U32 => u32::from_le_bytes(raw.try_into().ok()?).to_string(),
        DType::Bool => (u32::from_le_bytes(raw.try_into().ok()?) != 0).to_string(),
    };
    (encode(dtype, &text)? == raw).then_some(text)
}

/// What stands behind the type of a constant: `0.5`, `[1.0, 2.0]`, `splat 0.0`, `weight "w"`, `hex "00ff"`.
pub(super) fn payload(data: &TensorData) -> String {
    let weight = data
        .name
        .as_ref()
        .map(|name| format!("weight {}", quoted(name)));
    let Some(bytes) = &data.bytes else {
        return weight.unwrap_or_else(|| "weight \"\"".to_owned());
    };
    let elements = bytes.len() / data.dtype.bytes();
    if elements > MAX_LISTED
        && let Some(weight) = weight
    {
        return weight;
    }
    let values = listed(data, bytes, elements).unwrap_or_else(|| format!("hex \"{}\"", hex(bytes)));
    match weight {
        Some(weight) => format!("{values} {weight}"),
        None => values,
    }
}

fn listed(data: &TensorData, bytes: &[u8], elements: usize) -> Option<String> {
    let size = data.dtype.bytes();
    let first = bytes.chunks_exact(size).next();
    if let Some(first) = first
        && data.shape.is_empty()
    {
        return element_text(data.dtype, first);
    }
    if let Some(first) = first
        && (2..=MAX_ELEMENTS).contains(&elements)
        && bytes.chunks_exact(size).all(|c| c == first)
    {
        return element_text(data.dtype, first).map(|text| format!("splat {text}"));
    }
    if elements > MAX_LISTED {
        return None;
    }
    let texts: Option<Vec<_>> = bytes
        .chunks_exact(size)
        .map(|raw| element_text(data.dtype, raw))
        .collect();
    texts.map(|t| format!("[{}]", t.join(", ")))
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        })
}

/// The bytes of a `hex` string.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| {
        char::from(b)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?))
        .collect()
}

/// The text of a constant that is written where it is used: an unnamed scalar that no expression loads.
pub(super) fn inline_text(graph: &Graph, id: ValueId) -> Option<(DType, String)> {
    let node = graph.node(id);
    let Op::Constant(data) = &node.op else {
        return None;
    };
    if !data.shape.is_empty()
        || data.name.is_some()
        || node.storage.is_some()
        || graph.is_output(id)
    {
        return None;
    }
    let users = graph.users(id);
    if users.is_empty() || users.iter().any(|&u| is_loaded(graph.node(u), id)) {
        return None;
    }
    let raw = data.bytes.as_ref()?;
    element_text(data.dtype, raw).map(|text| (data.dtype, text))
}

/// Whether an expression of the node loads the value, which then needs a name.
fn is_loaded(node: &Node, value: ValueId) -> bool {
    let mut loaded = node
        .expressions()
        .into_iter()
        .flat_map(ScalarExpr::loaded_operands);
    loaded.any(|n| node.operands().get(n) == Some(&value))
}

/// The element type a literal has without saying so, from the types of the other operands (`None` for
/// literals); `None` where it must be said.
pub(super) fn implied_dtype(op: &str, position: usize, others: &[Option<DType>]) -> Option<DType> {
    match op {
        "where" if position == 0 => Some(DType::Bool),
        "where" => others.iter().skip(1).copied().flatten().next(),
        "gather" | "gather_elements" | "gather_nd" => (position == 1).then_some(DType::I32),
        _ => others.iter().copied().flatten().next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_read_back_to_their_bits() {
        let cases: &[(DType, &[u32])] = &[
            (
                DType::F32,
                &[
                    0,
                    1,
                    0x8000_0000,
                    0x3e00_0000,
                    0x7f80_0000,
                    0xff80_0000,
                    0x7fc0_0000,
                    0x7f7f_ffff,
                ],
            ),
            (DType::I32, &[0, 1, 0x8000_0000, u32::MAX]),
            (DType::U32, &[0, u32::MAX]),
            (DType::Bool, &[0, 1]),
        ];
        for (dtype, values) in cases {
            for bits in *values {
                let raw = bits.to_le_bytes();
                let text = element_text(*dtype, &raw).unwrap();
                assert_eq!(encode(*dtype, &text).as_deref(), Some(&raw[..]), "{text}");
            }
        }
        assert_eq!(
            element_text(DType::F32, &0x7fc0_0001u32.to_le_bytes()),
            None
        );
        assert_eq!(element_text(DType::Bool, &2u32.to_le_bytes()), None);
    }

    #[test]
    fn every_half_reads_back() {
        for bits in 0..=u16::MAX {
            let raw = bits.to_le_bytes();
            for dtype in [DType::F16, DType::BF16] {
                if let Some(text) = element_text(dtype, &raw) {
                    assert_eq!(encode(dtype, &text).as_deref(), Some(&raw[..]));
                } else {
                    assert!(
                        half::f16::from_bits(bits).is_nan() || half::bf16::from_bits(bits).is_nan()
                    );
                }
            }
        }
    }

    #[test]
    fn numbers_beyond_the_type_are_refused() {
        for (dtype, text) in [
            (DType::F32, "1e39"),
            (DType::F16, "65520.0"),
            (DType::I32, "2147483648"),
            (DType::U32, "-1"),
            (DType::Bool, "1"),
            (DType::I32, "1.0"),
        ] {
            assert_eq!(encode(dtype, text), None, "{dtype} {text}");
        }
        assert_eq!(from_hex("0Fa0"), Some(vec![0x0f, 0xa0]));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("é"), None);
    }
}
