//! Plans: kernels, steps and buffers as plain data; device profiles, memory planner, bundles.
//!
//! A [`Plan`] is what the compiler hands to whoever runs the model. It holds WGSL text, the buffers
//! the kernels work on, and a list of dispatches whose sizes are expressions over the symbolic
//! lengths, so that one plan serves every batch size and length. Weight *data* is not in it: a host
//! hands it over by name through [`WeightSource`], borrowed, so that mapped files are uploaded
//! without a copy.
//!
//! ```
//! use attnc_plan::{Dim, DType, DeviceProfile, Plan, Port};
//!
//! let mut plan = Plan::new("twice", DeviceProfile::webgpu());
//! plan.dims = vec!["B".into()];
//! let x = plan.add_input(Port::new("x", DType::F32, vec![Dim::sym("B"), Dim::from(4)]));
//! assert_eq!(plan.buffer(x).size().to_string(), "16 * B");
//! ```
//!
//! Nothing here knows a GPU API; only `bundle` touches the file system.

mod buffer;
mod dims;
mod kernel;
mod plan;
mod profile;
mod step;
mod weights;

pub use attnc_ir::{DType, Dim, DimError};
pub use buffer::{Buffer, BufferId, BufferKind};
pub use dims::DimValues;
pub use kernel::{Access, Binding, Feature, KernelArtifact, KernelId};
pub use plan::{PLAN_VERSION, Plan, Port};
pub use profile::{CooperativeMatrix, DeviceProfile, Features, Limits, SubgroupSizes};
pub use step::{Step, StepLaunch, Uniform};
pub use weights::WeightSource;
