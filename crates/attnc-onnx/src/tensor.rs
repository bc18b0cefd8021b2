//! Constants of an ONNX file to constants of the graph, without copying where the elements are the same.
//!
//! f32, f16, bf16, i32 and u32 elements in `raw_data` or external data stay where they are. int64 becomes
//! i32 (up to [`MAX_INTS`] of them stay 64 bits wide until they reach the graph), narrower integers become
//! 32 bits, truth values a `u32` each, double becomes f32.

use crate::context::int64_range;
use crate::error::{OpError, OpResult};
use crate::eval::{Elems, MAX_INT};
use crate::file::Files;
use crate::proto::{TensorProto, data_type};
use crate::value::{MAX_INTS, Value};
use attnc_ir::{DType, Diagnostic, Dim, SharedBytes, TensorData};
use bytes::Bytes;
use std::sync::Arc;

/// An ONNX element type: its name, bytes an element, and what it becomes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ElemType {
    pub(crate) code: i32,
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
    pub(crate) dtype: Option<DType>,
}

const fn known(code: i32, name: &'static str, bytes: usize, dtype: DType) -> ElemType {
    ElemType {
        code,
        name,
        bytes,
        dtype: Some(dtype),
    }
}

const fn unknown(code: i32, name: &'static str) -> ElemType {
    ElemType {
        code,
        name,
        bytes: 0,
        dtype: None,
    }
}

const ELEM_TYPES: &[ElemType] = &[
    known(data_type::FLOAT, "float", 4, DType::F32),
    known(data_type::UINT8, "uint8", 1, DType::U32),
    known(data_type::INT8, "int8", 1, DType::I32),
    known(data_type::UINT16, "uint16", 2, DType::U32),
    known(data_type::INT16, "int16", 2, DType::I32),
    known(data_type::INT32, "int32", 4, DType::I32),
    known(data_type::INT64, "int64", 8, DType::I32),
    unknown(data_type::STRING, "string"),
    known(data_type::BOOL, "bool", 1, DType::Bool),
    known(data_type::FLOAT16, "float16", 2, DType::F16),
    known(data_type::DOUBLE, "double", 8, DType::F32),
    known(data_type::UINT32, "uint32", 4, DType::U32),
    known(data_type::UINT64, "uint64", 8, DType::U32),
    unknown(data_type::COMPLEX64, "complex64"),
    unknown(data_type::COMPLEX128, "complex128"),
    known(data_type::BFLOAT16, "bfloat16", 2, DType::BF16),
    unknown(17, "float8e4m3fn"),
    unknown(18, "float8e4m3fnuz"),
    unknown(19, "float8e5m2"),
    unknown(20, "float8e5m2fnuz"),
    unknown(21, "uint4"),
    unknown(22, "int4"),
    unknown(23, "float4e2m1"),
    unknown(24, "float8e8m0"),
    unknown(25, "uint2"),
    unknown(26, "int2"),
];

/// The element type of that code.
pub(crate) fn elem_type(code: i32) -> OpResult<ElemType> {
    ELEM_TYPES
        .iter()
        .copied()
        .find(|t| t.code == code)
        .ok_or_else(|| {
            OpError::invalid(
                "bad-element-type",
                format!("{code} is not an ONNX element type"),
            )
        })
}

/// The element type of that code, and what it becomes.
pub(crate) fn dtype_of(code: i32) -> OpResult<(ElemType, DType)> {
    let elem = elem_type(code)?;
    let dtype = elem.dtype.ok_or_else(|| {
        OpError::unsupported(
            format!("element type {}", elem.name),
            "a float, integer or bool type of 8 to 64 bits",
        )
    })?;
    Ok((elem, dtype))
}

/// The ONNX name of a type the graph has.
pub(crate) fn onnx_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::I32 => "int32",
        DType::U32 => "uint32",
        DType::Bool => "bool",
    }
}

fn fail(tensor: &TensorProto, message: String) -> OpError {
    Diagnostic::error("tensor-length", message)
        .at(&tensor.name)
        .into()
}

