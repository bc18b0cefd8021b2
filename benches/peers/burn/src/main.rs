//! burn's wgpu backend (WGSL) as a peer: `attnc-bench-burn THREADS KIND`.
//!
//! `KIND` is that of the adapter attnc runs on: `software`, or anything else for the best there is. The first
//! run tunes. K and V are expanded to all heads inside the timing, as burn's attention asks for equal counts.

#[path = "../../protocol.rs"]
mod protocol;

mod bert;

use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, Device, DeviceKind, Tensor, TensorData};
use protocol::{Operand, Peer, Task, Work};

use bert::Bert;
use std::path::Path;

type Run = Box<dyn Fn() -> Tensor<4>>;

struct Burn {
    device: Device,
    run: Option<Run>,
}

fn main() {
    let software = std::env::args()
        .nth(2)
        .is_none_or(|kind| kind == "software");
    let kind = if software {
        DeviceKind::Cpu
    } else {
        DeviceKind::DefaultDevice
    };
    let mut burn = Burn {
        device: Device::wgpu(kind),
        run: None,
    };
    protocol::serve("burn wgpu", "burn 0.22.1", "gpu", &mut burn);
}

impl Peer for Burn {
    fn prepare(&mut self, task: &Task) -> Result<(String, Vec<f32>), String> {
        let (kernel, run) = match &task.work {
            Work::Model { file } => self.model(file, &task.operands)?,
            _ => {
                let tensors = task.operands.iter().map(|o| self.tensor(o));
                self.road(task, &tensors.collect::<Vec<Tensor<4>>>())
            }
        };
        let result = run()
            .into_data()
            .try_to_vec::<f32>()
            .map_err(|e| format!("{e:?}"))?;
        self.run = Some(run);
        Ok((kernel.to_owned(), result))
    }

    fn run(&mut self, burst: u64) -> Result<(), String> {
        let run = self.run.as_ref().ok_or("nothing is prepared")?;
        // Held until the end: what nobody can ask for need not be computed.
        let results: Vec<Tensor<4>> = (0..burst).map(|_| run()).collect();
        self.device.sync().map_err(|e| format!("{e:?}"))?;
        drop(results);
        Ok(())
    }
}

impl Burn {
    fn tensor(&self, operand: &Operand) -> Tensor<4> {
        let mut shape = [1; 4];
        shape[4 - operand.shape.len()..].copy_from_slice(&operand.shape);
        Tensor::from_data(TensorData::new(operand.values.clone(), shape), &self.device)
    }

    /// A BERT, written by hand: burn reads model files at build time only.
    fn model(&self, file: &Path, operands: &[Operand]) -> Result<(&'static str, Run), String> {
        let bert = Bert::load(file, operands, &self.device)?;
        Ok(("bert", Box::new(move || bert.run().unsqueeze())))
    }

    fn road(&self, task: &Task, tensors: &[Tensor<4>]) -> (&'static str, Run) {
        let named = |at: usize| tensors[at].clone();
        match task.work {
            Work::Model { .. } => unreachable!("a model is no kernel"),
            Work::Matmul => {
                let (a, b) = (named(0), named(1));
                ("matmul", Box::new(move || a.clone().matmul(b.clone())))
            }
            Work::Attention { causal, window } => {
                let (q, k, v) = (named(0), named(1), named(2));
                let heads = q.dims()[1];
                let mask = window.map(|window| self.masked(q.dims()[2], k.dims()[2], window));
                let run = move || {
                    let (k, v) = (expanded(k.clone(), heads), expanded(v.clone(), heads));
                    let options = AttentionModuleOptions {
                        is_causal: causal,
                        ..Default::default()
                    };
                    attention(q.clone(), k, v, mask.clone(), None, options)
                };
                ("attention", Box::new(run))
            }
        }
    }

    /// True where a key does not count.
    fn masked(&self, queries: usize, keys: usize, window: usize) -> Tensor<4, Bool> {
        let hidden = |i: usize, j: usize| j > i || j + window <= i;
        let values: Vec<bool> = (0..queries)
            .flat_map(|i| (0..keys).map(move |j| hidden(i, j)))
            .collect();
        Tensor::from_data(TensorData::new(values, [1, 1, queries, keys]), &self.device)
    }
}

fn expanded(t: Tensor<4>, heads: usize) -> Tensor<4> {
    let [batch, kv_heads, keys, d] = t.dims();
    if kv_heads == heads {
        return t;
    }
    let grouped: Tensor<5> = t.unsqueeze_dim(2);
    let grouped = grouped.expand([batch, kv_heads, heads / kv_heads, keys, d]);
    grouped.reshape([batch, heads, keys, d])
}
