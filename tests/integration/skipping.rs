//! Tiles that are skipped, counted on the GPU: a build of the kernel that says how many tiles each row visited.
//!
//! The counting build is the kernel's own text with three lines changed: a counter, an increment behind the test
//! that skips, and a result that is the count (of values that are all 1). It is held against what `explain`
//! reckons, and against the same kernel made to skip nothing, whose results it must equal.

use crate::support::{Need, Outcome, check_eq, ensure, trial};
use attnc::explain::{Tiles, explain};
use attnc::gpu::{AdapterChoice, Gpu, HostTensorRef, Runner};
use attnc::plan::{DType, DeviceProfile, DimValues, Plan};
use attnc::{Model, opt};
use libtest_mimic::{Failed, Trial};

/// One head of few columns, so that 4096 by 4096 is quick.
const COLUMNS: usize = 4;

/// A mask, and the greatest share of tiles that may be left at 4096.
struct Case {
    name: &'static str,
    mask: &'static str,
    most: f64,
    /// Values of `%ids` for a number of queries.
    ids: fn(usize) -> Vec<i32>,
}

const CASES: [Case; 5] = [
    Case {
        name: "causal",
        mask: "mask_mod = { kv_idx <= q_idx }",
        most: 0.52,
        ids: |s| vec![0; s],
    },
    Case {
        name: "causal by a finite fill",
        mask: "score_mod = { score + select(kv_idx <= q_idx, 0.0, -3.4028234663852886e38) }",
        most: 0.52,
        ids: |s| vec![0; s],
    },
    Case {
        name: "window of 256",
        mask: "mask_mod = { kv_idx <= q_idx & q_idx - kv_idx < 256 }",
        most: 0.12,
        ids: |s| vec![0; s],
    },
    Case {
        name: "bigbird",
        mask: "mask_mod = { abs(floordiv(q_idx, 64) - floordiv(kv_idx, 64)) <= 1 | q_idx < 64 | kv_idx < 128 \
               | floordiv(kv_idx, 64) == %ids[floordiv(q_idx, 64)] | floordiv(kv_idx, 64) == %ids[64 + floordiv(q_idx, 64)] \
               | floordiv(kv_idx, 64) == %ids[128 + floordiv(q_idx, 64)] }",
        most: 0.20,
        ids: |s| {
            (0..s)
                .map(|i| ((i * 29 + i / 64 * 21 + 7) % (s / 64)) as i32)
                .collect()
        },
    },
    Case {
        name: "8 documents",
        mask: "mask_mod = { %ids[q_idx] == %ids[kv_idx] }",
        most: 0.20,
        // Of uneven lengths, ending inside tiles.
        ids: |s| {
            (0..s)
                .map(|i| ((i * 8 + (i / 100) % 3 * 70) / s) as i32)
                .collect()
        },
    },
];

pub(crate) fn trials() -> Vec<Trial> {
    let cases = CASES.iter().flat_map(|case| {
        ["webgpu", "adapter"].map(|profile| {
            trial(
                format!("skipping/{} on {profile}", case.name),
                &[Need::Gpu],
                move || case.check(profile),
            )
        })
    });
    cases.collect()
}

