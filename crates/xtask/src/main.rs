//! Developer commands: `cargo xtask test | corpus | bless | bench | fetch | models | vulkan`.
//!
//! `cargo xtask test` is what CI runs and what a contributor runs before sending a change.
//! Everything else is a step of it, or changes files that are then reviewed in a diff.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line talks to its user"
)]

mod bench;
mod bless;
mod corpus;
mod fetch;
mod models;
mod onnx;
mod summary;
mod test;
mod vulkan;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of attnc.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check formatting, lints, every test and the documentation; CI runs this
    Test(test::Options),
    /// Run every model of the corpus on every backend, with a table at the end
    Corpus(corpus::Options),
    /// Rewrite the expected results of the test cases, to be reviewed in the diff
    Bless {
        /// Only cases whose name contains this
        filter: Option<String>,
    },
    /// Measure compiling by stage and kernels by shape, in a release build, beside the peers that are here
    Bench(bench::Options),
    /// Download the pinned packages of models and tests into target/fetch, verified by hash
    Fetch,
    /// Write the small ONNX models of tests/models and their inputs
    Models,
    /// Make sure a Vulkan driver is there; install a software one where none is found
    Vulkan,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Corpus(options) => corpus::run(&options),
        Command::Bless { filter } => bless::run(filter.as_deref()),
        Command::Bench(options) => bench::run(&options),
        Command::Fetch => fetch::run(),
        Command::Models => models::run(),
        Command::Vulkan => vulkan::ensure().map(|_| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
