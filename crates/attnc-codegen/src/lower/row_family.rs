//! What differs between the row kernels: the file, the axes of a row, what it is read as, and its turns.
//!
//! On entry: a softmax, norm, reduction or running sum. On exit: what [`super::rows`] makes a step of.

use super::div_ceil;
use super::turns::looped;
use crate::mods::NameTensor;
use crate::stored::multiple_of;
use attnc_ir::{DType, Diagnostic, Dim, Op, ReduceOp};
use attnc_plan::Uniform;

/// What differs between the row kernels.
pub(super) struct Family {
    /// The file in which an invocation owns a row.
    pub(super) kernel: &'static str,
    /// The file in which lanes share one.
    pub(super) shared: Option<&'static str>,
    pub(super) combine: Option<&'static str>,
    /// The axes that a row runs along.
    pub(super) axes: Vec<usize>,
    /// The type that rows are read as.
    pub(super) acc: DType,
    /// Uniform words after those that all have.
    pub(super) extra: Vec<Uniform>,
    /// Names of captured tensors.
    pub(super) names: NameTensor,
    /// Operations an element.
    pub(super) cost: usize,
}

fn rms_norm_names(operand: usize, dtype: DType, index: &[Dim]) -> &'static str {
    match operand {
        1 => "gain",
        _ => row_names(operand, dtype, index),
    }
}

fn layer_norm_names(operand: usize, dtype: DType, index: &[Dim]) -> &'static str {
    match operand {
        1 => "gain",
        2 => "bias",
        _ => row_names(operand, dtype, index),
    }
}

fn row_names(operand: usize, dtype: DType, _index: &[Dim]) -> &'static str {
    match (operand, dtype) {
        (0, _) => "x",
        (_, DType::Bool) => "mask",
        _ => "t",
    }
}

impl Family {
    /// Whether a row is one run of memory.
    pub(super) fn is_trailing(&self, rank: usize) -> bool {
        !self.axes.is_empty() && self.axes.iter().copied().eq(rank - self.axes.len()..rank)
    }

    /// The words of `Shape` where lanes share a row.
    pub(super) fn shared_uniforms(&self, shape: &[Dim], vectors: bool) -> Vec<Uniform> {
        let (rows, mut len) = (self.rows(shape), self.len(shape));
        if vectors {
            len = len.exact_div(&Dim::from(4)).expect("whole vectors");
        }
        let words = [rows, len, Dim::zero()].map(Uniform::U32);
        words
            .into_iter()
            .chain(self.extra.iter().cloned())
            .collect()
    }

    pub(super) fn reduces(&self) -> bool {
        self.combine.is_some()
    }

    /// Whether a row is whole words of two elements, one after the other.
    pub(super) fn owns_words(&self, shape: &[Dim]) -> bool {
        let last = self.axes.last().is_some_and(|n| n + 1 == shape.len());
        !self.reduces() && last && multiple_of(&self.len(shape), 2)
    }

    /// The axes that rows are counted over.
    pub(super) fn kept(&self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|n| !self.axes.contains(n)).collect()
    }

    pub(super) fn rows(&self, shape: &[Dim]) -> Dim {
        let kept = self.kept(shape.len()).into_iter();
        kept.map(|n| shape[n].clone()).product()
    }

    pub(super) fn len(&self, shape: &[Dim]) -> Dim {
        self.axes.iter().map(|&n| shape[n].clone()).product()
    }

    /// The words of `Shape`, in order; results are contiguous.
    pub(super) fn uniforms(&self, shape: &[Dim]) -> Vec<Uniform> {
        let (rows, len) = (self.rows(shape), self.len(shape));
        let mut words = vec![rows, len.clone()];
        if self.reduces() {
            words.push(Dim::zero());
        } else {
            let behind = self.axes.last().map_or(shape.len(), |n| n + 1);
            let inner: Dim = shape[behind..].iter().cloned().product();
            let strides = [len * inner.clone(), Dim::one(), inner.clone()];
            words.extend([inner, Dim::zero()].into_iter().chain(strides));
        }
        let words = words.into_iter().map(Uniform::U32);
        words.chain(self.extra.iter().cloned()).collect()
    }
}

