//! What can go wrong between a plan and a device.

use attnc_plan::{BindErrors, DimError, PlanErrors, SizeErrors};

/// Why a plan could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No adapter fits the choice.
    #[error("no {wanted}; adapters found: {found}")]
    NoAdapter {
        /// What was asked for.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// The adapter gave no device.
    #[error("adapter `{adapter}` gave no device: {error}")]
    Device {
        /// The adapter's name.
        adapter: String,
        /// Why.
        error: wgpu::RequestDeviceError,
    },
    /// Kernels need more than the device has, one line each.
    #[error("the plan does not fit the device:\n{}", .0.join("\n"))]
    Unfit(Vec<String>),
    /// The plan itself is broken.
    #[error(transparent)]
    Plan(#[from] PlanErrors),
    /// Input shapes do not fit the plan.
    #[error(transparent)]
    Shapes(#[from] BindErrors),
    /// Sizes at these lengths are over a limit.
    #[error(transparent)]
    Sizes(#[from] SizeErrors),
    /// A length has no value, or a value is too large.
    #[error(transparent)]
    Dim(#[from] DimError),
    /// Weights are missing, of the wrong size, or too large for the device, one line each.
    #[error("the weights cannot be uploaded:\n{}", .0.join("\n"))]
    Weights(Vec<String>),
    /// The host's buffers do not fit, one line each.
    #[error("the buffers cannot be bound:\n{}", .0.join("\n"))]
    Buffers(Vec<String>),
    /// The host's tensors do not fit, one line each.
    #[error("the inputs cannot be used:\n{}", .0.join("\n"))]
    Inputs(Vec<String>),
    /// The device has no timestamps.
    #[error("the device was opened without TIMESTAMP_QUERY, so steps cannot be timed")]
    NoTimestamps,
    /// The device ran out of memory.
    #[error("{during}: the device is out of memory; use smaller lengths or a smaller model")]
    OutOfMemory {
        /// What was being done.
        during: String,
    },
    /// wgpu or the driver refused something.
    #[error("{during}: {message}")]
    Gpu {
        /// What was being done.
        during: String,
        /// What was said.
        message: String,
    },
    /// The device is gone.
    #[error("{during}: the device was lost ({reason}); open it again")]
    DeviceLost {
        /// What was being done.
        during: String,
        /// Why, as far as known.
        reason: String,
    },
}
