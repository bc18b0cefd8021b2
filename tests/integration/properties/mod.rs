//! GPU = CPU = f64 oracle, on random inputs at random lengths.
//!
//! A *family* is a graph with symbolic lengths and rules for its inputs. It is compiled once for each
//! backend, then run at many lengths: what depends on the length must not depend on the compile. Cases
//! are drawn by proptest from a fixed seed, so that a failure today is one tomorrow, and are shrunk.

mod attention;
mod families;
mod fills;
mod functions;
mod halves;
mod kernels;
mod leaks;
mod masks;
mod matrices;
mod panels;
mod rows;
mod shapes;

use crate::support::{Outcome, agree, check_eq, on_both, session};
use attnc::plan::DimValues;
use attnc::{HostTensor, Model, Session, Tensors, oracle, random};
use libtest_mimic::{Failed, Trial};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

pub(crate) fn trials() -> Vec<Trial> {
    let families = [
        attention::families(),
        masks::families(),
        fills::families(),
        functions::families(),
        kernels::families(),
        panels::families(),
    ];
    let families: Vec<_> = families.into_iter().flatten().collect();
    let mut trials = shapes::trials(&families);
    trials.extend(families.into_iter().flat_map(Family::trials));
    trials.extend(fills::trials());
    trials.extend(halves::trials());
    trials.extend(leaks::trials());
    trials.extend(matrices::trials());
    trials.extend(rows::trials());
    trials
}

/// How an input is filled; those without a rule are uniform in [-1, 1), booleans and integers 1.
#[derive(Clone, Copy)]
enum Fill {
    /// 0 or 1, mostly 1.
    Mask,
    /// 0 or 1, and in every other case one sequence without any 1.
    MaskWithDeadRows,
    /// 0, or this where a mask would be 0, with dead rows.
    Additive(f64),
    /// Integers below.
    Below(u64),
    /// Integers below, ascending along the last axis: documents behind each other.
    Ascending(u64),
    /// Uniform, times this.
    Times(f64),
}

