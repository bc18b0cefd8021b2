//! No table of queries by keys in the plans of the exports whose lengths are known at run time only: biases come
//! from what they are computed of (T5's `[buckets, heads]`, Swin's index table, ALiBi's slopes, DeBERTa's
//! products with positions), masks from lengths and vectors.
//!
//! Where a model gives its probabilities as a result, they are a table, and a remark says so.

use super::scores::{held, lengths};
use crate::support::{Outcome, absent, check_eq, ensure, material, trial};
use attnc::opt::{Options, RemarkKind};
use attnc::plan::{DeviceProfile, Plan};
use attnc::{Model, compile};
use libtest_mimic::Trial;
use serde::Deserialize;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Case {
    case: String,
    exporter: String,
    attention: Option<usize>,
}

pub(super) fn trials() -> Vec<Trial> {
    let Some(folder) = material("exports") else {
        let why = "no ../shared/cases/exports beside the workspace";
        return vec![absent("models/exports without tables", why)];
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    let of_run_time_lengths = folders.into_iter().filter_map(|folder| {
        let text = std::fs::read_to_string(folder.join("case.json")).ok()?;
        let case: Case = serde_json::from_str(&text).ok()?;
        let dynamic = case.exporter.ends_with("ds") || case.exporter.ends_with("dyn");
        let fuses = case.attention.is_some() && !case.case.starts_with("hand_");
        // Complex numbers by a bug of the exporter: another trial sees that they are refused.
        let broken = case.case == "falcon_alibi" && case.exporter.starts_with("ts17");
        (dynamic && fuses && !broken).then_some((folder, case))
    });
    let trials = of_run_time_lengths.map(|(folder, case)| {
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        trial(format!("models/exports/{name} no tables"), &[], move || {
            check(&folder, &case)
        })
    });
    trials.collect()
}

fn check(folder: &Path, case: &Case) -> Outcome {
    let model = Model::open(folder.join("model.onnx"))?;
    let optimised = compile::optimise(&model.graph, &Options::default())?;
    // What does not fuse has no axes to look for, and would pass.
    let fused = Some(optimised.attention.fused);
    check_eq("attention fused", case.attention, fused)?;
    let plan = compile::lower(&optimised.graph, &DeviceProfile::webgpu())?.plan;
    // A window of 16 places is as long as a row of 16 features: only lengths of run time tell the two apart.
    let mut axes = lengths(&optimised.graph);
    axes.retain(|(m, n)| m.as_const().is_none() || n.as_const().is_none());
    let tables = held(&plan, &axes);
    let given = model.outputs.iter().any(|port| {
        let axis = |d| port.shape.iter().filter(|s| *s == d).count();
        axes.iter().any(|(m, n)| {
            if m == n {
                axis(m) > 1
            } else {
                axis(m) * axis(n) > 0
            }
        })
    });
    let said = optimised
        .remarks
        .iter()
        .any(|r| r.kind == RemarkKind::Note && r.message.contains("a table of queries by keys"));
    ensure(said == given, || {
        format!("gives tables: {given}, remarks say so: {said}")
    })?;
    ensure(tables.is_empty() || given, || {
        format!("tables: {}", tables.join(", "))
    })?;
    if case.case == "t5" {
        return buckets_in_the_shader(&plan);
    }
    Ok(())
}

/// The distance of query and key, its logarithm and the lookup of its bucket are part of the attention.
fn buckets_in_the_shader(plan: &Plan) -> Outcome {
    let attention = plan
        .kernels
        .iter()
        .filter(|k| k.name.starts_with("flash_attention"));
    let computes = attention.filter(|k| k.wgsl.contains("log(")).count();
    ensure(computes >= 2, || {
        format!("{computes} kernels compute buckets, of encoder and decoder")
    })
}
