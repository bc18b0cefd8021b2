//! What a session that may be tuned holds on to.

use super::measure::{Subject, confirm, is_open, measure};
use super::{Effort, Report, with_known};
use crate::Error;
use crate::backend::{Backend, Executable};
use crate::codegen::choice::{Choices, Decision, Why};
use crate::inputs::BoundInputs;
use crate::ir::Graph;
use crate::plan::DimValues;
use std::collections::BTreeSet;

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
        let mut choices = with_known(&self.choices, backend);
        if anew {
            choices = self.choices.clone();
            let measured = |d: &Decision| matches!(d.why, Why::Measured { .. });
            if executable.decisions().iter().any(measured) {
                *executable = backend.compile(&self.graph, &choices)?;
            }
        }
        let subject = Subject {
            backend,
            graph: &self.graph,
            choices: &choices,
        };
        let mut report = measure(subject, executable.as_mut(), inputs, effort)?;
        if let Some(winners) = confirm(subject, executable.as_mut(), inputs, effort, &mut report)? {
            *executable = winners;
        }
        let found = report.measurements(&inputs.dims);
        self.known.extend(found.keys().cloned());
        self.tried.push(inputs.dims.clone());
        let news = found.len();
        report.kept = backend.keep(found);
        // What has no work at these lengths may have been measured at others.
        let all = with_known(&self.choices, backend);
        if anew && all.tuned.len() > choices.tuned.len() + news {
            *executable = backend.compile(&self.graph, &all)?;
        }
        Ok(report)
    }
}
