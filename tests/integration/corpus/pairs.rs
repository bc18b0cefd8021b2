//! An attention operator of a node test, and the same written out in primitive operators, are one meaning:
//! both become one fused attention with the same kernel.

use super::known;
use super::node::{folders, name_of};
use super::verdict::Verdict;
use crate::support::{Outcome, check_eq, ensure, trial};
use attnc::explain::explain;
use attnc::plan::DeviceProfile;
use attnc::{Model, opt};
use libtest_mimic::Trial;
use std::path::{Path, PathBuf};

/// Pairs whose kernels differ, each with the reason why that is so.
const DIFFER: &[(&str, &str)] = &[];

pub(super) fn trials() -> Vec<Trial> {
    let Ok(folders) = folders() else {
        return Vec::new();
    };
    let twin = |folder: &PathBuf| {
        let name = name_of(folder);
        let is_attention = name.starts_with("test_attention") || name.starts_with("test_flex");
        let names = ["_expanded", "_expanded_ver26"].map(|end| format!("{name}{end}"));
        let twins = names.map(|name| folder.with_file_name(name));
        let twin = twins.into_iter().find(|twin| twin.is_dir());
        twin.filter(|_| is_attention)
    };
    let pairs = folders.iter().filter_map(|f| Some((f.clone(), twin(f)?)));
    let trials = pairs.map(|(operator, expanded)| {
        let name = format!("corpus/pairs/{}", name_of(&operator));
        trial(name, &[], move || same_kernel(&operator, &expanded))
    });
    trials.collect()
}

fn same_kernel(operator: &Path, expanded: &Path) -> Outcome {
    let name = name_of(operator);
    let (one, other) = (attention_of(operator), attention_of(expanded));
    if let (Err(error), Some(known)) = (&one, known::expected(&format!("node/{name}"), "gpu")) {
        return known::refused(&Verdict::of_error(error), known);
    }
    let (one, other) = (one?, other?);
    check_eq("kernels of the operator", 1, one.len())?;
    let differs = DIFFER.iter().find(|(listed, _)| *listed == name);
    match differs {
        None => check_eq("the kernel of the expanded twin", one, other),
        Some((_, why)) => ensure(one != other, || {
            format!("they are the same now: delete the exception ({why})")
        }),
    }
}

/// The attention kernels of the plan; all attention must be in them.
fn attention_of(folder: &Path) -> Result<Vec<String>, attnc::Error> {
    let model = Model::open(folder.join("model.onnx"))?;
    let explained = explain(&model, &opt::Options::default(), &DeviceProfile::webgpu())?;
    attnc::require_fused(&explained.optimised.attention)?;
    let kernels = explained.report.kernels.into_iter();
    let attention = kernels.filter(|k| k.name.contains("attention"));
    Ok(attention
        .flat_map(|k| std::iter::repeat_n(k.name, k.uses))
        .collect())
}
