//! A problem, and what its candidates took.

use super::Measurement;
use super::turns::{Contender, median};
use crate::codegen::choice::{Candidate, Decision};
use crate::plan::DimValues;
use serde::Serialize;

/// A candidate must be so much faster than the cost model's choice to take its place.
const MARGIN: f64 = 0.03;

/// A problem of a model, and what was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Problem {
    /// The operation, its types, and the sizes that are known when compiling.
    pub problem: String,
    /// How many steps compute such.
    pub uses: usize,
    /// The candidate taken.
    pub chosen: String,
    /// Its time over that of the cost model's choice: 1 where it is that. `None` where nothing was measured, for
    /// no step of this problem has work at these lengths.
    pub ratio: Option<f64>,
    /// All candidates, the cheapest by the cost model first.
    pub candidates: Vec<Timed>,
    #[serde(skip)]
    pub(super) key: String,
}

/// A candidate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timed {
    /// Shape and tile.
    pub name: String,
    /// What the cost model makes of it, over the cheapest.
    pub cost: f64,
    /// All steps of the problem together; `None` where it was not measured.
    pub milliseconds: Option<f64>,
}

impl Problem {
    pub(super) fn of(decision: &Decision) -> Self {
        let least = decision.candidates.first().map_or(1.0, |c| c.cost);
        let timed = |candidate: &Candidate| Timed {
            name: candidate.name(),
            cost: (1000.0 * candidate.cost / least).round() / 1000.0,
            milliseconds: None,
        };
        Self {
            problem: decision.problem.clone(),
            uses: decision.steps.len(),
            chosen: decision.candidates[decision.chosen].name(),
            ratio: None,
            candidates: decision.candidates.iter().map(timed).collect(),
            key: decision.key(),
        }
    }

    /// Counts in what a candidate took, beside what the cost model's choice took in the same rounds. It is taken if
    /// it is faster by more than noise makes it: by [`MARGIN`] in the median, and at all in three rounds of four.
    pub(super) fn compare(&mut self, at: usize, base: &Contender, other: &Contender) {
        let both = base.rounds_of(&self.key).zip(other.rounds_of(&self.key));
        let Some((ours, theirs)) = both else {
            return;
        };
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| b / a).collect();
        let won = ratios.iter().filter(|ratio| **ratio < 1.0).count();
        let ratio = median(ratios);
        let rounds = ours.len();
        // All are set against the first time that the model's choice was measured.
        let usual = *self.candidates[0]
            .milliseconds
            .get_or_insert_with(|| to_nanoseconds(median(ours)));
        self.candidates[at].milliseconds = Some(to_nanoseconds(usual * ratio));
        let best = self.ratio.get_or_insert(1.0);
        if ratio < 1.0 - MARGIN && 4 * won >= 3 * rounds && ratio < *best {
            *best = ratio;
            self.chosen.clone_from(&self.candidates[at].name);
        }
    }

    /// Whether the candidate that was taken is faster than the cost model's choice again; if not, that is taken.
    pub(super) fn confirm(&mut self, base: &Contender, other: &Contender) -> bool {
        let both = base.rounds_of(&self.key).zip(other.rounds_of(&self.key));
        let (true, Some((ours, theirs))) = (self.is_changed(), both) else {
            return true;
        };
        let ratio = median(ours.iter().zip(&theirs).map(|(a, b)| b / a).collect());
        let usual = self.candidates[0].milliseconds;
        if let Some(taken) = self.candidates.iter_mut().find(|c| c.name == self.chosen) {
            taken.milliseconds = usual.map(|ms| to_nanoseconds(ms * ratio));
        }
        let confirmed = ratio < 1.0;
        self.ratio = Some(ratio.min(1.0));
        if !confirmed {
            self.chosen.clone_from(&self.candidates[0].name);
        }
        confirmed
    }

    /// Whether something else than the cost model's choice is taken.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.candidates
            .first()
            .is_some_and(|c| c.name != self.chosen)
    }

    /// What is kept of it, if it was measured.
    pub(super) fn measurement(&self, lengths: &DimValues) -> Option<Measurement> {
        self.ratio?;
        let timed = self.candidates.iter();
        let timed = timed.filter_map(|c| Some((c.name.clone(), c.milliseconds?)));
        Some(Measurement {
            chosen: self.chosen.clone(),
            cheapest: self.candidates.first()?.name.clone(),
            milliseconds: timed.collect(),
            lengths: lengths.iter().map(|(n, v)| (n.to_owned(), v)).collect(),
        })
    }
}

