//! Tensors in host memory, and their way to and from the types of the graph.
//!
//! ```
//! use attnc::{HostDType, HostTensor, ir::DType};
//! let ids = HostTensor::new(vec![3], &[101i64, 7592, 102]).unwrap();
//! let stored = ids.to_graph(DType::I32).unwrap();
//! assert_eq!(stored.to_f64(), Some(vec![101.0, 7592.0, 102.0]));
//! assert_eq!(HostTensor::from_graph(&stored, HostDType::I64), Some(ids));
//!
//! let large = HostTensor::new(vec![2], &[0i64, 1 << 40]).unwrap();
//! assert_eq!(large.to_graph(DType::I32).unwrap_err().to_string(),
//!     "element [1] is 1099511627776, which does not fit i32");
//! ```
//!
//! Invariant: the bytes are dense, row-major, little-endian, and as many as shape and type ask for.

use crate::HostDType;
use crate::backend::Output;
use crate::element::{Element, Value, put_value, stored_value};
use crate::ir::{DType, TensorData};
use half::{bf16, f16};
use indexmap::IndexMap;

/// Named tensors in a fixed order: inputs, outputs, the arrays of a file.
pub type Tensors = IndexMap<String, HostTensor>;

/// A dense tensor in host memory.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTensor {
    dtype: HostDType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Element type and shape of a tensor, as the header of an array file says them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorType {
    /// The element type.
    pub dtype: HostDType,
    /// Sizes of the axes, outermost first.
    pub shape: Vec<usize>,
}

impl TensorType {
    /// Bytes of a dense tensor of this type; `None` where the count does not fit memory.
    #[must_use]
    pub fn bytes(&self) -> Option<usize> {
        byte_len(self.dtype, &self.shape)
    }
}

impl std::fmt::Display for TensorType {
    /// `int64[2, 17]`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// Why a tensor cannot be made or converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The number of bytes is not the one that shape and type ask for.
    #[error("{dtype}{shape:?} takes {expected} bytes, found {found}")]
    Length {
        /// The element type.
        dtype: HostDType,
        /// The shape.
        shape: Vec<usize>,
        /// Bytes wanted; more than memory holds for absurd shapes.
        expected: u128,
        /// Bytes given.
        found: usize,
    },
    /// An element that the other type cannot hold.
    #[error("element {at:?} is {value}, which does not fit {dtype}")]
    Value {
        /// Its index, one number an axis.
        at: Vec<usize>,
        /// The element.
        value: String,
        /// The type of the graph.
        dtype: DType,
    },
    /// There is no conversion: an integer is wanted and a float given, say.
    #[error("{found} elements cannot stand for {dtype}")]
    Kind {
        /// The element type given.
        found: HostDType,
        /// The type of the graph.
        dtype: DType,
    },
}

impl HostTensor {
    /// A tensor over a copy of `values`.
    ///
    /// # Errors
    /// Where `values` are not as many as the shape asks for.
    pub fn new<T: Element>(shape: Vec<usize>, values: &[T]) -> Result<Self, TensorError> {
        let mut bytes = Vec::with_capacity(values.len() * T::DTYPE.bytes());
        for &value in values {
            value.put(&mut bytes);
        }
        Self::from_bytes(T::DTYPE, shape, bytes)
    }

    /// A tensor over little-endian bytes.
    ///
    /// # Errors
    /// Where there are not as many bytes as shape and type ask for.
    pub fn from_bytes(
        dtype: HostDType,
        shape: Vec<usize>,
        bytes: Vec<u8>,
    ) -> Result<Self, TensorError> {
        let expected = byte_len(dtype, &shape);
        if expected == Some(bytes.len()) {
            return Ok(Self {
                dtype,
                shape,
                bytes,
            });
        }
        let elements = shape
            .iter()
            .try_fold(1u128, |n, &dim| n.checked_mul(dim as u128));
        Err(TensorError::Length {
            dtype,
            expected: elements.map_or(u128::MAX, |n| n.saturating_mul(dtype.bytes() as u128)),
            found: bytes.len(),
            shape,
        })
    }

    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> HostDType {
        self.dtype
    }

    /// Sizes of the axes, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements: dense, row-major, little-endian.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.bytes()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Element type and shape.
    #[must_use]
    pub fn ty(&self) -> TensorType {
        TensorType {
            dtype: self.dtype,
            shape: self.shape.clone(),
        }
    }

    /// `int64[2, 17]`.
    #[must_use]
    pub fn type_text(&self) -> String {
        self.ty().to_string()
    }

