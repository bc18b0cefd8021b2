//! Buffers: what the kernels of a plan read and write.

use crate::{DType, Dim, DimError, DimValues, Panels};

/// Sizes are rounded up to this many bytes, so that `vec4` views and 4-byte copies always fit and
/// no buffer is empty (an empty binding is refused by WebGPU).
const GRANULE: u64 = 16;

/// A buffer of a [`Plan`](crate::Plan), by position in [`Plan::buffers`](crate::Plan::buffers).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct BufferId(pub u32);

impl BufferId {
    /// The position in [`Plan::buffers`](crate::Plan::buffers).
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Who owns a buffer, and where its contents come from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BufferKind {
    /// Filled by the host before a run; never written by a step.
    Input,
    /// Owned by the host, written by the steps (which may read it back later in the same run).
    Output,
    /// Uploaded once; its bytes come from the [`WeightSource`](crate::WeightSource).
    Weight {
        /// The name the weight source knows it by.
        name: String,
    },
    /// An intermediate; the memory planner gives it a slot of the arena.
    Temp,
    /// Counters of `u32` that steps count with. Whoever runs the plan makes them once, and sets them to 0 before each run.
    Counters,
}

/// A dense tensor in device memory, row-major but for weights in panels.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Buffer {
    /// A name for people: the value's name in the graph. Need not be unique.
    pub name: String,
    /// Who owns it.
    pub kind: BufferKind,
    /// The element type as stored on the device.
    pub dtype: DType,
    /// The lengths; their product is the number of elements.
    pub shape: Vec<Dim>,
    /// What each axis stands for (`"B"`, `"H"`, `"M"`, `"N"`), where the lowering knows; as long as
    /// `shape`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axes: Option<Vec<String>>,
    /// The order that a weight is brought into when it is uploaded; `shape` is that of its source. None: row-major.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panels: Option<Panels>,
}

impl Buffer {
    /// A buffer whose axes have no names.
    #[must_use]
    pub fn new(name: &str, kind: BufferKind, dtype: DType, shape: Vec<Dim>) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            dtype,
            shape,
            axes: None,
            panels: None,
        }
    }

    /// An intermediate.
    #[must_use]
    pub fn temp(name: &str, dtype: DType, shape: Vec<Dim>) -> Self {
        Self::new(name, BufferKind::Temp, dtype, shape)
    }

    /// A weight; `name` is what the weight source calls it.
    #[must_use]
    pub fn weight(name: &str, dtype: DType, shape: Vec<Dim>) -> Self {
        Self::new(
            name,
            BufferKind::Weight {
                name: name.to_owned(),
            },
            dtype,
            shape,
        )
    }

    /// The same buffer with names for its axes.
    #[must_use]
    pub fn with_axes(mut self, axes: &[&str]) -> Self {
        self.axes = Some(axes.iter().map(|a| (*a).to_owned()).collect());
        self
    }

    /// The number of elements, symbolically.
    #[must_use]
    pub fn elements(&self) -> Dim {
        self.shape.iter().cloned().product()
    }

    /// The size in bytes, symbolically, without the rounding of [`Buffer::allocated_bytes`].
    #[must_use]
    pub fn size(&self) -> Dim {
        self.elements() * Dim::from(self.dtype.bytes())
    }

    /// The size of the contents in bytes.
    ///
    /// # Errors
    /// Where a length has no value, is negative, or the size does not fit 63 bits.
    pub fn bytes(&self, dims: &DimValues) -> Result<u64, DimError> {
        let bytes = dims.eval(&self.size())?;
        u64::try_from(bytes).map_err(|_| DimError::Overflow(self.size().to_string()))
    }

    /// The size to allocate in bytes: the contents rounded up to 16, and at least 16.
    ///
    /// # Errors
    /// As [`Buffer::bytes`].
    pub fn allocated_bytes(&self, dims: &DimValues) -> Result<u64, DimError> {
        Ok(self.bytes(dims)?.next_multiple_of(GRANULE).max(GRANULE))
    }

    /// `f32[B, S, 384]`.
    #[must_use]
    pub fn type_text(&self) -> String {
        type_text(self.dtype, &self.shape)
    }
}

/// `f32[B, S, 384]`.
pub(crate) fn type_text(dtype: DType, shape: &[Dim]) -> String {
    let dims: Vec<_> = shape.iter().map(ToString::to_string).collect();
    format!("{dtype}[{}]", dims.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_elements_and_round_up_only_for_allocation() {
        let dims = DimValues::from([("S", 3)]);
        let buffer = Buffer::temp("t", DType::F16, vec![Dim::sym("S"), Dim::from(3)]);
        assert_eq!(buffer.size().to_string(), "6 * S");
        assert_eq!(buffer.bytes(&dims), Ok(18));
        assert_eq!(buffer.allocated_bytes(&dims), Ok(32));
        assert_eq!(buffer.type_text(), "f16[S, 3]");
    }

    #[test]
    fn an_empty_tensor_still_has_something_to_bind() {
        let dims = DimValues::from([("S", 0)]);
        let buffer = Buffer::temp("t", DType::F32, vec![Dim::sym("S")]);
        assert_eq!(buffer.bytes(&dims), Ok(0));
        assert_eq!(buffer.allocated_bytes(&dims), Ok(16));
    }

    #[test]
    fn a_negative_length_is_an_error() {
        let dims = DimValues::from([("S", 1)]);
        let buffer = Buffer::temp("t", DType::F32, vec![Dim::sym("S") - Dim::from(2)]);
        assert!(buffer.bytes(&dims).is_err());
    }
}
