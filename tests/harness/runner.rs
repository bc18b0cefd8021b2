//! From the files to the list of tests.

use super::file::{self, Case};
use super::kinds::{codegen, ir, passes, run};
use libtest_mimic::{Failed, Trial};
use std::path::{Path, PathBuf};

/// The folder of this package.
pub(crate) fn package() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All tests: one or more a file, and those over all files of a folder.
pub(crate) fn trials() -> Vec<Trial> {
    let root = package().join("cases");
    let mut files = Vec::new();
    let mut out = Vec::new();
    if let Err(error) = walk(&root, &mut files) {
        out.push(failing(
            "cases",
            format!("cannot list {}: {error}", root.display()),
        ));
    }
    let mut cases = Vec::new();
    for path in files {
        match Case::read(&root, &path) {
            Ok(case) => cases.push(case),
            Err(error) => out.push(failing(&path.to_string_lossy(), error)),
        }
    }
    for case in &cases {
        out.extend(trials_of(case.clone()));
    }
    out.extend(overall(cases));
    out
}

/// The folders whose files other tests read.
const ELSEWHERE: [&str; 1] = ["cli"];

fn walk(folder: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if !path.is_dir() {
            out.push(path);
        } else if !ELSEWHERE.iter().any(|name| entry.file_name() == *name) {
            walk(&path, out)?;
        }
    }
    Ok(())
}

fn failing(name: &str, message: String) -> Trial {
    Trial::test(name, move || Err(Failed::from(message)))
}

fn trials_of(case: Case) -> Vec<Trial> {
    let name = case.name.clone();
    let folders: Vec<&str> = name.split('/').collect();
    let one = |check: fn(&Case) -> Result<(), Failed>| {
        vec![Trial::test(case.name.clone(), {
            let case = case.clone();
            move || check(&case)
        })]
    };
    match folders.as_slice() {
        [.., file] if !file.ends_with(".attn") => {
            vec![failing(&name, "a file nobody reads".to_owned())]
        }
        ["ir", "ok", _] => one(ir::ok),
        ["ir", "err", _] => one(ir::err),
        ["passes", _, _] => one(passes::one),
        ["pipeline", _] => one(passes::all),
        ["codegen", _] => one(codegen::check),
        ["run", _] => run::trials(case),
        _ => vec![failing(
            &name,
            "not in a folder of cases; see tests/harness/mod.rs".to_owned(),
        )],
    }
}

fn overall(cases: Vec<Case>) -> Vec<Trial> {
    type Check = fn(&[Case]) -> Result<(), String>;
    let checks: [(&'static str, Check); 4] = [
        (
            "harness refuses what nobody reads",
            file::refuses_what_nobody_reads,
        ),
        (
            "ir/err covers every code of the parser",
            ir::every_code_has_a_case,
        ),
        ("passes covers every pass", passes::every_pass_has_a_case),
        (
            "golden holds no shader that no case makes",
            codegen::no_stray_goldens,
        ),
    ];
    let trial = |(name, check): (&'static str, Check)| {
        let cases = cases.clone();
        Trial::test(name, move || check(&cases).map_err(Failed::from))
    };
    checks.into_iter().map(trial).collect()
}
