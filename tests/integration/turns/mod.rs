//! Turns of loops: what plans say is what kernels take, and what would take more than a device does is refused.
//!
//! The counting build of a kernel is its own text with a counter in each loop ([`counting`]). What its invocations take at most is held against [`Step::turns`](attnc::plan::Step::turns), at two
//! lengths: never more, and growing as fast but for a tenth. Kernels whose workgroups take tiles as they come are run
//! by one workgroup, which takes as many as it may, and are held to it for each tile. Where the device has a limit
//! ([`Limits::loop_turns`](attnc::plan::Limits::loop_turns)), runs just below it are right, and longer ones are refused.

mod cases;
mod counting;

use crate::forced::occurs;
use crate::support::{Need, Outcome, agree, ensure, gpu, session, trial};
use attnc::codegen::choice::{Choices, KernelShape};
use attnc::compile::{self, Compiled};
use attnc::gpu::{Executable, ExecutableOptions, Gpu, HostTensorRef, Runner};
use attnc::plan::{
    BufferId, BufferKind, DType, DeviceProfile, DimValues, Plan, Step, SubgroupSizes, Uniform,
};
use attnc::{HostDType, HostTensor, Model, opt, random};
use cases::{Case, cases};
use counting::counting;
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    let counted = cases().into_iter().map(|case| {
        trial(
            format!("turns/{} are counted", case.name),
            &[Need::Gpu],
            move || case.check(),
        )
    });
    let limits = limits().into_iter().map(|limit| {
        trial(
            format!("turns/{} up to the limit", limit.name),
            &[Need::Gpu],
            move || limit.check(),
        )
    });
    let name = "turns/rows that were not walked to the end are NaN".to_owned();
    let unfinished = trial(
        name,
        &[Need::Gpu],
        rows_that_take_more_turns_than_lengths_tell,
    );
    let name = "turns/plans for other devices are held to it".to_owned();
    let other = trial(name, &[Need::Gpu], plans_for_other_devices_are_held_to_it);
    counted.chain(limits).chain([unfinished, other]).collect()
}

impl Case {
    fn check(&self) -> Outcome {
        let gpu = gpu().as_ref().map_err(String::clone)?;
        let model = Model::from_text(self.name, &self.text)?;
        let graph = compile::optimise(&model.graph, &opt::Options::default())?.graph;
        for (name, profile) in profiles(gpu) {
            let mut kernels = Vec::new();
            let choices = KernelShape::ALL.map(|shape| (Some(shape), Choices::forced(shape)));
            for (shape, choices) in choices.into_iter().chain([(None, Choices::default())]) {
                let compiled = compile::lower_with(&graph, &profile, &choices)?;
                let new = compiled.plan.kernels.iter().any(|k| !kernels.contains(k));
                if new && shape.is_none_or(|shape| occurs(shape, &compiled.decisions)) {
                    self.compare(gpu, &model, &compiled).map_err(|e| {
                        format!("{name}, {shape:?}: {}", e.message().unwrap_or_default())
                    })?;
                    kernels.extend(compiled.plan.kernels);
                }
            }
        }
        Ok(())
    }

    /// Said and taken turns of each step, at both lengths.
    fn compare(&self, gpu: &Gpu, model: &Model, compiled: &Compiled) -> Outcome {
        let counting = counting(&compiled.plan)?;
        let Gpu { device, queue, .. } = gpu;
        let options = ExecutableOptions {
            matrices: &gpu.profile.features.cooperative_matrix,
            ..ExecutableOptions::default()
        };
        let executable =
            Executable::with_options(device, queue, &counting, &compiled.weights, &options)?;
        let mut runner = Runner::from_executable(device, queue, executable);
        let mut at = |s: i64| -> Result<Vec<[i64; 3]>, Failed> {
            let dims: DimValues = [("S", s)].into_iter().collect();
            let taken = run(&mut runner, model, &dims)?;
            let steps = compiled.plan.steps.iter().zip(taken);
            steps
                .map(|(step, taken)| {
                    let tiles = tiles(&compiled.plan, step, &dims)?;
                    Ok([dims.eval(&step.turns)?, taken, tiles])
                })
                .collect()
        };
        let [few, many] = [at(self.lengths[0])?, at(self.lengths[1])?];
        for (step, (few, many)) in few.into_iter().zip(many).enumerate() {
            let kernel = &compiled.plan.kernel(compiled.plan.steps[step].kernel).name;
            let what = || format!("{kernel} takes {few:?} and {many:?}: said, taken, tiles");
            ensure(few[0] >= few[1] && many[0] >= many[1], what)?;
            let of_a_tile = |all: [i64; 3]| [all[0] / all[2], all[1] / all[2]];
            let (few, many) = (of_a_tile(few), of_a_tile(many));
            let [said, taken] = [0, 1].map(|n| many[n] - few[n]);
            // Whether rows are walked again only data tell; whether each tile is a run of its own; and whether V has
            // infinities, which the kernel by matrices then adds one by one.
            let again = self.name.contains("fill");
            let loose = self.name.contains("table") || kernel.contains("fwd_matrix");
            let most = if loose { 1.3 } else { 1.1 };
            ensure(again || said as f64 <= most * taken as f64 + 2.0, what)?;
            ensure(again || few[0] <= few[1] + few[1] / 3 + 700, what)?;
        }
        Ok(())
    }
}

