//! Bundles: a compiled model as a folder.
//!
//! ```text
//! plan.json            the plan; each kernel's `wgsl` is the name of its file
//! KERNEL-KEY.wgsl      one a kernel
//! weights.safetensors  the weights the plan names
//! ```
//!
//! Same input, same bytes: maps are ordered and nothing depends on the time or the machine. Reading
//! trusts nothing: versions, ids, names and sizes are checked before anything is used. A host that
//! maps `weights.safetensors` hands the mapped bytes to [`BundleWeights::new`]; nothing is copied.
//!
//! Whoever runs a bundle without attnc-wgpu binds storage buffers of row-major tensors, but for weights with `panels`
//! ([`Panels`](crate::Panels)), bindings of access `image` ([`ImageSize`](crate::ImageSize)) and buffers of the kind
//! `counters`, to be set to 0 before each run ([`BufferKind`](crate::BufferKind)). Plans for the built-in profiles have
//! none of the three.
//!
//! ```no_run
//! # fn main() -> Result<(), attnc_plan::bundle::BundleError> {
//! # let (plan, weights) = (attnc_plan::Plan::new("m", attnc_plan::DeviceProfile::webgpu()), ());
//! # let dir = std::path::Path::new("model.bundle");
//! use attnc_plan::bundle::{BundleWeights, WEIGHTS_FILE, read_plan, write};
//! write(dir, &plan, &weights)?;
//! let plan = read_plan(dir)?;
//! let bytes = std::fs::read(dir.join(WEIGHTS_FILE)).unwrap();
//! let weights = BundleWeights::new(&bytes, &plan)?;
//! # let _ = weights;
//! # Ok(())
//! # }
//! ```

use crate::fit::is_file_name;
use crate::{Buffer, DType, PLAN_VERSION, Plan, PlanError, PlanErrors, WeightSource};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The file that holds the plan.
pub const PLAN_FILE: &str = "plan.json";
/// The file that holds the weights.
pub const WEIGHTS_FILE: &str = "weights.safetensors";

/// Why a bundle could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// `plan.json` is not a plan.
    #[error("{path} is not a plan: {error}")]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        error: serde_json::Error,
    },
    /// The plan cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanErrors),
    /// `weights.safetensors` is not in that format.
    #[error("the weights are not a safetensors file: {0}")]
    Format(safetensors::SafeTensorError),
    /// Weights are missing or have the wrong size or type.
    #[error("the weights do not fit the plan:\n{}", .0.join("\n"))]
    Weights(Vec<String>),
}

/// Writes a bundle; the folder is made if need be, files of these names are replaced. Where a bundle is there already,
/// its kernels that this one has not are removed; nothing else is.
///
/// # Errors
/// Where the plan is not valid, weights are missing or have the wrong size, or a file cannot be
/// written.
pub fn write(dir: &Path, plan: &Plan, weights: &dyn WeightSource) -> Result<(), BundleError> {
    plan.check()?;
    let tensors = weight_views(plan, weights)?;
    create_dir(dir)?;
    let mut stale = kernel_files(dir);
    let mut stored = plan.clone();
    for kernel in &mut stored.kernels {
        let file = format!("{}.wgsl", kernel.name);
        write_file(&dir.join(&file), kernel.wgsl.as_bytes())?;
        stale.remove(&file);
        kernel.wgsl = file;
    }
    let path = dir.join(PLAN_FILE);
    let json = serde_json::to_string_pretty(&stored);
    let json = json.map_err(|error| BundleError::Json {
        path: path.clone(),
        error,
    })?;
    write_file(&path, format!("{json}\n").as_bytes())?;
    write_weights(&dir.join(WEIGHTS_FILE), tensors)?;
    stale
        .iter()
        .try_for_each(|file| remove_file(&dir.join(file)))
}

/// The files of kernels of the bundle in a folder, as its plan names them, whatever version of attnc wrote it; none
/// where there is no bundle.
fn kernel_files(dir: &Path) -> BTreeSet<String> {
    #[derive(serde::Deserialize)]
    struct Written {
        kernels: Vec<Kernel>,
    }
    #[derive(serde::Deserialize)]
    struct Kernel {
        name: String,
        wgsl: String,
    }
    let text = std::fs::read_to_string(dir.join(PLAN_FILE)).unwrap_or_default();
    let Ok(Written { kernels }) = serde_json::from_str(&text) else {
        return BTreeSet::new();
    };
    let kernels = kernels.into_iter();
    let ours = kernels.filter(|k| is_file_name(&k.name) && k.wgsl == format!("{}.wgsl", k.name));
    ours.map(|kernel| kernel.wgsl).collect()
}

fn remove_file(path: &Path) -> Result<(), BundleError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BundleError::Io {
            path: path.to_owned(),
            error,
        }),
        _ => Ok(()),
    }
}

fn create_dir(dir: &Path) -> Result<(), BundleError> {
    std::fs::create_dir_all(dir).map_err(|error| BundleError::Io {
        path: dir.to_owned(),
        error,
    })
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), BundleError> {
    std::fs::write(path, bytes).map_err(|error| BundleError::Io {
        path: path.to_owned(),
        error,
    })
}

/// Streams the borrowed tensors to the file; the format orders them by type, then by name.
fn write_weights(path: &Path, tensors: BTreeMap<&str, TensorView<'_>>) -> Result<(), BundleError> {
    safetensors::serialize_to_file(tensors, None, path).map_err(|error| match error {
        safetensors::SafeTensorError::IoError(error) => BundleError::Io {
            path: path.to_owned(),
            error,
        },
        other => BundleError::Format(other),
    })
}

