//! `kernels [SHAPE...]`: measures attnc and its peers on shapes of attention and matmul, and prints a table.
//!
//! `cargo xtask bench kernels` builds and runs it. It needs nothing beside it, so it can be carried to
//! another machine: `kernels --suite discrete --python python3` compares with torch on the same card.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line talks to its user"
)]

use attnc::gpu::{AdapterChoice, Gpu};
use attnc_benches::contestant::{AttncCpu, AttncGpu, Contestant, OWN_CHOICE, Peer, variants};
use attnc_benches::peak::{Peaks, Yardstick};
use attnc_benches::roofline::Piece;
use attnc_benches::shape::Shape;
use attnc_benches::shapes;
use attnc_benches::table::{self, Growth, Row};
use attnc_benches::task::Task;
use attnc_benches::turns::{self, Effort, Outcome};
use clap::Parser;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// The peers that speak Python.
const PEERS: &str = include_str!("../peers/peers.py");

/// Measures attnc and its peers, in turns, against the peaks of the adapter.
#[derive(Parser)]
struct Options {
    /// Only shapes of this name, or with this in their description
    shapes: Vec<String>,
    /// Which shapes, on what
    #[arg(long, value_enum, default_value = "portable")]
    suite: Suite,
    /// Text that occurs in the description of the adapter to use
    #[arg(long, value_name = "TEXT")]
    adapter: Option<String>,
    /// The Python that may have torch and onnxruntime
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,
    /// A peer: a program that speaks the protocol of `contestant/peer.rs`
    #[arg(long, value_name = "PROGRAM")]
    peer: Vec<PathBuf>,
    /// Measure attnc only
    #[arg(long)]
    no_peers: bool,
    /// Only contestants with this in their name, as `burn`, and `attnc gpu`, which others are compared with; repeat for more
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Turns of each contestant
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// About how long a turn is
    #[arg(long, value_name = "MS", default_value_t = 100)]
    turn: u64,
    /// Begin no further shape after so many seconds; 240 for the suite `discrete`
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Also write all figures here, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Suite {
    /// Layers of small models, on any adapter and the processor
    Portable,
    /// Sizes for a discrete card in f32 and f16, beside torch on the same card
    Discrete,
    /// A few small shapes of `discrete` on any adapter, to see that it works
    Smoke,
}

/// What `--json` writes.
#[derive(Serialize)]
struct Report {
    adapter: String,
    driver: String,
    profile: Option<attnc::plan::DeviceProfile>,
    threads: usize,
    versions: Vec<String>,
    peaks: Option<Peaks>,
    /// What shows that the machine did something else meanwhile.
    unrest: Option<String>,
    rows: Vec<Row>,
    growth: Vec<Growth>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(right) if right => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("a result of attnc is wrong");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<bool, String> {
    let start = Instant::now();
    let shapes = chosen(options)?;
    let gpu = open(options)?;
    let folder = Folder::new()?;
    let mut everyone = contestants(options, gpu.as_ref(), &folder.0);
    only(&options.only, &mut everyone)?;
    let f16 = options.suite != Suite::Portable;
    let measure_peaks = || gpu.as_ref().map(|gpu| Peaks::measure(gpu, f16)).transpose();
    let before = measure_peaks()?;
    print_head(gpu.as_ref(), before.as_ref(), &everyone);
    let yardstick = gpu.as_ref().zip(before.as_ref());
    let yardstick = yardstick.map(|(gpu, peaks)| Yardstick::new(gpu, peaks));
    let yardstick = yardstick.transpose()?;
    let pace = || yardstick.as_ref().map(Yardstick::pace).transpose();
    let mut turns = Turns {
        everyone: &mut everyone,
        pace: &pace,
    };
    let measured = measure(options, &shapes, &mut turns, before.as_ref(), start)?;
    let after = measure_peaks()?;
    let both = before.as_ref().zip(after.as_ref());
    let unrest = both.and_then(|(before, after)| before.unrest(after));
    let peaks = both.map(|(before, after)| before.or_better(after));
    let rows = measured
        .into_iter()
        .flat_map(|one| table::rows(one.shape, one.outcomes, peaks.as_ref(), &one.pieces));
    let rows: Vec<Row> = rows.collect();
    let report = Report {
        adapter: adapter(gpu.as_ref()),
        driver: gpu
            .as_ref()
            .map(|g| g.description.driver.clone())
            .unwrap_or_default(),
        profile: gpu.as_ref().map(|g| g.profile.clone()),
        threads: rayon::current_num_threads(),
        versions: versions(&everyone),
        growth: table::growth(&rows),
        peaks,
        unrest,
        rows,
    };
    print_end(&report, before.as_ref());
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).map_err(|e| e.to_string())? + "\n";
        std::fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    Ok(!report
        .rows
        .iter()
        .any(|row| row.wrong && row.outcome.who.starts_with("attnc")))
}

/// What everyone did with a shape.
struct Measured<'a> {
    shape: &'a Shape,
    pieces: Vec<Piece>,
    outcomes: Vec<Outcome>,
}

