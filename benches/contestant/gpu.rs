//! attnc on the adapter: a plan recorded over resident buffers, submitted and waited for.

use super::{Contestant, Ready, Side, kernels_text, timed};
use crate::shape::Work;
use crate::task::Task;
use attnc::codegen::choice::{Choices, KernelShape};
use attnc::gpu::{Executable, ExecutableOptions, Gpu, Io};
use attnc::opt::Options;
use attnc::plan::{BufferKind, DeviceProfile, DimValues, Plan};
use std::sync::Arc;

/// One way to compile for a device.
#[derive(Debug, Clone)]
pub struct Variant {
    /// What is special about it, as the table shows it; empty for the default.
    pub name: String,
    /// The profile it is compiled for.
    pub profile: DeviceProfile,
    /// Which kernels are preferred.
    pub choices: Choices,
    /// The passes.
    pub passes: Options,
}

/// The name of attnc with the kernels that it chooses itself.
pub const OWN_CHOICE: &str = "attnc gpu";

/// What a device offers: as a user gets it, each kernel shape that the profile can select, and without
/// attention fusion.
#[must_use]
pub fn variants(profile: &DeviceProfile) -> Vec<Variant> {
    let fused = |(name, choices): (String, Choices)| Variant {
        name,
        profile: profile.clone(),
        choices,
        passes: Options::default(),
    };
    let mut all: Vec<Variant> = kernel_shapes().into_iter().map(fused).collect();
    all.push(Variant {
        name: "no-fuse".to_owned(),
        profile: profile.clone(),
        choices: Choices::default(),
        passes: Options {
            fuse_attention: false,
            ..Options::default()
        },
    });
    all
}

/// What the compiler chooses, and each kernel shape in turn.
fn kernel_shapes() -> Vec<(String, Choices)> {
    let forced = |shape: KernelShape| (shape.name().to_owned(), Choices::forced(shape));
    let mut all = vec![(String::new(), Choices::default())];
    all.extend(KernelShape::ALL.map(forced));
    all
}

/// attnc through wgpu.
pub struct AttncGpu {
    name: String,
    gpu: Gpu,
    variant: Variant,
    bound: Option<(Executable, Arc<Io>)>,
}

impl AttncGpu {
    /// On that device.
    #[must_use]
    pub fn new(gpu: &Gpu, variant: Variant) -> Self {
        Self {
            name: format!("{OWN_CHOICE} {}", variant.name)
                .trim_end()
                .to_owned(),
            gpu: gpu.clone(),
            variant,
            bound: None,
        }
    }

    fn compile(&self, task: &Task) -> Result<Executable, attnc::Error> {
        let optimised = attnc::optimise(&task.model.graph, &self.variant.passes)?;
        let compiled = attnc::lower_with(
            &optimised.graph,
            &self.variant.profile,
            &self.variant.choices,
        )?;
        let Gpu { device, queue, .. } = &self.gpu;
        let options = ExecutableOptions {
            matrices: &self.gpu.profile.features.cooperative_matrix,
            ..ExecutableOptions::default()
        };
        let (plan, weights) = (&compiled.plan, &compiled.weights);
        Ok(Executable::with_options(
            device, queue, plan, weights, &options,
        )?)
    }

