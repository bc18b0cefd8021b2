//! `attnc verify`: a model against expected values, or against itself in f64.

use crate::args::{self, Inputs, ModelPath, Target};
use crate::{Outcome, progress, summary};
use attnc::backend::Backends;
use attnc::explain::Attention;
use attnc::inputs::BoundInputs;
use attnc::sources::{self, Role, Source};
use attnc::verify::{Comparison, Tolerance, compare_all};
use attnc::{Error, Model, Session, Tensors, oracle};
use serde::Serialize;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    path: ModelPath,
    #[command(flatten)]
    inputs: Inputs,
    /// Expected values: FILE.npz, NAME=FILE.npy or a folder (output_N.pb)
    #[arg(long, value_name = "SOURCE")]
    expect: Vec<Source>,
    /// Also run the model as imported, no pass done, in f64, and compare with that; this is what
    /// happens anyway without --expect. Any model, any inputs, also random ones (--random, --dim)
    #[arg(long)]
    against_source: bool,
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
    /// Of the comparison that follows.
    expected_from: &'static str,
    #[serde(flatten)]
    comparison: Comparison,
    /// The second comparison, where both were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    against_source: Option<Comparison>,
}

const GIVEN: &str = "the values expected";
const SOURCE: &str = "the model as imported, in f64";

pub(crate) fn run(options: &Options) -> Result<Outcome, Error> {
    let model = args::open_model(&options.path.model)?;
    let given = options.inputs.or_random(&model)?;
    let (session, backends) = (options.target.session(), Backends::standard());
    let compile = || Session::of_model(&model, &session, &backends);
    let mut session = progress::during("compiling", compile)?;
    summary::print_notes(&session);
    summary::print_tuned(&session);
    let bound = session.bind(&given, &options.inputs.dims()?)?;
    let found = progress::during("running", || session.run_bound(&bound))?;
    let tolerance = Tolerance {
        rtol: options.rtol,
        atol: options.atol,
        ..Tolerance::of_model(&model)
    };
    let compare = |expected| compare_all(&expected, &found, &tolerance);
    let (first, second) = expected(options, &model, &bound)?;
    let report = Report {
        model: model.name.clone(),
        backend: session.backend().to_owned(),
        adapter: session.device(),
        why: session.why().to_owned(),
        attention: session.attention().map(Attention::from).unwrap_or_default(),
        expected_from: if options.expect.is_empty() {
            SOURCE
        } else {
            GIVEN
        },
        comparison: compare(first)?,
        against_source: second.map(compare).transpose()?,
    };
    if options.json {
        summary::print_json(&report)?;
    } else {
        print(&report);
    }
    let second = report.against_source.as_ref();
    Ok(
        if report.comparison.passed && second.is_none_or(|c| c.passed) {
            Outcome::Good
        } else {
            Outcome::ComparisonFailed
        },
    )
}

/// What to compare with: the values given, or the source; both where both are asked for.
fn expected(
    options: &Options,
    model: &Model,
    bound: &BoundInputs,
) -> Result<(Tensors, Option<Tensors>), Error> {
    let source = || progress::during("running in f64", || oracle::run_bound(model, bound));
    if options.expect.is_empty() {
        return Ok((source()?, None));
    }
    let given = sources::read(&options.expect, Role::Output, &model.outputs)?;
    let source = options.against_source.then(source).transpose()?;
    Ok((given, source))
}

fn print(report: &Report) {
    say!("{}", report.model);
    say!("  fused    {}", summary::attention_line(&report.attention));
    summary::print_declined(&report.attention);
    say!("  where    {}", report.why);
    print_comparison(&report.comparison, report.expected_from);
    if let Some(comparison) = &report.against_source {
        print_comparison(comparison, SOURCE);
    }
}

fn print_comparison(comparison: &Comparison, with: &str) {
    for output in &comparison.outputs {
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
    let worst = comparison.worst().map_or(0.0, |o| o.relative);
    let verdict = if comparison.passed {
        "agrees with"
    } else {
        "DIFFERS from"
    };
    say!("{verdict} {with}; largest difference {worst:.2e} of the range");
}
