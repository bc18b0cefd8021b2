//! Tiles that workgroups take as they come: all of them are computed, whoever takes them, and once more in each run.
//!
//! Each case has more tiles than workgroups take at first, and is run three times, with other numbers in between.

use crate::support::{Need, Outcome, agree, ensure, session, trial};
use attnc::plan::DimValues;
use attnc::{HostTensor, Model, Tensors, random};
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials() -> Vec<Trial> {
    let cases = cases().into_iter().map(|case| {
        trial(
            format!("schedule/{} comes out right", case.name),
            &[Need::Gpu],
            move || case.check(),
        )
    });
    cases.collect()
}

struct Case {
    name: &'static str,
    text: String,
    /// The key of which V is infinite, and so are the rows that see it.
    infinity: Option<usize>,
}

fn product(name: &'static str, m: usize, k: usize, n: usize) -> Case {
    let text = format!(
        "graph @g(%x: f32[{m}, {k}], %y: f32[{k}, {n}]) {{\n  %z = matmul %x, %y\n  return %z\n}}"
    );
    Case {
        name,
        text,
        infinity: None,
    }
}

/// An attention of 8 heads, 300 queries and 600 keys: 80 tiles of 32 queries.
fn attention(name: &'static str, functions: &str, infinity: Option<usize>) -> Case {
    let text = format!(
        "graph @g(%q: f32[1, 8, 300, 8], %k: f32[1, 8, 600, 8], %v: f32[1, 8, 600, 8]) {{
  %o = attention %q, %k, %v, scale = 0.5, {functions}\n  return %o\n}}"
    );
    Case {
        name,
        text,
        infinity,
    }
}

fn cases() -> [Case; 5] {
    [
        product("a product of many small tiles", 9000, 8, 40),
        product(
            "a product whose tiles take half of a driver's turns",
            72,
            140_000,
            4,
        ),
        attention(
            "attention whose rows grow at every key",
            "score_mod = { score + 9.0 * f32(kv_idx) }",
            None,
        ),
        attention(
            "attention whose rows are walked one by one",
            "mask_mod = { mod(kv_idx, 2) == 0 | mod(q_idx, 2) == 1 }",
            Some(301),
        ),
        attention(
            "attention whose tiles cost more the later they are",
            "mask_mod = { kv_idx <= 2 * q_idx }",
            None,
        ),
    ]
}

impl Case {
    fn check(&self) -> Outcome {
        let model = Model::from_text(self.name, &self.text)?;
        let mut found = session(&model, "gpu in shape subgroup")?;
        let mut right = session(&model, "cpu")?;
        for seed in [1, 2, 1] {
            let given = self.inputs(&model, seed)?;
            let (expected, found) = (right.run(&given)?, found.run(&given)?);
            agree(&format!("seed {seed}"), &expected, &found, 3e-5)?;
            let values = found.values().flat_map(HostTensor::to_f64);
            let finite = values.filter(|x| x.is_finite()).count();
            ensure(finite > 0, || "nothing is finite".to_owned())?;
        }
        Ok(())
    }

    fn inputs(&self, model: &Model, seed: u64) -> Result<Tensors, Failed> {
        let mut given = random::inputs(model, &DimValues::default(), seed)?;
        if let Some(key) = self.infinity {
            let v = &given["v"];
            let mut values: Vec<f32> = v.to_f64().iter().map(|x| *x as f32).collect();
            for head in values.chunks_exact_mut(600 * 8) {
                head[8 * key..8 * key + 8].fill(f32::INFINITY);
            }
            let v = HostTensor::new(v.shape().to_vec(), &values)?;
            given.insert("v".to_owned(), v);
        }
        Ok(given)
    }
}
