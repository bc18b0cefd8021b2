//! CPU executor and f64 oracle of attnc graphs.
//!
//! Both run any verified graph, fused or not:
//!
//! * [`interp::run`] is the oracle of every test: f64, one plain loop an operation, no tricks;
//! * [`Executor`] is the backend of a machine without a GPU: f32, views without copies, SIMD, all threads, and
//!   attention as one tiled pass over the keys.
//!
//! ```
//! use attnc_cpu::{Dims, Executor, Tensor, interp};
//! use attnc_ir::{BinaryOp, DType, Graph, Op, TensorType};
//! let mut g = Graph::new("double");
//! let x = g.add_input("x", TensorType::new(DType::F32, ["B"]));
//! let y = g.apply(Op::Binary(BinaryOp::Add), &[x, x]).unwrap();
//! g.add_output("y", y);
//! let inputs = [("x".to_owned(), Tensor::f32(vec![2], vec![1.0, 2.5]))];
//! let oracle = interp::run(&g, &Dims::new(), &inputs)?;
//! assert_eq!(oracle[0].1.to_f64(), [2.0, 5.0]);
//! assert_eq!(Executor::new(g)?.run(&inputs)?[0].1.to_f64(), [2.0, 5.0]);
//! # Ok::<(), attnc_cpu::ExecError>(())
//! ```
//!
//! What both mean alike, beyond the comments of [`attnc_ir::Op`]:
//!
//! * `min`, `max`, `relu` and `sign` of NaN are NaN; `round` is to even.
//! * Integers wrap; `x / 0` is `x` and `x % 0` is 0, as in WGSL; casts from float saturate, NaN gives 0.
//! * A softmax row and an attention row whose every score is -inf give zeros: there is no key.

pub mod interp;

mod exec;

mod bind;
mod error;
mod index;
mod lazy;
mod memory;
mod poly;
mod scalar64;
mod tensor;

pub use bind::{Dims, bind_dims};
pub use error::{ExecError, InputProblem, LengthError};
pub use exec::{Executor, Output, StepTime};
pub use tensor::{Tensor, TensorBuf};
