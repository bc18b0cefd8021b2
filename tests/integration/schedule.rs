//! Tiles that workgroups take as they come: all of them are computed, whoever takes them, and once more in each run.
//!
//! Cases have more tiles than workgroups take at first; and one workgroup alone takes as many as the plan lets it.

use crate::support::{Need, Outcome, agree, ensure, gpu, session, trial};
use attnc::codegen::choice::{Choices, KernelShape};
use attnc::compile;
use attnc::gpu::{HostTensorRef, Runner};
use attnc::plan::{DType, Dim, DimValues, Plan, Uniform};
use attnc::{HostTensor, Model, Tensors, opt, random};
use libtest_mimic::{Failed, Trial};

/// Scores that outgrow every earlier one, so that O is scaled at each key.
const STEEP: &str = "score_mod = { score + 9.0 * f32(kv_idx) }";

/// Every second row is without every second key: if V is infinite at an odd one, rows are walked one by one.
const CHEQUERED: &str = "mask_mod = { mod(kv_idx, 2) == 0 | mod(q_idx, 2) == 1 }";

pub(crate) fn trials() -> Vec<Trial> {
    let right = many_tiles().into_iter().map(|case| {
        let name = format!("schedule/{} comes out right", case.name);
        trial(name, &[Need::Gpu], move || case.comes_out_right())
    });
    let full = growing().into_iter().map(|case| {
        let name = format!("schedule/a workgroup may take all tiles of {}", case.name);
        trial(name, &[Need::Gpu], move || case.fills_a_workgroup())
    });
    right.chain(full).collect()
}

struct Case {
    name: &'static str,
    text: String,
    /// A key of which V is infinite, and so are the rows that see it.
    infinity: Option<usize>,
}

/// A product of `m` rows, which may be a length, `k` terms and `n` columns.
fn product(name: &'static str, m: &str, k: usize, n: usize) -> Case {
    let text = format!(
        "graph @g(%x: f32[{m}, {k}], %y: f32[{k}, {n}]) {{\n  %z = matmul %x, %y\n  return %z\n}}"
    );
    Case {
        name,
        text,
        infinity: None,
    }
}

/// An attention of heads of 8 columns; Q and K have these shapes but for that axis.
fn attention(
    name: &'static str,
    [q, k]: [&str; 2],
    functions: &str,
    infinity: Option<usize>,
) -> Case {
    let text = format!(
        "graph @g(%q: f32[{q}, 8], %k: f32[{k}, 8], %v: f32[{k}, 8]) {{
  %o = attention %q, %k, %v, scale = 0.5, {functions}\n  return %o\n}}"
    );
    Case {
        name,
        text,
        infinity,
    }
}

/// More tiles than workgroups take at first: 80 of 32 queries, where it is attention.
fn many_tiles() -> [Case; 5] {
    let attention = |name, functions, infinity| {
        attention(name, ["1, 8, 300", "1, 8, 600"], functions, infinity)
    };
    [
        product("a product of many small tiles", "9000", 8, 40),
        product(
            "a product whose tiles take half of a driver's turns",
            "72",
            140_000,
            4,
        ),
        attention("attention whose rows grow at every key", STEEP, None),
        attention(
            "attention whose rows are walked one by one",
            CHEQUERED,
            Some(301),
        ),
        attention(
            "attention whose tiles cost more the later they are",
            "mask_mod = { kv_idx <= 2 * q_idx }",
            None,
        ),
    ]
}

/// Graphs over the length `S`, whose tiles grow in number with it.
fn growing() -> [Case; 6] {
    let attention = |name, functions, infinity| {
        attention(name, ["S, 1, 100", "S, 1, 100"], functions, infinity)
    };
    [
        product("a product", "S", 64, 64),
        product("a product written element by element", "S", 64, 9),
        product("a product of long sums", "S", 4000, 8),
        attention("attention", "mask_mod = { kv_idx <= q_idx }", None),
        attention("attention whose rows grow at every key", STEEP, None),
        attention(
            "attention whose rows are walked one by one",
            CHEQUERED,
            Some(51),
        ),
    ]
}