    /// Element `i` in row-major order.
    ///
    /// # Panics
    /// Past the end.
    #[must_use]
    pub fn value(&self, i: usize) -> Value {
        let size = self.dtype.bytes();
        let raw = &self.bytes[i * size..(i + 1) * size];
        match self.dtype {
            HostDType::F64 => Value::Float(f64::get(raw)),
            HostDType::F32 => Value::Float(f32::get(raw).into()),
            HostDType::F16 => Value::Float(f16::get(raw).into()),
            HostDType::BF16 => Value::Float(bf16::get(raw).into()),
            HostDType::I64 => Value::Int(i64::get(raw)),
            HostDType::I32 => Value::Int(i32::get(raw).into()),
            HostDType::I16 => Value::Int(i16::get(raw).into()),
            HostDType::I8 => Value::Int(i8::get(raw).into()),
            HostDType::U64 => Value::Uint(u64::get(raw)),
            HostDType::U32 => Value::Uint(u32::get(raw).into()),
            HostDType::U16 => Value::Uint(u16::get(raw).into()),
            HostDType::U8 => Value::Uint(u8::get(raw).into()),
            HostDType::Bool => Value::Bool(bool::get(raw)),
        }
    }

    /// All elements, in row-major order.
    pub fn values(&self) -> impl Iterator<Item = Value> + '_ {
        (0..self.len()).map(|i| self.value(i))
    }

    /// All elements as floats; integers beyond 2^53 are rounded.
    #[must_use]
    pub fn to_f64(&self) -> Vec<f64> {
        self.values().map(Value::to_f64).collect()
    }

    /// The elements, where `T` is their type.
    #[must_use]
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        let chunks = self.bytes.chunks_exact(self.dtype.bytes());
        (T::DTYPE == self.dtype).then(|| chunks.map(T::get).collect())
    }

    /// The index of element `i`, one number an axis.
    #[must_use]
    pub fn index_of(&self, i: usize) -> Vec<usize> {
        unravel(&self.shape, i)
    }

    /// The tensor in a type of the graph: same width where there is one, integers checked against the
    /// range of 32 bits, `float64` rounded.
    ///
    /// # Errors
    /// The first element that does not fit, or that the kinds differ.
    pub fn to_graph(&self, dtype: DType) -> Result<TensorData, TensorError> {
        let bytes = match (self.dtype, dtype) {
            (HostDType::Bool, DType::Bool) => {
                let words = self.bytes.iter().map(|&b| u32::from(b != 0).to_le_bytes());
                words.flatten().collect()
            }
            (from, to) if HostDType::from(to) == from => self.bytes.clone(),
            (from, to) if from.is_int() && to.is_int() => self.narrow_ints(to)?,
            (HostDType::F64, DType::F32) => self.narrow_floats()?,
            (found, dtype) => return Err(TensorError::Kind { found, dtype }),
        };
        Ok(TensorData::new(dtype, self.shape.clone(), bytes.into()))
    }

    fn narrow_ints(&self, dtype: DType) -> Result<Vec<u8>, TensorError> {
        let mut bytes = Vec::with_capacity(self.len() * 4);
        for (i, value) in self.values().enumerate() {
            let wide = match value {
                Value::Int(x) => i128::from(x),
                Value::Uint(x) => i128::from(x),
                Value::Float(_) | Value::Bool(_) => unreachable!("the caller asks for integers"),
            };
            let word = if dtype == DType::I32 {
                i32::try_from(wide).map(i32::to_le_bytes).ok()
            } else {
                u32::try_from(wide).map(u32::to_le_bytes).ok()
            };
            bytes.extend(word.ok_or_else(|| self.misfit(i, value, dtype))?);
        }
        Ok(bytes)
    }

    fn narrow_floats(&self) -> Result<Vec<u8>, TensorError> {
        let mut bytes = Vec::with_capacity(self.len() * 4);
        for (i, value) in self.values().enumerate() {
            let (wide, narrow) = (value.to_f64(), value.to_f64() as f32);
            if wide.is_finite() && !narrow.is_finite() {
                return Err(self.misfit(i, value, DType::F32));
            }
            bytes.extend(narrow.to_le_bytes());
        }
        Ok(bytes)
    }

    fn misfit(&self, i: usize, value: Value, dtype: DType) -> TensorError {
        TensorError::Value {
            at: self.index_of(i),
            value: value.to_string(),
            dtype,
        }
    }

    /// A tensor of the graph in a type of the host; integers that do not fit wrap, as a cast in the
    /// model would. `None` for a weight without data.
    #[must_use]
    pub fn from_graph(data: &TensorData, dtype: HostDType) -> Option<Self> {
        let mut tensor = Self::empty(dtype);
        let stored = Output::new(data.dtype, &data.shape, data.bytes.as_deref()?);
        tensor.assign(stored, dtype);
        Some(tensor)
    }

    /// Nothing yet.
    pub(crate) fn empty(dtype: HostDType) -> Self {
        Self {
            dtype,
            shape: vec![0],
            bytes: Vec::new(),
        }
    }

    /// Becomes a result of the graph in a type of the host, as [`HostTensor::from_graph`]; memory that is there
    /// is used again.
    pub(crate) fn assign(&mut self, output: Output<'_>, dtype: HostDType) {
        self.dtype = dtype;
        self.shape.clear();
        self.shape.extend(output.shape);
        self.bytes.clear();
        if HostDType::from(output.dtype) == dtype && dtype != HostDType::Bool {
            self.bytes.extend(output.bytes);
            return;
        }
        let size = output.dtype.bytes();
        self.bytes
            .reserve(output.bytes.len() / size * dtype.bytes());
        for raw in output.bytes.chunks_exact(size) {
            put_value(stored_value(output.dtype, raw), dtype, &mut self.bytes);
        }
    }

    /// The tensor in another type of the host, by way of `f64`.
    #[must_use]
    pub fn cast(&self, dtype: HostDType) -> Self {
        if dtype == self.dtype {
            return self.clone();
        }
        let mut bytes = Vec::with_capacity(self.len() * dtype.bytes());
        for value in self.values() {
            put_value(value.to_f64(), dtype, &mut bytes);
        }
        Self {
            dtype,
            shape: self.shape.clone(),
            bytes,
        }
    }
}

