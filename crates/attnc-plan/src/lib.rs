//! Plans: kernels, steps and buffers as plain data; device profiles, memory planner, bundles.
//!
//! A [`Plan`] is what the compiler hands to whoever runs the model. It holds WGSL text, the buffers
//! the kernels work on, and a list of dispatches whose sizes are expressions over the symbolic
//! lengths, so that one plan serves every batch size and length. Weight *data* is not in it: a host
//! hands it over by name through [`WeightSource`], borrowed, so that mapped files are uploaded
//! without a copy.
//!
//! ```
//! use attnc_plan::{Dim, DimBinding, DType, DeviceProfile, MemoryPlan, Plan, Port};
//!
//! let mut plan = Plan::new("twice", DeviceProfile::webgpu());
//! plan.dims = vec!["B".into()];
//! let x = plan.add_input(Port::new("x", DType::F32, vec![Dim::sym("B"), Dim::from(4)]));
//! # let _ = x;
//! let dims = DimBinding::for_plan(&plan).shape("x", &[3, 4]).finish().unwrap();
//! assert_eq!(dims.get("B"), Some(3));
//! assert_eq!(MemoryPlan::new(&plan, &dims).unwrap().peak_bytes, 0);
//! ```
//!
//! Nothing here knows a GPU API; only [`bundle`] touches the file system.

mod bind_error;
mod binding;
mod buffer;
pub mod bundle;
mod check;
mod dims;
mod fit;
mod images;
mod kernel;
mod limits;
mod memory;
mod panels;
mod plan;
mod profile;
mod step;
mod symbolic;
mod weights;

pub use attnc_ir::{DType, Dim, DimError};
pub use bind_error::{BindErrors, BindProblem};
pub use binding::DimBinding;
pub use buffer::{Buffer, BufferId, BufferKind};
pub use check::{PlanError, PlanErrors};
pub use dims::DimValues;
pub use images::{IMAGE_WIDTH, ImageSize, image_byte_limit};
pub use kernel::{Access, Binding, Feature, KernelArtifact, KernelId, Precision};
pub use limits::{
    MAX_ELEMENTS, SizeErrors, SizeProblem, check_sizes, check_sizes_within, check_weights,
};
pub use memory::{Lifetime, MemoryPlan, image_lifetimes, lifetimes};
pub use panels::Panels;
pub use plan::{PLAN_VERSION, Plan, Port};
pub use profile::{
    CooperativeMatrix, DeviceProfile, Features, LLVMPIPE_LOOP_TURNS, Limits, SubgroupSizes,
};
pub use step::{Step, StepLaunch, Uniform};
pub use symbolic::{arena_peak_expression, largest_intermediate, largest_intermediates};
pub use weights::WeightSource;
