//! What a session that may be tuned holds on to.

use super::measure::{Subject, is_open, measure};
use super::problem::Problem;
use super::turns::alternate;
use super::{Effort, Report, with_known};
use crate::Error;
use crate::backend::{Backend, Executable};
use crate::codegen::choice::{Choices, Decision, Why};
use crate::inputs::BoundInputs;
use crate::ir::Graph;
use crate::plan::DimValues;
use std::collections::{BTreeMap, BTreeSet};

/// Problems that have had no work at so many lengths are not waited for.
const ATTEMPTS: usize = 8;

/// A graph that can be compiled again.
pub(crate) struct Tuner {
    graph: Graph,
    /// What the host asked for.
    choices: Choices,
    /// What was measured here, by key.
    known: BTreeSet<String>,
    /// Lengths at which everything was measured that has work there.
    tried: Vec<DimValues>,
}

impl Tuner {
    pub(crate) fn new(graph: Graph, choices: Choices) -> Self {
        Self {
            graph,
            choices,
            known: BTreeSet::new(),
            tried: Vec::new(),
        }
    }

    /// Whether measuring at these lengths may tell anything new.
    pub(crate) fn wants(&self, executable: &dyn Executable, dims: &DimValues) -> bool {
        let unknown = |d: &Decision| is_open(d) && !self.known.contains(&d.key());
        self.tried.len() < ATTEMPTS
            && !self.tried.contains(dims)
            && executable.decisions().iter().any(unknown)
    }

    /// Measures what has not been measured before, or `anew` everything; keeps what was found, and puts an
    /// executable that is compiled accordingly in the place of the one there is.
    pub(crate) fn tune(
        &mut self,
        backend: &dyn Backend,
        executable: &mut Box<dyn Executable>,
        inputs: &BoundInputs,
        anew: bool,
        effort: &mut Effort<'_>,
    ) -> Result<Report, Error> {
        let measured = |d: &Decision| matches!(d.why, Why::Measured { .. });
        let from_start = anew && executable.decisions().iter().any(measured);
        if from_start {
            *executable = backend.compile(&self.graph, &self.choices)?;
        }
        let choices = match anew {
            true => self.choices.clone(),
            false => with_known(&self.choices, backend),
        };
        let subject = Subject {
            backend,
            graph: &self.graph,
            choices: &choices,
        };
        let mut report = measure(subject, executable.as_mut(), inputs, effort)?;
        let found = report.problems.iter();
        let found = found.filter_map(|p| Some((p.key.clone(), p.measurement(&inputs.dims)?)));
        let found: BTreeMap<_, _> = found.collect();
        self.known.extend(found.keys().cloned());
        self.tried.push(inputs.dims.clone());
        report.kept = backend.keep(found);
        if from_start || report.problems.iter().any(Problem::is_changed) {
            (effort.watch)("comparing with the cost model's choices");
            let choices = with_known(&self.choices, backend);
            let mut better = backend.compile(&self.graph, &choices)?;
            let both = alternate(executable.as_mut(), better.as_mut(), inputs, effort.rounds)?;
            let [before, after] = both.map(|one| one.whole());
            (report.before_ms, report.after_ms) = (Some(before), Some(after));
            *executable = better;
        }
        Ok(report)
    }
}
