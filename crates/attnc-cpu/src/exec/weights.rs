//! Stored tensors as lanes: in place where they are aligned, else converted once; and weights that are packed.

use super::layout::Layout;
use super::mat::Mat;
use super::panels::Panels;
use attnc_ir::{DType, SharedBytes, TensorData};
use std::sync::Arc;

/// The lanes of a constant, or of an input as the host stores it.
#[derive(Debug, Clone)]
pub(crate) enum Weight {
    /// The bytes of the model file, or whoever owns them, as they are.
    InPlace(SharedBytes),
    /// Converted.
    Owned(Vec<u32>),
}

impl Weight {
    /// The lanes of a constant; `None` where it has no data or not as much as its shape says.
    pub(crate) fn new(data: &TensorData) -> Option<Self> {
        let bytes = data.bytes.as_ref()?;
        let elements = data
            .shape
            .iter()
            .try_fold(1usize, |n, &d| n.checked_mul(d))?;
        if elements.checked_mul(data.dtype.bytes())? != bytes.len() {
            return None;
        }
        let in_place = data.dtype.bytes() == 4
            && cfg!(target_endian = "little")
            && bytemuck::try_cast_slice::<u8, u32>(bytes).is_ok();
        Some(if in_place {
            Self::InPlace(bytes.clone())
        } else {
            Self::Owned(convert(data.dtype, bytes))
        })
    }

    /// The lanes.
    pub(crate) fn lanes(&self) -> &[u32] {
        match self {
            Self::InPlace(bytes) => bytemuck::cast_slice(bytes),
            Self::Owned(lanes) => lanes,
        }
    }
}

impl AsRef<[u32]> for Weight {
    fn as_ref(&self) -> &[u32] {
        self.lanes()
    }
}

/// Weights packed as right sides of matrix products. They stay for other lengths.
#[derive(Debug, Default)]
pub(crate) struct PackedWeights(Vec<(usize, Layout, Arc<Panels>)>);

impl PackedWeights {
    /// Weight `number` packed; its last two axes are those of the matrix, the others have length 1.
    pub(crate) fn get(
        &mut self,
        number: usize,
        weights: &[Weight],
        layout: &Layout,
    ) -> Arc<Panels> {
        let known = self.0.iter().find(|(n, l, _)| *n == number && l == layout);
        if let Some((_, _, panels)) = known {
            return panels.clone();
        }
        let lead = layout.shape.len() - 2;
        let shape = [layout.shape[lead], layout.shape[lead + 1]];
        let strides = [layout.strides[lead], layout.strides[lead + 1]];
        let lanes = bytemuck::cast_slice(weights[number].lanes());
        let panels = Arc::new(Panels::new(Mat::new(lanes, layout.offset, shape, strides)));
        self.0.push((number, layout.clone(), panels.clone()));
        panels
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(_, _, panels)| panels.bytes()).sum()
    }
}

fn convert(dtype: DType, bytes: &[u8]) -> Vec<u32> {
    let halves = bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
    match dtype {
        DType::F16 => halves
            .map(|b| half::f16::from_le_bytes(b).to_f32().to_bits())
            .collect(),
        DType::BF16 => halves
            .map(|b| half::bf16::from_le_bytes(b).to_f32().to_bits())
            .collect(),
        DType::F32 | DType::I32 | DType::U32 | DType::Bool => bytes
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_widened_and_unaligned_words_copied() {
        let half = half::f16::from_f32(1.5).to_le_bytes().to_vec();
        let data = TensorData::new(DType::F16, vec![1], half.into());
        assert_eq!(Weight::new(&data).unwrap().lanes(), [1.5f32.to_bits()]);
        let all = SharedBytes::from(vec![0u8, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0]);
        let values: Vec<Vec<u32>> = (0..4)
            .map(|at| {
                let bytes = all.slice(at..at + 8).unwrap();
                let weight = Weight::new(&TensorData::new(DType::I32, vec![2], bytes)).unwrap();
                weight.lanes().to_vec()
            })
            .collect();
        assert_eq!(values[1], [7, 9]);
    }
}
