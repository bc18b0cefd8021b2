//! The node tests of ONNX for what touches attention.
//!
//! They are read from beside the workspace, or, where that is not there, from the pinned `onnx` package
//! that `cargo xtask fetch` brings, which has most of them.

use super::known;
use super::verdict::{Judged, Place, Verdict, settle};
use crate::forced::by_each_shape;
use crate::support::{Need, Outcome, material, on_both, session, trial, workspace};
use attnc::sources::{self, Role, Source};
use attnc::{Error, HostDType, HostTensor, Model, Tensors};
use libtest_mimic::Trial;
use std::path::{Path, PathBuf};

/// The tolerance of ONNX's own runner, where a test states no other.
const RTOL: f64 = 1e-3;
const ATOL: f64 = 1e-7;
/// Two units in the last place of bfloat16, which that runner allows whatever a test states.
const BF16_RTOL: f64 = 1.0 / 64.0;

/// Where the node tests are, by name; the folder that is missing where there are none.
pub(super) fn folders() -> Result<Vec<PathBuf>, PathBuf> {
    let fetched = workspace().join("target/fetch/onnx-node");
    let folder = material("onnx-node").unwrap_or_else(|| fetched.clone());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_test = |path: &PathBuf| path.join("model.onnx").is_file();
    let mut found: Vec<PathBuf> = entries.map(|e| e.path()).filter(is_test).collect();
    found.sort();
    if found.is_empty() {
        Err(fetched)
    } else {
        Ok(found)
    }
}

/// The last part of the path.
pub(super) fn name_of(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

pub(super) fn trials() -> Vec<Trial> {
    let folders = match folders() {
        Ok(folders) => folders,
        Err(missing) => {
            let need = [Need::Fetched(missing)];
            return vec![trial("corpus/node", &need, || Ok(()))];
        }
    };
    let trials = folders.into_iter().flat_map(|folder| {
        let name = format!("corpus/node/{}", name_of(&folder));
        let mut trials = Vec::new();
        if has_shapes(&folder) {
            let folder = folder.clone();
            let shaped = by_each_shape(&name, "gpu", move |site| runs_in_shape(&folder, site));
            trials.push(shaped);
        }
        trials.extend(on_both(&name, &[], move |backend| runs(&folder, backend)));
        trials
    });
    trials.collect()
}

/// Whether it is of an operation whose kernels have shapes, and not refused.
fn has_shapes(folder: &Path) -> bool {
    let name = name_of(folder);
    let operation = name.trim_start_matches("test_");
    let shaped = ["attention", "flexattention", "matmul", "gemm"];
    let known = known::expected(&format!("node/{name}"), "gpu");
    shaped.iter().any(|of| operation.starts_with(of)) && known.is_none()
}

fn runs_in_shape(folder: &Path, site: &str) -> Outcome {
    match judge(folder, site)?.verdict {
        Verdict::Right => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

fn runs(folder: &Path, backend: &'static str) -> Outcome {
    let name = name_of(folder);
    let place = Place {
        family: format!("node/{}", family(&name)),
        name: format!("node/{name}"),
        backend,
        there: None,
    };
    let judged = judge(folder, backend).unwrap_or_else(|error| Judged::error(&error));
    settle(&place, judged)
}

/// The words of a test's name up to the first that only tells it from its siblings.
fn family(name: &str) -> String {
    const FAMILIES: [&str; 19] = [
        "attention",
        "causal_conv",
        "einsum",
        "flexattention",
        "gelu",
        "gemm",
        "group_normalization",
        "hardswish",
        "layer_normalization",
        "linear_attention",
        "logsoftmax",
        "matmulinteger",
        "matmul",
        "qlinearmatmul",
        "rms_normalization",
        "rotary_embedding",
        "softmax",
        "swish",
        "tensorscatter",
    ];
    let name = name.trim_start_matches("test_");
    let known = FAMILIES.into_iter().find(|f| name.starts_with(f));
    let first = name.split('_').next().unwrap_or_default();
    let expanded = if name.contains("_expanded") {
        " expanded"
    } else {
        ""
    };
    format!("{}{expanded}", known.unwrap_or(first))
}

fn judge(folder: &Path, backend: &str) -> Result<Judged, Error> {
    let data = [Source::Folder(folder.join("test_data_set_0"))];
    let model = Model::open(folder.join("model.onnx"))?;
    let mut session = session(&model, backend)?;
    let inputs = sources::read(&data, Role::Input, &model.inputs)?;
    let found = session.run(&inputs)?;
    let expected = sources::read(&data, Role::Output, &model.outputs)?;
    let verdict = match difference(&expected, &found, tolerance(folder)) {
        None => Verdict::Right,
        Some(what) => Verdict::Wrong(what),
    };
    Ok(Judged {
        verdict,
        attention: session.attention().cloned(),
    })
}

/// `rtol` and `atol` of a test.
fn tolerance(folder: &Path) -> (f64, f64) {
    let text = std::fs::read_to_string(folder.join("tol.txt")).unwrap_or_default();
    let stated = |name: &str| {
        let mut words = text.split_whitespace();
        words.find_map(|w| w.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
    };
    (
        stated("rtol").unwrap_or(RTOL),
        stated("atol").unwrap_or(ATOL),
    )
}

/// The first element that is off by more than `atol + rtol × |expected|`, as ONNX's runner compares.
fn difference(expected: &Tensors, found: &Tensors, (rtol, atol): (f64, f64)) -> Option<String> {
    if expected.is_empty() || expected.len() != found.len() {
        let (want, have) = (expected.len(), found.len());
        return Some(format!("{want} outputs are expected, found {have}"));
    }
    expected.iter().find_map(|(name, want)| {
        let Some(have) = found.get(name) else {
            return Some(format!("no output is named `{name}`"));
        };
        let rtol = match want.dtype() {
            HostDType::BF16 => f64::max(rtol, BF16_RTOL),
            _ => rtol,
        };
        if want.ty() != have.ty() {
            let (want, have) = (want.type_text(), have.type_text());
            return Some(format!("`{name}` is {have}, {want} is expected"));
        }
        first_off(want, have, rtol, atol).map(|what| format!("`{name}`{what}"))
    })
}

fn first_off(want: &HostTensor, have: &HostTensor, rtol: f64, atol: f64) -> Option<String> {
    let close = |want: f64, have: f64| {
        let both_nan = want.is_nan() && have.is_nan();
        both_nan || want == have || (want - have).abs() <= atol + rtol * want.abs()
    };
    let mut pairs = want.values().zip(have.values());
    let at = pairs.position(|(want, have)| !close(want.to_f64(), have.to_f64()))?;
    let (index, want, have) = (want.index_of(at), want.value(at), have.value(at));
    Some(format!("{index:?} is {have}, {want} is expected"))
}