/// The shape, once it is known to have a number of elements.
fn shape(tensor: &TensorProto) -> OpResult<(Vec<usize>, usize)> {
    let dims: Option<Vec<usize>> = tensor
        .dims
        .iter()
        .map(|&d| usize::try_from(d).ok())
        .collect();
    let count = dims
        .as_ref()
        .and_then(|d| d.iter().try_fold(1usize, |n, &d| n.checked_mul(d)))
        .filter(|&n| n < 1 << 40 && tensor.dims.len() <= crate::context::MAX_RANK);
    match (dims, count) {
        (Some(dims), Some(count)) => Ok((dims, count)),
        _ => Err(fail(
            tensor,
            format!("{:?} is no shape of a constant", tensor.dims),
        )),
    }
}

/// The elements of a tensor as one of the forms they come in, of the right number.
enum Payload<'a> {
    Raw(Bytes),
    Floats(&'a [f32]),
    Doubles(&'a [f64]),
    Ints(&'a [i32]),
    Longs(&'a [i64]),
    Unsigned(&'a [u64]),
}

fn payload<'a>(
    tensor: &'a TensorProto,
    elem: ElemType,
    files: &mut Files,
) -> OpResult<Payload<'a>> {
    let (_, count) = shape(tensor)?;
    let raw = match (tensor.data_location, &tensor.raw_data) {
        (1, _) => Some(files.external(tensor)?),
        (_, Some(raw)) if !raw.is_empty() => Some(raw.clone()),
        _ => None,
    };
    let listed = |found: usize, payload: Payload<'a>| {
        if found == count {
            return Ok(payload);
        }
        Err(fail(
            tensor,
            format!(
                "{} elements of {}, expected {count} for the shape {:?}",
                found, elem.name, tensor.dims
            ),
        ))
    };
    if let Some(raw) = raw {
        if count.checked_mul(elem.bytes) == Some(raw.len()) {
            return Ok(Payload::Raw(raw));
        }
        return Err(fail(
            tensor,
            format!(
                "{} bytes, expected {count} elements of {} for the shape {:?}",
                raw.len(),
                elem.name,
                tensor.dims
            ),
        ));
    }
    match elem.code {
        data_type::FLOAT => listed(tensor.float_data.len(), Payload::Floats(&tensor.float_data)),
        data_type::DOUBLE => listed(
            tensor.double_data.len(),
            Payload::Doubles(&tensor.double_data),
        ),
        data_type::INT64 => listed(tensor.int64_data.len(), Payload::Longs(&tensor.int64_data)),
        data_type::UINT32 | data_type::UINT64 => listed(
            tensor.uint64_data.len(),
            Payload::Unsigned(&tensor.uint64_data),
        ),
        _ => listed(tensor.int32_data.len(), Payload::Ints(&tensor.int32_data)),
    }
}

/// Whether the elements are there and as many as the shape says. Types that are not supported pass.
pub(crate) fn check(tensor: &TensorProto, files: &mut Files) -> OpResult<()> {
    let elem = elem_type(tensor.data_type)?;
    if elem.dtype.is_some() {
        payload(tensor, elem, files)?;
    }
    Ok(())
}

fn shared(bytes: Bytes) -> SharedBytes {
    SharedBytes::new(Arc::new(bytes))
}

/// The tensor as a value.
pub(crate) fn decode(tensor: &TensorProto, files: &mut Files) -> OpResult<Value> {
    let (elem, dtype) = dtype_of(tensor.data_type)?;
    let (dims, count) = shape(tensor)?;
    let payload = payload(tensor, elem, files)?;
    if elem.code == data_type::INT64 && count <= MAX_INTS {
        // Bounds like INT64_MIN mean "as far as possible" and stay so when clamped.
        let data = longs(&payload)
            .map(|n| Dim::from(n.clamp(-MAX_INT, MAX_INT)))
            .collect();
        return Ok(Value::ints(Elems {
            dtype,
            shape: dims,
            data,
        }));
    }
    let bytes = match payload {
        Payload::Raw(raw) if elem.bytes == dtype.bytes() => shared(raw),
        payload => convert(tensor, &payload, elem, dtype)?.into(),
    };
    Ok(Value::constant(TensorData::new(dtype, dims, bytes)))
}

fn longs<'a>(payload: &'a Payload<'_>) -> Box<dyn Iterator<Item = i64> + 'a> {
    match payload {
        Payload::Raw(raw) => Box::new(
            raw.chunks_exact(8)
                .map(|c| i64::from_le_bytes(c.try_into().expect("chunks of 8"))),
        ),
        Payload::Longs(list) => Box::new(list.iter().copied()),
        _ => Box::new(std::iter::empty()),
    }
}

/// The elements in the graph's type, little-endian.
fn convert(
    tensor: &TensorProto,
    from: &Payload<'_>,
    elem: ElemType,
    to: DType,
) -> OpResult<Vec<u8>> {
    let narrow = |n: i64| -> OpResult<[u8; 4]> {
        let fits = match to {
            DType::U32 => u32::try_from(n).map(u32::to_le_bytes).ok(),
            _ => i32::try_from(n).map(i32::to_le_bytes).ok(),
        };
        fits.ok_or_else(|| int64_range(&tensor.name, n).into())
    };
    let flag = |n: i64| u32::from(n != 0).to_le_bytes();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "double becomes f32, and a note says so"
    )]
    let single = |v: f64| (v as f32).to_le_bytes();
    let mut out = Vec::new();
    match from {
        Payload::Raw(raw) if elem.code == data_type::DOUBLE => {
            for c in raw.chunks_exact(8) {
                out.extend(single(f64::from_le_bytes(
                    c.try_into().expect("chunks of 8"),
                )));
            }
        }
        Payload::Raw(raw) => {
            for c in raw.chunks_exact(elem.bytes) {
                let n = integer(c, elem.code);
                out.extend(if to == DType::Bool {
                    flag(n)
                } else {
                    narrow(n)?
                });
            }
        }
        Payload::Floats(list) => out.extend(list.iter().flat_map(|v| v.to_le_bytes())),
        Payload::Doubles(list) => out.extend(list.iter().flat_map(|&v| single(v))),
        // f16 and bf16 elements are listed as their bits.
        #[expect(
            clippy::cast_sign_loss,
            clippy::cast_possible_truncation,
            reason = "the low 16 bits"
        )]
        Payload::Ints(list) if to.bytes() == 2 => {
            out.extend(list.iter().flat_map(|&v| (v as u16).to_le_bytes()));
        }
        Payload::Ints(list) => {
            for &v in *list {
                let n = i64::from(v);
                out.extend(if to == DType::Bool {
                    flag(n)
                } else {
                    narrow(n)?
                });
            }
        }
        Payload::Longs(list) => {
            for &n in *list {
                out.extend(narrow(n)?);
            }
        }
        Payload::Unsigned(list) => {
            for &n in *list {
                out.extend(narrow(i64::try_from(n).unwrap_or(i64::MAX))?);
            }
        }
    }
    Ok(out)
}

