//! Which kernel each problem got, why, and what else could have computed it.
//!
//! ```
//! use attnc::{Model, explain, opt, plan::DeviceProfile};
//! let model = Model::from_text("m", "graph @m(%x: f32[S, 8], %y: f32[8, 8]) {
//!   %z = matmul %x, %y
//!   return %z
//! }")?;
//! let explained = explain::explain(&model, &opt::Options::default(), &DeviceProfile::webgpu())?;
//! let choice = &explained.report.choices[0];
//! assert_eq!(choice.problem, "matmul.f32, any × 8 × 8");
//! assert_eq!((choice.kernels[0].cost, choice.why), (1.0, "the cheapest by the cost model"));
//! # Ok::<(), attnc::Error>(())
//! ```

use super::plural;
use crate::codegen::choice::{Candidate, Decision, KernelShape, Why};
use serde::Serialize;

/// A problem and what it got.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// The operation, its types, and the sizes that are known when compiling.
    pub problem: String,
    /// How many steps compute such.
    pub uses: usize,
    /// Shape and tile of the kernel that does: one of `kernels`.
    pub chosen: String,
    /// Why this one.
    pub why: &'static str,
    /// Where that was measured: its time over that of the first of `kernels`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
    /// All that could compute it, the cheapest by the cost model first.
    pub kernels: Vec<Costed>,
}

/// A kernel that could compute a problem.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Costed {
    /// Shape and tile: `subgroup.g4x8d64`.
    pub name: String,
    /// By the cost model, over that of the cheapest.
    pub cost: f64,
    #[serde(skip)]
    shape: KernelShape,
}

impl From<&Decision> for Choice {
    fn from(decision: &Decision) -> Self {
        let least = decision.candidates.first().map_or(1.0, |c| c.cost);
        let costed = |candidate: &Candidate| Costed {
            name: candidate.name(),
            cost: three_digits(candidate.cost / least),
            shape: candidate.shape,
        };
        Self {
            problem: decision.problem.clone(),
            uses: decision.steps.len(),
            chosen: decision.candidates[decision.chosen].name(),
            why: decision.why.words(),
            measured: match decision.why {
                Why::Measured { ratio } => Some(three_digits(ratio)),
                _ => None,
            },
            kernels: decision.candidates.iter().map(costed).collect(),
        }
    }
}

/// What is only an estimate is not printed as if it were more.
fn three_digits(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

impl Choice {
    /// All of a plan.
    #[must_use]
    pub fn of(decisions: &[Decision]) -> Vec<Self> {
        decisions.iter().map(Self::from).collect()
    }

    /// For people: `2 × matmul.f32, any × 384 × 1536: subgroup.r24c1 by the cost model (rows.r4c2 2.10 ×)`. Of the
    /// others the best of each shape is named, with its estimated cost. Nothing where there was no choice.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        if self.kernels.len() < 2 {
            return None;
        }
        let (uses, problem, chosen) = (self.uses, &self.problem, &self.chosen);
        let why = match (self.measured, self.why) {
            (Some(1.0), _) => " as measured on this device, where nothing was faster".to_owned(),
            (Some(ratio), _) => format!(
                " as measured on this device, {ratio:.2} × the time of {}",
                self.kernels[0].name
            ),
            (None, why) if why == Why::Cheapest.words() => " by the cost model".to_owned(),
            (None, why) => format!(" {why}"),
        };
        let others = self.others();
        Some(format!("{uses} × {problem}: {chosen}{why} ({others})"))
    }

    /// The best of each shape, the chosen one aside, with its cost, and how many more there are.
    fn others(&self) -> String {
        let others = self.kernels.iter().filter(|k| k.name != self.chosen);
        let mut best: Vec<&Costed> = Vec::new();
        for kernel in others {
            if best.iter().all(|known| known.shape != kernel.shape) {
                best.push(kernel);
            }
        }
        let named = best.iter().map(|k| format!("{} {:.2} ×", k.name, k.cost));
        let mut parts: Vec<String> = named.collect();
        let more = self.kernels.len() - 1 - best.len();
        if more > 0 {
            parts.push(format!("{more} more"));
        }
        parts.join(", ")
    }
}

/// The lines of all problems that had a choice, and how many had none.
#[must_use]
pub fn choices_text(choices: &[Choice]) -> String {
    let lines: Vec<String> = choices.iter().filter_map(Choice::line).collect();
    let alone = choices.len() - lines.len();
    let mut out: String = lines.iter().map(|line| format!("  {line}\n")).collect();
    if alone > 0 && !lines.is_empty() {
        let problems = plural(alone, "problem");
        out.push_str(&format!("  {problems} more with one kernel that fits\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(chosen: usize, why: Why) -> Decision {
        let candidate = |shape, tile: &str, cost| Candidate {
            shape,
            tile: tile.to_owned(),
            cost,
        };
        Decision {
            problem: "matmul.f32, any × 8 × 8".to_owned(),
            candidates: vec![
                candidate(KernelShape::Subgroup, "r24c1", 4.0),
                candidate(KernelShape::Subgroup, "r32c1", 4.4),
                candidate(KernelShape::Rows, "r4c2", 10.0),
                candidate(KernelShape::Subgroup, "r8c1", 12.0),
            ],
            chosen,
            why,
            steps: vec![3, 5],
            joins: vec![],
        }
    }

    #[test]
    fn a_choice_names_the_best_of_each_shape_beside_it() {
        let line = |chosen, why| Choice::from(&decision(chosen, why)).line().unwrap();
        assert_eq!(
            line(0, Why::Cheapest),
            "2 × matmul.f32, any × 8 × 8: subgroup.r24c1 by the cost model \
             (subgroup.r32c1 1.10 ×, rows.r4c2 2.50 ×, 1 more)"
        );
        assert_eq!(
            line(2, Why::Measured { ratio: 0.5 }),
            "2 × matmul.f32, any × 8 × 8: rows.r4c2 as measured on this device, 0.50 × the time of \
             subgroup.r24c1 (subgroup.r24c1 1.00 ×, 2 more)"
        );
        let kept = line(0, Why::Measured { ratio: 1.0 });
        assert!(kept.contains("where nothing was faster"), "{kept}");
    }

    #[test]
    fn who_had_no_choice_is_counted_beside_those_who_had() {
        let mut single = decision(0, Why::Cheapest);
        single.candidates.truncate(1);
        let both = Choice::of(&[decision(0, Why::Cheapest), single.clone()]);
        let text = choices_text(&both);
        assert_eq!(text.lines().count(), 2);
        assert!(text.ends_with("  1 problem more with one kernel that fits\n"));
        assert_eq!(choices_text(&Choice::of(&[single])), "");
    }
}
