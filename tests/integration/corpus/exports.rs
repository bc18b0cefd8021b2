//! Small models of real architectures, as people export them, each with the result of the model in double
//! precision.

use super::Gear;
use super::known;
use super::verdict::{Judged, Place, Verdict, settle};
use crate::forced::by_each_shape;
use crate::support::{Outcome, absent, agree, material, on_both, session};
use attnc::{Error, Model, npz};
use libtest_mimic::Trial;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// `case.json` of an export.
#[derive(Deserialize, Clone)]
pub(super) struct Case {
    /// The architecture.
    pub(super) case: String,
    pub(super) exporter: String,
    status: String,
    /// Attention in the file; `None` where judgement is part of the case.
    pub(super) attention: Option<usize>,
    /// How far onnxruntime is off, relative to the range.
    reference_error: Option<f64>,
}

/// An export and its folder.
#[derive(Clone)]
pub(super) struct Export {
    pub(super) folder: PathBuf,
    pub(super) case: Case,
}

impl Export {
    /// `bert_dyn18_eager`.
    pub(super) fn name(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    pub(super) fn model(&self) -> PathBuf {
        self.folder.join("model.onnx")
    }

    /// Whether batch size and length are left open.
    pub(super) fn is_dynamic(&self) -> bool {
        self.case.exporter.ends_with("ds") || self.case.exporter == "ts17dyn"
    }

    /// Error allowed relative to the range of an output.
    pub(super) fn tolerance(&self) -> f64 {
        let least = if self.case.status.contains("F16") {
            5e-3
        } else {
            1e-4
        };
        f64::max(least, 2.0 * self.case.reference_error.unwrap_or(0.0))
    }
}

/// The exports a gear takes. The quick one takes one of each case, and from case to case another exporter.
pub(super) fn chosen(gear: Gear, which: impl Fn(&Export) -> bool) -> Vec<Export> {
    let mut cases: BTreeMap<String, Vec<Export>> = BTreeMap::new();
    for export in all().into_iter().filter(which) {
        let case = export.case.case.clone();
        cases.entry(case).or_default().push(export);
    }
    let cases = cases.into_values().enumerate();
    let taken = cases.flat_map(|(at, exports)| match gear {
        Gear::Full => exports,
        Gear::Quick => vec![exports[at % exports.len()].clone()],
    });
    taken.collect()
}

/// Every export, by name.
fn all() -> Vec<Export> {
    let Some(folder) = material("exports") else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    let read = |folder: PathBuf| {
        let text = std::fs::read_to_string(folder.join("case.json")).ok()?;
        let case = serde_json::from_str(&text).ok()?;
        Some(Export { folder, case })
    };
    folders.into_iter().filter_map(read).collect()
}

pub(super) fn trials(gear: Gear) -> Vec<Trial> {
    let exports = chosen(gear, |_| true);
    if exports.is_empty() {
        let why = "no ../shared/cases/exports beside the workspace";
        return vec![absent("corpus/exports", why)];
    }
    let trials = exports.into_iter().flat_map(|export| {
        let name = format!("corpus/exports/{}", export.name());
        let mut trials = Vec::new();
        // Some hundred pipelines a shape: not in every run.
        if gear == Gear::Full && export.case.attention.is_some_and(|n| n > 0) {
            let export = export.clone();
            let shaped = by_each_shape(&name, "gpu", move |site| runs_in_shape(&export, site));
            trials.push(shaped);
        }
        trials.extend(on_both(&name, &[], move |backend| runs(&export, backend)));
        trials
    });
    trials.collect()
}

fn runs(export: &Export, backend: &'static str) -> Outcome {
    let place = Place {
        family: format!("exports/{}", export.case.case),
        name: format!("exports/{}", export.name()),
        backend,
        there: export.case.attention,
    };
    let judged = judge(export, backend).unwrap_or_else(|error| Judged::error(&error));
    settle(&place, judged)
}

fn runs_in_shape(export: &Export, site: &str) -> Outcome {
    let judged = judge(export, site);
    let known = known::expected(&format!("exports/{}", export.name()), "gpu");
    if let (Err(error), Some(known)) = (&judged, known) {
        return known::refused(&Verdict::of_error(error), known);
    }
    match judged?.verdict {
        Verdict::Right => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

fn judge(export: &Export, backend: &str) -> Result<Judged, Error> {
    let file = |name: &str| npz::read(&Path::new(&export.folder).join(name));
    let model = Model::open(export.model())?;
    let mut session = session(&model, backend)?;
    let found = session.run(&file("inputs.npz")?)?;
    let expected = file("expected.npz")?;
    let comparison = agree(
        "the inputs of the case",
        &expected,
        &found,
        export.tolerance(),
    );
    Ok(Judged {
        verdict: Verdict::of_comparison(comparison),
        attention: session.attention().cloned(),
    })
}
