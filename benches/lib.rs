//! Benches of attnc: what they measure on, and the stages of a compilation.
//!
//! * `cargo bench -p attnc-benches` runs the criterion benches of `benches/`, which compare a change with
//!   the run before it;
//! * `cargo xtask bench` prints one table, beside what onnxruntime needs on the same files.
//!
//! Both measure [`models::found`], stage by stage ([`stages`]). A bench of another kind (kernels, say) is
//! another file in `benches/`.

pub mod models;
pub mod stages;