/// The weights of the plan by name, each of the size and type the plan says.
fn weight_views<'w>(
    plan: &'w Plan,
    weights: &'w dyn WeightSource,
) -> Result<BTreeMap<&'w str, TensorView<'w>>, BundleError> {
    let mut wrong = Vec::new();
    let mut out = BTreeMap::new();
    for (_, name, buffer) in plan.weights() {
        match weight_view(name, buffer, weights) {
            Ok(view) => {
                out.insert(name, view);
            }
            Err(what) => wrong.push(format!("weight `{name}`: {what}")),
        }
    }
    if wrong.is_empty() {
        Ok(out)
    } else {
        Err(BundleError::Weights(wrong))
    }
}

fn weight_view<'w>(
    name: &str,
    buffer: &Buffer,
    weights: &'w dyn WeightSource,
) -> Result<TensorView<'w>, String> {
    let bytes = weights.bytes(name).ok_or("it is missing")?;
    let shape = constant_shape(buffer).ok_or("its lengths are not constant")?;
    TensorView::new(stored_dtype(buffer.dtype), shape, bytes).map_err(|_| {
        format!(
            "expected {} ({} bytes), found {} bytes",
            buffer.type_text(),
            buffer.size(),
            bytes.len()
        )
    })
}

fn constant_shape(buffer: &Buffer) -> Option<Vec<usize>> {
    buffer
        .shape
        .iter()
        .map(|d| d.as_const().and_then(|n| usize::try_from(n).ok()))
        .collect()
}

/// A `bool` is stored as the device has it, four bytes an element.
fn stored_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I32 => Dtype::I32,
        DType::U32 | DType::Bool => Dtype::U32,
    }
}

/// Reads the plan of a bundle, with the kernels' texts filled in, and checks it.
///
/// # Errors
/// Where a file is missing or malformed, the version is another, or the plan cannot be run.
pub fn read_plan(dir: &Path) -> Result<Plan, BundleError> {
    let path = dir.join(PLAN_FILE);
    let text = read_text(&path)?;
    let json_error = |error| BundleError::Json {
        path: path.clone(),
        error,
    };
    check_version(&text).map_err(|e| e.unwrap_or_else(json_error))?;
    let mut plan: Plan = serde_json::from_str(&text).map_err(json_error)?;
    // Names become paths below: none may lead out of the folder.
    let mut wrong = Vec::new();
    for kernel in &plan.kernels {
        if !is_file_name(&kernel.wgsl) {
            let what = format!("its file `{}` is not a plain file name", kernel.wgsl);
            wrong.push(PlanError::Kernel {
                kernel: kernel.name.clone(),
                what,
            });
        }
    }
    if !wrong.is_empty() {
        return Err(PlanErrors(wrong).into());
    }
    for kernel in &mut plan.kernels {
        kernel.wgsl = read_text(&dir.join(&kernel.wgsl))?;
    }
    plan.check()?;
    Ok(plan)
}

fn read_text(path: &Path) -> Result<String, BundleError> {
    std::fs::read_to_string(path).map_err(|error| BundleError::Io {
        path: path.to_owned(),
        error,
    })
}

/// Another version may have other fields, so it is looked at first.
fn check_version(text: &str) -> Result<(), VersionError> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } = serde_json::from_str(text).map_err(VersionError::Json)?;
    if version == PLAN_VERSION {
        return Ok(());
    }
    Err(VersionError::Other(version))
}

enum VersionError {
    Json(serde_json::Error),
    Other(u32),
}

impl VersionError {
    fn unwrap_or_else(self, json: impl FnOnce(serde_json::Error) -> BundleError) -> BundleError {
        match self {
            Self::Json(error) => json(error),
            Self::Other(found) => PlanErrors(vec![PlanError::Version { found }]).into(),
        }
    }
}

/// The weights of a bundle, over the bytes of its file.
#[derive(Debug)]
pub struct BundleWeights<'a> {
    tensors: BTreeMap<String, &'a [u8]>,
}

impl<'a> BundleWeights<'a> {
    /// Takes the contents of `weights.safetensors` and checks that every weight of the plan is there,
    /// in its type and size.
    ///
    /// # Errors
    /// Where the bytes are not a safetensors file, or do not fit the plan (all mismatches at once).
    pub fn new(bytes: &'a [u8], plan: &Plan) -> Result<Self, BundleError> {
        let file = SafeTensors::deserialize(bytes).map_err(BundleError::Format)?;
        let mut tensors = BTreeMap::new();
        let mut wrong = Vec::new();
        for (_, name, buffer) in plan.weights() {
            let Ok(view) = file.tensor(name) else {
                wrong.push(format!("weight `{name}`: it is missing"));
                continue;
            };
            let fits = view.dtype() == stored_dtype(buffer.dtype)
                && constant_shape(buffer).as_deref() == Some(view.shape());
            if fits {
                tensors.insert(name.to_owned(), view.data());
            } else {
                let found = format!("{:?} {:?}", view.dtype(), view.shape());
                wrong.push(format!(
                    "weight `{name}`: expected {}, found {found}",
                    buffer.type_text()
                ));
            }
        }
        if wrong.is_empty() {
            Ok(Self { tensors })
        } else {
            Err(BundleError::Weights(wrong))
        }
    }
}

impl WeightSource for BundleWeights<'_> {
    fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.tensors.get(name).copied()
    }
}