/// A graph over symbolic lengths, with what to run it on.
#[derive(Clone)]
struct Family {
    name: &'static str,
    text: String,
    /// Lengths and the values they may have.
    lengths: Vec<(&'static str, Lengths)>,
    fills: Vec<(&'static str, Fill)>,
    /// Attentions that must fuse.
    fused: usize,
    rtol: f64,
    cases: u32,
}

/// Which values a length takes.
#[derive(Clone, Copy)]
enum Lengths {
    /// From 1 to this.
    To(i64),
    /// Mostly small; at times around the edge of a register tile or a workgroup of query rows, or its double.
    Edges,
    /// As `Edges`, but no more than a hundred or so.
    SmallEdges,
    /// Several tiles in almost every other case.
    Tiles,
    /// From 0 to this.
    FromNone(i64),
    /// One in almost every other case, else a few, or some tiles.
    Decoding,
}

impl Lengths {
    fn strategy(self) -> BoxedStrategy<i64> {
        match self {
            Self::To(most) => (1..=most).boxed(),
            Self::FromNone(most) => (0..=most).boxed(),
            Self::Decoding => prop_oneof![
                4 => Just(1i64),
                3 => 2i64..=9,
                2 => 60i64..=70,
                1 => 120i64..=140,
            ]
            .boxed(),
            Self::Tiles => prop_oneof![
                5 => 1i64..=40,
                4 => 120i64..=270,
            ]
            .boxed(),
            Self::Edges => prop_oneof![
                6 => 1i64..=20,
                2 => prop::sample::select(vec![31, 32, 33, 63, 64, 65, 127, 128, 129]),
                1 => prop::sample::select(vec![255, 256, 257, 511, 512, 513]),
            ]
            .boxed(),
            Self::SmallEdges => prop_oneof![
                4 => 1i64..=20,
                1 => prop::sample::select(vec![31, 32, 33, 63, 64, 65, 97]),
            ]
            .boxed(),
        }
    }
}

impl Family {
    fn trials(self) -> Vec<Trial> {
        let name = format!("properties/{}", self.name);
        on_both(&name, &[], move |backend| self.check(backend))
    }

    fn model(&self) -> Result<Model, Failed> {
        Ok(Model::from_text(self.name, &self.text)?)
    }

    fn check(&self, backend: &str) -> Outcome {
        let model = self.model()?;
        let mut session = session(&model, backend)?;
        let report = session.attention().expect("a model says").clone();
        check_eq("declined", Vec::new(), report.declined)?;
        check_eq("fused attentions", self.fused, report.fused)?;
        let pipelines = session.stats().pipelines_created;
        let strategies: Vec<_> = self.lengths.iter().map(|(_, l)| l.strategy()).collect();
        sampled(self.cases, (strategies, any::<u64>()), |(values, seed)| {
            self.one(&model, &mut session, &values, seed)
        })?;
        let made = session.stats().pipelines_created;
        check_eq("pipelines after all lengths", pipelines, made)
    }

    /// One run against the oracle.
    fn one(&self, model: &Model, session: &mut Session, values: &[i64], seed: u64) -> Outcome {
        let (inputs, dims) = self.inputs(model, values, seed)?;
        let mut expected = oracle::run(model, &inputs, &dims)?;
        if self.fused > 0 {
            expected = without_dead_rows(expected)?;
        }
        let found = session.run_bound(&session.bind(&inputs, &dims)?)?;
        agree("against the oracle", &expected, &found, self.rtol)
    }

    fn inputs(
        &self,
        model: &Model,
        values: &[i64],
        seed: u64,
    ) -> Result<(Tensors, DimValues), Failed> {
        let names = self.lengths.iter().map(|(name, _)| *name);
        let dims: DimValues = names.zip(values.iter().copied()).collect();
        let mut inputs = random::inputs(model, &dims, seed)?;
        for (name, fill) in &self.fills {
            let tensor = inputs.get_mut(*name).ok_or(format!("no input {name}"))?;
            *tensor = filled(tensor, *fill, seed ^ name.len() as u64);
        }
        Ok((inputs, dims))
    }
}

/// What a graph of attention literally gives, but zeros in rows without a key, where the source has NaN.
fn without_dead_rows(mut outputs: Tensors) -> Result<Tensors, Failed> {
    for tensor in outputs.values_mut().filter(|t| t.dtype().is_float()) {
        let mut values = tensor.to_f64();
        for value in values.iter_mut().filter(|v| v.is_nan()) {
            *value = 0.0;
        }
        *tensor = HostTensor::new(tensor.shape().to_vec(), &values)?;
    }
    Ok(outputs)
}

fn filled(tensor: &HostTensor, fill: Fill, seed: u64) -> HostTensor {
    let mut random = Random(seed);
    let shape = tensor.shape();
    let columns = shape.last().copied().unwrap_or(1).max(1);
    // Every other case has a row that sees nothing, and the first row of some masks is the whole mask.
    let dead = (seed.is_multiple_of(2))
        .then(|| random.below((tensor.len() / columns).max(1) as u64) as usize);
    let mut alive = |i: usize, deaden: bool| {
        let drawn = random.below(10) < 7;
        drawn && !(deaden && dead == Some(i / columns))
    };
    let values: Vec<f64> = match fill {
        Fill::Mask => {
            // One key at least: column 0 is never masked.
            let one = |i| f64::from(u8::from(alive(i, false) || i % columns == 0));
            (0..tensor.len()).map(one).collect()
        }
        Fill::MaskWithDeadRows => {
            let one = |i| f64::from(u8::from(alive(i, true)));
            (0..tensor.len()).map(one).collect()
        }
        Fill::Additive(off) => {
            let one = |i| if alive(i, true) { 0.0 } else { off };
            (0..tensor.len()).map(one).collect()
        }
        Fill::Below(n) => (0..tensor.len()).map(|_| random.below(n) as f64).collect(),
        Fill::Ascending(n) => {
            let ascending = |i: usize| ((i % columns) as u64 * n / columns as u64) as f64;
            (0..tensor.len()).map(ascending).collect()
        }
        Fill::Times(factor) => tensor.to_f64().iter().map(|x| x * factor).collect(),
    };
    let wide = HostTensor::new(shape.to_vec(), &values).expect("of its shape");
    wide.cast(tensor.dtype())
}

/// SplitMix64: Steele, Lea and Flood, OOPSLA 2014.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Draws cases from a fixed seed; the smallest failing one is reported.
fn sampled<S: Strategy>(
    cases: u32,
    strategy: S,
    mut check: impl FnMut(S::Value) -> Outcome,
) -> Outcome
where
    S::Value: Clone + std::fmt::Debug,
{
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let check = std::cell::RefCell::new(&mut check);
    let outcome = TestRunner::new_with_rng(config, rng).run(&strategy, |case| {
        let outcome = (check.borrow_mut())(case);
        outcome.map_err(|e| TestCaseError::fail(e.message().unwrap_or_default().to_owned()))
    });
    outcome.map_err(|error| match error {
        TestError::Fail(why, case) => format!("{why}\nat {case:?}").into(),
        TestError::Abort(why) => format!("gave up: {why}").into(),
    })
}