/// Who takes turns, and what tells the adapter's pace before each.
struct Turns<'a> {
    everyone: &'a mut [Box<dyn Contestant>],
    pace: &'a dyn Fn() -> Result<Option<f64>, String>,
}

/// Measures one shape after the other, and prints its rows, by the peaks measured before, as soon as they are there.
fn measure<'a>(
    options: &Options,
    shapes: &'a [Shape],
    turns: &mut Turns<'_>,
    peaks: Option<&Peaks>,
    start: Instant,
) -> Result<Vec<Measured<'a>>, String> {
    let limit = match (options.limit, options.suite) {
        (None, Suite::Discrete) => Some(240),
        (limit, _) => limit,
    };
    let limit = limit.map(Duration::from_secs);
    let effort = Effort {
        rounds: options.rounds,
        turn: Duration::from_millis(options.turn),
        // On a discrete card handing over can take as long as the work.
        burst: if options.suite == Suite::Portable {
            1
        } else {
            10
        },
    };
    let mut measured = Vec::new();
    for (at, shape) in shapes.iter().enumerate() {
        if limit.is_some_and(|limit| start.elapsed() > limit) {
            let left: Vec<_> = shapes[at..].iter().map(|s| s.name.as_str()).collect();
            eprintln!("not measured, the time is up: {}", left.join(", "));
            break;
        }
        eprintln!(
            "{}/{} ({}) {}",
            at + 1,
            shapes.len(),
            shape.name,
            shape.title
        );
        let task = Task::new(shape).map_err(|e| e.to_string())?;
        let outcomes = turns::measure(&task, turns.everyone, effort, turns.pace)?;
        let pieces = task.pieces;
        print!(
            "{}",
            table::text(&table::rows(shape, outcomes.clone(), peaks, &pieces))
        );
        measured.push(Measured {
            shape,
            pieces,
            outcomes,
        });
    }
    Ok(measured)
}

fn adapter(gpu: Option<&Gpu>) -> String {
    gpu.map_or("none".to_owned(), |g| g.description.line())
}

fn versions(everyone: &[Box<dyn Contestant>]) -> Vec<String> {
    let everyone = everyone.iter();
    everyone
        .map(|one| format!("{}: {}", one.name(), one.version()))
        .collect()
}

fn chosen(options: &Options) -> Result<Vec<Shape>, String> {
    let mut all = match options.suite {
        Suite::Portable => {
            let (shapes, skipped) = shapes::portable();
            skipped.iter().for_each(|why| eprintln!("{why}"));
            shapes
        }
        Suite::Discrete => shapes::discrete(),
        Suite::Smoke => shapes::smoke(),
    };
    let known: Vec<_> = all.iter().map(|s| s.name.clone()).collect();
    let wanted = |shape: &Shape| {
        let fits = |text: &String| {
            shape.name == *text || (text.len() > 1 && shape.title.contains(text.as_str()))
        };
        options.shapes.is_empty() || options.shapes.iter().any(fits)
    };
    all.retain(wanted);
    if all.is_empty() {
        return Err(format!("no such shape; there are {}", known.join(", ")));
    }
    Ok(all)
}

/// The adapter; `None` where there is none and the suite can do without.
fn open(options: &Options) -> Result<Option<Gpu>, String> {
    let choice = match &options.adapter {
        Some(text) => AdapterChoice::named(text),
        None if options.suite == Suite::Discrete => AdapterChoice::auto(),
        None => AdapterChoice::any(),
    };
    match Gpu::open(&choice) {
        Ok(gpu) => Ok(Some(gpu)),
        Err(error) if options.suite == Suite::Portable && options.adapter.is_none() => {
            eprintln!("{error}: the processor only");
            Ok(None)
        }
        Err(error) => Err(error.to_string()),
    }
}

