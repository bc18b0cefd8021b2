//! `codegen`: the steps of the plan behind `----`, and every shader as a golden file.

use crate::harness::file::Case;
use crate::harness::runner::package;
use crate::harness::{bless, numbers};
use attnc::compile;
use attnc::plan::{DeviceProfile, Plan};
use libtest_mimic::Failed;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The folder of a case's shaders.
fn golden(case: &Case) -> PathBuf {
    package().join("golden").join("codegen").join(case.stem())
}

/// Compiles for `// profile: webgpu` (the default) twice and compares plan and shaders.
pub(crate) fn check(case: &Case) -> Result<(), Failed> {
    case.check(&["run", "profile"], true)?;
    if case.get("run") != Some("codegen") {
        return Err("the header must say `// run: codegen`".into());
    }
    let name = case.get("profile").unwrap_or("webgpu");
    let profile =
        DeviceProfile::by_name(name).ok_or_else(|| format!("no profile is called `{name}`"))?;
    let model = numbers::model(case)?;
    let make = || compile(&model.graph, &profile).map_err(|e| e.to_string());
    let (compiled, again) = (make()?, make()?);
    if compiled.plan != again.plan {
        return Err("two compilations of the same graph differ".into());
    }
    let folder = golden(case);
    let kernels = &compiled.plan.kernels;
    remove_or_report(
        &folder,
        &kernels
            .iter()
            .map(|k| bless::golden_stem(&k.name))
            .collect(),
    )?;
    for kernel in kernels {
        bless::expect_golden(case, &folder, &kernel.name, &kernel.wgsl)?;
    }
    bless::expect(case, &summary(&compiled.plan))
}

/// One line a step, then one a kernel.
fn summary(plan: &Plan) -> String {
    let mut out = String::new();
    for step in &plan.steps {
        let kernel = plan
            .kernels
            .get(step.kernel.index())
            .map_or("?", |k| k.name.as_str());
        let [x, y, z] = &step.grid;
        let _ = writeln!(out, "step {}: {kernel}, grid [{x}, {y}, {z}]", step.op);
    }
    for kernel in &plan.kernels {
        let [x, y, z] = kernel.workgroup_size;
        let _ = write!(out, "kernel {}: workgroup [{x}, {y}, {z}]", kernel.name);
        let tile = if kernel.tile.is_empty() {
            String::new()
        } else {
            format!("; {}", kernel.tile)
        };
        let _ = writeln!(out, ", {} bytes shared{tile}", kernel.workgroup_bytes);
    }
    out
}

/// Golden files of a folder that are not of these shaders: deleted when blessing, else reported.
fn remove_or_report(folder: &Path, made: &BTreeSet<String>) -> Result<(), String> {
    let mut stray = Vec::new();
    for path in files(folder) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let stem = name
            .strip_suffix(".snap.wgsl")
            .or_else(|| name.strip_suffix(".snap"));
        if stem.is_some_and(|s| made.contains(s)) {
            continue;
        }
        if bless::is_blessing() {
            std::fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        } else {
            stray.push(name);
        }
    }
    if stray.is_empty() {
        Ok(())
    } else {
        Err(format!("goldens that nothing makes: {}", stray.join(", ")))
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut out: Vec<_> = entries.map(|e| e.path()).collect();
    out.sort();
    out
}

/// Every folder of goldens belongs to a case.
pub(crate) fn no_stray_goldens(cases: &[Case]) -> Result<(), String> {
    let root = package().join("golden").join("codegen");
    let known: BTreeSet<PathBuf> = cases
        .iter()
        .filter(|c| c.name.starts_with("codegen/"))
        .map(golden)
        .collect();
    let stray: Vec<_> = files(&root)
        .into_iter()
        .filter(|path| !known.contains(path))
        .collect();
    let names: Vec<_> = stray.iter().map(|p| p.display().to_string()).collect();
    if names.is_empty() {
        Ok(())
    } else {
        Err(format!("goldens without a case: {}", names.join(", ")))
    }
}
