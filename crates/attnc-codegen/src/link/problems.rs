//! What keeps modules from being joined, and what to do about it.

use super::SourceLine;

/// One thing that keeps modules from being joined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkProblem {
    /// The kernel to link is not in the catalogue.
    #[error("no kernel named `{name}` in the catalogue; there are: {known}")]
    UnknownKernel {
        /// What was asked for.
        name: String,
        /// The kernels there are, separated by commas.
        known: String,
    },
    /// An import of a slot that the caller did not fill, or of a file that is not in the catalogue.
    #[error("{at}: no module `package::{module}`; {hint}")]
    UnknownModule {
        /// The import line.
        at: SourceLine,
        /// The path after `package::`.
        module: String,
        /// What to do.
        hint: &'static str,
    },
    /// An import of a name that its module does not declare.
    #[error("{at}: `package::{module}` declares no `{name}`; it declares: {declared}")]
    UnknownName {
        /// The import line.
        at: SourceLine,
        /// The path after `package::`.
        module: String,
        /// The missing name.
        name: String,
        /// What there is, separated by commas.
        declared: String,
    },
    /// Two declarations of one name.
    #[error(
        "{second}: `{name}` is declared already at {first}; linked modules share one scope, so rename one"
    )]
    Duplicate {
        /// The name.
        name: String,
        /// The declaration that comes first in the linked text.
        first: SourceLine,
        /// The other one.
        second: SourceLine,
    },
    /// A line that starts as an import does and is not of the one form that is read.
    #[error("{at}: expected `import package::module::{{name, ...}};` on one line, found `{text}`")]
    MalformedImport {
        /// The line.
        at: SourceLine,
        /// Its text.
        text: String,
    },
    /// A slot that was filled and is imported by nothing.
    #[error(
        "module `{slot}` is given, but nothing imports `package::{slot}`; drop it or correct its name"
    )]
    UnusedSlot {
        /// The slot.
        slot: String,
    },
}

/// Every reason why modules could not be joined, in the order in which they were met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot link `{kernel}`:{}", list(problems))]
pub struct LinkError {
    /// The entry kernel.
    pub kernel: String,
    /// Never empty.
    pub problems: Vec<LinkProblem>,
}

fn list(problems: &[LinkProblem]) -> String {
    problems
        .iter()
        .map(|problem| format!("\n  {problem}"))
        .collect()
}
