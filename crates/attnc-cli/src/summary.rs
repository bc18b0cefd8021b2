//! What is printed about attention, outputs and times, and the JSON of it.

use attnc::codegen::choice::Why;
use attnc::explain::Attention;
use attnc::{Error, HostTensor, Session, Tensors};
use serde::Serialize;
use std::time::Duration;

/// An output in a few numbers.
#[derive(Serialize)]
pub(crate) struct OutputSummary {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    /// Elements that are NaN or infinite.
    not_finite: usize,
}

/// Summaries of all outputs.
pub(crate) fn outputs(tensors: &Tensors) -> Vec<OutputSummary> {
    tensors.iter().map(|(name, t)| output(name, t)).collect()
}

fn output(name: &str, tensor: &HostTensor) -> OutputSummary {
    let (mut min, mut max, mut sum, mut finite) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0usize);
    for x in tensor
        .values()
        .map(attnc::Value::to_f64)
        .filter(|x| x.is_finite())
    {
        min = min.min(x);
        max = max.max(x);
        sum += x;
        finite += 1;
    }
    let known = |x: f64| (finite > 0).then_some(x);
    OutputSummary {
        name: name.to_owned(),
        dtype: tensor.dtype().name().to_owned(),
        shape: tensor.shape().to_vec(),
        min: known(min),
        max: known(max),
        mean: known(sum / finite as f64),
        not_finite: tensor.len() - finite,
    }
}

impl OutputSummary {
    /// One line for people.
    pub(crate) fn line(&self) -> String {
        let numbers = match (self.min, self.max, self.mean) {
            (Some(min), Some(max), Some(mean)) => {
                format!("min {min:.4}, mean {mean:.4}, max {max:.4}")
            }
            _ => "no finite element".to_owned(),
        };
        let odd = match self.not_finite {
            0 => String::new(),
            n => format!(", {n} not finite"),
        };
        format!(
            "{}: {}{:?}, {numbers}{odd}",
            self.name, self.dtype, self.shape
        )
    }
}

/// `2 attentions found, all fused`.
pub(crate) fn attention_line(attention: &Attention) -> String {
    let found = attnc::explain::plural(attention.found, "attention");
    match (attention.found, attention.fused) {
        (0, 0) => "no attention found".to_owned(),
        (n, fused) if n == fused => format!("{found} found, all fused"),
        (_, fused) => format!("{found} found, {fused} fused"),
    }
}

/// Prints what went wrong without keeping the session from running, on stderr.
pub(crate) fn print_notes(session: &Session) {
    for note in session.notes() {
        note!("note: {note}");
    }
}

/// Prints, on stderr, for how many problems the kernel is the one that was measured to be the fastest.
pub(crate) fn print_tuned(session: &Session) {
    let decisions = session.decisions().iter();
    let measured = decisions.filter(|d| matches!(d.why, Why::Measured { .. }));
    let measured = measured.count();
    if measured > 0 {
        let problems = attnc::explain::plural(measured, "problem");
        note!("kernels of {problems} as measured by `attnc tune` (--no-cache: by the cost model)");
    }
}

/// Prints what did not fuse, on stderr.
pub(crate) fn print_declined(attention: &Attention) {
    for declined in &attention.declined {
        let at = declined.at.as_ref().map(|at| format!(" (at {at})"));
        note!(
            "not fused: {}: {}{}",
            declined.node,
            declined.reason,
            at.unwrap_or_default()
        );
    }
}

/// One JSON object on stdout.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Usage(format!("the result cannot be written as JSON: {error}")))?;
    say!("{text}");
    Ok(())
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
