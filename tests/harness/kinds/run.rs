//! `run`: the CPU and the GPU agree with the f64 oracle of the graph as it is written.
//!
//! Each `// dims: B = 2, M = 17` is one run; all runs of a case share one session, and after the first no
//! pipeline may be made. Further headers: `// seed: 7`, `// input: mask = every 3`, `// tolerance: 1e-3`
//! (relative to the range of the output), `// attention: 1 found, 1 fused`.

use crate::harness::file::Case;
use crate::harness::numbers;
use attnc::backend::{Backends, GpuBackend};
use attnc::plan::DimValues;
use attnc::verify::Tolerance;
use attnc::{Model, Session, SessionOptions, oracle};
use libtest_mimic::{Completion, Failed, Trial};
use std::sync::OnceLock;

/// One test a backend.
pub(crate) fn trials(case: Case) -> Vec<Trial> {
    let (cpu, gpu) = (case.clone(), case.clone());
    vec![
        Trial::test(format!("{} on cpu", case.name), move || check(&cpu, "cpu")),
        Trial::ignorable_test(format!("{} on gpu", case.name), move || match adapter() {
            Ok(()) => check(&gpu, "gpu").map(|()| Completion::Completed),
            Err(why) if std::env::var_os("ATTNC_REQUIRE_GPU").is_some_and(|v| v == "1") => {
                Err(why.clone().into())
            }
            Err(why) => Ok(Completion::ignored_with(why)),
        }),
    ]
}

/// Whether there is an adapter, software ones included.
fn adapter() -> &'static Result<(), String> {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    FOUND.get_or_init(|| {
        GpuBackend::open(None)
            .map(|_| ())
            .map_err(|e| format!("no GPU adapter: {e}"))
    })
}

fn check(case: &Case, backend: &str) -> Result<(), Failed> {
    case.check(&["dims", "seed", "input", "tolerance", "attention"], false)?;
    let model = numbers::model(case)?;
    let options = SessionOptions {
        backend: backend.to_owned(),
        ..SessionOptions::default()
    };
    let mut session =
        Session::of_model(&model, &options, &Backends::standard()).map_err(|e| e.to_string())?;
    check_attention(case, &session)?;
    let mut runs = case
        .all("dims")
        .map(numbers::dims)
        .collect::<Result<Vec<_>, _>>()?;
    if runs.is_empty() {
        runs.push(numbers::some_dims(&model));
    }
    let mut pipelines = None;
    for dims in &runs {
        one(case, &model, &mut session, dims).map_err(|e| format!("at {}: {e}", shown(dims)))?;
        let made = session.stats().pipelines_created;
        if *pipelines.get_or_insert(made) != made {
            return Err(format!("at {}: other lengths made another pipeline", shown(dims)).into());
        }
    }
    Ok(())
}

fn one(case: &Case, model: &Model, session: &mut Session, dims: &DimValues) -> Result<(), String> {
    let inputs = numbers::inputs(case, model, dims)?;
    let expected = oracle::run(model, &inputs, dims).map_err(|e| format!("the oracle: {e}"))?;
    let bound = session.bind(&inputs, dims).map_err(|e| e.to_string())?;
    let found = session.run_bound(&bound).map_err(|e| e.to_string())?;
    let rtol = match case.get("tolerance") {
        Some(text) => Some(
            text.parse()
                .map_err(|_| format!("`// tolerance: {text}` is no number"))?,
        ),
        None => None,
    };
    let tolerance = Tolerance {
        rtol,
        ..Tolerance::of_model(model)
    };
    numbers::agree(&expected, &found, &tolerance)
}

fn check_attention(case: &Case, session: &Session) -> Result<(), Failed> {
    let Some(report) = session.attention() else {
        return Ok(());
    };
    let found = format!("{} found, {} fused", report.found, report.fused);
    match case.get("attention") {
        Some(expected) if expected == found => Ok(()),
        Some(expected) => {
            let why: Vec<_> = report
                .declined
                .iter()
                .map(|d| format!("{}: {}", d.node, d.reason))
                .collect();
            Err(format!(
                "attention: expected {expected}; {found}\n{}",
                why.join("\n")
            )
            .into())
        }
        None if report.found == 0 => Ok(()),
        None => Err(format!("the header should say `// attention: {found}`").into()),
    }
}

fn shown(dims: &DimValues) -> String {
    let pairs: Vec<_> = dims
        .iter()
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    pairs.join(", ")
}
