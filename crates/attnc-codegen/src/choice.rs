//! Which kernel shape, and which tile of it, a problem gets.
//!
//! A *shape* is a way to share the work of a kernel out among invocations; each is a file of `shaders/kernels/`:
//!
//! | shape | who does what | for |
//! | --- | --- | --- |
//! | `rows` | an invocation owns rows; what they share is read at addresses that all lanes have in common | any device |
//! | `lanes` | a workgroup owns few rows and columns; each lane has a part of their sums | products of few rows on GPUs, where loading is the work |
//! | `subgroup` | lanes own columns and exchange sums | narrow subgroups, where a load costs as much as much arithmetic |
//! | `tiled` | a workgroup stages tiles of the operands in its memory; each invocation has a block of the result in registers | GPUs, when there is much to reuse |
//! | `matrix` | the same by cooperative matrices: f16 in, sums in f32 | GPUs with matrix units, operands of f16 |
//! | `split` | as `rows` or `subgroup`, but each has a part of what is summed up, and a second kernel joins the parts | few rows, much to sum up: decoding |
//!
//! Lowering lists the candidates of a problem with a cost each ([`Candidate`]), and takes the cheapest, or what
//! [`Choices`] say: one shape forced everywhere, or the winners of measurements on the device itself. What it took,
//! why, and what else there was is a [`Decision`].
//!
//! ```
//! use attnc_codegen::choice::{Choices, KernelShape};
//! let forced = Choices::forced(KernelShape::Rows);
//! assert_eq!(KernelShape::named("rows"), Some(KernelShape::Rows));
//! assert_ne!(forced, Choices::default());
//! ```
//!
//! On entry: a device profile. On exit: the same choice for the same problem and profile, whatever the lengths of
//! a run; results do not depend on it beyond rounding.

use attnc_plan::DeviceProfile;
use std::collections::BTreeMap;
use std::fmt;

/// A way to share the work of a kernel out among invocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelShape {
    /// Each invocation owns rows; what they share is read at uniform addresses.
    Rows,
    /// Each lane has a part of every sum of its workgroup.
    Lanes,
    /// The lanes of a subgroup own columns and exchange sums.
    Subgroup,
    /// Tiles of the operands in workgroup memory, and a block of the result in the registers of each invocation.
    Tiled,
    /// Products by cooperative matrices of f16 with sums in f32, on tiles in workgroup memory.
    Matrix,
    /// What is summed up for a row is shared out too, and joined by a second kernel.
    Split,
}

impl KernelShape {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Rows,
        Self::Lanes,
        Self::Subgroup,
        Self::Tiled,
        Self::Matrix,
        Self::Split,
    ];

    /// The name in reports and on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Lanes => "lanes",
            Self::Subgroup => "subgroup",
            Self::Tiled => "tiled",
            Self::Matrix => "matrix",
            Self::Split => "split",
        }
    }

    /// The shape of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.name() == name)
    }
}

impl fmt::Display for KernelShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A shape with a tile, and what it is estimated to cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The shape.
    pub shape: KernelShape,
    /// The tile's numbers, as in the kernel's key: `r4d64`.
    pub tile: String,
    /// Instructions of all lanes for each useful multiply-add, by the cost model; only comparable within one problem.
    pub cost: f64,
}

impl Candidate {
    /// `subgroup.g4x8d64`: what [`Choices::tuned`] calls it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.{}", self.shape, self.tile)
    }
}

/// A problem of a plan and what it got.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The operation, its types and the sizes that are known: equal for all layers that are alike.
    pub problem: String,
    /// What could compute it, the cheapest first.
    pub candidates: Vec<Candidate>,
    /// Which of them does.
    pub chosen: usize,
    /// Why this one.
    pub why: Why,
    /// The steps that compute problems of this kind, one each.
    pub steps: Vec<usize>,
    /// The further steps that join what these leave in parts; of some candidates only.
    pub joins: Vec<usize>,
}

impl Decision {
    /// Whether a step of the plan is for such a problem.
    #[must_use]
    pub fn has_step(&self, step: usize) -> bool {
        self.steps.contains(&step) || self.joins.contains(&step)
    }

    /// What measurements of it are kept under, see [`Choices::tuned`].
    #[must_use]
    pub fn key(&self) -> String {
        key(&self.problem, &self.candidates)
    }
}

/// The problem and all that could compute it: where a candidate is new or gone, what was measured says nothing.
fn key(problem: &str, candidates: &[Candidate]) -> String {
    let mut names: Vec<String> = candidates.iter().map(Candidate::name).collect();
    names.sort_unstable();
    format!("{problem}: {}", names.join(" "))
}

/// Why a candidate was taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    /// It costs least by the cost model.
    Cheapest,
    /// It was the fastest on the device.
    Measured {
        /// Its time over that of the one that costs least by the model: 1 where it is that one.
        ratio: f64,
    },
    /// It is of the shape that was asked for.
    Forced,
    /// It costs least by the cost model; of the shape that was asked for there is none.
    NotOfShape,
}

