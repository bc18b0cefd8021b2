//! Contestants take turns, so that what else the machine does meets all of them.
//!
//! A task is prepared by everyone first, which checks results too. Then come rounds: in each, everyone has a
//! turn of a few runs, and the one who begins changes. What counts is the median over all rounds. Before each turn
//! the adapter's pace is taken, if there is an adapter: what share of the peak a contestant reached is told by that.

use crate::contestant::{Contestant, Side};
use crate::task::Task;
use std::time::{Duration, Instant};

/// How long everything takes.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Turns of each contestant.
    pub rounds: u32,
    /// About so long is a turn.
    pub turn: Duration,
    /// At most so many runs are handed over together, where that takes as long as the work.
    pub burst: u32,
}

/// What one contestant does in each of its turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    runs: u32,
    burst: u32,
}

impl Turn {
    /// By how long one run takes.
    fn of(once_ms: f64, effort: Effort) -> Self {
        let once_ms = once_ms.max(1e-3);
        let burst = ((BURST_MS / once_ms) as u32).clamp(1, effort.burst);
        let fewest = if once_ms < SLOW_MS { 3.0 } else { 1.0 };
        let turn_ms = 1e3 * effort.turn.as_secs_f64();
        let runs = turn_ms / (once_ms * f64::from(burst));
        Self {
            runs: runs.clamp(fewest, 50.0) as u32,
            burst,
        }
    }
}

/// Work handed over together need not take longer.
const BURST_MS: f64 = 20.0;
/// What takes so long varies little, and is run once a turn.
const SLOW_MS: f64 = 1000.0;

/// What one contestant did with one shape.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Outcome {
    /// The contestant.
    pub who: String,
    /// What it runs on.
    pub side: Side,
    /// What it chose.
    pub kernel: String,
    /// Milliseconds of each run; empty where it cannot do this.
    pub ms: Vec<f64>,
    /// The part of its arithmetic peak that the adapter reached before each turn; none where it was not asked.
    pub pace: Vec<f64>,
    /// Milliseconds of compiling and the first run.
    pub prepare_ms: f64,
    /// The largest difference from the reference.
    pub error: Option<f64>,
    /// Bytes of inputs, results and intermediates.
    pub memory: Option<u64>,
    /// Why it cannot do this.
    pub cannot: Option<String>,
}

impl Outcome {
    /// The median of its runs.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        (!self.ms.is_empty()).then(|| median(&self.ms))
    }

    /// The median of the adapter's pace, 1 where it was not asked.
    #[must_use]
    pub fn median_pace(&self) -> f64 {
        if self.pace.is_empty() {
            1.0
        } else {
            median(&self.pace)
        }
    }
}

/// Measures everyone who does such work.
///
/// # Errors
/// What `pace` says.
pub fn measure(
    task: &Task,
    everyone: &mut [Box<dyn Contestant>],
    effort: Effort,
    pace: &dyn Fn() -> Result<Option<f64>, String>,
) -> Result<Vec<Outcome>, String> {
    let those = everyone.iter_mut().filter(|one| one.does(&task.shape.work));
    let mut everyone: Vec<&mut Box<dyn Contestant>> = those.collect();
    let mut outcomes: Vec<_> = everyone
        .iter_mut()
        .map(|one| prepare(task, one.as_mut()))
        .collect();
    let mut turns = vec![None; everyone.len()];
    for round in 0..effort.rounds as usize {
        for turn in 0..everyone.len() {
            let at = (round + turn) % everyone.len();
            let (one, outcome) = (&mut everyone[at], &mut outcomes[at]);
            if outcome.cannot.is_some() {
                continue;
            }
            // Threads of whoever had the turn before may still spin.
            std::thread::sleep(Duration::from_millis(20));
            outcome.pace.extend(pace()?);
            // A run that does not count, since others have used the caches.
            let measured = one.run(1, 1).and_then(|once| {
                let Turn { runs, burst } =
                    *turns[at].get_or_insert_with(|| Turn::of(once.iter().sum(), effort));
                one.run(runs, burst)
            });
            match measured {
                Ok(ms) => outcome.ms.extend(ms),
                Err(why) => outcome.cannot = Some(why),
            }
        }
    }
    Ok(outcomes)
}

fn prepare(task: &Task, one: &mut dyn Contestant) -> Outcome {
    let start = Instant::now();
    let ready = one.prepare(task);
    let prepare_ms = 1e3 * start.elapsed().as_secs_f64();
    let (ready, cannot) = match ready {
        Ok(ready) => (Some(ready), None),
        Err(why) => (None, Some(why)),
    };
    Outcome {
        who: one.name().to_owned(),
        side: one.side(),
        ms: Vec::new(),
        pace: Vec::new(),
        prepare_ms,
        error: ready.as_ref().map(|r| task.reference.error_of(&r.output)),
        memory: ready.as_ref().and_then(|r| r.memory),
        kernel: ready.map(|r| r.kernel).unwrap_or_default(),
        cannot,
    }
}

/// Of at least one.
#[must_use]
pub fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        f64::midpoint(sorted[half - 1], sorted[half])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::Ready;
    use crate::{shapes, task::Task};

    /// Takes 1 ms each time, and is off by `error`.
    struct Fake {
        error: f64,
        turns: u32,
    }

    impl Contestant for Fake {
        fn name(&self) -> &str {
            "fake"
        }
        fn version(&self) -> &str {
            "fake 1"
        }
        fn side(&self) -> Side {
            Side::Cpu
        }
        fn prepare(&mut self, task: &Task) -> Result<Ready, String> {
            let mut output =
                attnc::oracle::run_bound(&task.model, &task.bound).unwrap()["out"].to_f64();
            output[3] += self.error;
            Ok(Ready {
                output,
                ..Ready::default()
            })
        }
        fn run(&mut self, runs: u32, _: u32) -> Result<Vec<f64>, String> {
            self.turns += 1;
            if self.turns > 100 {
                Err("tired".to_owned())
            } else {
                Ok(vec![1.0; runs as usize])
            }
        }
    }

    #[test]
    fn short_runs_are_handed_over_together_and_long_ones_are_few() {
        let effort = Effort {
            rounds: 1,
            turn: Duration::from_millis(100),
            burst: 10,
        };
        let of = |once| Turn::of(once, effort);
        assert_eq!(
            of(0.1),
            Turn {
                runs: 50,
                burst: 10
            }
        );
        assert_eq!(of(8.0), Turn { runs: 6, burst: 2 });
        assert_eq!(of(200.0), Turn { runs: 3, burst: 1 });
        assert_eq!(of(2000.0), Turn { runs: 1, burst: 1 });
    }

    #[test]
    fn everyone_has_a_turn_in_every_round_and_is_checked() {
        let task = Task::new(&shapes::smoke()[0]).unwrap();
        let fake = |error, turns| Box::new(Fake { error, turns }) as Box<dyn Contestant>;
        let mut everyone = [fake(0.0, 0), fake(0.5, 0), fake(0.0, 100)];
        let effort = Effort {
            rounds: 2,
            turn: Duration::from_millis(10),
            burst: 1,
        };
        let outcomes = measure(&task, &mut everyone, effort, &|| Ok(Some(0.5))).unwrap();
        assert_eq!(outcomes[0].ms.len(), 20);
        assert_eq!(
            (outcomes[0].pace.len(), outcomes[0].median_pace()),
            (2, 0.5)
        );
        assert!(outcomes[0].error.unwrap() < 1e-12);
        assert!((outcomes[1].error.unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(
            (outcomes[2].median(), outcomes[2].cannot.as_deref()),
            (None, Some("tired"))
        );
    }
}
