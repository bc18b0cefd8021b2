//! Benches of attnc.
//!
//! * `cargo bench -p attnc-benches` runs the criterion benches of `benches/`, which compare a change with
//!   the run before it;
//! * `cargo xtask bench compile` prints how long compiling takes by stage ([`stages`]), beside onnxruntime;
//! * `cargo xtask bench kernels` measures [`shapes`] on everything that can do them ([`contestant`]), who
//!   take [`turns`], against the [`peak`]s of the adapter, and prints one [`table`].

pub mod contestant;
pub mod device;
pub mod models;
pub mod peak;
pub mod reference;
pub mod roofline;
pub mod shape;
pub mod shapes;
pub mod stages;
pub mod table;
pub mod task;
pub mod turns;
