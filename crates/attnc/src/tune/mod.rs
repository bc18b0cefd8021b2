//! Choosing kernels by measuring them on the device.
//!
//! The compiler's cost model puts the kernels that could compute a problem in order ([`crate::codegen::choice`]).
//! Here the few near the top are timed on the device itself, at lengths that somebody gives, and what is faster
//! than the model's choice takes its place. What was found is kept in the cache folder ([`TuningCache`]) and used by
//! every later session on that device, at any lengths.
//!
//! ```no_run
//! use attnc::{Session, SessionOptions};
//! let options = SessionOptions {
//!     backend: "gpu".into(),
//!     tune: true,
//!     cache: Some("cache/attnc".into()),
//!     ..SessionOptions::default()
//! };
//! let mut session = Session::open_with("model.onnx", &options)?;
//! let inputs = attnc::npz::read("inputs.npz".as_ref())?;
//! session.run(&inputs)?; // measures first what was not measured on this device before
//! session.run(&inputs)?; // just runs
//! # Ok::<(), attnc::Error>(())
//! ```
//!
//! `attnc tune MODEL` is [`Session::tune`](crate::Session::tune), which measures everything anew and says what it
//! found.
//!
//! Entry: a graph after the passes, and inputs that are bound. Exit: a winner for each problem that had a choice
//! and some work at these lengths. Results differ by rounding only, whichever kernel wins.

mod cache;
mod candidates;
mod measure;
mod problem;
mod tuner;
mod turns;

pub use cache::{DeviceKey, TuningCache};
pub use problem::{Problem, Timed};
pub(crate) use tuner::Tuner;

use crate::backend::Backend;
use crate::codegen::choice::{Choices, Measured};
use crate::plan::DimValues;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How much to measure, and who is told.
pub struct Effort<'a> {
    /// Runs of each candidate that count, and as many of the cost model's choice beside it; 1 at least.
    pub rounds: u32,
    /// Is told what is being done.
    pub watch: &'a mut dyn FnMut(&str),
}

/// Rounds that tell 3 % apart on a machine with little else to do.
pub const ROUNDS: u32 = 7;

/// What was measured of a problem on a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The winner.
    pub chosen: String,
    /// What the cost model would have taken.
    pub cheapest: String,
    /// Milliseconds of all steps that compute such problems, by candidate.
    pub milliseconds: BTreeMap<String, f64>,
    /// The lengths that this was at.
    pub lengths: BTreeMap<String, i64>,
}

impl Measurement {
    /// What it says to the compiler; `None` where it contradicts itself.
    #[must_use]
    pub fn measured(&self) -> Option<Measured> {
        let of = |name: &String| self.milliseconds.get(name).filter(|ms| **ms > 0.0);
        let ratio = of(&self.chosen)? / of(&self.cheapest)?;
        ratio.is_finite().then(|| Measured {
            candidate: self.chosen.clone(),
            ratio,
        })
    }
}

/// The choices, and where they say nothing, what was measured on the backend's device before.
#[must_use]
pub fn with_known(choices: &Choices, backend: &dyn Backend) -> Choices {
    let mut all = choices.clone();
    for (key, measured) in backend.tuned().into_iter().flatten() {
        all.tuned.entry(key).or_insert(measured);
    }
    all
}

/// What tuning found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The problems that had a choice.
    pub problems: Vec<Problem>,
    /// Candidates that the device did not run, with what it said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// Milliseconds of all steps of the model by the cost model's choices; `None` where these were kept.
    pub before_ms: Option<f64>,
    /// The same by what was chosen, in turns with the former.
    pub after_ms: Option<f64>,
    /// Where what was found is kept for later sessions.
    pub kept: Option<PathBuf>,
}

impl Report {
    /// What was measured, by [`Decision::key`](crate::codegen::choice::Decision::key).
    #[must_use]
    pub fn measurements(&self, lengths: &DimValues) -> BTreeMap<String, Measurement> {
        let problems = self.problems.iter();
        let measured = problems.filter_map(|p| Some((p.key.clone(), p.measurement(lengths)?)));
        measured.collect()
    }

    /// The choices given, and what was found.
    fn choices(&self, given: &Choices) -> Choices {
        let mut choices = given.clone();
        for problem in &self.problems {
            if let Some(ratio) = problem.ratio {
                let candidate = problem.chosen.clone();
                let measured = Measured { candidate, ratio };
                choices.tuned.insert(problem.key.clone(), measured);
            }
        }
        choices
    }
}
