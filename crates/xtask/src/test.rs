//! `cargo xtask test`: everything a change must pass, in one command.
//!
//! In order: a Vulkan driver, the fetched models, formatting, lints, all tests (unit, integration,
//! documentation), and the documentation itself. A failed check does not stop the later ones, so
//! that one run shows all that is wrong. The last lines are the tests, counted (`N passed, N failed`),
//! and the verdict on everything, which names the checks that failed.
//!
//! Two variables tell the tests what they may not skip: `ATTNC_REQUIRE_GPU=1` makes a missing
//! adapter a failure, `ATTNC_REQUIRE_FETCH=1` a missing fetched model. `ATTNC_CORPUS=quick` adds one
//! exporter of each case of the corpus, and every node test; `cargo xtask corpus` runs the rest.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::summary::Counts;
use crate::{fetch, vulkan, workspace};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Fail when GPU tests cannot run; this is what happens anyway unless --no-gpu is given
    #[arg(long)]
    require_gpu: bool,
    /// Where there is no GPU driver, leave GPU tests ignored instead of installing one
    #[arg(long, conflicts_with = "require_gpu")]
    no_gpu: bool,
    /// Download nothing; tests of models that are not there yet are ignored
    #[arg(long)]
    offline: bool,
    /// Run only the tests whose name contains this, and no other check
    filter: Option<String>,
}

/// One line of the summary.
struct Check {
    name: &'static str,
    good: bool,
    took: Duration,
}

/// Runs the checks; whether all of them are good.
pub(crate) fn run(options: &Options) -> Result<bool> {
    prepare(options)?;
    let mut checks = Vec::new();
    let mut counts = Counts::default();
    let all = options.filter.is_none();
    if all {
        checks.push(check(
            "formatting",
            &mut workspace::cargo(&["fmt", "--all", "--check"]),
        )?);
        checks.push(check("lints", &mut lints())?);
    }
    let start = Instant::now();
    let good = run_counting(&mut tests(options), &mut counts)?;
    if !good && counts.failed == 0 {
        // A test program that did not build or did not reach its last line is a failure too.
        counts.failed = 1;
    }
    checks.push(Check {
        name: "tests",
        good,
        took: start.elapsed(),
    });
    if all {
        checks.push(check("documentation", &mut documentation())?);
    }
    summarise(options, &checks, counts);
    ensure!(
        counts != Counts::default(),
        "no test ran: none has that name"
    );
    Ok(checks.iter().all(|check| check.good) && counts.failed == 0)
}

/// Brings what the tests need: a GPU driver and the fetched models.
fn prepare(options: &Options) -> Result<()> {
    if options.no_gpu {
        println!("--no-gpu: where there is no adapter, GPU tests are ignored");
    } else {
        vulkan::ensure().context("GPU tests cannot run (--no-gpu goes on without them)")?;
    }
    if options.offline {
        println!("--offline: tests of models that were not fetched before are ignored");
    } else {
        fetch::run().context("models for the tests are missing (--offline goes on without)")?;
    }
    Ok(())
}

fn lints() -> Command {
    let mut command = workspace::cargo(&["clippy", "--workspace", "--all-targets"]);
    command.args(["--", "-D", "warnings"]);
    command
}

fn tests(options: &Options) -> Command {
    let mut command = workspace::cargo(&["test", "--workspace", "--no-fail-fast"]);
    // Expected results are rewritten by `bless` only, whatever the environment says.
    command
        .env_remove("ATTNC_BLESS")
        .env("INSTA_UPDATE", "no")
        .env("ATTNC_CORPUS", "quick")
        // The user's cache is none of the tests' business.
        .env("ATTNC_CACHE_DIR", "")
        .env("RUST_BACKTRACE", "1");
    if !options.no_gpu {
        command.env("ATTNC_REQUIRE_GPU", "1");
    }
    if !options.offline {
        command.env("ATTNC_REQUIRE_FETCH", "1");
    }
    if let Some(filter) = &options.filter {
        command.args(["--", filter]);
    }
    command
}

