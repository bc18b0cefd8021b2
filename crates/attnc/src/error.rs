//! Everything that can go wrong on the way from a file to a result, and the exit code it means.

use crate::inputs::InputErrors;
use crate::npz::FileError;
use crate::opt::Declined;
use crate::verify::ExpectedErrors;
use crate::{cpu, gpu, ir, onnx, opt, plan};
use std::path::{Path, PathBuf};

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A file that is no model by its name.
    #[error("{}: not a model; expected an .onnx or .attn file, or a compiled bundle (a folder with plan.json)", .0.display())]
    Format(PathBuf),
    /// An ONNX model that cannot be imported.
    #[error("{}", import_text(path, error))]
    Import {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong with it.
        error: onnx::ImportError,
    },
    /// A text model that does not parse or verify, shown with its source.
    #[error("{}: the model has errors\n{shown}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The findings.
        diagnostics: ir::Diagnostics,
        /// The findings with the lines they point at.
        shown: String,
    },
    /// A graph that breaks a rule.
    #[error("the graph is not valid:\n{0}")]
    Graph(ir::Diagnostics),
    /// Weights that are named, but missing or of another type, one line each.
    #[error("the weights do not fit the model:{}", list(.0))]
    Weights(Vec<String>),
    /// An array file that cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Inputs that do not fit.
    #[error(transparent)]
    Inputs(#[from] InputErrors),
    /// Expected values that do not belong to the outputs.
    #[error(transparent)]
    Expected(#[from] ExpectedErrors),
    /// The passes failed.
    #[error(transparent)]
    Optimise(#[from] opt::OptError),
    /// Valid, but there is no kernel for it.
    #[error("the model cannot be compiled for `{profile}`:\n{diagnostics}")]
    Lower {
        /// The device profile.
        profile: String,
        /// Everything there is no kernel for.
        diagnostics: ir::Diagnostics,
    },
    /// Attention that did not fuse, though that was required.
    #[error("{} of {found} attentions did not fuse, and --require-fused asks for all:{}", declined.len().max(*found - *fused), declined_list(declined))]
    NotFused {
        /// How many there are.
        found: usize,
        /// How many fused.
        fused: usize,
        /// The others, each with its reason.
        declined: Vec<Declined>,
    },
    /// The CPU was fallen back to, though fusing on a GPU was required.
    #[error("{0}, and --require-fused allows no fallback; give --backend cpu to mean it")]
    Fallback(String),
    /// A bundle of a model whose lengths depend on data: nothing in a bundle computes these.
    #[error("the model cannot be shipped as a bundle: it computes lengths from its data, which only a session does:{}\nrun the model file itself", list(.0))]
    DataLengths(Vec<String>),
    /// A bundle that cannot be written or read.
    #[error(transparent)]
    Bundle(#[from] plan::bundle::BundleError),
    /// Trouble of the GPU, or something it does not take.
    #[error(transparent)]
    Gpu(#[from] gpu::Error),
    /// The CPU executor or the oracle stopped.
    #[error(transparent)]
    Cpu(#[from] cpu::ExecError),
    /// A backend that is not registered.
    #[error("no backend is named `{name}`; there are auto, {}", known.join(", "))]
    UnknownBackend {
        /// The name given.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// Something a backend does not do.
    #[error("backend `{backend}` cannot {what}")]
    BackendCannot {
        /// The backend's name.
        backend: String,
        /// What was asked for, as a verb.
        what: String,
    },
    /// Trouble of a backend that a host registered.
    #[error("backend `{backend}`: {error}")]
    Backend {
        /// The backend's name.
        backend: String,
        /// What it said.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Arguments that make no sense, with what to do instead.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// The process exit code: 2 bad usage or input, 3 valid but unsupported or not fused, 4 device trouble.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Import { error, .. } if error.is_unsupported() => 3,
            Self::Optimise(opt::OptError::Input(_)) => 2,
            Self::Optimise(_) | Self::Lower { .. } | Self::NotFused { .. } => 3,
            Self::Fallback(_) | Self::BackendCannot { .. } | Self::DataLengths(_) => 3,
            Self::Cpu(cpu::ExecError::Malformed { .. }) => 3,
            Self::Gpu(error) => gpu_exit_code(error),
            Self::Backend { .. } => 4,
            _ => 2,
        }
    }
}

/// What a shape or an input brings about is bad input; everything else is the device.
fn gpu_exit_code(error: &gpu::Error) -> u8 {
    use gpu::Error as E;
    use plan::SizeProblem;
    let too_large = |p: &SizeProblem| matches!(p, SizeProblem::WeightTooLarge { .. });
    match error {
        E::Sizes(errors) if errors.0.iter().any(too_large) => 3,
        E::Shapes(_) | E::Sizes(_) | E::Dim(_) | E::Inputs(_) | E::Plan(_) => 2,
        _ => 4,
    }
}

/// The model's path in front, unless the message names a file of its own.
fn import_text(path: &Path, error: &onnx::ImportError) -> String {
    match error {
        onnx::ImportError::Unreadable { .. } => error.to_string(),
        _ => format!("{}: {error}", path.display()),
    }
}

fn list(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}

fn declined_list(declined: &[Declined]) -> String {
    let line = |d: &Declined| {
        let at = d.at.as_ref().map(|at| format!(" (at {at})"));
        format!("\n  {}: {}{}", d.node, d.reason, at.unwrap_or_default())
    };
    declined.iter().map(line).collect()
}