pub(super) fn family(op: &Op, rank: usize, dtype: DType) -> Result<Family, Diagnostic> {
    let trailing = |axis: usize| (axis..rank).collect();
    let dtype = if dtype.is_float() { DType::F32 } else { dtype };
    let (kernel, combine, axes, acc, extra, cost) = match op {
        Op::Softmax { axis } => ("softmax_rows", None, vec![*axis], DType::F32, vec![], 5),
        Op::LayerNorm { axis, eps } => (
            "layer_norm_rows",
            None,
            trailing(*axis),
            DType::F32,
            vec![epsilon(*eps)],
            6,
        ),
        Op::RmsNorm { axis, eps } => (
            "rms_norm_rows",
            None,
            trailing(*axis),
            DType::F32,
            vec![epsilon(*eps)],
            4,
        ),
        Op::CumSum {
            axis,
            exclusive,
            reverse,
        } => {
            let flags = [*exclusive, *reverse].map(|f| Uniform::U32(Dim::from(usize::from(f))));
            ("scan_rows", None, vec![*axis], dtype, flags.to_vec(), 1)
        }
        Op::Reduce { op, axes, .. } => {
            let (file, acc) = match op {
                ReduceOp::Sum => ("mods/reduce_sum", dtype),
                ReduceOp::Mean => ("mods/reduce_mean", dtype),
                ReduceOp::Min => ("mods/reduce_min", dtype),
                ReduceOp::Max => ("mods/reduce_max", dtype),
                ReduceOp::Prod => ("mods/reduce_prod", dtype),
                ReduceOp::Any => ("mods/reduce_max", DType::Bool),
                ReduceOp::All => ("mods/reduce_min", DType::Bool),
            };
            let extra = vec![Uniform::U32(Dim::from(bits_of_none(*op, acc)))];
            ("reduce_rows", Some(file), axes.clone(), acc, extra, 1)
        }
        _ => unreachable!("rows() is asked for row ops only"),
    };
    Ok(Family {
        kernel,
        shared: match kernel {
            "softmax_rows" => Some("softmax_lanes"),
            "layer_norm_rows" => Some("layer_norm_lanes"),
            "rms_norm_rows" => Some("rms_norm_lanes"),
            "reduce_rows" => Some("reduce_lanes"),
            _ => None,
        },
        combine,
        axes,
        acc,
        extra,
        names: match op {
            Op::LayerNorm { .. } => layer_norm_names,
            Op::RmsNorm { .. } => rms_norm_names,
            _ => row_names,
        },
        cost,
    })
}

/// Turns of the walks over a row of so many loads.
pub(super) fn turns(kernel: &str, loads: &Dim) -> Dim {
    let (walks, a_turn) = match kernel {
        "softmax_rows" | "softmax_lanes" | "layer_norm_rows" => (3, 1),
        "layer_norm_lanes" | "rms_norm_rows" | "rms_norm_lanes" => (2, 1),
        "scan_rows" => (1, 4),
        _ => (1, 1),
    };
    looped(&div_ceil(loads, a_turn)).taken * Dim::from(walks)
}

/// What no elements reduce to, as the bits of the type that is reduced in; a mean divides it by 0.
fn bits_of_none(op: ReduceOp, acc: DType) -> usize {
    let bits = match (op, acc) {
        (ReduceOp::Prod, DType::F32) => 1.0_f32.to_bits(),
        (ReduceOp::Max, DType::F32) => f32::NEG_INFINITY.to_bits(),
        (ReduceOp::Min, DType::F32) => f32::INFINITY.to_bits(),
        (ReduceOp::Max, DType::I32) => i32::MIN.cast_unsigned(),
        (ReduceOp::Min, DType::I32) => i32::MAX.cast_unsigned(),
        (ReduceOp::Min, DType::U32) => u32::MAX,
        (ReduceOp::Prod | ReduceOp::All, _) | (ReduceOp::Min, DType::Bool) => 1,
        _ => 0,
    };
    bits as usize
}

#[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
fn epsilon(eps: f64) -> Uniform {
    Uniform::F32(eps as f32)
}