fn documentation() -> Command {
    let mut command = workspace::cargo(&["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

fn check(name: &'static str, command: &mut Command) -> Result<Check> {
    let start = Instant::now();
    let good = workspace::run(command)?;
    Ok(Check {
        name,
        good,
        took: start.elapsed(),
    })
}

/// Runs a command, passing its output on line by line while counting tests in it.
fn run_counting(command: &mut Command, counts: &mut Counts) -> Result<bool> {
    println!("$ {}", workspace::shown(command));
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", workspace::shown(command)))?;
    if let Some(output) = child.stdout.take() {
        pass_on(output, std::io::stdout().lock(), counts)?;
    }
    Ok(child.wait()?.success())
}

/// Copies output line by line, as it comes, and counts the tests it tells of.
fn pass_on(from: impl Read, mut to: impl Write, counts: &mut Counts) -> Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    // Bytes, not text: a test may print what is not UTF-8.
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        to.flush()?;
        counts.add_line(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(())
}

fn summarise(options: &Options, checks: &[Check], counts: Counts) {
    println!();
    for check in checks {
        let verdict = if check.good { "ok" } else { "FAILED" };
        println!("{:14} {verdict:7} {:4} s", check.name, check.took.as_secs());
    }
    if options.no_gpu && counts.skipped > 0 {
        println!("GPU tests that found no adapter are among the skipped (--no-gpu)");
    }
    println!("{counts}");
    println!("{}", verdict(checks, counts));
}

/// One line on all checks together: tests that pass are not all that is asked of a change.
fn verdict(checks: &[Check], counts: Counts) -> String {
    let failed = checks.iter().filter(|check| !check.good);
    let mut failed: Vec<&str> = failed.map(|check| check.name).collect();
    if counts.failed > 0 && !failed.contains(&"tests") {
        failed.push("tests");
    }
    if failed.is_empty() {
        let names: Vec<&str> = checks.iter().map(|check| check.name).collect();
        format!("good: {}", names.join(", "))
    } else {
        format!("FAILED: {}", failed.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(no_gpu: bool, offline: bool) -> Options {
        Options {
            require_gpu: false,
            no_gpu,
            offline,
            filter: Some("gelu".to_owned()),
        }
    }

    fn variable(command: &Command, name: &str) -> Option<String> {
        let (_, value) = command.get_envs().find(|(key, _)| *key == name)?;
        Some(value?.to_string_lossy().into_owned())
    }

    #[test]
    fn gpu_and_fetched_models_are_required_unless_waived() {
        let strict = tests(&options(false, false));
        assert_eq!(variable(&strict, "ATTNC_REQUIRE_GPU").as_deref(), Some("1"));
        assert_eq!(
            variable(&strict, "ATTNC_REQUIRE_FETCH").as_deref(),
            Some("1")
        );
        let waived = tests(&options(true, true));
        assert_eq!(variable(&waived, "ATTNC_REQUIRE_GPU"), None);
        assert_eq!(variable(&waived, "ATTNC_REQUIRE_FETCH"), None);
    }

    #[test]
    fn tests_never_bless() {
        let command = tests(&options(false, false));
        assert_eq!(variable(&command, "INSTA_UPDATE").as_deref(), Some("no"));
        assert_eq!(variable(&command, "ATTNC_CORPUS").as_deref(), Some("quick"));
        let blesses = command.get_envs().find(|(key, _)| *key == "ATTNC_BLESS");
        assert_eq!(blesses.map(|(_, value)| value), Some(None), "removed");
    }

    #[test]
    fn the_verdict_names_what_failed_beside_the_tests() {
        let check = |name, good| Check {
            name,
            good,
            took: Duration::ZERO,
        };
        let all_pass = Counts {
            passed: 3,
            ..Counts::default()
        };
        let checks = [check("formatting", false), check("tests", true)];
        assert_eq!(verdict(&checks, all_pass), "FAILED: formatting");
        let checks = [check("formatting", true), check("tests", true)];
        assert_eq!(verdict(&checks, all_pass), "good: formatting, tests");
        let one_fails = Counts {
            failed: 1,
            ..all_pass
        };
        assert_eq!(verdict(&checks, one_fails), "FAILED: tests");
    }

    #[test]
    fn output_is_passed_on_unchanged_and_counted() {
        let output: &[u8] = b"\xff\ntest result: FAILED. 3 passed; 2 failed; 1 ignored; 0 m\nend";
        let mut seen = Vec::new();
        let mut counts = Counts::default();
        pass_on(output, &mut seen, &mut counts).unwrap();
        assert_eq!(seen, output);
        assert_eq!(counts.to_string(), "3 passed, 2 failed, 1 skipped");
    }
}