impl Case {
    /// Three runs, with other numbers in between.
    fn comes_out_right(&self) -> Outcome {
        let model = Model::from_text(self.name, &self.text)?;
        let mut found = session(&model, "gpu in shape subgroup")?;
        let mut right = session(&model, "cpu")?;
        for seed in [1, 2, 1] {
            let given = inputs(&model, &DimValues::default(), seed, self.infinity)?;
            let (expected, found) = (right.run(&given)?, found.run(&given)?);
            agree(&format!("seed {seed}"), &expected, &found, 3e-5)?;
            let values = found.values().flat_map(HostTensor::to_f64);
            let finite = values.filter(|x| x.is_finite()).count();
            ensure(finite > 0, || "nothing is finite".to_owned())?;
        }
        Ok(())
    }

    /// One workgroup of each step takes the most tiles that the plan lets it take, which are all there are.
    fn fills_a_workgroup(&self) -> Outcome {
        let gpu = gpu().as_ref().map_err(String::clone)?;
        let model = Model::from_text(self.name, &self.text)?;
        let graph = compile::optimise(&model.graph, &opt::Options::default())?.graph;
        let choices = Choices::forced(KernelShape::Subgroup);
        let mut compiled = compile::lower_with(&graph, &gpu.profile, &choices)?;
        let Some(s) = most(&compiled.plan)? else {
            // Where subgroups are wider than a CPU's vectors, workgroups have one tile each.
            let wide = gpu
                .profile
                .features
                .subgroups
                .is_none_or(|sizes| sizes.max > 8);
            return ensure(wide, || "tiles are not handed out".to_owned());
        };
        let dims: DimValues = [("S", s)].into_iter().collect();
        let given = inputs(&model, &dims, 1, self.infinity)?;
        let expected = session(&model, "cpu")?.run(&given)?;
        for step in &mut compiled.plan.steps {
            step.grid = [Dim::one(), Dim::one(), Dim::one()];
        }
        let mut runner = Runner::new(&gpu.device, &gpu.queue, &compiled.plan, &compiled.weights)?;
        let tensors = given.iter().map(|(name, tensor)| {
            let (shape, bytes) = (tensor.shape(), tensor.bytes());
            let dtype = DType::F32;
            (
                name.as_str(),
                HostTensorRef {
                    dtype,
                    shape,
                    bytes,
                },
            )
        });
        let found = runner.run(&tensors.collect::<Vec<_>>())?;
        for (found, expected) in found.iter().zip(expected.values()) {
            let values: &[f32] = bytemuck::cast_slice(&found.bytes);
            let values = values.iter().map(|x| f64::from(*x));
            let columns = expected.shape()[expected.shape().len() - 1];
            let right = expected.to_f64();
            let mut pairs = right.iter().zip(values);
            let wrong = pairs.position(|(a, b)| !(a == &b || (a - b).abs() <= 1e-2));
            let at = |n: usize| format!("of {s} rows, number {} is wrong", n / columns);
            ensure(wrong.is_none(), || wrong.map(at).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Random inputs; V of 8 columns is infinite at a key of each head, where one is given.
fn inputs(
    model: &Model,
    dims: &DimValues,
    seed: u64,
    infinity: Option<usize>,
) -> Result<Tensors, Failed> {
    let mut given = random::inputs(model, dims, seed)?;
    if let Some(key) = infinity {
        let v = &given["v"];
        let keys = v.shape()[2];
        let mut values: Vec<f32> = v.to_f64().iter().map(|x| *x as f32).collect();
        for head in values.chunks_exact_mut(keys * 8) {
            head[8 * key..8 * key + 8].fill(f32::INFINITY);
        }
        let v = HostTensor::new(v.shape().to_vec(), &values)?;
        given.insert("v".to_owned(), v);
    }
    Ok(given)
}

/// The greatest length at which the tiles of the only step are no more than a workgroup may take.
fn most(plan: &Plan) -> Result<Option<i64>, Failed> {
    let [step] = &plan.steps[..] else {
        return Err("one step was expected".into());
    };
    let Some([Uniform::U32(count), Uniform::U32(at_most), _]) = step.uniforms.last_chunk() else {
        return Ok(None);
    };
    if plan.counters().next().is_none() {
        return Ok(None);
    }
    let fits = |s: i64| -> Result<bool, Failed> {
        let dims: DimValues = [("S", s)].into_iter().collect();
        Ok(dims.eval(count)? <= dims.eval(at_most)?)
    };
    ensure(fits(1)?, || "a length of 1 has more tiles".to_owned())?;
    let (mut low, mut high) = (1, 1 << 20);
    while high - low > 1 {
        let middle = (low + high) / 2;
        *(if fits(middle)? { &mut low } else { &mut high }) = middle;
    }
    Ok(Some(low))
}
