//! Runs attnc plans through wgpu.
//!
//! Made to live inside a host: the host owns the device, the queue, the buffers and the encoder, and
//! this crate only adds its passes.
//!
//! ```no_run
//! # fn host(
//! #     device: wgpu::Device, queue: wgpu::Queue, plan: attnc_plan::Plan,
//! #     q_buf: wgpu::Buffer, o_buf: wgpu::Buffer,
//! # ) -> Result<(), attnc_wgpu::Error> {
//! use attnc_wgpu::Executable;
//!
//! let exe = Executable::new(&device, &queue, &plan, &())?; // compiles the kernels, once
//! let dims = exe.dims(&[("q", &[1, 12, 128, 64])])?;
//! let io = exe.bind(&device, &dims, &[("q", &q_buf), ("out", &o_buf)])?;
//! let mut encoder = device.create_command_encoder(&Default::default());
//! exe.encode(&mut encoder, &io); // nothing is allocated or compiled from here on
//! queue.submit([encoder.finish()]);
//! # Ok(())
//! # }
//! ```
//!
//! The simple road is [`Gpu::open`] and [`Runner`]: host tensors in, host tensors out.
//!
//! Nothing here panics on what a host, a file or a driver does: validation errors, exhausted memory
//! and lost devices come back as [`Error`].

mod bind;
mod cache;
mod counters;
mod devices;
mod encode;
mod error;
mod executable;
mod host_buffers;
mod images;
mod inputs;
mod outputs;
mod pipeline;
mod pool;
mod profile;
mod readback;
mod scope;
mod session;
mod timing;
mod uniforms;
mod weights;

pub use bind::Io;
pub use cache::PipelineCache;
pub use devices::{AdapterChoice, AdapterDescription, Gpu, Prefer, adapters, describe};
pub use error::Error;
pub use executable::{Checks, Executable, ExecutableOptions, Stats};
pub use inputs::Inputs;
pub use profile::ProfileExt;
pub use session::{HostTensor, HostTensorRef, Runner};
pub use timing::StepTime;
