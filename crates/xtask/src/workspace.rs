//! Where the repository is, and how its tools are started.
//!
//! Every child process gets an empty standard input, so that no step can wait for an answer, and
//! writes straight to our own output unless the caller wants to read it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

/// The repository root.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // crates/xtask sits two levels below the root.
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// A command that runs in the repository root with no standard input.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Cargo itself: the one that started us, so that a toolchain override carries over.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = command(&program);
    command.args(arguments);
    command
}

/// Runs to the end, its output going to ours; whether it succeeded.
pub(crate) fn run(command: &mut Command) -> Result<bool> {
    println!("$ {}", shown(command));
    let status = command
        .status()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    Ok(status.success())
}

/// Whether the program can be started and answers with success; its output is dropped.
pub(crate) fn answers(program: &str, arguments: &[&str]) -> bool {
    command(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The command as one would type it: the name of the program without its folder, then arguments.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    std::iter::once(name)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}
