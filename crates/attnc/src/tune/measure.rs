//! All problems of a model at once: as many plans are compiled as the problem with the most candidates has, not as
//! many as there are combinations.

use super::candidates::sensible;
use super::problem::Problem;
use super::turns::alternate;
use super::{Effort, Report};
use crate::Error;
use crate::backend::{Backend, Executable};
use crate::codegen::choice::{Choices, Decision, Measured, Why};
use crate::inputs::BoundInputs;
use crate::ir::Graph;

/// What is compiled, by whom, and what the host wants of it.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) backend: &'a dyn Backend,
    pub(super) graph: &'a Graph,
    pub(super) choices: &'a Choices,
}

/// Whether the cost model alone decided, among several.
pub(super) fn is_open(decision: &Decision) -> bool {
    decision.why == Why::Cheapest && decision.candidates.len() > 1
}

/// Measures all problems of `base`, which was compiled of the subject, that are open. The n-th candidates of all of
/// them are measured together, in turns with `base`.
///
/// # Errors
/// Where steps cannot be timed, and trouble of the device.
pub(super) fn measure(
    subject: Subject<'_>,
    base: &mut dyn Executable,
    inputs: &BoundInputs,
    effort: &mut Effort<'_>,
) -> Result<Report, Error> {
    let decisions = base.decisions().iter().filter(|d| is_open(d));
    let decisions: Vec<Decision> = decisions.cloned().collect();
    let mut report = Report {
        problems: decisions.iter().map(Problem::of).collect(),
        failed: Vec::new(),
        before_ms: None,
        after_ms: None,
        kept: None,
    };
    if decisions.is_empty() {
        return Ok(report);
    }
    let times = base.time_steps(inputs)?;
    if times.is_empty() {
        return Err(no_timestamps(subject.backend));
    }
    let works = |d: &Decision| times.iter().any(|time| d.steps.contains(&time.step));
    let those = decisions.iter().map(|d| match works(d) {
        true => sensible(&d.candidates),
        false => Vec::new(),
    });
    let those: Vec<Vec<usize>> = those.collect();
    let turns = those.iter().map(Vec::len).max().unwrap_or(1);
    for turn in 1..turns {
        (effort.watch)(&format!("measuring candidates, {turn} of {}", turns - 1));
        let turn = Turn {
            decisions: &decisions,
            candidates: those.iter().map(|those| those.get(turn).copied()).collect(),
        };
        turn.measure(subject, base, inputs, effort.rounds, &mut report)?;
    }
    Ok(report)
}

/// Winners must be faster than the cost model's choices once more, all together in one plan, which is returned: of
/// many candidates the luckiest looks the fastest. For those that are not, the cost model's choices stay.
///
/// # Errors
/// Trouble of the device.
pub(super) fn confirm(
    subject: Subject<'_>,
    base: &mut dyn Executable,
    inputs: &BoundInputs,
    effort: &mut Effort<'_>,
    report: &mut Report,
) -> Result<Option<Box<dyn Executable>>, Error> {
    while report.problems.iter().any(Problem::is_changed) {
        (effort.watch)("comparing winners with the cost model's choices");
        let choices = report.choices(subject.choices);
        let mut winners = subject.backend.compile(subject.graph, &choices)?;
        let [before, after] = alternate(base, winners.as_mut(), inputs, effort.rounds)?;
        let problems = report.problems.iter_mut();
        let refuted = problems.filter_map(|p| (!p.confirm(&before, &after)).then_some(()));
        if refuted.count() == 0 {
            report.before_ms = Some(before.whole());
            report.after_ms = Some(after.whole());
            return Ok(Some(winners));
        }
    }
    Ok(None)
}

fn no_timestamps(backend: &dyn Backend) -> Error {
    Error::BackendCannot {
        backend: backend.name().to_owned(),
        what: format!(
            "be tuned: {} has no timestamps to time kernels by",
            backend.device()
        ),
    }
}

/// A candidate of each problem that has so many.
struct Turn<'a> {
    decisions: &'a [Decision],
    candidates: Vec<Option<usize>>,
}

impl Turn<'_> {
    fn measure(
        &self,
        subject: Subject<'_>,
        base: &mut dyn Executable,
        inputs: &BoundInputs,
        rounds: u32,
        report: &mut Report,
    ) -> Result<(), Error> {
        let other = subject
            .backend
            .compile(subject.graph, &self.choices(subject.choices));
        let compared = other.and_then(|mut other| alternate(base, other.as_mut(), inputs, rounds));
        let [ours, theirs] = match compared {
            Ok(both) => both,
            // Whichever was at fault, what else was measured stands; on a device that is lost the base fails too.
            Err(error) => {
                base.time_steps(inputs)?;
                let names: Vec<_> = self.each().map(|(_, name)| name).collect();
                report.failed.push(format!("{}: {error}", names.join(", ")));
                return Ok(());
            }
        };
        for (problem, at) in report.problems.iter_mut().zip(&self.candidates) {
            if let Some(at) = at {
                problem.compare(*at, &ours, &theirs);
            }
        }
        Ok(())
    }

    /// The problems that have a candidate, and its name.
    fn each(&self) -> impl Iterator<Item = (&Decision, String)> {
        let both = self.decisions.iter().zip(&self.candidates);
        both.filter_map(|(decision, at)| Some((decision, decision.candidates[(*at)?].name())))
    }

    /// The candidates in the place of what the cost model chooses.
    fn choices(&self, given: &Choices) -> Choices {
        let mut choices = given.clone();
        for (decision, candidate) in self.each() {
            let measured = Measured {
                candidate,
                ratio: 1.0,
            };
            choices.tuned.insert(decision.key(), measured);
        }
        choices
    }
}
