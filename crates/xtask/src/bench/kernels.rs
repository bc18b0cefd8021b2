//! `cargo xtask bench kernels`: builds the `kernels` program of `benches/`, and the peers asked for.
//!
//! The program measures and prints; see there. Peers in Rust (`benches/peers`) are workspaces of their own
//! with a `Cargo.lock` each, built only here: burn alone is 682 packages.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::workspace;

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Only shapes of this name, or with this in their description
    shapes: Vec<String>,
    /// Build burn and measure its wgpu backend; the first build takes many minutes
    #[arg(long)]
    burn: bool,
    /// Build candle and measure its CPU backend
    #[arg(long)]
    candle: bool,
    /// What the program is asked besides, after `--`: see `cargo xtask bench kernels -- --help`
    #[arg(last = true)]
    more: Vec<String>,
}

/// Measures; the figures, and whether every result of attnc was right.
pub(super) fn run(options: &Options, python: &Path) -> Result<(Value, bool)> {
    let root = workspace::root();
    let program = build(&["-p", "attnc-benches", "--bin", "kernels"], None)?;
    let mut command = workspace::command(&program.to_string_lossy());
    command.args(&options.shapes).arg("--python").arg(python);
    for (wanted, name) in [(options.burn, "burn"), (options.candle, "candle")] {
        if wanted {
            let manifest = root.join("benches/peers").join(name).join("Cargo.toml");
            let manifest = manifest.to_string_lossy().into_owned();
            let folder = root.join("target/peers");
            let peer = build(&["--locked", "--manifest-path", &manifest], Some(&folder))?;
            command.arg("--peer").arg(peer);
        }
    }
    let figures = root.join("target/bench/kernels.json");
    std::fs::create_dir_all(root.join("target/bench"))?;
    command.arg("--json").arg(&figures).args(&options.more);
    // What an earlier run left must not pass for this one's.
    if figures.exists() {
        std::fs::remove_file(&figures)?;
    }
    let right = workspace::run(&mut command)?;
    if options.more.iter().any(|option| option == "--help") {
        return Ok((Value::Null, right));
    }
    let text = std::fs::read(&figures).context("the bench did not end well")?;
    Ok((serde_json::from_slice(&text)?, right))
}

/// Builds one program in release, in `folder` unless the environment names another, and gives its path.
fn build(what: &[&str], folder: Option<&Path>) -> Result<PathBuf> {
    let mut command = workspace::cargo(&["build", "--release", "--message-format"]);
    command.arg("json-render-diagnostics").args(what);
    if let Some(folder) = folder.filter(|_| std::env::var_os("CARGO_TARGET_DIR").is_none()) {
        command.arg("--target-dir").arg(folder);
    }
    println!("$ {}", workspace::shown(&command));
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "it does not build");
    let messages = output.stdout.lines().map_while(Result::ok);
    let programs = messages.filter_map(|line| {
        let message: Value = serde_json::from_str(&line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    let Some(program) = programs.last() else {
        bail!("`{}` makes no program", workspace::shown(&command));
    };
    Ok(program)
}
