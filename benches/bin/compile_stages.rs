//! `compile-stages RUNS`: compiles each model RUNS times, and prints how long the stages took as JSON.
//!
//! `cargo xtask bench` runs it, and makes a table of what it prints: this is the half that knows attnc.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line talks to its user"
)]

use attnc_benches::{models, stages};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Serialize)]
struct Report {
    models: Vec<ModelTimes>,
    skipped: Vec<String>,
}

/// Milliseconds of each run, in order.
#[derive(Default, Serialize)]
struct ModelTimes {
    file: PathBuf,
    import: Vec<f64>,
    optimise: Vec<f64>,
    lower: Vec<f64>,
}

fn main() -> ExitCode {
    let runs = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let Some(runs) = runs else {
        eprintln!("usage: compile-stages RUNS");
        return ExitCode::from(2);
    };
    let found = models::found();
    let models = found.models.iter().map(|file| measure(file, runs));
    match models.collect::<Result<Vec<_>, _>>() {
        Ok(models) => {
            let report = Report {
                models,
                skipped: found.skipped,
            };
            println!("{}", serde_json::json!(report));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(file: &Path, runs: u32) -> Result<ModelTimes, attnc::Error> {
    let milliseconds = |time: Duration| 1e3 * time.as_secs_f64();
    let mut out = ModelTimes {
        file: file.to_owned(),
        ..ModelTimes::default()
    };
    for _ in 0..runs {
        let times = stages::measure(file)?;
        out.import.push(milliseconds(times.import));
        out.optimise.push(milliseconds(times.optimise));
        out.lower.push(milliseconds(times.lower));
    }
    Ok(out)
}
