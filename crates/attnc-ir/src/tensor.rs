//! Types of values, and constant data.

use crate::{DType, Dim};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The sizes of a value's axes, outermost first; empty for a scalar.
pub type Shape = Vec<Dim>;

/// Element type and shape of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Sizes of the axes, outermost first.
    pub shape: Shape,
}

impl TensorType {
    /// A type of that element type and shape.
    pub fn new(dtype: DType, shape: impl IntoIterator<Item = impl Into<Dim>>) -> Self {
        Self {
            dtype,
            shape: shape.into_iter().map(Into::into).collect(),
        }
    }

    /// A value without axes.
    #[must_use]
    pub fn scalar(dtype: DType) -> Self {
        Self {
            dtype,
            shape: Vec::new(),
        }
    }

    /// Number of axes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    #[must_use]
    pub fn elements(&self) -> Dim {
        self.shape.iter().cloned().product()
    }
}

/// `f32[B, 12, 64]`.
impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, dim) in self.shape.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

/// Bytes that several constants may share: a heap buffer, or a mapped file.
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl SharedBytes {
    /// The whole of `owner`.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        let range = 0..(*owner).as_ref().len();
        Self { owner, range }
    }

    /// A part of these bytes; `None` where `range` goes past the end.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        let (start, end) = (
            self.range.start.checked_add(range.start)?,
            self.range.start.checked_add(range.end)?,
        );
        (start <= end && end <= self.range.end).then(|| Self {
            owner: self.owner.clone(),
            range: start..end,
        })
    }
}

impl std::ops::Deref for SharedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(Arc::new(bytes))
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.len())
    }
}

/// The elements of a constant: row-major, little-endian, [`DType::bytes`] each.
#[derive(Debug, Clone)]
pub struct TensorData {
    /// Element type.
    pub dtype: DType,
    /// Sizes of the axes.
    pub shape: Vec<usize>,
    /// Name of the weight in the model file, if it has one; the text form refers to it by that name.
    pub name: Option<Arc<str>>,
    /// The elements; `None` for a weight that the text form names but nobody has supplied.
    pub bytes: Option<SharedBytes>,
}

impl TensorData {
    /// A constant over `bytes`.
    ///
    /// # Panics
    /// Where the length of `bytes` is not that of the type; callers check what comes from files.
    #[must_use]
    pub fn new(dtype: DType, shape: Vec<usize>, bytes: SharedBytes) -> Self {
        let expected = shape.iter().product::<usize>() * dtype.bytes();
        assert_eq!(
            bytes.len(),
            expected,
            "bytes of a {dtype} constant of shape {shape:?}"
        );
        Self {
            dtype,
            shape,
            name: None,
            bytes: Some(bytes),
        }
    }

    /// An f32 constant.
    #[must_use]
    pub fn f32(shape: Vec<usize>, values: &[f32]) -> Self {
        Self::new(
            DType::F32,
            shape,
            values
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<_>>()
                .into(),
        )
    }

    /// An i32 constant.
    #[must_use]
    pub fn i32(shape: Vec<usize>, values: &[i32]) -> Self {
        Self::new(
            DType::I32,
            shape,
            values
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<_>>()
                .into(),
        )
    }

    /// A bool constant.
    #[must_use]
    pub fn bool(shape: Vec<usize>, values: &[bool]) -> Self {
        let bytes = values
            .iter()
            .flat_map(|&v| u32::from(v).to_le_bytes())
            .collect::<Vec<_>>();
        Self::new(DType::Bool, shape, bytes.into())
    }

    /// The same constant under the name the model file gives it.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the constant.
    #[must_use]
    pub fn ty(&self) -> TensorType {
        TensorType::new(self.dtype, self.shape.iter().copied())
    }

    /// Element `i` in row-major order, widened; booleans are 0 or 1. `None` past the end or without data.
    #[must_use]
    pub fn get_f64(&self, i: usize) -> Option<f64> {
        let size = self.dtype.bytes();
        let raw = self.bytes.as_ref()?.get(i * size..(i + 1) * size)?;
        Some(match self.dtype {
            DType::F32 => f64::from(f32::from_le_bytes(raw.try_into().ok()?)),
            DType::F16 => half::f16::from_le_bytes(raw.try_into().ok()?).to_f64(),
            DType::BF16 => half::bf16::from_le_bytes(raw.try_into().ok()?).to_f64(),
            DType::I32 => f64::from(i32::from_le_bytes(raw.try_into().ok()?)),
            DType::U32 => f64::from(u32::from_le_bytes(raw.try_into().ok()?)),
            DType::Bool => f64::from(u32::from(u32::from_le_bytes(raw.try_into().ok()?) != 0)),
        })
    }

    /// All elements, widened; `None` without data.
    #[must_use]
    pub fn to_f64(&self) -> Option<Vec<f64>> {
        self.bytes.as_ref()?;
        (0..self.len()).map(|i| self.get_f64(i)).collect()
    }

    /// The one value that every element has, if they all have the same bits.
    #[must_use]
    pub fn splat_f64(&self) -> Option<f64> {
        let size = self.dtype.bytes();
        let bytes = self.bytes.as_ref()?;
        let first = bytes.get(..size)?;
        bytes
            .chunks_exact(size)
            .all(|c| c == first)
            .then(|| self.get_f64(0))
            .flatten()
    }
}

/// Equal bits; weights without data are equal where their names are.
impl PartialEq for TensorData {
    fn eq(&self, other: &Self) -> bool {
        self.dtype == other.dtype
            && self.shape == other.shape
            && match (&self.bytes, &other.bytes) {
                (Some(a), Some(b)) => a.as_ptr() == b.as_ptr() || a[..] == b[..],
                (None, None) => self.name == other.name,
                _ => false,
            }
    }
}
