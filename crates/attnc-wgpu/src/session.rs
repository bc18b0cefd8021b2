//! The simple road: host tensors in, host tensors out.
//!
//! ```no_run
//! # fn f(plan: attnc_plan::Plan, x: Vec<u8>) -> Result<(), attnc_wgpu::Error> {
//! use attnc_plan::DType;
//! use attnc_wgpu::{AdapterChoice, Gpu, HostTensorRef, Runner};
//! let gpu = Gpu::open(&AdapterChoice::any())?;
//! let mut runner = Runner::new(&gpu.device, &gpu.queue, &plan, &())?;
//! let x = HostTensorRef { dtype: DType::F32, shape: &[2, 3], bytes: &x };
//! for output in runner.run(&[("x", x)])? {
//!     assert_eq!(output.dtype, DType::F32);
//! }
//! # Ok(())
//! # }
//! ```

use crate::executable::REMEMBERED;
use crate::host_buffers::ports_of;
use crate::outputs::OutputLayout;
use crate::readback::Staging;
use crate::weights::{storage_buffer, write};
use crate::{Error, Executable, Inputs, Io, StepTime, inputs, readback, scope};
use attnc_plan::{DType, DimBinding, DimValues, Plan, Port, WeightSource};
use std::sync::Arc;

/// A tensor of the host, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct HostTensorRef<'a> {
    /// The element type as stored on the device.
    pub dtype: DType,
    /// The lengths.
    pub shape: &'a [usize],
    /// Dense, row-major, little-endian.
    pub bytes: &'a [u8],
}

/// A tensor read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTensor {
    /// The output's name.
    pub name: String,
    /// The element type as stored on the device.
    pub dtype: DType,
    /// The lengths.
    pub shape: Vec<usize>,
    /// Dense, row-major, little-endian.
    pub bytes: Vec<u8>,
}

/// Runs one plan on host tensors, keeping device buffers between runs.
///
/// The first run at some lengths makes what they need; later ones make nothing, on the device or on the host,
/// but what wgpu needs to record and submit commands.
#[derive(Debug)]
pub struct Runner {
    device: wgpu::Device,
    queue: wgpu::Queue,
    executable: Executable,
    /// By port, inputs then outputs; grown where a run needs more.
    ports: Vec<Option<wgpu::Buffer>>,
    /// The one buffer results are read through.
    staging: Option<Staging>,
    /// What the latest shapes need, the latest last.
    prepared: Vec<Arc<Prepared>>,
}

/// What follows from the shapes of the inputs.
#[derive(Debug)]
struct Prepared {
    /// The lengths given, and the shapes of the inputs in the order of the ports.
    given: DimValues,
    shapes: Vec<Vec<usize>>,
    /// All lengths.
    dims: DimValues,
    outputs: OutputLayout,
}

impl Prepared {
    fn is_for(&self, plan: &Plan, inputs: &dyn Inputs, dims: &DimValues) -> bool {
        let mut ports = plan.inputs.iter().zip(&self.shapes);
        self.given == *dims
            && ports.all(|(port, known)| {
                inputs::find(inputs, &port.name).is_some_and(|tensor| tensor.shape == known)
            })
    }
}

impl Runner {
    /// Compiles the kernels and uploads the weights.
    ///
    /// # Errors
    /// As [`Executable::new`].
    pub fn new(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        plan: &Plan,
        weights: &dyn WeightSource,
    ) -> Result<Self, Error> {
        Ok(Self::from_executable(
            device,
            queue,
            Executable::new(device, queue, plan, weights)?,
        ))
    }

    /// Runs an executable made on the same device.
    #[must_use]
    pub fn from_executable(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        executable: Executable,
    ) -> Self {
        let ports = vec![None; executable.plan.inputs.len() + executable.plan.outputs.len()];
        Self {
            device: device.clone(),
            queue: queue.clone(),
            executable,
            ports,
            staging: None,
            prepared: Vec::new(),
        }
    }

    /// The executable, for its plan and counters.
    #[must_use]
    pub fn executable(&self) -> &Executable {
        &self.executable
    }

