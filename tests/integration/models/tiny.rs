//! The models of `tests/models`: every exporter's idiom at toy size.

use super::{Check, all_fused, made_inputs, rewrites, same_twice, scores};
use crate::support::{
    Need, Outcome, agree, check_eq, ensure, files, on_both, session, stem, trial, workspace,
};
use attnc::plan::{DeviceProfile, DimValues};
use attnc::{Model, explain, npz, opt, oracle};
use libtest_mimic::Trial;
use std::path::{Path, PathBuf};

/// What differs between f32 and f64 in two layers; a dropped mask or scale is off by tenths.
const TOLERANCE: f64 = 1e-5;
/// Each has two layers.
const ATTENTION: usize = 2;

pub(super) fn trials() -> Vec<Trial> {
    let models = files(&workspace().join("tests/models"), "onnx");
    let mut trials = vec![trial("models/tiny are there", &[], {
        let names: Vec<_> = models.iter().map(|path| stem(path)).collect();
        move || ensure(names.len() >= 5, || format!("only {names:?}"))
    })];
    for path in models {
        let name = format!("models/{}", stem(&path));
        let given = path.clone();
        trials.extend(on_both(&name, &[], move |backend| runs(&given, backend)));
        let checks: [Check; 4] = [
            ("explained", explained),
            ("same bytes twice", same_twice),
            ("no scores in memory", scores::none_in_memory),
            ("after every pass", rewrites::agree_after_every_pass),
        ];
        for (what, check) in checks {
            let path: PathBuf = path.clone();
            trials.push(trial(
                format!("{name} {what}"),
                &[Need::Nothing],
                move || check(&path),
            ));
        }
    }
    trials
}

/// The shipped inputs, then a single short sequence, then a longer batch: one compile for all.
fn runs(path: &Path, backend: &'static str) -> Outcome {
    let model = Model::open(path)?;
    let mut session = session(&model, backend)?;
    let report = session.attention().expect("a model says");
    all_fused(report, ATTENTION)?;
    let shipped = npz::read(&path.with_extension("inputs.npz"))?;
    let mut pipelines = None;
    for (at, inputs) in [
        ("shipped inputs", shipped),
        ("1 × 1", made_inputs(&model, (1, 1), 1)?),
        ("3 × 29", made_inputs(&model, (3, 29), 2)?),
    ] {
        let expected = oracle::run(&model, &inputs, &DimValues::default())?;
        agree(at, &expected, &session.run(&inputs)?, TOLERANCE)?;
        let made = session.stats().pipelines_created;
        check_eq(
            "pipelines at a second length",
            *pipelines.get_or_insert(made),
            made,
        )?;
    }
    ensure((pipelines > Some(0)) == (backend == "gpu"), || {
        format!("{pipelines:?} pipelines on {backend}")
    })
}

/// The report, as JSON, says what the passes did and what the plan holds.
fn explained(path: &Path) -> Outcome {
    let model = Model::open(path)?;
    let explained = explain::explain(&model, &opt::Options::default(), &DeviceProfile::webgpu())?;
    let json = serde_json::to_value(&explained.report)?;
    let attention = serde_json::json!({"found": ATTENTION, "fused": ATTENTION, "declined": []});
    check_eq("attention", &attention, &json["attention"])?;
    let kernels = json["kernels"].as_array().ok_or("no kernels")?;
    let uses = |of: &str| -> u64 {
        let named = kernels
            .iter()
            .filter(|k| k["name"].as_str().is_some_and(|name| name.contains(of)));
        named.filter_map(|k| k["uses"].as_u64()).sum()
    };
    check_eq("uses of attention kernels", 2, uses("flash_attention"))?;
    check_eq("steps", json["steps"].as_u64(), Some(uses("")))?;
    let fused = json["remarks"].as_array().ok_or("no remarks")?.iter();
    let fused = fused.filter(|r| r["pass"] == "fuse-attention" && r["kind"] == "fused");
    check_eq("remarks of fused attention", ATTENTION, fused.count())
}
