//! `cargo xtask bench compile`: one table of compile times by stage, beside onnxruntime's on the same files.
//!
//! Both compilers are measured in turns of a few runs, so that what else the machine does meets both.
//! attnc's turn is the `compile-stages` program of `benches/`, in a release build; onnxruntime's creates a
//! session with default options, which is what it does before it can run a model. Where Python or
//! onnxruntime is missing, the table goes without.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::workspace;

const RUNS_PER_TURN: u32 = 5;
/// Of each compiler.
const TURNS: u32 = 4;

/// Creates a session RUNS times for each file, and prints the milliseconds as JSON, a list a file.
const ONNXRUNTIME: &str = r#"
import json, sys, time
import onnxruntime
runs, files = int(sys.argv[1]), sys.argv[2:]
def create(file):
    start = time.perf_counter()
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return 1e3 * (time.perf_counter() - start)
times = [[create(file) for _ in range(runs)] for file in files]
print(json.dumps({"version": onnxruntime.__version__, "times": times}))
"#;

/// What `compile-stages` prints.
#[derive(Deserialize)]
struct Stages {
    models: Vec<ModelTimes>,
    skipped: Vec<String>,
}

/// Milliseconds of single runs.
#[derive(Deserialize)]
struct ModelTimes {
    file: PathBuf,
    import: Vec<f64>,
    optimise: Vec<f64>,
    lower: Vec<f64>,
}

/// What [`ONNXRUNTIME`] prints.
#[derive(Deserialize)]
struct Sessions {
    version: String,
    times: Vec<Vec<f64>>,
}

/// A line of the table: medians in milliseconds.
#[derive(Serialize)]
struct Row {
    model: String,
    import_ms: f64,
    optimise_ms: f64,
    lower_ms: f64,
    /// From file to plan.
    whole_ms: f64,
    onnxruntime_session_ms: Option<f64>,
    /// `whole_ms` over `onnxruntime_session_ms`.
    ratio: Option<f64>,
}

#[derive(Serialize)]
struct Report {
    runs: u32,
    onnxruntime: Option<String>,
    compile: Vec<Row>,
}

/// Measures, prints the table, and gives the figures.
pub(super) fn run(python: &Path) -> Result<serde_json::Value> {
    let program = [
        "--release",
        "-p",
        "attnc-benches",
        "--bin",
        "compile-stages",
    ];
    let mut build = workspace::cargo(&["build", "--quiet"]);
    ensure!(
        workspace::run(build.args(program))?,
        "the benches do not build"
    );
    let (mut stages, mut sessions) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let turn = compile_stages(&program)?;
        if stages.is_empty() {
            turn.skipped.iter().for_each(|why| println!("{why}"));
        }
        let files: Vec<&Path> = turn.models.iter().map(|m| m.file.as_path()).collect();
        sessions.extend(onnxruntime(python, &files)?);
        stages.push(turn);
    }
    ensure!(!stages[0].models.is_empty(), "there is no model to measure");
    let report = report(TURNS * RUNS_PER_TURN, &stages, &sessions);
    print(&report, python);
    Ok(serde_json::to_value(&report)?)
}

/// One turn of attnc.
fn compile_stages(program: &[&str]) -> Result<Stages> {
    let mut command = workspace::cargo(&["run", "--quiet"]);
    command
        .args(program)
        .arg("--")
        .arg(RUNS_PER_TURN.to_string());
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("`{}` failed", workspace::shown(&command));
    }
    serde_json::from_slice(&output.stdout).context("compile-stages prints something else")
}

/// One turn of onnxruntime; `None` where this Python does not have it.
fn onnxruntime(python: &Path, files: &[&Path]) -> Result<Option<Sessions>> {
    let python = python.to_string_lossy();
    if !workspace::answers(&python, &["-c", "import onnxruntime"]) {
        return Ok(None);
    }
    let mut command = workspace::command(&python);
    command
        .args(["-c", ONNXRUNTIME])
        .arg(RUNS_PER_TURN.to_string());
    let output = command.args(files).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "onnxruntime failed on the models");
    let sessions = serde_json::from_slice(&output.stdout);
    Ok(Some(
        sessions.context("the onnxruntime script prints something else")?,
    ))
}

