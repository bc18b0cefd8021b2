//! The CPU executor, for machines without a GPU.

use super::{Backend, Executable, Stats};
use crate::cpu::{self, Dims, Executor, Tensor, TensorBuf};
use crate::inputs::BoundInputs;
use crate::ir::{DType, Graph, TensorData, to_odd};
use crate::plan::{DeviceProfile, DimValues};
use crate::{Element as _, Error};
use half::{bf16, f16};

/// Runs on the CPU, in f32.
pub struct CpuBackend;

impl Backend for CpuBackend {
    fn name(&self) -> &str {
        "cpu"
    }

    fn device(&self) -> String {
        "the CPU".to_owned()
    }

    /// The least demanding profile; the CPU runs graphs, not kernels.
    fn profile(&self) -> DeviceProfile {
        DeviceProfile::webgpu()
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Executable>, Error> {
        Ok(Box::new(CpuExecutable {
            names: graph
                .inputs()
                .iter()
                .map(|&id| graph.node(id).name().to_owned())
                .collect(),
            executor: Executor::new(graph.clone())?,
        }))
    }
}

struct CpuExecutable {
    names: Vec<String>,
    executor: Executor,
}

impl Executable for CpuExecutable {
    fn run(&mut self, inputs: &BoundInputs) -> Result<Vec<TensorData>, Error> {
        let tensors = named(&self.names, &inputs.tensors)?;
        let outputs = self.executor.run_with(&dims(&inputs.dims), &tensors)?;
        Ok(outputs.into_iter().map(|(_, t)| from_cpu(t)).collect())
    }

    fn stats(&self) -> Stats {
        Stats {
            arena_peak_bytes: self.executor.arena_bytes() as u64,
            ..Stats::default()
        }
    }
}

/// The lengths as the CPU has them.
pub(crate) fn dims(values: &DimValues) -> Dims {
    values
        .iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Tensors in graph types as the CPU has them, with the names of the inputs.
pub(crate) fn named(
    names: &[String],
    tensors: &[TensorData],
) -> Result<Vec<(String, Tensor)>, Error> {
    names
        .iter()
        .zip(tensors)
        .map(|(name, data)| Ok((name.clone(), to_cpu(data)?)))
        .collect()
}

fn to_cpu(data: &TensorData) -> Result<Tensor, cpu::ExecError> {
    let bytes = data.bytes.as_deref().unwrap_or_default();
    let words = || bytes.chunks_exact(4);
    let halves = || bytes.chunks_exact(2);
    let elements = match data.dtype {
        DType::F32 => TensorBuf::F32(words().map(f32::get).collect()),
        DType::F16 => TensorBuf::F32(halves().map(|b| f16::get(b).to_f32()).collect()),
        DType::BF16 => TensorBuf::F32(halves().map(|b| bf16::get(b).to_f32()).collect()),
        DType::I32 => TensorBuf::I32(words().map(i32::get).collect()),
        DType::U32 => TensorBuf::U32(words().map(u32::get).collect()),
        DType::Bool => TensorBuf::Bool(words().map(|b| u32::get(b) != 0).collect()),
    };
    Tensor::new(data.dtype, data.shape.clone(), elements)
}

fn from_cpu(tensor: Tensor) -> TensorData {
    let (dtype, shape, elements) = tensor.into_parts();
    let mut bytes = Vec::with_capacity(elements.len() * dtype.bytes());
    match elements {
        TensorBuf::F32(values) => put_floats(values.into_iter().map(f64::from), dtype, &mut bytes),
        TensorBuf::F64(values) => put_floats(values.into_iter(), dtype, &mut bytes),
        TensorBuf::I32(values) => values.into_iter().for_each(|x| x.put(&mut bytes)),
        TensorBuf::U32(values) => values.into_iter().for_each(|x| x.put(&mut bytes)),
        TensorBuf::Bool(values) => values
            .into_iter()
            .for_each(|x| u32::from(x).put(&mut bytes)),
    }
    TensorData::new(dtype, shape, bytes.into())
}

fn put_floats(values: impl Iterator<Item = f64>, dtype: DType, bytes: &mut Vec<u8>) {
    match dtype {
        DType::F16 => values.for_each(|x| f16::from_f32(to_odd(x)).put(bytes)),
        DType::BF16 => values.for_each(|x| bf16::from_f32(to_odd(x)).put(bytes)),
        _ => values.for_each(|x| (x as f32).put(bytes)),
    }
}