/// The adapter's own profile, one without subgroups, and one whose invocations are all alone.
fn profiles(gpu: &Gpu) -> [(&'static str, DeviceProfile); 3] {
    let (mut without, mut alone) = (gpu.profile.clone(), gpu.profile.clone());
    without.features.subgroups = None;
    alone.features.subgroups = Some(SubgroupSizes { min: 1, max: 1 });
    [
        ("own profile", gpu.profile.clone()),
        ("no subgroups", without),
        ("single lanes", alone),
    ]
}

/// Tiles that a workgroup of a step may take of those there are.
fn tiles(plan: &Plan, step: &Step, dims: &DimValues) -> Result<i64, Failed> {
    let Some([Uniform::U32(count), Uniform::U32(at_most), _]) = step.uniforms.last_chunk() else {
        return Ok(1);
    };
    match takes_tiles(plan, step) {
        true => Ok(dims.eval(at_most)?.min(dims.eval(count)?)),
        false => Ok(1),
    }
}

/// Whether the workgroups of a step take tiles as they come.
fn takes_tiles(plan: &Plan, step: &Step) -> bool {
    let counts = |id: BufferId| plan.buffer(id).kind == BufferKind::Counters;
    step.bindings.iter().any(|id| counts(*id))
}

/// The turns of each step of a counting build.
fn run(runner: &mut Runner, model: &Model, dims: &DimValues) -> Result<Vec<i64>, Failed> {
    let inputs = random::inputs(model, dims, 1)?;
    let tensors = inputs.iter().map(|(name, tensor)| {
        let tensor = HostTensorRef {
            dtype: match tensor.dtype() {
                HostDType::F16 => DType::F16,
                _ => DType::F32,
            },
            shape: tensor.shape(),
            bytes: tensor.bytes(),
        };
        (name.as_str(), tensor)
    });
    let outputs = runner.run(&tensors.collect::<Vec<_>>())?;
    let counters = outputs.iter().skip(model.outputs.len());
    let turns = counters.map(|o| i64::from(bytemuck::cast_slice::<u8, u32>(&o.bytes)[0]));
    Ok(turns.collect())
}

/// A graph over the length `S`, the greatest that a device of 65535 turns can run, and where it runs.
struct Limit {
    name: &'static str,
    text: &'static str,
    most: i64,
    site: &'static str,
}

fn limits() -> [Limit; 4] {
    [
        Limit {
            name: "a running sum",
            text: "graph @g(%x: f32[2, S]) {\n  %y = cumsum %x, axis = 1\n  return %y\n}",
            most: 262_136,
            site: "gpu",
        },
        Limit {
            name: "a product",
            text: "graph @g(%x: f32[1, S], %y: f32[S, 4]) {\n  %z = matmul %x, %y\n  return %z\n}",
            most: 262_116,
            site: "gpu in shape rows",
        },
        Limit {
            name: "attention",
            text: "graph @g(%q: f32[1, 1, 3, 4], %k: f32[1, 1, S, 4], %v: f32[1, 1, S, 4]) {
  %o = attention %q, %k, %v, scale = 0.5\n  return %o\n}",
            most: 63_488,
            site: "gpu in shape rows",
        },
        Limit {
            name: "linear attention",
            text: "graph @g(%q: f32[1, 1, S, 64], %k: f32[1, 1, S, 64], %v: f32[1, 1, S, 4], %s: f32[1, 1, 64, 4]) {
  %o = linear_attention %q, %k, %v, %s, rule = linear, scale = 0.125, result = output\n  return %o\n}",
            most: 10_921,
            site: "gpu",
        },
    ]
}

