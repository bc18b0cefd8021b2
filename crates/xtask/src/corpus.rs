//! `cargo xtask corpus`: every model there is, on every backend, with a table at the end.
//!
//! The trials are those of `tests/integration/corpus`; `cargo xtask test` runs one exporter of each case,
//! this runs all. They read `../shared/cases` where that is beside the repository, else the node tests that
//! `cargo xtask fetch` brings.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{fetch, vulkan, workspace};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where to run
    #[arg(long, value_enum, default_value_t = Backend::All)]
    backend: Backend,
    /// Download nothing; what is not there yet is left out
    #[arg(long)]
    offline: bool,
    /// Only trials whose name contains this
    filter: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Backend {
    All,
    Cpu,
    Gpu,
}

/// Runs the corpus; whether nothing is wrong and every refusal is a known one.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.backend != Backend::Cpu {
        vulkan::ensure().context("there is no GPU driver (--backend cpu goes without)")?;
    }
    if !options.offline {
        fetch::run().context("models are missing (--offline goes on without)")?;
    }
    workspace::run(&mut trials(options))
}

fn trials(options: &Options) -> Command {
    let mut command = workspace::cargo(&["test", "--package", "attnc-tests"]);
    command.args(["--test", "integration", "--", "--quiet"]);
    command.env("ATTNC_CORPUS", "full");
    // The name of a trial ends with the backend it runs on.
    match options.backend {
        Backend::All => {}
        Backend::Cpu => drop(command.args(["--skip", " on gpu"])),
        Backend::Gpu => drop(command.args(["--skip", " on cpu"])),
    }
    if options.backend != Backend::Cpu {
        command.env("ATTNC_REQUIRE_GPU", "1");
    }
    if !options.offline {
        command.env("ATTNC_REQUIRE_FETCH", "1");
    }
    command.args(&options.filter);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(backend: Backend, filter: Option<&str>) -> String {
        workspace::shown(&trials(&Options {
            backend,
            offline: true,
            filter: filter.map(str::to_owned),
        }))
    }

    #[test]
    fn the_other_backend_is_skipped_and_the_filter_passed_on() {
        assert!(shown(Backend::Cpu, None).ends_with("-- --quiet --skip  on gpu"));
        assert!(shown(Backend::Gpu, Some("swin")).ends_with("--skip  on cpu swin"));
        assert!(shown(Backend::All, Some("swin")).ends_with("-- --quiet swin"));
    }
}
