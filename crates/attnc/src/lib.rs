//! Compiler for attention models: import, fuse, compile to WGSL, run.
//!
//! A model comes in as a graph; out comes a plan of a few WGSL kernels in which every
//! `QKᵀ → scale → mask → softmax → ·V` has become one tiled pass. Three roads lead through it:
//!
//! * **Run a file**: [`Session::open`], then [`Session::run`].
//! * **Embed**: [`compile()`] a graph for a [`plan::DeviceProfile`], make a [`gpu::Executable`] on the
//!   device that you own, bind your buffers and record into your encoder. `examples/embed.rs` does it.
//! * **Look**: [`explain()`](explain::explain) says what fused, what did not, and why.
//!
//! ```
//! use attnc::{HostTensor, Model, Session, SessionOptions, Tensors, backend::Backends};
//! let model = Model::from_text("m", "graph @m(%q: f32[B, 2, M, 4], %k: f32[B, 2, N, 4], %v: f32[B, 2, N, 4]) {
//!   %kt = transpose %k, perm = [0, 1, 3, 2]
//!   %s = matmul %q, %kt
//!   %p = softmax %s, axis = 3
//!   %o = matmul %p, %v
//!   return %o
//! }")?;
//! let options = SessionOptions { backend: "cpu".into(), ..SessionOptions::default() };
//! let mut session = Session::of_model(&model, &options, &Backends::standard())?;
//! assert_eq!(session.attention().map(|a| (a.found, a.fused)), Some((1, 1)));
//!
//! let tensor = |n: usize| HostTensor::new(vec![1, 2, n, 4], &vec![0.5f32; 8 * n]).unwrap();
//! let given = Tensors::from([("q", 3), ("k", 5), ("v", 5)].map(|(name, n)| (name.into(), tensor(n))));
//! let outputs = session.run(&given)?;
//! assert_eq!(outputs["o"].to_f64(), vec![0.5; 24]);
//! # Ok::<(), attnc::Error>(())
//! ```
//!
//! The crates below are re-exported, so that hosts depend on this one only.

pub use attnc_codegen as codegen;
pub use attnc_cpu as cpu;
pub use attnc_ir as ir;
pub use attnc_onnx as onnx;
pub use attnc_opt as opt;
pub use attnc_plan as plan;
pub use attnc_shaders as shaders;
pub use attnc_wgpu as gpu;

pub mod backend;
pub mod compile;
pub mod explain;
pub mod inputs;
pub mod npz;
pub mod oracle;
pub mod random;
pub mod sources;
pub mod tune;
pub mod verify;

mod derived;
mod dtype;
mod element;
mod error;
mod files;
mod host_tensor;
mod mapped;
mod memory;
mod model;
mod port;
mod rules;
mod session;

pub use compile::{Compiled, compile, lower, lower_with, optimise};
pub use dtype::HostDType;
pub use element::{Element, Value};
pub use error::Error;
pub use host_tensor::{HostTensor, TensorError, TensorType, Tensors};
pub use memory::host_peak_bytes;
pub use model::Model;
pub use port::Port;
pub use rules::{Lookup, Rules};
pub use session::{Session, SessionOptions, require_fused};