impl Limit {
    fn check(&self) -> Outcome {
        let gpu = gpu().as_ref().map_err(String::clone)?;
        if gpu.profile.limits.loop_turns != Some(65535) {
            eprintln!("{}: this device has no such limit", self.name);
            return Ok(());
        }
        let model = Model::from_text(self.name, self.text)?;
        let inputs = |s: i64| {
            let dims: DimValues = [("S", s)].into_iter().collect();
            random::inputs(&model, &dims, 2)
        };
        let within = inputs(self.most)?;
        let expected = session(&model, "cpu")?.run(&within)?;
        let mut session = session(&model, self.site)?;
        agree("at the limit", &expected, &session.run(&within)?, 3e-5)?;
        let refused = session.run(&inputs(self.most + 1)?);
        let why = refused.err().ok_or("it ran beyond the limit")?.to_string();
        refused_by_name(&why)
    }
}

/// Whether a message says what takes too many turns, where, and what to do.
fn refused_by_name(why: &str) -> Outcome {
    let parts = [
        "step 0 (",
        "kernel `",
        "turns of loops",
        "llvmpipe",
        "leaves all loops after 65535",
        "`--backend cpu`",
    ];
    for part in parts {
        ensure(why.contains(part), || format!("no {part} in: {why}"))?;
    }
    Ok(())
}

/// A plan for another device, as a bundle has it, on one that counts.
fn plans_for_other_devices_are_held_to_it() -> Outcome {
    let gpu = gpu().as_ref().map_err(String::clone)?;
    let text = "graph @g(%x: f32[2, S]) {\n  %y = cumsum %x, axis = 1\n  return %y\n}";
    let model = Model::from_text("sum", text)?;
    let compiled = compile::compile(&model.graph, &DeviceProfile::webgpu())?;
    let (json, limits) = (serde_json::to_string(&compiled.plan)?, &gpu.profile.limits);
    let plan: Plan = serde_json::from_str(&json)?;
    let executable = Executable::new(&gpu.device, &gpu.queue, &plan, &compiled.weights)?;
    let far = [("S", 262_137)].into_iter().collect();
    match (executable.check_sizes(&far), limits.loop_turns) {
        (Err(why), Some(65535)) => refused_by_name(&why.to_string()),
        (Ok(()), None) => Ok(()),
        (found, limit) => Err(format!("of {limit:?} turns: {found:?}").into()),
    }
}

/// What data make of a walk by subgroups: O scaled at every key, and rows walked one by one beside an infinity of V.
/// Rows come out right, or NaN where the device left the walk; nothing else.
fn rows_that_take_more_turns_than_lengths_tell() -> Outcome {
    const QUERIES: usize = 40;
    let inputs = |s: usize| {
        format!("%q: f32[1, 1, {QUERIES}, 8], %k: f32[1, 1, {s}, 8], %v: f32[1, 1, {s}, 8]")
    };
    let steep = format!(
        "graph @g({}) {{\n  %o = attention %q, %k, %v, scale = 0.5, score_mod = {{ score + 9.0 * f32(kv_idx) }}
  return %o\n}}",
        inputs(60_000)
    );
    let masked = format!(
        "graph @g({}) {{\n  %o = attention %q, %k, %v, scale = 0.5, mask_mod = {{ kv_idx <= q_idx + 8152 }}
  return %o\n}}",
        inputs(8192)
    );
    let site = "gpu in shape subgroup";
    // The first queries that do not see the infinity, of key 8170.
    for (name, text, odd, finite) in [
        ("steep", steep, None, QUERIES),
        ("masked", masked, Some(8170), 18),
    ] {
        let model = Model::from_text(name, &text)?;
        let mut given = random::inputs(&model, &DimValues::default(), 3)?;
        if let Some(key) = odd {
            let v = &given["v"];
            let mut values: Vec<f32> = v.to_f64().iter().map(|x| *x as f32).collect();
            values[8 * key..8 * key + 8].fill(f32::INFINITY);
            let v = HostTensor::new(v.shape().to_vec(), &values)?;
            given.insert("v".to_owned(), v);
        }
        let [right, found] = ["cpu", site].map(|site| session(&model, site)?.run(&given));
        let (right, found) = (right?["o"].to_f64(), found?["o"].to_f64());
        let rows = right.chunks(8).zip(found.chunks(8)).take(finite);
        let mut left = 0;
        for (row, (right, found)) in rows.enumerate() {
            let is_nan = found.iter().all(|x| x.is_nan());
            left += usize::from(is_nan);
            let close = right.iter().zip(found).all(|(a, b)| (a - b).abs() <= 1e-4);
            ensure(is_nan || close, || {
                format!("{name}, row {row}: expected {right:?}, found {found:?}")
            })?;
        }
        let counts = gpu()
            .as_ref()
            .map_err(String::clone)?
            .profile
            .limits
            .loop_turns
            .is_some();
        ensure(counts == (left > 0), || {
            format!("{name}: {left} rows are NaN")
        })?;
    }
    Ok(())
}