/// Bytes of a dense tensor; `None` where the count does not fit memory.
pub(crate) fn byte_len(dtype: HostDType, shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    let bytes = shape
        .iter()
        .try_fold(dtype.bytes(), |n, &dim| n.checked_mul(dim))?;
    (bytes <= isize::MAX as usize).then_some(bytes)
}

/// The index of element `i`, one number an axis.
pub(crate) fn unravel(shape: &[usize], mut i: usize) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (slot, &dim) in index.iter_mut().zip(shape).rev() {
        *slot = i % dim.max(1);
        i /= dim.max(1);
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_number_of_bytes_is_an_error_even_for_absurd_shapes() {
        let error = HostTensor::from_bytes(HostDType::F32, vec![2, 3], vec![0; 20]).unwrap_err();
        assert_eq!(error.to_string(), "float32[2, 3] takes 24 bytes, found 20");
        let shape = vec![usize::MAX, usize::MAX, 4];
        assert!(HostTensor::from_bytes(HostDType::F32, shape, vec![]).is_err());
        assert!(HostTensor::from_bytes(HostDType::F32, vec![usize::MAX, 0], vec![]).is_ok());
    }

    #[test]
    fn integers_are_checked_and_named() {
        let ids = HostTensor::new(vec![2, 2], &[1i64, -5, 3, -3_000_000_000]).unwrap();
        assert_eq!(
            ids.to_graph(DType::I32).unwrap_err().to_string(),
            "element [1, 1] is -3000000000, which does not fit i32"
        );
        assert!(
            ids.to_graph(DType::U32)
                .unwrap_err()
                .to_string()
                .contains("[0, 1] is -5")
        );
        let big = HostTensor::new(vec![1], &[u64::MAX]).unwrap();
        assert!(
            big.to_graph(DType::I32)
                .unwrap_err()
                .to_string()
                .contains("18446744073709551615")
        );
    }

    #[test]
    fn kinds_do_not_mix() {
        let floats = HostTensor::new(vec![1], &[1.0f32]).unwrap();
        assert_eq!(
            floats.to_graph(DType::I32).unwrap_err().to_string(),
            "float32 elements cannot stand for i32"
        );
        let bools = HostTensor::new(vec![1], &[true]).unwrap();
        assert!(bools.to_graph(DType::F32).is_err());
    }

    #[test]
    fn doubles_round_but_do_not_overflow_in_silence() {
        let values = [0.1f64, f64::INFINITY, f64::NAN];
        let doubles = HostTensor::new(vec![3], &values).unwrap();
        let back = doubles.to_graph(DType::F32).unwrap().to_f64().unwrap();
        assert_eq!(back[..2], [f64::from(0.1f32), f64::INFINITY]);
        assert!(back[2].is_nan());
        let large = HostTensor::new(vec![1], &[1e300f64]).unwrap();
        assert!(large.to_graph(DType::F32).is_err());
    }

    #[test]
    fn booleans_change_width_and_back() {
        let mask = HostTensor::new(vec![3], &[true, false, true]).unwrap();
        let stored = mask.to_graph(DType::Bool).unwrap();
        assert_eq!(stored.bytes.as_ref().map(|b| b.len()), Some(12));
        assert_eq!(HostTensor::from_graph(&stored, HostDType::Bool), Some(mask));
    }
}
