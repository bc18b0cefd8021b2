//! `attnc tune`: which kernels are the fastest on this device.

use crate::args::{self, Device, Inputs, ModelPath};
use crate::{Outcome, progress, summary};
use attnc::backend::Backends;
use attnc::plan::DimValues;
use attnc::tune::{self, Effort, Problem, ROUNDS, Timed};
use attnc::{Error, Model, Session, SessionOptions, opt};
use serde::Serialize;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    path: ModelPath,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    device: Device,
    /// Tune the model without attention fusion
    #[arg(long)]
    no_fuse: bool,
    /// How many runs of each candidate count
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What `--json` prints; times are milliseconds.
#[derive(Serialize)]
struct Report {
    model: String,
    backend: String,
    adapter: String,
    dims: DimValues,
    rounds: u32,
    #[serde(flatten)]
    tuned: tune::Report,
}

pub(crate) fn run(options: &Options) -> Result<Outcome, Error> {
    let model = args::open_model(&options.path.model)?;
    let report = measure(options, &model)?;
    if options.json {
        summary::print_json(&report)?;
    } else {
        print(&report);
    }
    Ok(Outcome::Good)
}

fn measure(options: &Options, model: &Model) -> Result<Report, Error> {
    let given = options.inputs.or_random(model)?;
    let settings = SessionOptions {
        passes: opt::Options {
            fuse_attention: !options.no_fuse,
            ..opt::Options::default()
        },
        tune: true,
        ..options.device.session()
    };
    let open = || Session::of_model(model, &settings, &Backends::standard());
    let mut session = progress::during("compiling", open)?;
    note!("{}", session.why());
    let bound = session.bind(&given, &options.inputs.dims()?)?;
    let tuned = progress::watching("measuring", |watch| {
        let rounds = options.rounds;
        session.tune(&bound, &mut Effort { rounds, watch })
    });
    summary::print_notes(&session);
    Ok(Report {
        model: model.name.clone(),
        backend: session.backend().to_owned(),
        adapter: session.device(),
        dims: bound.dims,
        rounds: options.rounds,
        tuned: tuned?,
    })
}

fn print(report: &Report) {
    let Report { model, adapter, .. } = report;
    let dims = report.dims.iter().map(|(n, v)| format!("{n} = {v}"));
    let dims: Vec<_> = dims.collect();
    say!("{model} ({}) on {adapter}", dims.join(", "));
    if report.tuned.problems.is_empty() {
        say!("nothing to choose: every problem has one kernel that fits this device");
        return;
    }
    for problem in &report.tuned.problems {
        print_problem(problem);
    }
    for failed in &report.tuned.failed {
        say!("\nnot measured: {failed}");
    }
    let both = report.tuned.before_ms.zip(report.tuned.after_ms);
    say!(
        "\n{}",
        match both {
            Some((before, after)) => format!(
                "all steps: {before:.3} ms by the cost model, {after:.3} ms as measured, {:.2} ×",
                after / before
            ),
            None => "nothing was faster than what the cost model chooses".to_owned(),
        }
    );
    if let Some(path) = &report.tuned.kept {
        say!("kept in {}", path.display());
    }
}

/// Its candidates with their times, those that were measured first; `*` is what was chosen.
fn print_problem(problem: &Problem) {
    say!("\n{} × {}", problem.uses, problem.problem);
    if problem.ratio.is_none() {
        say!("    no such step has work at these lengths: not measured");
        return;
    }
    let usual = problem.candidates[0].milliseconds;
    let mut unmeasured = Vec::new();
    for Timed {
        name,
        cost,
        milliseconds,
    } in &problem.candidates
    {
        let chosen = if *name == problem.chosen { '*' } else { ' ' };
        match milliseconds.zip(usual) {
            Some((ms, usual)) => say!(
                "  {chosen} {name:24} {ms:10.4} ms {:6.2} ×   (estimated {cost:.2} ×)",
                ms / usual
            ),
            None => unmeasured.push(format!("{name} {cost:.2} ×")),
        }
    }
    if !unmeasured.is_empty() {
        say!(
            "    not measured, by their costs: {}",
            unmeasured.join(", ")
        );
    }
}
