//! Two executables in turns, so that what else the machine does meets both.

use crate::Error;
use crate::backend::Executable;
use crate::codegen::choice::Decision;
use crate::inputs::BoundInputs;

/// What an executable decided, and how long its steps took in each round.
pub(super) struct Contender {
    decisions: Vec<Decision>,
    /// Steps that had work, and their milliseconds.
    rounds: Vec<Vec<(usize, f64)>>,
}

impl Contender {
    pub(super) fn new(
        decisions: Vec<Decision>,
        rounds: impl IntoIterator<Item = Vec<(usize, f64)>>,
    ) -> Self {
        Self {
            decisions,
            rounds: rounds.into_iter().collect(),
        }
    }

    /// Milliseconds of all steps that compute a problem, by round; `None` where no such step had work.
    pub(super) fn rounds_of(&self, key: &str) -> Option<Vec<f64>> {
        let decision = self.decisions.iter().find(|d| d.key() == key)?;
        let sum = |steps: &Vec<(usize, f64)>| {
            let those = steps.iter().filter(|(step, _)| decision.has_step(*step));
            those.map(|(_, ms)| ms).sum::<f64>()
        };
        let sums: Vec<f64> = self.rounds.iter().map(sum).collect();
        sums.iter().all(|ms| *ms > 0.0).then_some(sums)
    }

    /// The median of all steps together.
    pub(super) fn whole(&self) -> f64 {
        let sum = |steps: &Vec<(usize, f64)>| steps.iter().map(|(_, ms)| ms).sum();
        median(self.rounds.iter().map(sum).collect())
    }
}

/// Runs both once, which is not counted, and then in turns; who begins changes.
///
/// # Errors
/// Trouble of the device.
pub(super) fn alternate(
    base: &mut dyn Executable,
    other: &mut dyn Executable,
    inputs: &BoundInputs,
    rounds: u32,
) -> Result<[Contender; 2], Error> {
    let mut both: [&mut dyn Executable; 2] = [base, other];
    for one in &mut both {
        one.time_steps(inputs)?;
    }
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..rounds.max(1) as usize {
        for turn in 0..2 {
            let at = (round + turn) % 2;
            let steps = both[at].time_steps(inputs)?;
            times[at].push(steps.iter().map(|t| (t.step, t.milliseconds)).collect());
        }
    }
    let [base, other] = both.map(|one| one.decisions().to_vec());
    let [ours, theirs] = times;
    Ok([Contender::new(base, ours), Contender::new(other, theirs)])
}

/// Of at least one.
pub(super) fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    let half = of.len() / 2;
    if of.len() % 2 == 1 {
        of[half]
    } else {
        f64::midpoint(of[half - 1], of[half])
    }
}
