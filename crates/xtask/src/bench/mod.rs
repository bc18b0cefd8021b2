//! `cargo xtask bench [compile | kernels]`: what attnc takes, beside the peers that are installed.
//!
//! * [`compile`]: from file to plan, by stage;
//! * [`kernels`]: attention, matmul and a model by shape, against the peaks of the adapter.
//!
//! Nothing of this is built or run by `cargo xtask test`. `docs/benchmarks.md` says what the tables show.

mod compile;
mod kernels;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use serde_json::{Map, Value};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    part: Option<Part>,
    /// Also write the figures here, as JSON
    #[arg(long, value_name = "FILE", global = true)]
    json: Option<PathBuf>,
    /// The Python that may have onnxruntime and torch
    #[arg(long, value_name = "PATH", default_value = "python3", global = true)]
    python: PathBuf,
}

#[derive(Subcommand)]
enum Part {
    /// From file to plan, by stage
    Compile,
    /// Attention, matmul and a model, by shape
    Kernels(kernels::Options),
}

/// Measures everything, or one part; whether every result of attnc was right.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let (mut figures, mut right) = (Map::new(), true);
    if matches!(options.part, None | Some(Part::Compile)) {
        let report = compile::run(&options.python)?;
        figures.insert("compile".to_owned(), report);
    }
    let kernels = match &options.part {
        None => Some(&kernels::Options::default()),
        Some(Part::Kernels(kernels)) => Some(kernels),
        Some(Part::Compile) => None,
    };
    if let Some(kernels) = kernels {
        let (report, good) = kernels::run(kernels, &options.python)?;
        figures.insert("kernels".to_owned(), report);
        right = good;
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&Value::Object(figures))? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(right)
}
