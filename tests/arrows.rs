//! The arrows between our crates, as `docs/architecture.md` draws them.
//!
//! Data flows down, never back up: import, passes, code generation, the CPU and the GPU are
//! siblings that meet only in the graph and the plan. This compares `cargo metadata` with the
//! table below, so that an arrow is added here, on purpose, or not at all.

use std::process::Command;

use serde_json::Value;

/// Crate → the crates of ours that it may depend on, and those of [`OWNERS`] where it is none.
const ARROWS: [(&str, &[&str]); 13] = [
    ("attnc-ir", &[]),
    ("attnc-onnx", &["attnc-ir"]),
    ("attnc-opt", &["attnc-ir"]),
    ("attnc-plan", &["attnc-ir"]),
    ("attnc-shaders", &[]),
    (
        "attnc-codegen",
        &["attnc-ir", "attnc-plan", "attnc-shaders"],
    ),
    ("attnc-cpu", &["attnc-ir"]),
    ("attnc-wgpu", &["attnc-plan"]),
    (
        "attnc",
        &[
            "attnc-ir",
            "attnc-onnx",
            "attnc-opt",
            "attnc-plan",
            "attnc-shaders",
            "attnc-codegen",
            "attnc-cpu",
            "attnc-wgpu",
        ],
    ),
    ("attnc-cli", &["attnc"]),
    // Writes ONNX with messages of its own, so that it checks the importer's.
    ("xtask", &[]),
    ("attnc-tests", &["attnc"]),
    // A host: it owns the device, and measures its peaks with kernels of its own.
    ("attnc-benches", &["attnc", "wgpu"]),
];

/// A family of crates, by the name it begins with, and the one crate of ours that may know it.
const OWNERS: [(&str, &str); 2] = [("naga", "attnc-codegen"), ("wgpu", "attnc-wgpu")];

/// What tests and examples may depend on beyond that.
const DEV_ARROWS: [(&str, &[&str]); 3] = [
    // Each rewrite is executed before and after, in f64.
    ("attnc-opt", &["attnc-cpu"]),
    // The kernels that it runs in its own tests are generated.
    ("attnc-wgpu", &["attnc-codegen", "attnc-ir"]),
    // The embedding example is a host: it owns the device.
    ("attnc", &["wgpu"]),
];

#[test]
fn crates_depend_only_along_the_arrows() {
    let found = violations(&metadata());
    assert!(
        found.is_empty(),
        "{}\nthe arrows are in tests/arrows.rs and docs/architecture.md",
        found.join("\n")
    );
}

#[test]
fn a_wrong_arrow_is_found() {
    let mut metadata = metadata();
    let packages = metadata["packages"].as_array_mut().unwrap();
    let cpu = packages
        .iter_mut()
        .find(|package| package["name"] == "attnc-cpu")
        .unwrap();
    cpu["dependencies"] = serde_json::json!([
        {"name": "attnc-opt", "kind": null},
        {"name": "attnc-onnx", "kind": "dev"},
        {"name": "wgpu-core", "kind": "build"},
        {"name": "rayon", "kind": null},
    ]);
    let mut stranger = cpu.clone();
    stranger["name"] = "attnc-cuda".into();
    stranger["dependencies"] = serde_json::json!([]);
    packages.push(stranger);
    assert_eq!(
        violations(&metadata),
        [
            "attnc-cpu depends on attnc-opt; it may depend on attnc-ir",
            "attnc-cpu depends on attnc-onnx in tests; it may depend on attnc-ir",
            "attnc-cpu depends on wgpu-core; only attnc-wgpu may know wgpu",
            "attnc-cuda has no row in the table",
        ]
    );
}

fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {errors}");
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// What disagrees with the tables, one line each.
fn violations(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().expect("a list of packages");
    let names: Vec<&str> = packages
        .iter()
        .map(|package| text(&package["name"]))
        .collect();
    let mut found = Vec::new();
    for package in packages {
        let name = text(&package["name"]);
        let Some((_, allowed)) = ARROWS.iter().find(|(row, _)| *row == name) else {
            found.push(format!("{name} has no row in the table"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("a list") {
            found.extend(violation(name, allowed, dependency, &names));
        }
    }
    for (row, _) in ARROWS.iter().filter(|(row, _)| !names.contains(row)) {
        found.push(format!("{row} of the table is no crate of the workspace"));
    }
    found
}

fn violation(name: &str, allowed: &[&str], dependency: &Value, ours: &[&str]) -> Option<String> {
    let target = text(&dependency["name"]);
    let is_dev = dependency["kind"] == "dev";
    let for_tests = DEV_ARROWS
        .iter()
        .filter(|_| is_dev)
        .find(|(row, _)| *row == name);
    if for_tests.is_some_and(|(_, allowed)| allowed.contains(&target)) {
        return None;
    }
    if allowed.contains(&target) {
        return None;
    }
    let in_tests = if is_dev { " in tests" } else { "" };
    let arrow = format!("{name} depends on {target}{in_tests}");
    if ours.contains(&target) {
        let allowed = if allowed.is_empty() {
            "none of ours"
        } else {
            &allowed.join(", ")
        };
        return Some(format!("{arrow}; it may depend on {allowed}"));
    }
    let (family, owner) = OWNERS
        .iter()
        .find(|(family, _)| target.starts_with(family))?;
    (name != *owner).then(|| format!("{arrow}; only {owner} may know {family}"))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}
