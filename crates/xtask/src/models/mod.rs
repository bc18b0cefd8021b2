//! `cargo xtask models`: the small models of `tests/models`, in the idioms of real exporters.
//!
//! Each is a real architecture at toy size (2 layers, 4 heads of 8, hidden 32) with weights drawn
//! so that attention is peaked: a dropped mask, scale or bias moves the result far. The files are
//! committed, since tests and the README use them; a test compares them with what this writes,
//! byte for byte.
//!
//! | file | exporter | idiom |
//! | --- | --- | --- |
//! | `bert_tiny` | TorchScript, opset 17 | shape chains, additive mask of -3.4e38, division by √d |
//! | `distilbert_tiny` | dynamo, opset 18 | boolean mask by GatherND, -inf fill, √scale on q and k |
//! | `gpt2_tiny` | dynamo, opset 18 | Gemm, Split, tanh GELU, causal and padding mask in one |
//! | `gpt2_opset23_tiny` | dynamo, opset 23 | the `Attention` operator |
//! | `vit_tiny` | dynamo, opset 18 | patch embedding by Conv, class token, a mask of all true |
//!
//! The writer of `bert_tiny` also writes all-MiniLM-L6-v2 at its full size, over the weights that
//! `cargo xtask fetch` brings; that file is not committed.

mod bert;
mod blocks;
mod distilbert;
mod gpt2;
mod npz;
mod stored;
mod vit;
mod weights;
mod writer;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::workspace;
use npz::Array;

/// Features of a token.
const HIDDEN: i64 = 32;
/// Attention heads.
const HEADS: i64 = 4;
/// Features of a head.
const HEAD_DIM: i64 = 8;
/// Features inside the feed-forward block.
const FFN: i64 = 48;
/// Distinct tokens.
const VOCAB: i64 = 96;
/// Longest sequence.
const POSITIONS: i64 = 64;
/// Transformer layers.
const LAYERS: usize = 2;

/// A model file and inputs to run it with.
struct Model {
    name: &'static str,
    onnx: Vec<u8>,
    inputs: Vec<(&'static str, Array)>,
}

/// An attention mask `[lengths, seq]`: ones for tokens, zeros for padding on the right.
fn padded_right(seq: usize, lengths: &[usize]) -> Vec<i64> {
    lengths
        .iter()
        .flat_map(|&length| (0..seq).map(move |position| i64::from(position < length)))
        .collect()
}

fn all() -> Vec<Model> {
    vec![
        bert::bert_tiny(),
        distilbert::distilbert_tiny(),
        gpt2::gpt2_tiny(),
        gpt2::gpt2_opset23_tiny(),
        vit::vit_tiny(),
    ]
}

/// Every file's name and bytes.
fn files() -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for model in all() {
        files.push((
            format!("{}.inputs.npz", model.name),
            npz::bytes(&model.inputs)?,
        ));
        files.push((format!("{}.onnx", model.name), model.onnx));
    }
    Ok(files)
}

fn folder() -> PathBuf {
    workspace::root().join("tests/models")
}

/// Writes the files.
pub(crate) fn run() -> Result<bool> {
    let folder = folder();
    fs::create_dir_all(&folder)?;
    for (name, bytes) in files()? {
        let path = folder.join(&name);
        fs::write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
        println!("tests/models/{name}: {} bytes", bytes.len());
    }
    Ok(true)
}

/// Writes `minilm.onnx` beside the published weights: the tests' real model, which holds none itself.
pub(crate) fn write_minilm(folder: &Path) -> Result<()> {
    let onnx = bert::minilm(&folder.join(stored::FILE))?;
    let path = folder.join("minilm.onnx");
    if !fs::read(&path).is_ok_and(|found| found == onnx) {
        fs::write(&path, onnx).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_files_are_what_this_writes() {
        let mut stale = Vec::new();
        for (name, bytes) in files().unwrap() {
            if !fs::read(folder().join(&name)).is_ok_and(|found| found == bytes) {
                stale.push(name);
            }
        }
        assert!(
            stale.is_empty(),
            "run `cargo xtask models`: {stale:?} differ"
        );
    }

    #[test]
    fn two_runs_give_the_same_bytes() {
        assert!(files().unwrap() == files().unwrap());
    }
}
