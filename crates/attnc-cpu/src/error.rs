//! What can go wrong when a graph is run: what was expected, what was found, where, what to do.

use attnc_ir::{DType, DimError, Graph, ValueId};
use std::fmt;

/// Why a graph was not run, or not to the end.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ExecError {
    /// Inputs that are missing, unknown or of another type, and lengths that contradict each other: all of
    /// them.
    #[error("{}", list("the inputs do not fit the graph", .0))]
    Inputs(Vec<InputProblem>),
    /// A host tensor whose buffer does not fit its type.
    #[error("a {dtype} tensor of shape {shape:?} cannot hold {found}")]
    BadTensor {
        /// Element type asked for.
        dtype: DType,
        /// Shape asked for.
        shape: Vec<usize>,
        /// The elements given.
        found: String,
    },
    /// A length of the graph has no value, or none that is possible.
    #[error("{at}: {error}")]
    Length {
        /// The value concerned.
        at: String,
        /// What is wrong.
        error: LengthError,
    },
    /// More memory than there is.
    #[error(
        "{at} needs {} of memory, {} are available; run it on shorter inputs",
        megabytes(*.needed), megabytes(*.available)
    )]
    TooLarge {
        /// What needs it.
        at: String,
        /// Bytes needed.
        needed: u128,
        /// Bytes available.
        available: u128,
    },
    /// Weights that are named but have no data: all of them.
    #[error("{}", list("weights without data; supply the weights of the model", .0))]
    MissingWeights(Vec<String>),
    /// An index from data that is outside of the axis it looks up.
    #[error("{at}: index {index} is out of range for an axis of length {size}")]
    IndexOutOfRange {
        /// The node that looks up.
        at: String,
        /// The index; negative ones count from the end.
        index: i64,
        /// Length of the axis.
        size: usize,
    },
    /// The graph is not one the verifier accepts.
    #[error("{at}: {message}; the graph does not verify")]
    Malformed {
        /// The value concerned.
        at: String,
        /// What is wrong.
        message: String,
    },
}

/// Why a length has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LengthError {
    /// Not computable.
    #[error(transparent)]
    Dim(#[from] DimError),
    /// Below zero.
    #[error("length `{dim}` would be {value}; the inputs are too short")]
    Negative {
        /// The length.
        dim: String,
        /// Its value.
        value: i64,
    },
    /// A slice that leaves its axis.
    #[error("elements {first} to {last} of an axis of length {size} were to be taken")]
    Slice {
        /// First index taken.
        first: i64,
        /// Last index taken.
        last: i64,
        /// Length of the axis.
        size: usize,
    },
    /// Shapes that only the values of the lengths show not to fit.
    #[error("shapes {from:?} and {to:?} do not fit")]
    Mismatch {
        /// One shape.
        from: Vec<usize>,
        /// The other.
        to: Vec<usize>,
    },
}

/// What is wrong with an input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputProblem {
    /// Not given.
    #[error("input `{name}` of type {expected} is missing")]
    Missing {
        /// Its name.
        name: String,
        /// Its type in the graph.
        expected: String,
    },
    /// Given, but not in the graph.
    #[error("there is no input `{name}`; the inputs are {inputs}")]
    Unknown {
        /// The name given.
        name: String,
        /// The names there are.
        inputs: String,
    },
    /// Given more than once.
    #[error("input `{name}` is given more than once")]
    Repeated {
        /// Its name.
        name: String,
    },
    /// Of another element type, rank or shape.
    #[error("input `{name}` is {expected} in the graph, but {found} was given")]
    Type {
        /// Its name.
        name: String,
        /// Its type in the graph.
        expected: String,
        /// The type given.
        found: String,
    },
    /// A length that has another value elsewhere.
    #[error("axis {axis} of input `{name}` is {found}, but `{dim}` is {expected} elsewhere")]
    Contradiction {
        /// Name of the input.
        name: String,
        /// The axis.
        axis: usize,
        /// The length in the graph.
        dim: String,
        /// Its value by the other inputs.
        expected: i64,
        /// The size given.
        found: usize,
    },
    /// A length that does not follow from the shapes.
    #[error(
        "axis {axis} of input `{name}` is `{dim}`, which is not known; state the value of {symbols}"
    )]
    Unsolved {
        /// Name of the input.
        name: String,
        /// The axis.
        axis: usize,
        /// The length in the graph.
        dim: String,
        /// The lengths without a value.
        symbols: String,
    },
}

fn list<T: fmt::Display>(title: &str, items: &[T]) -> String {
    items.iter().fold(format!("{title}:"), |mut out, item| {
        out.push_str(&format!("\n  {item}"));
        out
    })
}

fn megabytes(bytes: u128) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// How messages call a value: its name and the source nodes it came from.
pub(crate) fn place(graph: &Graph, id: ValueId) -> String {
    let node = graph.node(id);
    let mut out = format!("%{} = {}", node.name(), node.op.name());
    if !node.origin.is_empty() {
        out.push_str(&format!(" (from {})", node.origin.join(", ")));
    }
    out
}
