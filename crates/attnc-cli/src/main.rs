//! The `attnc` command: explain, compile, run, verify, bench and tune models, list devices.
//!
//! Results go to stdout, and with `--json` one JSON object and nothing else; prose about what is being done,
//! progress and diagnostics go to stderr. Exit codes: 0 good; 1 a comparison failed; 2 bad usage or input;
//! 3 valid but unsupported, or `--require-fused` not met; 4 device trouble.

#[macro_use]
mod output;

mod args;
mod commands;
mod progress;
mod summary;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Compiler for attention models: explains, compiles, runs and verifies them.
#[derive(Parser)]
#[command(name = "attnc", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say what fused, what did not and why, which kernels run and what memory they need
    Explain(commands::explain::Options),
    /// Write the plan, the shaders and the weights into a folder
    Compile(commands::compile::Options),
    /// Run a model or a compiled bundle
    Run(commands::run::Options),
    /// Run a model and compare with expected values, or with the model itself in f64
    Verify(commands::verify::Options),
    /// Measure how long a model takes
    Bench(commands::bench::Options),
    /// Measure the kernels that could compute a model on this device, and keep the fastest for later runs
    Tune(commands::tune::Options),
    /// List the devices there are and the built-in profiles
    Devices(commands::devices::Options),
}

/// Whether a comparison, if there was one, came out well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Good,
    ComparisonFailed,
}

/// Without a desktop session, Mesa's device-select layer prints an error about `XDG_RUNTIME_DIR` for every
/// Vulkan instance. It only reorders adapters, and attnc chooses its own, so the layer is left out.
fn quiet_mesa() {
    let headless = cfg!(target_os = "linux") && std::env::var_os("XDG_RUNTIME_DIR").is_none();
    if headless && std::env::var_os("NODEVICE_SELECT").is_none() {
        // SAFETY: `main` calls this first, so no other thread can read the environment meanwhile.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}

fn main() -> ExitCode {
    quiet_mesa();
    let result = match Cli::parse().command {
        Command::Explain(options) => commands::explain::run(&options),
        Command::Compile(options) => commands::compile::run(&options),
        Command::Run(options) => commands::run::run(&options),
        Command::Verify(options) => commands::verify::run(&options),
        Command::Bench(options) => commands::bench::run(&options),
        Command::Tune(options) => commands::tune::run(&options),
        Command::Devices(options) => commands::devices::run(&options),
    };
    match result {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::ComparisonFailed) => ExitCode::from(1),
        Err(error) => {
            note!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
