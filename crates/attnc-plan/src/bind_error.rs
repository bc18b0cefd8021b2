//! What can be wrong with the shapes of the inputs.

/// A shape that does not fit, or a length without a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindProblem {
    /// An input the model does not have.
    #[error("no input is named `{name}`; the inputs are {known}")]
    UnknownInput {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A length the model does not have.
    #[error("no length is named `{name}`; the lengths are {known}")]
    UnknownDim {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The wrong number of axes.
    #[error(
        "input `{input}`: expected {expected}, found {found} ({found_rank} axes instead of {rank})"
    )]
    Rank {
        /// The input's name.
        input: String,
        /// The shape the model declares.
        expected: String,
        /// The number of axes the model declares.
        rank: usize,
        /// The shape given.
        found: String,
        /// The number of axes given.
        found_rank: usize,
    },
    /// An axis of the wrong length.
    #[error("input `{input}`, axis {axis}: expected {expected}, found {found}")]
    Axis {
        /// The input's name.
        input: String,
        /// Position of the axis.
        axis: usize,
        /// The expression, its value, and where that comes from.
        expected: String,
        /// The length given.
        found: usize,
    },
    /// A length given a negative value.
    #[error("length `{name}` is {value}; it must be at least 0")]
    Negative {
        /// The length's name.
        name: String,
        /// The value given.
        value: i64,
    },
    /// Nothing says how long it is.
    #[error("length `{name}` has no value: give {inputs}--dim {name}=N")]
    NoValue {
        /// The length's name.
        name: String,
        /// The inputs it could come from, as a phrase.
        inputs: String,
    },
}

/// Everything wrong with the shapes given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct BindErrors(pub Vec<BindProblem>);