/// A little-endian integer of the element type.
fn integer(bytes: &[u8], code: i32) -> i64 {
    let mut wide = [0u8; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let signed = matches!(code, data_type::INT8 | data_type::INT16 | data_type::INT32);
    if signed && bytes.last().is_some_and(|&b| b >= 0x80) {
        wide[bytes.len()..].fill(0xff);
    }
    match code {
        data_type::UINT64 => i64::try_from(u64::from_le_bytes(wide)).unwrap_or(i64::MAX),
        _ => i64::from_le_bytes(wide),
    }
}

/// The elements as ONNX has them: little-endian, of the type the file says.
pub(crate) fn raw(tensor: &TensorProto, files: &mut Files) -> OpResult<Bytes> {
    let elem = elem_type(tensor.data_type)?;
    let cut = |bytes: [u8; 8]| bytes.into_iter().take(elem.bytes);
    Ok(match payload(tensor, elem, files)? {
        Payload::Raw(raw) => raw,
        Payload::Floats(list) => list.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Payload::Doubles(list) => list.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Payload::Ints(list) => list
            .iter()
            .flat_map(|&v| cut(i64::from(v).to_le_bytes()))
            .collect(),
        Payload::Longs(list) => list.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Payload::Unsigned(list) => list.iter().flat_map(|&v| cut(v.to_le_bytes())).collect(),
    })
}
