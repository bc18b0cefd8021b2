//! `attnc run`: a model or a bundle on some inputs.

use crate::args::{self, Inputs, Target};
use crate::summary::{self, OutputSummary};
use crate::{Outcome, progress};
use attnc::backend::Backends;
use attnc::explain::Attention;
use attnc::sources::Source;
use attnc::{Error, Session, Tensors, npz};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The model, an .onnx or .attn file, or the folder of a compiled bundle
    #[arg(value_name = "MODEL|BUNDLE")]
    model: PathBuf,
    #[command(flatten)]
    inputs: Inputs,
    /// Run again on these inputs, without compiling again; repeat for more
    #[arg(long = "then", value_name = "SOURCE")]
    then: Vec<Source>,
    /// Write the outputs of the (first) run
    #[arg(short, long, value_name = "FILE.npz")]
    output: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    model: String,
    backend: String,
    adapter: String,
    why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    attention: Option<Attention>,
    load_ms: f64,
    #[serde(flatten)]
    first: RunReport,
    /// All runs, the first included.
    runs: Vec<RunReport>,
}

/// One run.
#[derive(Serialize, Clone)]
struct RunReport {
    /// Pipelines created so far; the number stays where nothing is compiled again.
    pipelines_created: u64,
    arena_peak_bytes: u64,
    weights_bytes: u64,
    /// Of the process so far; null where the system does not say.
    host_peak_bytes: Option<u64>,
    run_ms: f64,
    dims: attnc::plan::DimValues,
    outputs: std::rc::Rc<Vec<OutputSummary>>,
}

pub(crate) fn run(options: &Options) -> Result<Outcome, Error> {
    let start = Instant::now();
    let (mut session, first) = open(options)?;
    let load_ms = summary::milliseconds(start.elapsed());
    note!("{}", session.why());
    summary::print_notes(&session);
    summary::print_tuned(&session);
    let attention = session.attention().map(Attention::from);
    if let Some(attention) = &attention {
        note!("{}", summary::attention_line(attention));
        summary::print_declined(attention);
    }
    let (report, outputs) = run_once(&mut session, &first, &options.inputs)?;
    if let Some(path) = &options.output {
        npz::write(path, &outputs)?;
    }
    let mut runs = vec![report];
    for source in &options.then {
        let given = session.read(std::slice::from_ref(source), &options.inputs.dims()?)?;
        runs.push(run_once(&mut session, &given, &options.inputs)?.0);
    }
    let report = Report {
        model: options.model.display().to_string(),
        backend: session.backend().to_owned(),
        adapter: session.device(),
        why: session.why().to_owned(),
        attention,
        load_ms,
        first: runs[0].clone(),
        runs,
    };
    if options.json {
        summary::print_json(&report)?;
    } else {
        print(&report);
    }
    Ok(Outcome::Good)
}

/// The session, and the inputs of the first run.
fn open(options: &Options) -> Result<(Session, Tensors), Error> {
    let (session, backends) = (options.target.session(), Backends::standard());
    if Path::is_dir(&options.model) {
        options.target.check_for_bundle()?;
        let open = || Session::of_bundle(&options.model, &session, &backends);
        let session = progress::during("loading the bundle", open)?;
        let given = options.inputs.of_ports(session.inputs())?;
        return Ok((session, given));
    }
    let model = args::open_model(&options.model)?;
    let given = options.inputs.of_model(&model)?;
    let compile = || Session::of_model(&model, &session, &backends);
    Ok((progress::during("compiling", compile)?, given))
}

fn run_once(
    session: &mut Session,
    given: &Tensors,
    inputs: &Inputs,
) -> Result<(RunReport, Tensors), Error> {
    let bound = session.bind(given, &inputs.dims()?)?;
    let start = Instant::now();
    let outputs = progress::during("running", || session.run_bound(&bound))?;
    let run_ms = summary::milliseconds(start.elapsed());
    let stats = session.stats();
    let report = RunReport {
        pipelines_created: stats.pipelines_created,
        arena_peak_bytes: stats.arena_peak_bytes,
        weights_bytes: stats.weights_bytes,
        host_peak_bytes: attnc::host_peak_bytes(),
        run_ms,
        dims: bound.dims,
        outputs: std::rc::Rc::new(summary::outputs(&outputs)),
    };
    Ok((report, outputs))
}

fn print(report: &Report) {
    for run in &report.runs {
        for output in run.outputs.iter() {
            say!("{}", output.line());
        }
        let dims: Vec<_> = run.dims.iter().map(|(n, v)| format!("{n} = {v}")).collect();
        let dims = if dims.is_empty() {
            String::new()
        } else {
            format!(" at {}", dims.join(", "))
        };
        let pipelines = match run.pipelines_created {
            0 => String::new(),
            n => format!("; {n} pipelines created so far"),
        };
        say!(
            "{:.1} ms{dims}, {} bytes of intermediates{pipelines}",
            run.run_ms,
            run.arena_peak_bytes
        );
    }
}
