//! Exports of BERT, DistilBERT, GPT-2 and ViT by both exporters of PyTorch, where they are at hand.

use super::{all_fused, same_twice, scores};
use crate::support::{Outcome, absent, agree, material, on_both, session, trial};
use attnc::{Model, npz};
use libtest_mimic::Trial;
use serde::Deserialize;
use std::path::{Path, PathBuf};

const CASES: [&str; 5] = ["bert", "distilbert", "gpt2", "gpt2_nomask", "vit"];

#[derive(Deserialize)]
struct Case {
    case: String,
    attention: Option<usize>,
    reference_error: Option<f64>,
}

pub(super) fn trials() -> Vec<Trial> {
    let Some(folder) = material("exports") else {
        let why = "no ../shared/cases/exports beside the workspace";
        return vec![absent("models/exports", why)];
    };
    let mut folders: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    folders.sort();
    let mut trials = Vec::new();
    for folder in folders {
        let Ok(case) = read(&folder) else { continue };
        if !CASES.contains(&case.case.as_str()) {
            continue;
        }
        let name = format!(
            "models/exports/{}",
            folder.file_name().unwrap_or_default().to_string_lossy()
        );
        let given = folder.clone();
        trials.extend(on_both(&name, &[], move |backend| runs(&given, backend)));
        let model = folder.join("model.onnx");
        trials.push(trial(format!("{name} no scores in memory"), &[], {
            let model = model.clone();
            move || scores::none_in_memory(&model)
        }));
        trials.push(trial(format!("{name} same bytes twice"), &[], move || {
            same_twice(&model)
        }));
    }
    trials
}

fn read(folder: &Path) -> Result<Case, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(folder.join("case.json"))?;
    Ok(serde_json::from_str(&text)?)
}

fn runs(folder: &Path, backend: &'static str) -> Outcome {
    let case = read(folder)?;
    let model = Model::open(folder.join("model.onnx"))?;
    let mut session = session(&model, backend)?;
    let attention = case.attention.ok_or("the case says how many to find")?;
    all_fused(session.attention().expect("a model says"), attention)?;
    let found = session.run(&npz::read(&folder.join("inputs.npz"))?)?;
    let expected = npz::read(&folder.join("expected.npz"))?;
    let tolerance = f64::max(1e-4, 2.0 * case.reference_error.unwrap_or(0.0));
    agree("the inputs of the case", &expected, &found, tolerance)
}
