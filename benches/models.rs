//! The models that benches run on.
//!
//! The small ones are part of the repository. MiniLM's weights are fetched (`cargo xtask fetch`) and its
//! export names them by the file beside it, so the two are brought together in one folder under `target`.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The models that are here, and a sentence for each that is not.
#[derive(Debug, Default)]
pub struct Found {
    /// Model files that can be opened.
    pub models: Vec<PathBuf>,
    /// What is skipped and what it would need.
    pub skipped: Vec<String>,
}

/// BERT with two narrow layers.
const TINY: &str = "tests/models/bert_tiny.onnx";
/// An export of MiniLM without its weights.
const MINILM: &str = "../shared/cases/models/minilm/minilm_ts17_eager.onnx";
/// Its weights: 91 MB in f32.
const MINILM_WEIGHTS: &str = "target/fetch/minilm/model.safetensors";

/// Looks for the models.
#[must_use]
pub fn found() -> Found {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Found::default();
    let tiny = root.join(TINY);
    if tiny.exists() {
        found.models.push(tiny);
    } else {
        found
            .skipped
            .push(format!("{TINY} is missing; `cargo xtask models` writes it"));
    }
    match minilm(&root) {
        Ok(model) => found.models.push(model),
        Err(why) => found.skipped.push(why),
    }
    found
}

fn minilm(root: &Path) -> Result<PathBuf, String> {
    let (export, weights) = (root.join(MINILM), root.join(MINILM_WEIGHTS));
    if !export.exists() {
        return Err("MiniLM is skipped: its export is not beside the repository".to_owned());
    }
    if !weights.exists() {
        return Err(format!(
            "MiniLM is skipped: {MINILM_WEIGHTS} is missing; `cargo xtask fetch` brings it"
        ));
    }
    bring_together(&root.join("target/bench/minilm"), &export, &weights).map_err(|error| {
        format!("MiniLM is skipped: its files cannot be brought together: {error}")
    })
}

fn bring_together(folder: &Path, export: &Path, weights: &Path) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let placed = |from: &Path| folder.join(from.file_name().unwrap_or_default());
    let (model, data) = (placed(export), placed(weights));
    fs::copy(export, &model)?;
    let length = |path: &Path| path.metadata().map(|m| m.len()).ok();
    if length(&data) != length(weights) {
        // A link costs nothing where the file system has them.
        fs::hard_link(weights, &data).or_else(|_| fs::copy(weights, &data).map(drop))?;
    }
    Ok(model)
}