impl Why {
    /// In words, without figures: `the cheapest by the cost model`.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Cheapest => "the cheapest by the cost model",
            Self::Measured { .. } => "the fastest when measured on this device",
            Self::Forced => "as asked for",
            Self::NotOfShape => {
                "the cheapest by the cost model, since no kernel of the shape asked for can compute it here"
            }
        }
    }
}

/// What a measurement found.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The fastest candidate, as [`Candidate::name`] has it.
    pub candidate: String,
    /// See [`Why::Measured`].
    pub ratio: f64,
}

/// What overrides the cost model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choices {
    /// Every problem that has a candidate of this shape gets it.
    pub forced: Option<KernelShape>,
    /// What was measured, by [`Decision::key`].
    pub tuned: BTreeMap<String, Measured>,
}

impl Choices {
    /// The given shape wherever there is one.
    #[must_use]
    pub fn forced(shape: KernelShape) -> Self {
        Self {
            forced: Some(shape),
            ..Self::default()
        }
    }

    /// Those of the candidates, the cheapest first, that may be taken, whatever is measured. Which steps a plan has is
    /// decided by these: if it depended on measurements, that of one step could do away with another.
    pub(crate) fn open<T>(&self, mut candidates: Vec<(T, Candidate)>) -> Vec<(T, Candidate)> {
        let is_forced = |(_, c): &(T, Candidate)| Some(c.shape) == self.forced;
        if candidates.iter().any(is_forced) {
            candidates.retain(is_forced);
        }
        candidates
    }

    /// Which of the candidates, the cheapest first, is taken, and why.
    pub(crate) fn pick(&self, problem: &str, candidates: &[Candidate]) -> (usize, Why) {
        let shape = self.forced;
        if let Some(at) = shape.and_then(|s| candidates.iter().position(|c| c.shape == s)) {
            return (at, Why::Forced);
        }
        if let Some(found) = self.tuned.get(&key(problem, candidates))
            && let Some(at) = candidates.iter().position(|c| c.name() == found.candidate)
        {
            let ratio = found.ratio;
            return (at, Why::Measured { ratio });
        }
        match shape {
            Some(_) => (0, Why::NotOfShape),
            None => (0, Why::Cheapest),
        }
    }
}

/// What the things kernels do cost on a device, in instructions of a subgroup.
///
/// A software rasteriser runs the lanes of a subgroup as one vector of the CPU. It has no gather worth the name: a
/// load is a loop over the lanes, some 45 instructions each for four words, of 32 bits or 64 alike (lavapipe, Mesa 22.3,
/// read from its machine code), while arithmetic is one instruction for all lanes. A GPU loads for all lanes at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs {
    /// Lanes that work together.
    pub(crate) lanes: u32,
    /// A load by every lane, of whatever it is.
    pub(crate) load: f64,
    /// The same again for each word of it.
    pub(crate) word: f64,
    /// Reading four elements by every lane from an image.
    pub(crate) image: f64,
    /// Moving one number between lanes.
    pub(crate) exchange: f64,
    /// Numbers of an attention's Q and O that a lane may hold before they cost more than they save.
    pub(crate) registers: u32,
    /// Sums of a matrix product that a lane may hold.
    pub(crate) accumulators: u32,
    /// Four products and sums, and what it takes to get at the sum.
    pub(crate) multiply_adds: f64,
    /// Sums of a matrix product that a lane may hold so that the processor keeps the loop over them decoded. In a longer
    /// one arithmetic takes a fifth more (on a Zen 4, which keeps some thousand instructions).
    pub(crate) decoded: u32,
    /// The same by cooperative matrices.
    pub(crate) matrix: f64,
    /// Moving four elements between a lane and workgroup memory.
    pub(crate) staged: f64,
    /// What a further dispatch takes, some 15 us on a CPU and 4 on a GPU.
    pub(crate) dispatch: f64,
    /// Subgroups that it takes to keep the device busy.
    pub(crate) busy: f64,
    /// How many of them one core has at a time; a workgroup is never shared out among cores.
    pub(crate) in_a_core: f64,
}

/// Whether subgroups are the vector units of a CPU: at most 8 lanes, as no GPU has, and few workgroups at once.
pub(crate) fn is_cpu(profile: &DeviceProfile) -> bool {
    let subgroups = profile.features.subgroups;
    subgroups.is_some_and(|sizes| sizes.max <= 8)
}

/// Lanes that can exchange numbers whatever the size of the subgroup they are in, 8 or 4, if sizes are known.
pub(crate) fn exchange_width(profile: &DeviceProfile) -> Option<u32> {
    let min = profile
        .features
        .subgroups?
        .min
        .min(profile.limits.invocations);
    match min {
        0..4 => None,
        4..8 => Some(4),
        _ => Some(8),
    }
}

