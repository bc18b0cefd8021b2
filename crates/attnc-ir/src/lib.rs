//! The graph IR of attnc: a typed dataflow graph with symbolic lengths, and the scalar expressions that say
//! how an element is computed from its index.
//!
//! * [`Builder`]: graphs written in Rust.
//! * [`Graph`], [`Node`], [`Op`]: single-assignment values; each node has one result.
//! * [`TensorType`], [`DType`], [`Dim`]: types; lengths are polynomials over run-time symbols.
//! * [`scalar`]: pointwise kernels, epilogues and the functions of [`Attention`] are one type.
//! * [`infer`]: the type of a result from its operands.
//! * [`text`]: the text form, which reads back to the same graph.
//! * [`verify`](fn@verify): whether a graph keeps every rule that passes and backends rely on.
//! * [`Diagnostic`]: what is wrong, where, what to do.

pub mod dim;
pub mod infer;
pub mod layout;
pub mod scalar;
pub mod text;
pub mod verify;

mod attention;
mod builder;
mod diagnostic;
mod dtype;
mod graph;
mod linear_attention;
mod op;
mod render;
mod tensor;

pub use attention::Attention;
pub use builder::{Builder, Value};
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use dim::{Atom, Dim, DimError, Extents};
pub use dtype::{DType, to_odd};
pub use graph::{Graph, Node, ValueId};
pub use linear_attention::{LinearAttention, LinearResult, UpdateRule};
pub use op::{BinaryOp, CompareOp, Conv, Op, PadMode, ReduceOp, UnaryOp};
pub use render::{render_diagnostics, render_graph_diagnostics};
pub use tensor::{Shape, SharedBytes, TensorData, TensorType};
pub use verify::verify;
