//! The command line, held to the transcripts in `tests/cases/cli` and in README.md.
//!
//! A transcript is what a person sees: the command, stdout and stderr in order, and `? N` where the exit
//! code is not 0; `[..]` stands for what differs between machines. `ATTNC_BLESS=1` rewrites them.
//! Commands run in the root of the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

const ATTNC: &str = env!("CARGO_BIN_EXE_attnc");

fn attnc() -> Command {
    let mut attnc = Command::new(ATTNC);
    // The user's cache is none of the tests' business.
    attnc.env("ATTNC_CACHE_DIR", "");
    attnc
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// trycmd blesses where `TRYCMD=overwrite`; ours is one switch for all cases.
fn blessed_again(test: &str) -> bool {
    if std::env::var_os("ATTNC_BLESS").is_none() || std::env::var_os("TRYCMD").is_some() {
        return false;
    }
    let this = std::env::current_exe().expect("the test program has a path");
    let status = Command::new(this)
        .args(["--exact", test])
        .env("TRYCMD", "overwrite")
        .status();
    assert!(status.expect("the test program starts").success());
    true
}

#[test]
fn transcripts() {
    if blessed_again("transcripts") {
        return;
    }
    std::env::set_current_dir(root()).expect("the workspace is there");
    trycmd::TestCases::new()
        .register_bin("attnc", Path::new(ATTNC))
        .env("NO_COLOR", "1")
        // The user's cache is none of the tests' business.
        .env("ATTNC_CACHE_DIR", "")
        .case("tests/cases/cli/*.trycmd")
        .case("README.md");
}

/// The commands of README.md's first block that run the tool, without what builds it.
fn readme_commands() -> Vec<Vec<String>> {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("there is a README");
    let prefix = "cargo run -p attnc-cli -- ";
    let commands = readme.lines().filter_map(|line| {
        let line = line.trim_start_matches("$ ");
        line.strip_prefix(prefix)
    });
    commands
        .map(|c| c.split_whitespace().map(str::to_owned).collect())
        .collect()
}

#[test]
fn the_readmes_commands_do_what_it_says() {
    let commands = readme_commands();
    assert!(!commands.is_empty(), "README.md runs the tool");
    for arguments in commands {
        let output = attnc().args(&arguments).current_dir(root()).output();
        let output = output.expect("attnc starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "attnc {}: {errors}",
            arguments.join(" ")
        );
        let said = String::from_utf8_lossy(&output.stdout);
        if arguments[0] == "verify" {
            for part in ["all fused", "running on", "largest difference"] {
                assert!(said.contains(part), "{part} is missing in {said}");
            }
        }
    }
}

/// `--json` leaves nothing but one object on stdout, whatever goes on beside it.
#[test]
fn json_is_alone_on_stdout() {
    let model = "tests/models/bert_tiny.onnx";
    let inputs = [
        "-i",
        "tests/models/bert_tiny.inputs.npz",
        "--backend",
        "cpu",
    ];
    for (command, with_inputs) in [
        ("explain", false),
        ("run", true),
        ("verify", true),
        ("bench", true),
        ("devices", false),
    ] {
        let mut attnc = attnc();
        attnc.current_dir(root()).arg(command);
        if command != "devices" {
            attnc.arg(model);
        }
        if with_inputs {
            attnc.args(inputs);
        }
        let output = attnc.arg("--json").output().expect("attnc starts");
        assert!(output.status.success(), "{command}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(json.is_object(), "{command}");
    }
}

/// What `tune` finds is what `explain` says afterwards, in the same bytes every time. Without an adapter there is
/// nothing to hold; `ATTNC_REQUIRE_GPU` makes that a failure.
#[test]
fn what_was_tuned_is_explained() {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let run = |arguments: &[&str]| {
        let mut attnc = attnc();
        attnc.env("ATTNC_CACHE_DIR", folder.path());
        let attnc = attnc.current_dir(root()).args(arguments);
        attnc.output().expect("attnc starts")
    };
    let model = "tests/cases/cli/files/causal.attn";
    let tune = [
        "tune",
        model,
        "--dim",
        "B=1",
        "--dim",
        "M=40",
        "--backend",
        "gpu",
    ];
    let tuned = run(&[&tune[..], &["--rounds", "1", "--json"]].concat());
    if tuned.status.code() == Some(4) {
        let errors = String::from_utf8_lossy(&tuned.stderr);
        assert!(errors.contains("no adapter"), "{errors}");
        assert_ne!(
            std::env::var("ATTNC_REQUIRE_GPU").as_deref(),
            Ok("1"),
            "{errors}"
        );
        return;
    }
    let tuned: serde_json::Value = serde_json::from_slice(&tuned.stdout).expect("one object");
    let explain = ["explain", model, "--backend", "gpu", "--json"];
    let explained = run(&explain).stdout;
    assert_eq!(run(&explain).stdout, explained);
    let explained: serde_json::Value = serde_json::from_slice(&explained).expect("one object");
    let problems = tuned["problems"].as_array().expect("a list");
    let choices = explained["choices"].as_array().expect("a list").iter();
    let choices: Vec<_> = choices
        .filter(|c| c["kernels"].as_array().is_some_and(|k| k.len() > 1))
        .collect();
    assert_eq!(problems.len(), choices.len(), "{tuned} {explained}");
    for (problem, choice) in problems.iter().zip(choices) {
        assert_eq!(problem["chosen"], choice["chosen"]);
        let measured = choice.get("measured").is_some();
        assert_eq!(!problem["ratio"].is_null(), measured, "{choice}");
    }
}

/// As under `| head`: whoever reads goes away after the first byte.
#[test]
fn a_reader_that_goes_away_is_no_panic() {
    use std::io::Read as _;
    let mut attnc = attnc()
        .args(["explain", "tests/models/bert_tiny.onnx", "--json"])
        .current_dir(root())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("attnc starts");
    drop(attnc.stdout.take());
    let mut errors = String::new();
    let stderr = attnc.stderr.as_mut().expect("stderr is a pipe");
    stderr.read_to_string(&mut errors).expect("stderr is text");
    assert!(attnc.wait().expect("attnc ends").success(), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
}

/// The paragraphs of README.md's WGSL, without indentation.
fn readme_shader() -> Vec<String> {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("there is a README");
    let blocks = readme.split("```wgsl\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let paragraphs = blocks.flat_map(|block| block.trim().split("\n\n"));
    paragraphs.map(unindented).collect()
}

fn unindented(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    lines.join("\n")
}

fn compile_causal(folder: &Path, kernels: &str) {
    let output = attnc()
        .args(["compile", "tests/cases/cli/files/causal.attn"])
        .args(["--kernels", kernels, "-o"])
        .arg(folder)
        .current_dir(root())
        .output();
    assert!(output.expect("attnc starts").status.success());
}

fn shaders(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).expect("compile wrote a folder");
    let files = files.map(|file| file.expect("it is readable").path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|e| e == "wgsl"))
        .collect();
    files.sort();
    files
}

#[test]
fn compiling_again_leaves_no_kernel_of_before() {
    let [again, fresh] = ["again", "fresh"]
        .map(|_| tempfile::tempdir().expect("there is a folder for temporary files"));
    compile_causal(again.path(), "rows");
    let first = shaders(again.path());
    let mine = again.path().join("mine.wgsl");
    std::fs::write(&mine, "// mine").expect("the folder can be written to");
    compile_causal(again.path(), "tiled");
    compile_causal(fresh.path(), "tiled");
    let names = |files: Vec<PathBuf>| -> Vec<_> {
        let names = files
            .iter()
            .map(|file| file.file_name().map(ToOwned::to_owned));
        names.collect()
    };
    let mut expected = names(shaders(fresh.path()));
    assert!(!expected.contains(&first[0].file_name().map(ToOwned::to_owned)));
    expected.push(mine.file_name().map(ToOwned::to_owned));
    expected.sort();
    assert_eq!(names(shaders(again.path())), expected);
}

#[test]
fn the_readmes_shader_is_what_compile_writes() {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let folder = folder.path();
    compile_causal(folder, "rows");
    let written: String = shaders(folder)
        .iter()
        .map(|path| std::fs::read_to_string(path).expect("a shader is text"))
        .collect();
    let written = unindented(&written);
    let paragraphs = readme_shader();
    assert!(paragraphs.len() >= 3, "README.md shows the shader");
    for paragraph in paragraphs {
        assert!(written.contains(&paragraph), "not written:\n{paragraph}");
    }
}
