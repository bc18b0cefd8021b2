//! Host tensors: what goes into an executor and what comes out.
//!
//! ```
//! use attnc_cpu::Tensor;
//! let x = Tensor::f32(vec![2, 2], vec![1.0, 2.0, 3.0, 4.0]);
//! assert_eq!(x.shape(), [2, 2]);
//! assert_eq!(x.to_f64(), [1.0, 2.0, 3.0, 4.0]);
//! ```
//!
//! Invariant: the buffer has as many elements as the shape, and its kind fits the element type. Storage
//! types (`f16`, `bf16`) are held as f32, which has every value they have; whoever writes them rounds.

use crate::ExecError;
use attnc_ir::DType;

/// The elements of a [`Tensor`], row-major.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorBuf {
    /// Elements of a floating-point type.
    F32(Vec<f32>),
    /// Elements of a floating-point type as the oracle has them, not rounded.
    F64(Vec<f64>),
    /// Elements of `i32`.
    I32(Vec<i32>),
    /// Elements of `u32`.
    U32(Vec<u32>),
    /// Truth values.
    Bool(Vec<bool>),
}

impl TensorBuf {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::Bool(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn fits(&self, dtype: DType) -> bool {
        match self {
            Self::F32(_) | Self::F64(_) => dtype.is_float(),
            Self::I32(_) => dtype == DType::I32,
            Self::U32(_) => dtype == DType::U32,
            Self::Bool(_) => dtype == DType::Bool,
        }
    }
}

/// Element type, shape and elements of a value on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: TensorBuf,
}

impl Tensor {
    /// A tensor of that type, shape (outermost axis first) and row-major elements.
    ///
    /// # Errors
    /// [`ExecError::BadTensor`] where the number or kind of elements does not fit.
    pub fn new(dtype: DType, shape: Vec<usize>, data: TensorBuf) -> Result<Self, ExecError> {
        let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if elements == Some(data.len()) && data.fits(dtype) {
            return Ok(Self { dtype, shape, data });
        }
        let kind = match data {
            TensorBuf::F32(_) => "f32",
            TensorBuf::F64(_) => "f64",
            TensorBuf::I32(_) => "i32",
            TensorBuf::U32(_) => "u32",
            TensorBuf::Bool(_) => "bool",
        };
        Err(ExecError::BadTensor {
            dtype,
            shape,
            found: format!("{} {kind} elements", data.len()),
        })
    }

    /// An f32 tensor.
    ///
    /// # Panics
    /// Where the number of elements is not that of the shape.
    #[must_use]
    pub fn f32(shape: Vec<usize>, data: Vec<f32>) -> Self {
        Self::new(DType::F32, shape, TensorBuf::F32(data)).expect("as many elements as the shape")
    }

    /// An i32 tensor.
    ///
    /// # Panics
    /// Where the number of elements is not that of the shape.
    #[must_use]
    pub fn i32(shape: Vec<usize>, data: Vec<i32>) -> Self {
        Self::new(DType::I32, shape, TensorBuf::I32(data)).expect("as many elements as the shape")
    }

    /// A bool tensor.
    ///
    /// # Panics
    /// Where the number of elements is not that of the shape.
    #[must_use]
    pub fn bool(shape: Vec<usize>, data: Vec<bool>) -> Self {
        Self::new(DType::Bool, shape, TensorBuf::Bool(data)).expect("as many elements as the shape")
    }

    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes of the axes, outermost first; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements, row-major.
    #[must_use]
    pub fn data(&self) -> &TensorBuf {
        &self.data
    }

    /// Element type, shape and elements.
    #[must_use]
    pub fn into_parts(self) -> (DType, Vec<usize>, TensorBuf) {
        (self.dtype, self.shape, self.data)
    }

    /// The elements widened: integers are exact, true is 1.
    #[must_use]
    pub fn to_f64(&self) -> Vec<f64> {
        match &self.data {
            TensorBuf::F32(v) => v.iter().map(|&x| f64::from(x)).collect(),
            TensorBuf::F64(v) => v.clone(),
            TensorBuf::I32(v) => v.iter().map(|&x| f64::from(x)).collect(),
            TensorBuf::U32(v) => v.iter().map(|&x| f64::from(x)).collect(),
            TensorBuf::Bool(v) => v.iter().map(|&x| f64::from(u8::from(x))).collect(),
        }
    }

    /// A tensor of that type from widened elements; floats stay f64, integers must be exact.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "integers of 32 bits are exact in f64"
    )]
    pub(crate) fn from_f64(dtype: DType, shape: Vec<usize>, values: Vec<f64>) -> Self {
        let data = match dtype {
            DType::F32 | DType::F16 | DType::BF16 => TensorBuf::F64(values),
            DType::I32 => TensorBuf::I32(values.into_iter().map(|x| x as i32).collect()),
            DType::U32 => TensorBuf::U32(values.into_iter().map(|x| x as u32).collect()),
            DType::Bool => TensorBuf::Bool(values.into_iter().map(|x| x != 0.0).collect()),
        };
        Self { dtype, shape, data }
    }

    /// The elements as 32-bit lanes: the bits of f32, i32 and u32; 0 or 1 for truth values.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "f64 values are rounded to f32"
    )]
    pub(crate) fn to_lanes(&self) -> std::borrow::Cow<'_, [u32]> {
        match &self.data {
            TensorBuf::F32(v) => bytemuck::cast_slice(v).into(),
            TensorBuf::I32(v) => bytemuck::cast_slice(v).into(),
            TensorBuf::U32(v) => v.into(),
            TensorBuf::F64(v) => v
                .iter()
                .map(|&x| (x as f32).to_bits())
                .collect::<Vec<_>>()
                .into(),
            TensorBuf::Bool(v) => v.iter().map(|&x| u32::from(x)).collect::<Vec<_>>().into(),
        }
    }

    /// A tensor of that type from 32-bit lanes.
    pub(crate) fn from_lanes(dtype: DType, shape: Vec<usize>, lanes: Vec<u32>) -> Self {
        let data = match dtype {
            DType::F32 | DType::F16 | DType::BF16 => {
                TensorBuf::F32(lanes.into_iter().map(f32::from_bits).collect())
            }
            DType::I32 => TensorBuf::I32(lanes.into_iter().map(u32::cast_signed).collect()),
            DType::U32 => TensorBuf::U32(lanes),
            DType::Bool => TensorBuf::Bool(lanes.into_iter().map(|x| x != 0).collect()),
        };
        Self { dtype, shape, data }
    }
}