/// Milliseconds to the nanosecond; nothing that was measured takes no time.
fn to_nanoseconds(ms: f64) -> f64 {
    (ms * 1e6).round().max(1.0) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::choice::{KernelShape, Why};

    fn decision() -> Decision {
        let candidate = |shape, cost| Candidate {
            shape,
            tile: "t".to_owned(),
            cost,
        };
        Decision {
            problem: "p".to_owned(),
            candidates: vec![
                candidate(KernelShape::Subgroup, 1.0),
                candidate(KernelShape::Rows, 2.0),
                candidate(KernelShape::Tiled, 3.0),
            ],
            chosen: 0,
            why: Why::Cheapest,
            steps: vec![1],
            joins: vec![],
        }
    }

    /// Rounds of one step, beside another that is no part of the problem.
    fn took(ms: &[f64]) -> Contender {
        Contender::new(
            vec![decision()],
            ms.iter().map(|&ms| vec![(0, 9.0), (1, ms)]),
        )
    }

    #[test]
    fn who_is_faster_in_most_rounds_by_more_than_noise_is_taken() {
        let base = took(&[2.0, 2.0, 2.2, 2.0]);
        let chosen = |rows: &[f64], tiled: &[f64]| {
            let mut problem = Problem::of(&decision());
            problem.compare(1, &base, &took(rows));
            problem.compare(2, &base, &took(tiled));
            problem
        };
        let found = chosen(&[1.5, 1.5, 1.5, 9.0], &[1.6, 1.6, 1.6, 1.6]);
        assert_eq!((found.chosen.as_str(), found.ratio), ("rows.t", Some(0.75)));
        let measurement = found.measurement(&DimValues::from([("S", 7)])).unwrap();
        assert_eq!(measurement.milliseconds["rows.t"], 1.5);
        assert_eq!(measurement.milliseconds.len(), 3);
        assert_eq!(measurement.measured().unwrap().ratio, 0.75);

        let close = chosen(&[1.96, 1.97, 2.2, 2.0], &[1.5, 1.5, 9.0, 9.0]);
        assert_eq!(
            (close.chosen.as_str(), close.ratio),
            ("subgroup.t", Some(1.0))
        );
        assert!(!close.is_changed());
    }

    #[test]
    fn who_was_only_lucky_is_not_taken() {
        let base = took(&[2.0, 2.0]);
        let again = |ms: &[f64]| {
            let mut problem = Problem::of(&decision());
            problem.compare(1, &base, &took(&[1.0, 1.0]));
            assert!(problem.is_changed());
            (problem.confirm(&base, &took(ms)), problem)
        };
        let (confirmed, problem) = again(&[1.5, 1.5]);
        assert_eq!((confirmed, problem.ratio), (true, Some(0.75)));
        assert_eq!(problem.candidates[1].milliseconds, Some(1.5));
        let (confirmed, problem) = again(&[2.0, 2.5]);
        assert_eq!((confirmed, problem.ratio), (false, Some(1.0)));
        assert!(!problem.is_changed());
        assert_eq!(problem.candidates[1].milliseconds, Some(2.25));
    }

    #[test]
    fn what_had_no_work_is_not_measured() {
        let idle = Contender::new(vec![decision()], [vec![(0, 9.0)]]);
        let mut problem = Problem::of(&decision());
        problem.compare(1, &idle, &idle);
        assert_eq!(problem.ratio, None);
        assert_eq!(problem.measurement(&DimValues::default()), None);
    }
}
