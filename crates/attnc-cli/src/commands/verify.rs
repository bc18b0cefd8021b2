//! `attnc verify`: a model against expected values, or against itself in f64.

use crate::args::{self, Inputs, ModelPath, Target};
use crate::{Outcome, progress, summary};
use attnc::backend::Backends;
use attnc::explain::Attention;
use attnc::sources::{self, Role, Source};
use attnc::verify::{Comparison, Tolerance, compare_all};
use attnc::{Error, Session, oracle};
use serde::Serialize;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    path: ModelPath,
    #[command(flatten)]
    inputs: Inputs,
    /// Expected values: FILE.npz, NAME=FILE.npy or a folder (output_N.pb); without it, the imported
    /// model in f64 says what to expect
    #[arg(long, value_name = "SOURCE")]
    expect: Vec<Source>,
    /// Error allowed relative to the range of an output [default: 1e-4, 5e-3 for float16]
    #[arg(long, value_name = "X", value_parser = tolerance)]
    rtol: Option<f64>,
    /// Error allowed whatever the range [default: 1e-7]
    #[arg(long, value_name = "X", value_parser = tolerance)]
    atol: Option<f64>,
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x >= 0.0 => Ok(x),
        _ => Err("a number of at least 0 is expected".to_owned()),
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    model: String,
    backend: String,
    adapter: String,
    why: String,
    attention: Attention,
    expected_from: String,
    #[serde(flatten)]
    comparison: Comparison,
}

pub(crate) fn run(options: &Options) -> Result<Outcome, Error> {
    let model = args::open_model(&options.path.model)?;
    let given = options.inputs.or_random(&model)?;
    let (session, backends) = (options.target.session(), Backends::standard());
    let compile = || Session::of_model(&model, &session, &backends);
    let mut session = progress::during("compiling", compile)?;
    let bound = session.bind(&given, &options.inputs.dims()?)?;
    let found = progress::during("running", || session.run_bound(&bound))?;
    let (expected, expected_from) = if options.expect.is_empty() {
        let run = || oracle::run_bound(&model, &bound);
        (progress::during("running in f64", run)?, "the f64 oracle")
    } else {
        let read = sources::read(&options.expect, Role::Output, &model.outputs)?;
        (read, "the values expected")
    };
    let tolerance = Tolerance {
        rtol: options.rtol,
        atol: options.atol,
    };
    let attention = session.attention().map(Attention::from);
    let report = Report {
        model: model.name.clone(),
        backend: session.backend().to_owned(),
        adapter: session.device(),
        why: session.why().to_owned(),
        attention: attention.unwrap_or_default(),
        expected_from: expected_from.to_owned(),
        comparison: compare_all(&expected, &found, &tolerance)?,
    };
    if options.json {
        summary::print_json(&report)?;
    } else {
        print(&report);
    }
    Ok(if report.comparison.passed {
        Outcome::Good
    } else {
        Outcome::ComparisonFailed
    })
}

fn print(report: &Report) {
    say!("{}", report.model);
    say!("  fused    {}", summary::attention_line(&report.attention));
    summary::print_declined(&report.attention);
    say!("  where    {}", report.why);
    for output in &report.comparison.outputs {
        let verdict = if output.passed { "ok" } else { "WRONG" };
        say!(
            "  {verdict:7}  {}: {}, largest error {:.2e} of range {:.3} = {:.2e} relative",
            output.name,
            output.found,
            output.max_abs_error,
            output.range,
            output.relative
        );
        if !output.passed {
            say!("           {}", output.problem);
        }
    }
    let worst = report.comparison.worst().map_or(0.0, |o| o.relative);
    let verdict = if report.comparison.passed {
        "agrees with"
    } else {
        "DIFFERS from"
    };
    say!(
        "{verdict} {}; largest difference {worst:.2e} of the range",
        report.expected_from
    );
}