    /// A buffer for each port, inputs filled.
    fn bind(
        &self,
        task: &Task,
        exe: &Executable,
    ) -> Result<(Arc<Io>, Vec<wgpu::Buffer>), attnc::Error> {
        let Gpu { device, queue, .. } = &self.gpu;
        let plan = exe.plan();
        let dims = dims(task, exe)?;
        exe.check_sizes(&dims)?;
        let mut buffers = Vec::new();
        for (at, port) in plan.inputs.iter().chain(&plan.outputs).enumerate() {
            let size = plan
                .buffer(port.buffer)
                .allocated_bytes(&dims)
                .map_err(attnc::gpu::Error::from)?;
            let buffer = device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(&port.name),
                size: size.next_multiple_of(4).max(4),
                usage: wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_DST
                    | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            });
            if let Some(bytes) = task.bound.tensors.get(at).and_then(|t| t.bytes.as_deref()) {
                let mut words = bytes.to_vec();
                words.resize(bytes.len().next_multiple_of(4), 0);
                queue.write_buffer(&buffer, 0, &words);
            }
            buffers.push(buffer);
        }
        let ports = plan.inputs.iter().chain(&plan.outputs);
        let named: Vec<_> = ports.map(|p| p.name.as_str()).zip(&buffers).collect();
        Ok((exe.bind(device, &dims, &named)?, buffers))
    }

    fn read(&self, buffer: &wgpu::Buffer) -> Result<Vec<u8>, String> {
        crate::device::read(&self.gpu, buffer)
    }
}

impl Contestant for AttncGpu {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        concat!("attnc ", env!("CARGO_PKG_VERSION"))
    }

    fn side(&self) -> Side {
        Side::Gpu
    }

    /// Without attention there is nothing that fusion could change.
    fn does(&self, work: &Work) -> bool {
        self.variant.passes.fuse_attention || !matches!(work, Work::Matmul { .. })
    }

    fn prepare(&mut self, task: &Task) -> Result<Ready, String> {
        self.bound = None;
        let said = |error: attnc::Error| error.to_string();
        let exe = self.compile(task).map_err(said)?;
        let (io, buffers) = self.bind(task, &exe).map_err(said)?;
        let plan = exe.plan();
        let kernels = plan
            .steps
            .iter()
            .map(|s| plan.kernel(s.kernel).name.as_str());
        let kernel = kernels_text(kernels);
        let memory = memory(plan, &io, &buffers);
        let port = &plan.outputs[0];
        let bytes = plan
            .buffer(port.buffer)
            .bytes(io.dims())
            .map_err(|e| e.to_string())?;
        let (dtype, at) = (port.dtype, plan.inputs.len());
        self.bound = Some((exe, io));
        self.run(1, 1)?;
        let mut found = self.read(&buffers[at])?;
        found.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        let len = found.len() / dtype.bytes();
        let data = attnc::ir::TensorData::new(dtype, vec![len], found.into());
        let output = data.to_f64().ok_or("the result has no data")?;
        match self.gpu.trouble() {
            Some(trouble) => Err(trouble),
            None => Ok(Ready {
                kernel,
                output,
                memory: Some(memory),
            }),
        }
    }

    fn run(&mut self, runs: u32, burst: u32) -> Result<Vec<f64>, String> {
        let Gpu { device, queue, .. } = &self.gpu;
        let (exe, io) = self.bound.as_ref().ok_or("nothing is prepared")?;
        timed(runs, burst, || {
            let mut encoder =
                device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            (0..burst).for_each(|_| exe.encode(&mut encoder, io));
            queue.submit([encoder.finish()]);
            device
                .poll(wgpu::PollType::wait_indefinitely())
                .map(drop)
                .map_err(|e| e.to_string())
        })
    }
}

/// The lengths of the task, by the names the plan gives them.
fn dims(task: &Task, exe: &Executable) -> Result<DimValues, attnc::Error> {
    let ports = &exe.plan().inputs;
    let shapes = ports.iter().zip(&task.bound.tensors);
    let shapes: Vec<_> = shapes
        .map(|(p, t)| (p.name.as_str(), t.shape.as_slice()))
        .collect();
    Ok(exe.dims(&shapes)?)
}

/// Inputs, results, weights and the arena.
fn memory(plan: &Plan, io: &Io, buffers: &[wgpu::Buffer]) -> u64 {
    let weights = plan
        .buffer_ids()
        .filter(|(_, b)| matches!(b.kind, BufferKind::Weight { .. }));
    let weights: u64 = weights.map(|(_, b)| b.bytes(io.dims()).unwrap_or(0)).sum();
    let ports: u64 = buffers.iter().map(wgpu::Buffer::size).sum();
    ports + weights + io.memory().peak_bytes
}
