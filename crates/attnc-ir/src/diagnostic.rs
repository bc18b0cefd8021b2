//! What is wrong, where, and what to do.
//!
//! A [`Diagnostic`] carries a code that tests and documentation refer to, a message with what was expected
//! and what was found, and notes that say what to do. Spans are byte ranges of a text; diagnostics of a
//! graph that was not parsed name values instead.

use std::fmt;
use std::ops::Range;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something to know.
    Note,
    /// Probably not what was meant.
    Warning,
    /// Nothing can be done with the input as it is.
    Error,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// A short kebab-case name of the kind of finding: `shape-mismatch`.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong: expected and found, in lower case, without a full stop.
    pub message: String,
    /// The value or source node concerned, if one is.
    pub at: Option<String>,
    /// Where in the text, if there is one: byte range and a label.
    pub labels: Vec<(Range<usize>, String)>,
    /// What to do about it.
    pub notes: Vec<String>,
}

impl Diagnostic {
    /// An error.
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message: message.into(),
            at: None,
            labels: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Names the value or source node concerned.
    #[must_use]
    pub fn at(mut self, what: impl Into<String>) -> Self {
        self.at.get_or_insert(what.into());
        self
    }

    /// Points at a part of the text.
    #[must_use]
    pub fn label(mut self, span: Range<usize>, text: impl Into<String>) -> Self {
        self.labels.push((span, text.into()));
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }
}

/// `error[shape-mismatch] at %x: message` and a line a note.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}[{}]", self.code)?;
        if let Some(at) = &self.at {
            write!(f, " at {at}")?;
        }
        write!(f, ": {}", self.message)?;
        for note in &self.notes {
            write!(f, "\n  = {note}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}

/// All findings of one step, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// `Ok` where there are none.
    ///
    /// # Errors
    /// Itself, where there is any.
    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// Adds a finding.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            write!(f, "{}{diagnostic}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
