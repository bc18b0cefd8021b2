//! The CPU executor, for machines without a GPU.

use super::{Backend, Executable, Output, Stats, StepTime};
use crate::codegen::choice::Choices;
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

    fn compile(&self, graph: &Graph, _: &Choices) -> Result<Box<dyn Executable>, Error> {
        Ok(Box::new(CpuExecutable {
            executor: Executor::new(graph.clone())?,
            lengths: Default::default(),
            bytes: Vec::new(),
        }))
    }
}

struct CpuExecutable {
    executor: Executor,
    /// The lengths of the last run, as the plan has them and as the CPU has them.
    lengths: (DimValues, Dims),
    /// Kept for results whose elements are not stored as 32 bits.
    bytes: Vec<u8>,
}

impl Executable for CpuExecutable {
    fn run(&mut self, inputs: &BoundInputs) -> Result<Vec<TensorData>, Error> {
        super::collect(self, inputs)
    }

    fn run_each(
        &mut self,
        inputs: &BoundInputs,
        each: &mut dyn FnMut(usize, Output<'_>),
    ) -> Result<(), Error> {
        if self.lengths.0 != inputs.dims {
            self.lengths = (inputs.dims.clone(), dims(&inputs.dims));
        }
        let bytes = &mut self.bytes;
        let output = &mut |at, output: cpu::Output<'_>| {
            let stored = stored(output, bytes);
            each(at, Output::new(output.dtype, output.shape, stored));
        };
        self.executor
            .run_each(&self.lengths.1, &inputs.tensors, output)?;
        Ok(())
    }

    fn stats(&self) -> Stats {
        Stats {
            arena_peak_bytes: self.executor.arena_bytes() as u64,
            weights_bytes: self.executor.packed_bytes() as u64,
            ..Stats::default()
        }
    }

    fn time_steps(&mut self, inputs: &BoundInputs) -> Result<Vec<StepTime>, Error> {
        let dims = dims(&inputs.dims);
        let steps = self.executor.time_steps(&dims, &inputs.tensors)?;
        let steps = steps.into_iter().enumerate().map(|(step, time)| StepTime {
            step,
            op: time.at,
            kernel: time.kernel.to_owned(),
            milliseconds: 1e3 * time.time.as_secs_f64(),
        });
        Ok(steps.collect())
    }
}

/// The elements in the form of the graph: as they are, or written to `bytes`.
fn stored<'a>(output: cpu::Output<'a>, bytes: &'a mut Vec<u8>) -> &'a [u8] {
    let lanes = output.lanes;
    let floats = || lanes.iter().map(|&x| f64::from(f32::from_bits(x)));
    bytes.clear();
    match output.dtype {
        DType::F32 | DType::I32 | DType::U32 if cfg!(target_endian = "little") => {
            return bytemuck::cast_slice(lanes);
        }
        DType::F16 => floats().for_each(|x| f16::from_f32(to_odd(x)).put(bytes)),
        DType::BF16 => floats().for_each(|x| bf16::from_f32(to_odd(x)).put(bytes)),
        DType::Bool => lanes.iter().for_each(|&x| u32::from(x != 0).put(bytes)),
        DType::F32 | DType::I32 | DType::U32 => lanes.iter().for_each(|&x| x.put(bytes)),
    }
    bytes
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