impl Case {
    fn check(&self, profile: &str) -> Outcome {
        let gpu = Gpu::open(&AdapterChoice::any())?;
        let profile = match profile {
            "webgpu" => DeviceProfile::webgpu(),
            _ => gpu.profile.clone(),
        };
        let text = format!(
            "graph @g(%q: f32[1, 1, S, {COLUMNS}], %k: f32[1, 1, S, {COLUMNS}], %v: f32[1, 1, S, {COLUMNS}], %ids: i32[S]) {{
  %o = attention %q, %k, %v, %ids, scale = 0.5, {}
  return %o
}}",
            self.mask
        );
        let model = Model::from_text("g", &text)?;
        let explained = explain(&model, &opt::Options::default(), &profile)?;
        for s in [333, 4096] {
            let dims: DimValues = [("S", s)].into_iter().collect();
            let reckoned = explained.clone().at(&dims)?.report.tiles.remove(0);
            self.at(&gpu, &explained.compiled.plan, s as usize, &reckoned)
                .map_err(|e| format!("at {s}: {}", e.message().unwrap_or_default()))?;
        }
        Ok(())
    }

    fn at(&self, gpu: &Gpu, plan: &Plan, s: usize, reckoned: &Tiles) -> Outcome {
        let ids = (self.ids)(s);
        let visits = self.run(gpu, &counting(plan)?, s, &ids, true)?;
        let block = reckoned.tile as usize;
        // A count times a sum of weights that are 1 but for rounding.
        let rows = visits.chunks(COLUMNS).map(|row| f64::from(row[0].round()));
        let by_row: Vec<f64> = rows.collect();
        let by_tile: Vec<f64> = by_row.chunks(block).map(|rows| rows[0]).collect();
        for (rows, &one) in by_row.chunks(block).zip(&by_tile) {
            ensure(rows.iter().all(|&n| n == one), || {
                format!("rows of a tile differ: {rows:?}")
            })?;
        }
        let (visited, all) = (by_tile.iter().sum::<f64>(), s.div_ceil(block).pow(2) as f64);
        if reckoned.by_data == 0 {
            let left = (reckoned.full + reckoned.partial) as f64;
            check_eq("tiles visited, and reckoned", left, visited)?;
        }
        if s == 4096 {
            let share = visited / all;
            eprintln!("{}: {:.1} % of {all} tiles", self.name, 100.0 * share);
            ensure(share <= self.most, || {
                format!("{share} of the tiles are visited")
            })?;
        }
        let (found, dense) = (
            self.run(gpu, plan, s, &ids, false)?,
            self.run(gpu, &dense(plan)?, s, &ids, false)?,
        );
        let off = found
            .iter()
            .zip(&dense)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        ensure(off <= 1e-6, || format!("off by {off} from the dense run"))
    }

    fn run(
        &self,
        gpu: &Gpu,
        plan: &Plan,
        s: usize,
        ids: &[i32],
        ones: bool,
    ) -> Result<Vec<f32>, Failed> {
        let random = |seed: usize| -> Vec<f32> {
            let hash = |i: usize| (i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            (0..s * COLUMNS)
                .map(|i| hash(i) as f32 / (1 << 23) as f32 - 1.0)
                .collect()
        };
        let v = if ones {
            vec![1.0; s * COLUMNS]
        } else {
            random(3)
        };
        let shape = [1, 1, s, COLUMNS];
        let mut inputs = Vec::new();
        let (q, k) = (random(1), random(2));
        for (name, data) in [("q", &q), ("k", &k), ("v", &v)] {
            let tensor = HostTensorRef {
                dtype: DType::F32,
                shape: &shape,
                bytes: bytemuck::cast_slice(data),
            };
            inputs.push((name, tensor));
        }
        let ids_shape = [s];
        let ids = HostTensorRef {
            dtype: DType::I32,
            shape: &ids_shape,
            bytes: bytemuck::cast_slice(ids),
        };
        inputs.push(("ids", ids));
        let mut runner = Runner::new(&gpu.device, &gpu.queue, plan, &())?;
        let outputs = runner.run(&inputs)?;
        Ok(bytemuck::cast_slice(&outputs[0].bytes).to_vec())
    }
}

/// The plan with lines of its attention kernel changed; each must be there once.
fn changed(plan: &Plan, changes: &[(&str, &str)]) -> Result<Plan, Failed> {
    let mut plan = plan.clone();
    let kernel = plan
        .kernels
        .iter_mut()
        .find(|k| k.name.starts_with("flash_attention"));
    let kernel = kernel.ok_or("no attention kernel")?;
    for (line, by) in changes {
        check_eq(line, 1, kernel.wgsl.matches(line).count())?;
        kernel.wgsl = kernel.wgsl.replace(line, by);
    }
    Ok(plan)
}

fn counting(plan: &Plan) -> Result<Plan, Failed> {
    changed(
        plan,
        &[
            ("var skips = true;", "var skips = true; var visits = 0u;"),
            ("let full = block_all(", "visits++; let full = block_all("),
            (
                "let factor = rows_end(",
                "let factor = f32(visits) * rows_end(",
            ),
        ],
    )
}

fn dense(plan: &Plan) -> Result<Plan, Failed> {
    changed(plan, &[("var skips = true;", "var skips = false;")])
}
