//! Diagnostics as people read them: with the line concerned, and carets under the part that is meant.
//!
//! ```
//! use attnc_ir::{render_diagnostics, text};
//! let source = "graph @g(%x: f32[4]) {\n  %y = softmax %x\n  return %y\n}\n";
//! let found = text::parse(source).unwrap_err();
//! assert_eq!(render_diagnostics("g.attn", source, &found), "\
//! error[missing-attribute]: softmax needs `axis = …`
//!   ┌─ g.attn:2:8
//!   │
//! 2 │   %y = softmax %x
//!   │        ^^^^^^^ no `axis`
//!
//! ");
//! ```
//!
//! Plain text without colours, the same on every terminal.

use crate::text::Printout;
use crate::{Diagnostic, Diagnostics, Graph, Severity};
use codespan_reporting::diagnostic as report;
use codespan_reporting::files::SimpleFile;
use codespan_reporting::term;
use std::ops::Range;

/// The findings about a text, in order, each followed by an empty line. `name` is what the file is called.
///
/// Labels that are not in the text are cut to it; a finding without labels is shown without a line.
#[must_use]
pub fn render_diagnostics(name: &str, source: &str, found: &Diagnostics) -> String {
    let file = SimpleFile::new(name, source);
    let config = term::Config::default();
    let mut out = String::new();
    for diagnostic in &found.0 {
        let shown = converted(diagnostic, source);
        // Writing to a string fails only for labels outside of the text, and those were cut.
        match term::emit_into_string(&config, &file, &shown) {
            Ok(text) => out.push_str(&text),
            Err(_) => out.push_str(&format!("{diagnostic}\n\n")),
        }
    }
    out
}

/// The findings about a graph that was not read from a text: the graph is printed, and what concerns a value
/// (`at` is its name with the `%`) points at the line of that value.
#[must_use]
pub fn render_graph_diagnostics(graph: &Graph, found: &Diagnostics) -> String {
    let printout = Printout::new(graph);
    let placed = found.0.iter().map(|d| {
        let value =
            d.at.as_deref()
                .and_then(|at| graph.by_name(at.strip_prefix('%')?));
        let span = value.and_then(|v| printout.spans.get(&v));
        let mut placed = Diagnostic {
            labels: Vec::new(),
            ..d.clone()
        };
        match span {
            Some(span) => placed.labels.push((span.clone(), "this value".to_owned())),
            // Labels of a graph without a text mean another text; the message stands for itself.
            None => placed
                .notes
                .extend(d.at.iter().map(|at| format!("at {at}"))),
        }
        placed
    });
    let name = format!("graph @{}", graph.name());
    render_diagnostics(&name, &printout.text, &Diagnostics(placed.collect()))
}

fn converted(diagnostic: &Diagnostic, source: &str) -> report::Diagnostic<()> {
    let severity = match diagnostic.severity {
        Severity::Error => report::Severity::Error,
        Severity::Warning => report::Severity::Warning,
        Severity::Note => report::Severity::Note,
    };
    let labels = diagnostic
        .labels
        .iter()
        .enumerate()
        .map(|(n, (span, text))| {
            let span = cut(span, source);
            let label = if n == 0 {
                report::Label::primary((), span)
            } else {
                report::Label::secondary((), span)
            };
            label.with_message(text)
        });
    report::Diagnostic::new(severity)
        .with_code(diagnostic.code)
        .with_message(&diagnostic.message)
        .with_labels_iter(labels)
        .with_notes_iter(diagnostic.notes.iter().cloned())
}

/// The part of the range that is in the text, at whole characters.
fn cut(span: &Range<usize>, source: &str) -> Range<usize> {
    let floor = |at: usize| {
        (0..=at.min(source.len()))
            .rev()
            .find(|&i| source.is_char_boundary(i))
            .unwrap_or(0)
    };
    let start = floor(span.start);
    start..floor(span.end).max(start)
}
