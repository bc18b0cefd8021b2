//! One `.npy` array (NumPy enhancement proposal 1, versions 1.0 to 3.0).
//!
//! The header is parsed by `ndarray-npy`; the elements are read here, because that crate allocates what
//! a header claims, and knows no 16-bit floats.

use super::{FileProblem, MAX_ARRAY_BYTES};
use crate::{HostDType, HostTensor, TensorType};
use ndarray_npy::npy::header::{Header, Layout};
use py_literal::Value as PyValue;
use std::io::{Cursor, Read, Write};

/// Magic, version, and room for either form of the header's length.
const PREFIX: usize = 12;
/// NumPy itself reads no longer ones by default.
const MAX_HEADER: usize = 10_000;
/// A header is one dict with one tuple; its parser recurses, so nesting is bounded before it.
const MAX_BRACKETS: usize = 16;

/// The type of an array of which `size` bytes are said to be there; nothing but its header is read.
pub(super) fn read_type(from: &mut impl Read, size: u64) -> Result<TensorType, FileProblem> {
    Ok(Array::read(from, size)?.ty)
}

/// What the header of an array says, which agrees with the size of its file.
struct Array {
    ty: TensorType,
    /// Bytes of the elements.
    bytes: u64,
    order: Order,
    layout: Layout,
}

impl Array {
    fn read(from: &mut impl Read, size: u64) -> Result<Self, FileProblem> {
        let (header, header_len) = read_header(from)?;
        let (dtype, order) = element(&header.type_descriptor)?;
        let ty = TensorType {
            dtype,
            shape: header.shape,
        };
        let present = size.saturating_sub(header_len as u64);
        let expected = ty.bytes().map(|n| n as u64);
        let Some(bytes) = expected.filter(|&n| n == present) else {
            return Err(wrong_length(&ty, present));
        };
        if bytes > MAX_ARRAY_BYTES {
            return Err(FileProblem::TooLarge(bytes));
        }
        Ok(Self {
            ty,
            bytes,
            order,
            layout: header.layout,
        })
    }
}

fn wrong_length(ty: &TensorType, found: u64) -> FileProblem {
    let wide = ty.shape.iter().fold(ty.dtype.bytes() as u128, |n, &dim| {
        n.saturating_mul(dim as u128)
    });
    FileProblem::Length {
        claimed: ty.to_string(),
        expected: ty.bytes().map_or(wide, |n| n as u128),
        found,
    }
}

