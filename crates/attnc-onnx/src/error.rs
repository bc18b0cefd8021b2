//! Why a model could not be imported: bad input and unsupported input are told apart.

use attnc_ir::{Diagnostic, Diagnostics};
use std::fmt;
use std::path::PathBuf;

/// Why there is no graph. Everything of a kind is reported at once.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be opened, mapped or read.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes are no ONNX message, or only the beginning of one.
    #[error("not an ONNX model, or a truncated one ({bytes} bytes): {reason}")]
    Malformed {
        /// Length of what was read.
        bytes: usize,
        /// What the decoder stumbled over.
        reason: String,
    },
    /// The model contradicts itself, its external data, or ONNX.
    #[error("{0}")]
    Invalid(Diagnostics),
    /// The model is valid, but uses what is not supported.
    #[error("{}", list(.0))]
    Unsupported(Vec<Unsupported>),
}

impl ImportError {
    /// Whether the model may be valid, and something in it is not supported.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Unsupported(_))
    }
}

impl From<Diagnostic> for ImportError {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::Invalid(diagnostic.into())
    }
}

/// Something in a model that is not supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// Name of the node (its first result where it has no name), or of the input or constant.
    pub node: String,
    /// The operator; empty where it is not about a node.
    pub op: String,
    /// The operator's domain; empty is `ai.onnx`.
    pub domain: String,
    /// Version of the operator set the node is written against; 0 where the model imports none.
    pub opset: i64,
    /// What is not supported.
    pub what: String,
    /// What would be needed.
    pub needed: String,
}

/// `/h.0/attn/Loop (Loop, opset 17): the operator is not supported; needed: ...`
impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.node)?;
        if !self.op.is_empty() {
            let dot = if self.domain.is_empty() { "" } else { "." };
            let (domain, op, opset) = (&self.domain, &self.op, self.opset);
            write!(f, " ({domain}{dot}{op}, opset {opset})")?;
        }
        write!(f, ": {}; needed: {}", self.what, self.needed)
    }
}

fn list(all: &[Unsupported]) -> String {
    let mut out = format!("{} unsupported:", all.len());
    for item in all {
        out.push_str(&format!("\n  {item}"));
    }
    out
}

/// Why one node could not be imported.
#[derive(Debug)]
pub(crate) enum OpError {
    Invalid(Diagnostic),
    Unsupported { what: String, needed: String },
}

impl OpError {
    pub(crate) fn unsupported(what: impl Into<String>, needed: impl Into<String>) -> Self {
        Self::Unsupported {
            what: what.into(),
            needed: needed.into(),
        }
    }

    pub(crate) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Self::Invalid(Diagnostic::error(code, message))
    }
}

impl From<Diagnostic> for OpError {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::Invalid(diagnostic)
    }
}

pub(crate) type OpResult<T> = Result<T, OpError>;