    /// Runs on the given inputs; the outputs come in the plan's order.
    ///
    /// # Errors
    /// Every input that is missing, unknown or of the wrong type or size; shapes that do not fit each
    /// other; sizes over a limit; trouble of the device.
    pub fn run(&mut self, inputs: &[(&str, HostTensorRef<'_>)]) -> Result<Vec<HostTensor>, Error> {
        self.run_with(inputs, &DimValues::default())
    }

    /// As [`Runner::run`], with values for lengths no input has.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn run_with(
        &mut self,
        inputs: &[(&str, HostTensorRef<'_>)],
        dims: &DimValues,
    ) -> Result<Vec<HostTensor>, Error> {
        let plan = Arc::clone(&self.executable.plan);
        let mut outputs = Vec::with_capacity(plan.outputs.len());
        self.run_each(&inputs, dims, &mut |at, output| {
            outputs.push(HostTensor {
                name: plan.outputs[at].name.clone(),
                dtype: output.dtype,
                shape: output.shape.to_vec(),
                bytes: output.bytes.to_vec(),
            });
        })?;
        Ok(outputs)
    }

    /// As [`Runner::run_with`], handing each output to `each` where it lies, with its position in the plan:
    /// nothing is copied or allocated for it.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn run_each(
        &mut self,
        inputs: &dyn Inputs,
        dims: &DimValues,
        each: &mut dyn FnMut(usize, HostTensorRef<'_>),
    ) -> Result<(), Error> {
        let (prepared, io) = self.prepare(inputs, dims)?;
        let during = format_args!("running `{}`", self.executable.plan.model);
        scope::guarded(&self.device, &during, || {
            self.upload(inputs)?;
            let mut encoder = self.device.create_command_encoder(&Default::default());
            self.executable.encode(&mut encoder, &io);
            let Some(staging) = &self.staging else {
                self.queue.submit([encoder.finish()]);
                return readback::wait(&self.device, &during);
            };
            let outputs = &prepared.outputs;
            let buffers = &io.host[self.executable.plan.inputs.len()..];
            outputs.copy(&mut encoder, buffers, &staging.buffer);
            self.queue.submit([encoder.finish()]);
            staging.read(&self.device, outputs.bytes, &during, |bytes| {
                outputs.each(bytes, each);
            })
        })
    }

    /// Runs once and says how long each step took on the device.
    ///
    /// # Errors
    /// As [`Runner::run`], and where the device has no timestamps.
    pub fn profile(
        &mut self,
        inputs: &dyn Inputs,
        dims: &DimValues,
    ) -> Result<Vec<StepTime>, Error> {
        let (_, io) = self.prepare(inputs, dims)?;
        let during = format_args!("uploading inputs of `{}`", self.executable.plan.model);
        scope::guarded(&self.device, &during, || self.upload(inputs))?;
        self.executable.profile(&self.device, &self.queue, &io)
    }

    /// Checks, solves the lengths, makes room and binds; what is known of these shapes is not done again.
    fn prepare(
        &mut self,
        inputs: &dyn Inputs,
        dims: &DimValues,
    ) -> Result<(Arc<Prepared>, Arc<Io>), Error> {
        let plan = Arc::clone(&self.executable.plan);
        inputs::check(&plan, inputs)?;
        let mut known = self.prepared.iter();
        let prepared = match known.position(|p| p.is_for(&plan, inputs, dims)) {
            Some(at) => {
                self.prepared[at..].rotate_left(1);
                Arc::clone(&self.prepared[self.prepared.len() - 1])
            }
            None => self.learn(&plan, inputs, dims)?,
        };
        let io = self.bind(&plan, &prepared.dims)?;
        Ok((prepared, io))
    }

    /// Solves the lengths that follow from the shapes, and makes room for all tensors.
    fn learn(
        &mut self,
        plan: &Plan,
        inputs: &dyn Inputs,
        given: &DimValues,
    ) -> Result<Arc<Prepared>, Error> {
        let binding = DimBinding::for_plan(plan).dims(given);
        let binding = inputs::each(inputs).fold(binding, |b, (name, t)| b.shape(name, t.shape));
        let dims = binding.finish()?;
        self.executable.check_sizes(&dims)?;
        let outputs = OutputLayout::new(plan, &dims)?;
        let during = format_args!("making buffers of `{}`", plan.model);
        let device = self.device.clone();
        scope::guarded(&device, &during, || self.make_room(plan, &dims, &outputs))?;
        let shapes = plan.inputs.iter().map(|port| {
            let tensor = inputs::find(inputs, &port.name);
            tensor.map(|t| t.shape.to_vec()).unwrap_or_default()
        });
        let prepared = Arc::new(Prepared {
            given: given.clone(),
            shapes: shapes.collect(),
            dims,
            outputs,
        });
        if self.prepared.len() == REMEMBERED {
            self.prepared.remove(0);
        }
        self.prepared.push(Arc::clone(&prepared));
        Ok(prepared)
    }

    /// A buffer for each port and one for results, as large as these lengths need; buffers only ever grow.
    fn make_room(
        &mut self,
        plan: &Plan,
        dims: &DimValues,
        outputs: &OutputLayout,
    ) -> Result<(), Error> {
        for (slot, port) in self.ports.iter_mut().zip(ports_of(plan)) {
            let needed = plan.buffer(port.buffer).allocated_bytes(dims)?;
            if slot.as_ref().is_none_or(|have| have.size() < needed) {
                let mut state = self.executable.state();
                // What is remembered would keep the old buffer alive.
                state.recent.clear();
                state.buffers_created += 1;
                *slot = Some(storage_buffer(&self.device, &port.name, needed));
            }
        }
        let have = self.staging.as_ref().map_or(0, |s| s.buffer.size());
        if have < outputs.bytes {
            self.executable.state().buffers_created += 1;
            self.staging = Some(Staging::new(&self.device, "attnc results", outputs.bytes));
        }
        Ok(())
    }

    fn bind(&self, plan: &Plan, dims: &DimValues) -> Result<Arc<Io>, Error> {
        let known = |at: usize, _: &Port| self.ports[at].as_ref();
        if let Some(io) = self.executable.recall(dims, known) {
            return Ok(io);
        }
        let named: Vec<(&str, &wgpu::Buffer)> = ports_of(plan)
            .zip(&self.ports)
            .filter_map(|(port, buffer)| Some((port.name.as_str(), buffer.as_ref()?)))
            .collect();
        self.executable.bind(&self.device, dims, &named)
    }

    fn upload(&self, inputs: &dyn Inputs) -> Result<(), Error> {
        for (port, buffer) in self.executable.plan.inputs.iter().zip(&self.ports) {
            if let (Some(tensor), Some(buffer)) = (inputs::find(inputs, &port.name), buffer) {
                write(&self.queue, buffer, tensor.bytes)?;
            }
        }
        Ok(())
    }
}