fn report(runs: u32, stages: &[Stages], sessions: &[Sessions]) -> Report {
    let rows = (0..stages[0].models.len()).map(|m| {
        let turns: Vec<&ModelTimes> = stages.iter().map(|s| &s.models[m]).collect();
        let stage = |of: fn(&ModelTimes) -> &Vec<f64>| {
            turns
                .iter()
                .flat_map(|t| of(t))
                .copied()
                .collect::<Vec<f64>>()
        };
        let (import, optimise, lower) = (
            stage(|t| &t.import),
            stage(|t| &t.optimise),
            stage(|t| &t.lower),
        );
        let whole = (0..import.len()).map(|run| import[run] + optimise[run] + lower[run]);
        let whole_ms = median(whole.collect());
        let session: Vec<f64> = sessions.iter().flat_map(|s| &s.times[m]).copied().collect();
        let session_ms = (!session.is_empty()).then(|| median(session));
        Row {
            model: turns[0]
                .file
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into(),
            import_ms: median(import),
            optimise_ms: median(optimise),
            lower_ms: median(lower),
            whole_ms,
            onnxruntime_session_ms: session_ms,
            ratio: session_ms.map(|ms| whole_ms / ms),
        }
    });
    Report {
        runs,
        onnxruntime: sessions.first().map(|s| s.version.clone()),
        compile: rows.collect(),
    }
}

/// Of at least one.
fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    let half = of.len() / 2;
    if of.len() % 2 == 1 {
        of[half]
    } else {
        f64::midpoint(of[half - 1], of[half])
    }
}

fn print(report: &Report, python: &Path) {
    println!(
        "\nfrom file to plan, milliseconds, medians of {} runs",
        report.runs
    );
    println!(
        "{:24}{:>9}{:>10}{:>9}{:>9}{:>13}{:>8}",
        "model", "import", "optimise", "lower", "whole", "onnxruntime", "ratio"
    );
    for row in &report.compile {
        let or_none = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
        println!(
            "{:24}{:9.2}{:10.2}{:9.2}{:9.2}{:>13}{:>8}",
            row.model,
            row.import_ms,
            row.optimise_ms,
            row.lower_ms,
            row.whole_ms,
            or_none(row.onnxruntime_session_ms),
            or_none(row.ratio),
        );
    }
    match &report.onnxruntime {
        Some(version) => println!("onnxruntime {version}: creating a session, default options"),
        None => println!(
            "`{}` has no onnxruntime: not measured (--python PATH names one that does)",
            python.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_the_medians_of_all_turns() {
        let turn = |times: [f64; 2]| Stages {
            models: vec![ModelTimes {
                file: "folder/tiny.onnx".into(),
                import: times.to_vec(),
                optimise: vec![1.0, 1.0],
                lower: vec![10.0, 20.0],
            }],
            skipped: Vec::new(),
        };
        let sessions = Sessions {
            version: "1.0".to_owned(),
            times: vec![vec![4.0, 5.0, 6.0]],
        };
        let report = report(4, &[turn([1.0, 2.0]), turn([3.0, 9.0])], &[sessions]);
        let row = &report.compile[0];
        assert_eq!(row.model, "tiny");
        assert_eq!((row.import_ms, row.lower_ms), (2.5, 15.0));
        // Of 12, 23, 14 and 30: the median of the sums, not the sum of the medians.
        assert_eq!(row.whole_ms, 18.5);
        assert_eq!(row.ratio, Some(3.7));
    }

    #[test]
    fn without_onnxruntime_there_is_no_ratio() {
        let stages = Stages {
            models: vec![ModelTimes {
                file: "tiny.onnx".into(),
                import: vec![1.0],
                optimise: vec![1.0],
                lower: vec![1.0],
            }],
            skipped: Vec::new(),
        };
        let report = report(1, &[stages], &[]);
        assert_eq!(report.compile[0].ratio, None);
        assert_eq!(report.onnxruntime, None);
    }
}