/// How many times the `used` rows or columns that are wanted are computed in steps of `step`.
pub(crate) fn waste(step: u32, used: Option<u32>) -> f64 {
    used.map_or(1.0, |n| {
        f64::from(n.max(1).next_multiple_of(step)) / f64::from(n.max(1))
    })
}

impl Costs {
    /// A load of a vector of so many words by every lane.
    pub(crate) fn load(&self, words: u32) -> f64 {
        self.load + self.word * f64::from(words)
    }

    /// How much longer it takes for want of work, of which there are so many workgroups and subgroups in all.
    pub(crate) fn unfilled(&self, workgroups: f64, subgroups: f64) -> f64 {
        let cores = self.busy / self.in_a_core;
        let idle_cores = cores / workgroups.max(1.0);
        idle_cores.max(self.busy / subgroups.max(1.0)).max(1.0)
    }

    pub(crate) fn of(profile: &DeviceProfile) -> Self {
        match profile.features.subgroups {
            // Registers that spill lie in the first-level cache, half of which the tile may take.
            Some(sizes) if is_cpu(profile) => Self {
                lanes: sizes.max,
                load: 9.0 * f64::from(sizes.max),
                word: 9.0 * f64::from(sizes.max),
                image: 50.0,
                exchange: 2.0,
                registers: 512,
                accumulators: 256,
                multiply_adds: 11.0,
                decoded: 128,
                matrix: 45.0,
                staged: 45.0 * f64::from(sizes.max),
                dispatch: 40_000.0,
                busy: f64::from(profile.busy_workgroups),
                in_a_core: 1.0,
            },
            sizes => Self {
                lanes: sizes.map_or(32, |s| s.min),
                load: 8.0,
                word: 0.0,
                image: 8.0,
                exchange: 4.0,
                registers: 192,
                accumulators: 64,
                multiply_adds: 4.0,
                decoded: u32::MAX,
                matrix: 0.5,
                staged: 2.0,
                dispatch: 6000.0,
                busy: f64::from(profile.busy_workgroups),
                in_a_core: 4.0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(shape: KernelShape, cost: f64) -> Candidate {
        Candidate {
            shape,
            tile: "r4".into(),
            cost,
        }
    }

    #[test]
    fn force_beats_measurement_beats_model() {
        let list = [
            candidate(KernelShape::Subgroup, 1.0),
            candidate(KernelShape::Rows, 2.0),
        ];
        assert_eq!(Choices::default().pick("p", &list).0, 0);
        let mut choices = Choices::default();
        let measured = Measured {
            candidate: "rows.r4".into(),
            ratio: 0.5,
        };
        choices.tuned.insert(key("p", &list), measured);
        assert_eq!(choices.pick("p", &list), (1, Why::Measured { ratio: 0.5 }));
        assert_eq!(choices.pick("q", &list), (0, Why::Cheapest));
        choices.forced = Some(KernelShape::Subgroup);
        assert_eq!(choices.pick("p", &list), (0, Why::Forced));
    }

    #[test]
    fn what_is_forced_is_all_that_is_open_where_it_can_be() {
        let all = || {
            let shapes = [KernelShape::Subgroup, KernelShape::Rows];
            shapes.map(|shape| (shape, candidate(shape, 1.0))).to_vec()
        };
        let open = |choices: Choices| -> Vec<KernelShape> {
            let open = choices.open(all()).into_iter();
            open.map(|(shape, _)| shape).collect()
        };
        let both = [KernelShape::Subgroup, KernelShape::Rows];
        assert_eq!(open(Choices::default()), both);
        assert_eq!(open(Choices::forced(KernelShape::Rows)), both[1..]);
        assert_eq!(open(Choices::forced(KernelShape::Tiled)), both);
    }

    #[test]
    fn what_was_measured_among_others_says_nothing() {
        let list = [
            candidate(KernelShape::Subgroup, 1.0),
            candidate(KernelShape::Rows, 2.0),
        ];
        let mut choices = Choices::default();
        let measured = Measured {
            candidate: "rows.r4".into(),
            ratio: 0.5,
        };
        choices.tuned.insert(key("p", &list), measured);
        let more = [
            candidate(KernelShape::Subgroup, 1.0),
            candidate(KernelShape::Tiled, 1.5),
            candidate(KernelShape::Rows, 2.0),
        ];
        assert_eq!(choices.pick("p", &more), (0, Why::Cheapest));
        let dearer = [list[1].clone(), list[0].clone()];
        assert_eq!(choices.pick("p", &dearer).0, 0, "whatever the order");
    }

    #[test]
    fn a_shape_that_a_problem_lacks_is_not_forced_on_it() {
        let list = [candidate(KernelShape::Rows, 2.0)];
        let picked = Choices::forced(KernelShape::Subgroup).pick("p", &list);
        assert_eq!(picked, (0, Why::NotOfShape));
    }

    #[test]
    fn shapes_have_names() {
        for shape in KernelShape::ALL {
            assert_eq!(KernelShape::named(shape.name()), Some(shape));
        }
    }
}
