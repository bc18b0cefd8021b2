//! `attnc bench`: medians over some runs, and where the time goes.

use crate::args::{self, Inputs, ModelPath, Target};
use crate::{Outcome, progress, summary};
use attnc::backend::{Backends, StepTime};
use attnc::{Error, Model, Session};
use serde::Serialize;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    path: ModelPath,
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    target: Target,
    /// How many runs to measure, after one that is not
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
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
    why: String,
    dims: attnc::plan::DimValues,
    import_ms: f64,
    optimise_ms: f64,
    prepare_ms: f64,
    first_run_ms: f64,
    runs: u32,
    median_ms: f64,
    fastest_ms: f64,
    pipelines_created: u64,
    arena_peak_bytes: u64,
    weights_bytes: u64,
    /// Of the process so far; null where the system does not say.
    host_peak_bytes: Option<u64>,
    /// Empty where the device has no timestamps.
    steps: Vec<StepTime>,
}

pub(crate) fn run(options: &Options) -> Result<Outcome, Error> {
    let start = Instant::now();
    let model = args::open_model(&options.path.model)?;
    let import_ms = summary::milliseconds(start.elapsed());
    let report = measure(options, &model, import_ms)?;
    if options.json {
        summary::print_json(&report)?;
    } else {
        print(&report);
    }
    Ok(Outcome::Good)
}

fn measure(options: &Options, model: &Model, import_ms: f64) -> Result<Report, Error> {
    let given = options.inputs.or_random(model)?;
    let settings = options.target.session();
    let start = Instant::now();
    let optimised = attnc::optimise(&model.graph, &settings.passes)?;
    let optimise_ms = summary::milliseconds(start.elapsed());
    let start = Instant::now();
    let backends = Backends::standard();
    let prepare = || Session::of_optimised(model, &optimised, &settings, &backends);
    let mut session = progress::during("compiling", prepare)?;
    let prepare_ms = summary::milliseconds(start.elapsed());
    summary::print_notes(&session);
    summary::print_tuned(&session);
    let bound = session.bind(&given, &options.inputs.dims()?)?;
    let mut timed = || -> Result<f64, Error> {
        let start = Instant::now();
        session.run_bound(&bound)?;
        Ok(summary::milliseconds(start.elapsed()))
    };
    let first_run_ms = timed()?;
    let mut times = (0..options.runs)
        .map(|_| timed())
        .collect::<Result<Vec<_>, _>>()?;
    times.sort_by(f64::total_cmp);
    let steps = session.time_steps(&bound)?;
    let stats = session.stats();
    Ok(Report {
        model: model.name.clone(),
        backend: session.backend().to_owned(),
        adapter: session.device(),
        why: session.why().to_owned(),
        dims: bound.dims,
        import_ms,
        optimise_ms,
        prepare_ms,
        first_run_ms,
        runs: options.runs,
        median_ms: median(&times),
        fastest_ms: times[0],
        pipelines_created: stats.pipelines_created,
        arena_peak_bytes: stats.arena_peak_bytes,
        weights_bytes: stats.weights_bytes,
        host_peak_bytes: attnc::host_peak_bytes(),
        steps,
    })
}

/// Of sorted, of which there is one at least.
fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        (sorted[half - 1] + sorted[half]) / 2.0
    }
}

fn print(report: &Report) {
    let dims: Vec<_> = report
        .dims
        .iter()
        .map(|(n, v)| format!("{n} = {v}"))
        .collect();
    say!("{} ({}), {}", report.model, dims.join(", "), report.why);
    say!("  import     {:9.2} ms", report.import_ms);
    say!("  optimise   {:9.2} ms", report.optimise_ms);
    say!(
        "  prepare    {:9.2} ms (plan, pipelines, weights)",
        report.prepare_ms
    );
    say!("  first run  {:9.2} ms", report.first_run_ms);
    say!(
        "  run        {:9.2} ms median of {}, {:.2} fastest",
        report.median_ms,
        report.runs,
        report.fastest_ms
    );
    let peak = match report.host_peak_bytes {
        Some(bytes) => format!("{bytes} bytes"),
        None => "not known".to_owned(),
    };
    say!(
        "  memory     {} bytes of weights, {} of intermediates; peak of the host {peak}",
        report.weights_bytes,
        report.arena_peak_bytes
    );
    let total: f64 = report.steps.iter().map(|s| s.milliseconds).sum();
    for step in &report.steps {
        let share = 100.0 * step.milliseconds / total.max(f64::MIN_POSITIVE);
        say!(
            "  step {:4}  {:9.3} ms {share:5.1} %  {} ({})",
            step.step,
            step.milliseconds,
            step.op,
            step.kernel
        );
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_of_an_even_number_is_between() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }
}
