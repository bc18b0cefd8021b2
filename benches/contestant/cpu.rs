//! attnc on the processor, as a machine without a GPU runs it.

use super::{Contestant, Ready, Side, timed};
use crate::task::Task;
use attnc::cpu::{Dims, Executor, Tensor, TensorBuf};
use attnc::ir::{DType, TensorData};
use attnc::opt::Options;

/// attnc's executor.
#[derive(Default)]
pub struct AttncCpu {
    prepared: Option<(Executor, Vec<(String, Tensor)>)>,
}

impl Contestant for AttncCpu {
    fn name(&self) -> &str {
        "attnc cpu"
    }

    fn version(&self) -> &str {
        concat!("attnc ", env!("CARGO_PKG_VERSION"))
    }

    fn side(&self) -> Side {
        Side::Cpu
    }

    fn prepare(&mut self, task: &Task) -> Result<Ready, String> {
        self.prepared = None;
        let optimised = attnc::optimise(&task.model.graph, &Options::default());
        let graph = optimised.map_err(|e| e.to_string())?.graph;
        let mut inputs = Vec::new();
        for (&id, data) in graph.inputs().iter().zip(&task.bound.tensors) {
            inputs.push((graph.node(id).name().to_owned(), tensor(data)?));
        }
        let mut executor = Executor::new(graph).map_err(|e| e.to_string())?;
        let outputs = executor.run(&inputs).map_err(|e| e.to_string())?;
        let given: usize = task.bound.tensors.iter().map(bytes).sum();
        let results: usize = outputs
            .iter()
            .map(|(_, t)| t.to_f64().len() * t.dtype().bytes())
            .sum();
        let ready = Ready {
            kernel: format!("{} threads", rayon::current_num_threads()),
            output: outputs.first().map(|(_, t)| t.to_f64()).unwrap_or_default(),
            memory: Some((given + results + executor.arena_bytes()) as u64),
        };
        self.prepared = Some((executor, inputs));
        Ok(ready)
    }

    fn run(&mut self, runs: u32, burst: u32) -> Result<Vec<f64>, String> {
        let (executor, inputs) = self.prepared.as_mut().ok_or("nothing is prepared")?;
        timed(runs, burst, || {
            for _ in 0..burst {
                executor
                    .run_with(&Dims::new(), inputs)
                    .map_err(|e| e.to_string())?;
            }
            Ok(())
        })
    }
}

fn bytes(data: &TensorData) -> usize {
    data.bytes.as_ref().map_or(0, |b| b.len())
}

fn tensor(data: &TensorData) -> Result<Tensor, String> {
    let values = data.to_f64().ok_or("an input has no data")?;
    let elements = match data.dtype {
        DType::I32 => TensorBuf::I32(values.iter().map(|&x| x as i32).collect()),
        DType::U32 => TensorBuf::U32(values.iter().map(|&x| x as u32).collect()),
        DType::Bool => TensorBuf::Bool(values.iter().map(|&x| x != 0.0).collect()),
        DType::F32 | DType::F16 | DType::BF16 => {
            TensorBuf::F32(values.iter().map(|&x| x as f32).collect())
        }
    };
    Tensor::new(data.dtype, data.shape.clone(), elements).map_err(|e| e.to_string())
}