/// Reads an array from `from`, of which `size` bytes are said to be there.
pub(super) fn read(from: &mut impl Read, size: u64) -> Result<HostTensor, FileProblem> {
    let array = Array::read(from, size)?;
    let (bytes, dtype) = (array.bytes, array.ty.dtype);
    // Grows with what is really there.
    let mut data = Vec::new();
    from.take(bytes + 1).read_to_end(&mut data)?;
    if data.len() as u64 != bytes {
        return Err(wrong_length(&array.ty, data.len() as u64));
    }
    let shape = array.ty.shape;
    if array.order == Order::Big {
        data.chunks_exact_mut(dtype.bytes())
            .for_each(<[u8]>::reverse);
    }
    if dtype == HostDType::Bool {
        data.iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
    if array.layout == Layout::Fortran {
        data = row_major(&data, &shape, dtype.bytes());
    }
    HostTensor::from_bytes(dtype, shape, data)
        .map_err(|error| FileProblem::Header(error.to_string()))
}

/// The header and how many bytes it took.
fn read_header(from: &mut impl Read) -> Result<(Header, usize), FileProblem> {
    let wrong = |what: &str| FileProblem::Header(what.to_owned());
    let mut bytes = Vec::with_capacity(128);
    from.take(PREFIX as u64).read_to_end(&mut bytes)?;
    if bytes.len() < PREFIX || !bytes.starts_with(b"\x93NUMPY") {
        return Err(wrong("it does not begin as one"));
    }
    let short = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let long = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
    let len = match bytes[6] {
        1 => 10 + short,
        2 | 3 => 12 + long,
        _ => return Err(wrong("its version is not 1, 2 or 3")),
    };
    if !(PREFIX..=MAX_HEADER).contains(&len) {
        return Err(wrong("its header has an impossible length"));
    }
    from.take((len - PREFIX) as u64).read_to_end(&mut bytes)?;
    if bytes.len() != len {
        return Err(wrong("it ends within the header"));
    }
    let brackets = bytes[PREFIX..].iter().filter(|b| b"([{".contains(b));
    if brackets.count() > MAX_BRACKETS {
        return Err(wrong("its header is nested too deeply"));
    }
    let header = Header::from_reader(&mut Cursor::new(&bytes));
    let header = header.map_err(|error| FileProblem::Header(error.to_string()))?;
    Ok((header, len))
}

#[derive(PartialEq)]
enum Order {
    Little,
    Big,
}

fn element(descriptor: &PyValue) -> Result<(HostDType, Order), FileProblem> {
    let found = || {
        let names: Vec<_> = HostDType::all()
            .filter(|d| d.npy_code().is_some())
            .map(HostDType::name)
            .collect();
        FileProblem::DType(descriptor.to_string(), names.join(", "))
    };
    let PyValue::String(code) = descriptor else {
        return Err(found());
    };
    let (order, kind) = match code.strip_prefix('>') {
        Some(kind) => (Order::Big, kind),
        None => (Order::Little, code.trim_start_matches(['<', '|', '='])),
    };
    let dtype = HostDType::from_npy_kind(kind).ok_or_else(found)?;
    Ok((dtype, order))
}

/// Elements stored with the first axis fastest, in row-major order.
fn row_major(data: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let strides: Vec<usize> = shape
        .iter()
        .scan(1, |stride, &dim| {
            Some(std::mem::replace(stride, *stride * dim))
        })
        .collect();
    let mut out = Vec::with_capacity(data.len());
    for i in 0..data.len() / size {
        let index = crate::host_tensor::unravel(shape, i);
        let at: usize = index.iter().zip(&strides).map(|(i, s)| i * s).sum();
        out.extend_from_slice(&data[at * size..(at + 1) * size]);
    }
    out
}

/// Writes an array; one without a NumPy type as `float32`.
pub(super) fn write(to: &mut impl Write, tensor: &HostTensor) -> Result<(), FileProblem> {
    let Some(code) = tensor.dtype().npy_code() else {
        return write(to, &tensor.cast(HostDType::F32));
    };
    let header = Header {
        type_descriptor: PyValue::String(code),
        layout: Layout::Standard,
        shape: tensor.shape().to_vec(),
    };
    let header = header.to_bytes();
    to.write_all(&header.map_err(|error| FileProblem::Header(error.to_string()))?)?;
    Ok(to.write_all(tensor.bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        let text = format!("{header}\n");
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn parse(header: &str, data: &[u8]) -> Result<HostTensor, FileProblem> {
        let bytes = npy(header, data);
        read(&mut bytes.as_slice(), bytes.len() as u64)
    }

    fn error(header: &str, data: &[u8]) -> String {
        parse(header, data).unwrap_err().to_string()
    }

    #[test]
    fn column_major_and_big_endian_arrays_are_turned() {
        let header = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }";
        let data: Vec<u8> = [1i16, 4, 2, 5, 3, 6]
            .iter()
            .flat_map(|x| x.to_be_bytes())
            .collect();
        let tensor = parse(header, &data).unwrap();
        assert_eq!(tensor.shape(), [2, 3]);
        assert_eq!(tensor.to_vec::<i16>(), Some(vec![1, 2, 3, 4, 5, 6]));
    }

    #[test]
    fn a_claim_beyond_the_file_allocates_nothing() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1024), }";
        assert_eq!(
            error(header, &[0; 8]),
            "the header says float32[1099511627776, 1024], which takes 4503599627370496 bytes, but 8 follow"
        );
        let header =
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }";
        assert!(error(header, &[]).contains("but 0 follow"));
    }

    #[test]
    fn too_few_and_too_many_bytes_are_errors() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
        assert!(error(header, &[0; 7]).contains("takes 8 bytes, but 7 follow"));
        assert!(error(header, &[0; 9]).contains("takes 8 bytes, but 9 follow"));
    }

    #[test]
    fn types_without_use_are_named() {
        for code in ["'<c8'", "'|O'", "'<U3'", "[('a', '<f4')]"] {
            let header = format!("{{'descr': {code}, 'fortran_order': False, 'shape': (), }}");
            assert!(
                error(&header, &[0; 8]).contains("is not supported; use float64"),
                "{code}"
            );
        }
    }

    #[test]
    fn hostile_headers_are_refused() {
        assert!(error(&"(".repeat(9000), &[]).contains("nested too deeply"));
        assert!(error(&" ".repeat(20_000), &[]).contains("impossible length"));
        assert!(error("{'descr': '<f4'}", &[]).contains("not a .npy array"));
        let claims_4_gib = b"\x93NUMPY\x02\x00\xff\xff\xff\xff{'descr'";
        assert!(read(&mut claims_4_gib.as_slice(), 20).is_err());
    }
}
