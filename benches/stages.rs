//! The stages of a compilation, from file to plan.
//!
//! ```no_run
//! let model = attnc_benches::stages::import("model.onnx".as_ref())?;
//! let optimised = attnc_benches::stages::optimise(&model)?;
//! let compiled = attnc_benches::stages::lower(&optimised)?;
//! # Ok::<(), attnc::Error>(())
//! ```

use attnc::opt::{Optimised, Options};
use attnc::plan::DeviceProfile;
use attnc::{Compiled, Error, Model};
use std::path::Path;
use std::time::{Duration, Instant};

/// File to graph. Weights are mapped, not copied.
///
/// # Errors
/// As [`Model::open`].
pub fn import(file: &Path) -> Result<Model, Error> {
    Model::open(file)
}

/// Graph to graph of kernels.
///
/// # Errors
/// As [`attnc::optimise`].
pub fn optimise(model: &Model) -> Result<Optimised, Error> {
    attnc::optimise(&model.graph, &Options::default())
}

/// Graph of kernels to plan: shaders are linked and validated for the profile every WebGPU device has.
///
/// # Errors
/// As [`attnc::lower`].
pub fn lower(optimised: &Optimised) -> Result<Compiled, Error> {
    attnc::lower(&optimised.graph, &DeviceProfile::webgpu())
}

/// How long each stage of one compilation took.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// See [`import`].
    pub import: Duration,
    /// See [`optimise`].
    pub optimise: Duration,
    /// See [`lower`].
    pub lower: Duration,
}

/// Compiles a file once. Releasing what the stages made is not counted.
///
/// # Errors
/// As the stages.
pub fn measure(file: &Path) -> Result<Times, Error> {
    let start = Instant::now();
    let model = import(file)?;
    let imported = Instant::now();
    let optimised = optimise(&model)?;
    let done = Instant::now();
    let compiled = lower(&optimised)?;
    let lowered = Instant::now();
    drop(compiled);
    Ok(Times {
        import: imported - start,
        optimise: done - imported,
        lower: lowered - done,
    })
}
