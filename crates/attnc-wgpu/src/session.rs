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

use crate::weights::{storage_buffer, write};
use crate::{Error, Executable, Io, StepTime, readback, scope};
use attnc_plan::{DType, DimBinding, DimError, DimValues, Plan, Port, WeightSource};
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
#[derive(Debug)]
pub struct Runner {
    device: wgpu::Device,
    queue: wgpu::Queue,
    executable: Executable,
    /// By port, inputs then outputs; grown where a run needs more.
    ports: Vec<Option<wgpu::Buffer>>,
    staging: Option<wgpu::Buffer>,
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
        let device = self.device.clone();
        let io = self.prepare(inputs, dims)?;
        let layout = self.output_layout(&io)?;
        let size = layout.last().map_or(0, |o| o.offset + o.padded).max(4);
        let during = format!("running `{}`", self.executable.plan.model);
        scope::guarded(&device, &during, || {
            let staging = self.staging(size);
            let mut encoder =
                device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            self.executable.encode(&mut encoder, &io);
            for (output, buffer) in layout
                .iter()
                .zip(&io.host[self.executable.plan.inputs.len()..])
            {
                if output.padded > 0 {
                    let copied = Some(output.padded);
                    encoder.copy_buffer_to_buffer(buffer, 0, &staging, output.offset, copied);
                }
            }
            self.queue.submit([encoder.finish()]);
            readback::read(&device, &staging, size, &during, |bytes| {
                layout.iter().map(|output| output.tensor(bytes)).collect()
            })
        })
    }

    /// Runs once and says how long each step took on the device.
    ///
    /// # Errors
    /// As [`Runner::run`], and where the device has no timestamps.
    pub fn profile(
        &mut self,
        inputs: &[(&str, HostTensorRef<'_>)],
        dims: &DimValues,
    ) -> Result<Vec<StepTime>, Error> {
        let io = self.prepare(inputs, dims)?;
        self.executable.profile(&self.device, &self.queue, &io)
    }

    /// Checks, solves the lengths, uploads and binds.
    fn prepare(
        &mut self,
        inputs: &[(&str, HostTensorRef<'_>)],
        dims: &DimValues,
    ) -> Result<Arc<Io>, Error> {
        let plan = Arc::clone(&self.executable.plan);
        let given = check_inputs(&plan, inputs)?;
        let binding = DimBinding::for_plan(&plan).dims(dims);
        let binding = inputs
            .iter()
            .fold(binding, |b, (name, t)| b.shape(name, t.shape));
        let dims = binding.finish()?;
        self.executable.check_sizes(&dims)?;
        let device = self.device.clone();
        let during = format!("uploading inputs of `{}`", plan.model);
        scope::guarded(&device, &during, || self.upload(&plan, &given, &dims))?;
        let named: Vec<(&str, &wgpu::Buffer)> = crate::bind::ports_of(&plan)
            .zip(&self.ports)
            .filter_map(|(port, buffer)| Some((port.name.as_str(), buffer.as_ref()?)))
            .collect();
        self.executable.bind(&device, &dims, &named)
    }

    fn upload(
        &mut self,
        plan: &Plan,
        given: &[HostTensorRef<'_>],
        dims: &DimValues,
    ) -> Result<(), Error> {
        for (at, port) in crate::bind::ports_of(plan).enumerate() {
            let needed = plan.buffer(port.buffer).allocated_bytes(dims)?;
            let slot = &mut self.ports[at];
            let buffer = match slot {
                Some(buffer) if buffer.size() >= needed => &*buffer,
                _ => {
                    // What is remembered would keep the old buffer alive.
                    self.executable.state().recent.clear();
                    slot.insert(storage_buffer(&self.device, &port.name, needed))
                }
            };
            if let Some(tensor) = given.get(at) {
                write(&self.queue, buffer, tensor.bytes);
            }
        }
        Ok(())
    }

    /// The one buffer results are read through.
    fn staging(&mut self, size: u64) -> wgpu::Buffer {
        match &self.staging {
            Some(buffer) if buffer.size() >= size => buffer.clone(),
            _ => {
                let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("attnc results"),
                    size,
                    usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                    mapped_at_creation: false,
                });
                self.staging = Some(buffer.clone());
                buffer
            }
        }
    }

    fn output_layout(&self, io: &Io) -> Result<Vec<OutputPlace>, Error> {
        let plan = &self.executable.plan;
        let mut offset = 0;
        let mut out = Vec::with_capacity(plan.outputs.len());
        for port in &plan.outputs {
            let bytes = plan.buffer(port.buffer).bytes(&io.dims)?;
            let padded = bytes.next_multiple_of(4);
            let shape = concrete(port, &io.dims)?;
            let tensor = (port.name.clone(), port.dtype, shape);
            out.push(OutputPlace {
                tensor,
                offset,
                bytes,
                padded,
            });
            // Mapping asks for offsets that are multiples of 8.
            offset += padded.next_multiple_of(8);
        }
        Ok(out)
    }
}

/// Where an output lies in the staging buffer.
struct OutputPlace {
    tensor: (String, DType, Vec<usize>),
    offset: u64,
    bytes: u64,
    padded: u64,
}

impl OutputPlace {
    fn tensor(&self, staged: &[u8]) -> HostTensor {
        let (name, dtype, shape) = self.tensor.clone();
        // The staging buffer is mapped, so offsets into it fit a usize.
        let (start, len) = (self.offset as usize, self.bytes as usize);
        HostTensor {
            name,
            dtype,
            shape,
            bytes: staged[start..start + len].to_vec(),
        }
    }
}

fn concrete(port: &Port, dims: &DimValues) -> Result<Vec<usize>, DimError> {
    let value = |d| {
        let value = dims.eval(d)?;
        usize::try_from(value).map_err(|_| DimError::Overflow(d.to_string()))
    };
    port.shape.iter().map(value).collect()
}

/// The inputs in the plan's order, or everything that is wrong with them but the shapes.
fn check_inputs<'a>(
    plan: &Plan,
    inputs: &[(&str, HostTensorRef<'a>)],
) -> Result<Vec<HostTensorRef<'a>>, Error> {
    let mut wrong = Vec::new();
    for (at, (name, tensor)) in inputs.iter().enumerate() {
        if plan.input(name).is_none() {
            let known: Vec<_> = plan
                .inputs
                .iter()
                .map(|p| format!("`{}`", p.name))
                .collect();
            wrong.push(format!(
                "no input is named `{name}`; there are {}",
                known.join(", ")
            ));
        } else if inputs[..at].iter().any(|(earlier, _)| earlier == name) {
            wrong.push(format!("input `{name}` is given twice"));
        }
        let elements = tensor
            .shape
            .iter()
            .try_fold(1usize, |n, &d| n.checked_mul(d));
        let expected = elements.and_then(|n| n.checked_mul(tensor.dtype.bytes()));
        if expected != Some(tensor.bytes.len()) {
            let (shape, dtype, found) = (tensor.shape, tensor.dtype, tensor.bytes.len());
            wrong.push(format!(
                "input `{name}`: {found} bytes are not a {dtype} tensor of shape {shape:?}"
            ));
        }
    }
    let mut ordered = Vec::new();
    for port in &plan.inputs {
        match inputs.iter().find(|(name, _)| *name == port.name) {
            None => wrong.push(format!(
                "input `{}` of type {} is missing",
                port.name,
                port.type_text()
            )),
            Some((_, tensor)) if tensor.dtype != port.dtype => {
                let said = port
                    .source_dtype
                    .as_ref()
                    .map(|s| format!(" (`{s}` in the model)"));
                let said = said.unwrap_or_default();
                let (name, want, have) = (&port.name, port.dtype, tensor.dtype);
                wrong.push(format!(
                    "input `{name}`: expected {want}{said}, found {have}"
                ));
            }
            Some((_, tensor)) => ordered.push(*tensor),
        }
    }
    if wrong.is_empty() {
        Ok(ordered)
    } else {
        Err(Error::Inputs(wrong))
    }
}