fn contestants(options: &Options, gpu: Option<&Gpu>, folder: &Path) -> Vec<Box<dyn Contestant>> {
    let mut everyone: Vec<Box<dyn Contestant>> = Vec::new();
    if let Some(gpu) = gpu {
        for variant in variants(&gpu.profile) {
            everyone.push(Box::new(AttncGpu::new(gpu, variant)));
        }
    }
    let portable = options.suite == Suite::Portable;
    if portable {
        everyone.push(Box::new(AttncCpu::default()));
    }
    if options.no_peers {
        return everyone;
    }
    let threads = rayon::current_num_threads().to_string();
    let python = |arguments: &[&str]| {
        let mut command = Command::new(&options.python);
        command
            .args(["-c", PEERS])
            .args(arguments)
            .env("OMP_NUM_THREADS", &threads);
        command
    };
    let mut peers: Vec<Command> = match options.suite {
        Suite::Portable => vec![
            python(&["torch", "cpu", &threads]),
            python(&["onnxruntime", "cpu", &threads]),
        ],
        Suite::Discrete => vec![python(&["torch", "cuda", &threads])],
        Suite::Smoke => vec![python(&["torch", "any", &threads])],
    };
    peers.extend(options.peer.iter().map(|program| {
        let mut command = Command::new(program);
        let kind = gpu.map_or("software", |gpu| gpu.description.kind);
        command
            .args([threads.as_str(), kind])
            .env("RAYON_NUM_THREADS", &threads);
        command
    }));
    for peer in peers {
        match Peer::start(peer, folder) {
            Ok(peer) => everyone.push(Box::new(peer)),
            Err(why) => eprintln!("not measured: {why}"),
        }
    }
    everyone
}

/// Keeps the contestants whose names hold one of the texts, if there are texts, and attnc's own choice.
fn only(texts: &[String], everyone: &mut Vec<Box<dyn Contestant>>) -> Result<(), String> {
    let holds = |one: &dyn Contestant, text: &String| one.name().contains(text.as_str());
    let nobody = |text: &&String| !everyone.iter().any(|one| holds(one.as_ref(), text));
    let unknown: Vec<&str> = texts.iter().filter(nobody).map(String::as_str).collect();
    if !unknown.is_empty() {
        let known: Vec<_> = everyone.iter().map(|one| one.name().to_owned()).collect();
        let (unknown, known) = (unknown.join(", "), known.join(", "));
        return Err(format!(
            "--only {unknown}: no such contestant; there are {known}"
        ));
    }
    let wanted = |one: &dyn Contestant| {
        one.name() == OWN_CHOICE || texts.iter().any(|text| holds(one, text))
    };
    everyone.retain(|one| texts.is_empty() || wanted(one.as_ref()));
    Ok(())
}

/// What all rows have in common.
fn print_head(gpu: Option<&Gpu>, peaks: Option<&Peaks>, everyone: &[Box<dyn Contestant>]) {
    println!("{}", adapter(gpu));
    if let Some(peaks) = peaks {
        println!("peak: {}", peaks_text(peaks));
    }
    println!(
        "{}; {} threads on the processor",
        versions(everyone).join("; "),
        rayon::current_num_threads()
    );
    println!("times in ms; `x attnc`: time over that of attnc on the same side");
}

fn peaks_text(peaks: &Peaks) -> String {
    let f16 = peaks
        .flops_f16
        .map_or(String::new(), |f| format!(", {:.1} in f16", f / 1e9));
    format!(
        "{:.1} GFLOP/s of a * x + y in registers{f16}; {:.1} GB/s of a copy",
        peaks.flops_f32 / 1e9,
        peaks.copy / 1e9
    )
}

/// What is known at the end only.
fn print_end(report: &Report, before: Option<&Peaks>) {
    print!("{}", table::growth_text(&report.growth));
    if let Some(peaks) = &report.peaks
        && before != Some(peaks)
    {
        let peaks = peaks_text(peaks);
        println!("\nthe better of the peaks before and after, which `--json` goes by: {peaks}");
    }
    if let Some(unrest) = &report.unrest {
        println!("{unrest}");
    }
}

/// A folder for operands, gone when this is.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("attnc-kernels-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in a folder for temporary files does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
