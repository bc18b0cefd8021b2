//! `passes/<pass>` and `pipeline`: graphs before and after, the remarks, and that both compute the same.

use crate::harness::file::Case;
use crate::harness::{bless, numbers};
use attnc::ir::{Graph, text};
use attnc::opt::{Options, Pass, Remark, Session, pipeline};
use attnc::verify::Tolerance;
use attnc::{Model, oracle};
use libtest_mimic::Failed;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// One pass; `// after: a, b` runs those before it.
pub(crate) fn one(case: &Case) -> Result<(), Failed> {
    case.check(&["run", "after", "dims", "seed", "input"], true)?;
    let folder = case.name.split('/').nth(1).unwrap_or_default();
    if case.get("run") != Some(&format!("pass {folder}")) {
        return Err(format!("the header must say `// run: pass {folder}`").into());
    }
    let model = numbers::model(case)?;
    let mut graph = model.graph.clone();
    let before: Vec<_> = case.get("after").map_or(Vec::new(), |names| {
        names.split(',').map(str::trim).collect()
    });
    let before = before
        .into_iter()
        .map(pass)
        .collect::<Result<Vec<_>, _>>()?;
    Session::new(None)
        .run(&mut graph, &before)
        .map_err(|e| e.to_string())?;
    let mut session = Session::new(None);
    session
        .run(&mut graph, &[pass(folder)?])
        .map_err(|e| e.to_string())?;
    let (remarks, _) = session.into_parts();
    same_results(case, &model, &graph)?;
    bless::expect(case, &format!("{}{}", text::print(&graph), shown(&remarks)))
}

/// All passes.
pub(crate) fn all(case: &Case) -> Result<(), Failed> {
    case.check(
        &["run", "stop-after", "no-fuse", "dims", "seed", "input"],
        true,
    )?;
    if case.get("run") != Some("pipeline") {
        return Err("the header must say `// run: pipeline`".into());
    }
    let stop_after = match case.get("stop-after").map(str::parse) {
        Some(Err(_)) => return Err("`// stop-after: N` wants a number".into()),
        Some(Ok(n)) => Some(n),
        None => None,
    };
    let options = Options {
        fuse_attention: case.get("no-fuse").is_none(),
        stop_after,
    };
    let model = numbers::model(case)?;
    let optimised = attnc::optimise(&model.graph, &options).map_err(|e| e.to_string())?;
    same_results(case, &model, &optimised.graph)?;
    let attention = &optimised.attention;
    let mut out = text::print(&optimised.graph);
    let _ = writeln!(
        out,
        "// attention: {} found, {} fused",
        attention.found, attention.fused
    );
    out.push_str(&shown(&optimised.remarks));
    bless::expect(case, &out)
}

fn pass(name: &str) -> Result<Box<dyn Pass>, String> {
    let mut passes = pipeline(&Options::default());
    let known: Vec<_> = passes.iter().map(|p| p.name()).collect();
    match known.iter().position(|n| *n == name) {
        Some(n) => Ok(passes.swap_remove(n)),
        None => Err(format!(
            "no pass is called `{name}`; there are {}",
            known.join(", ")
        )),
    }
}

/// `// fused [%p]: message`, one line a remark.
fn shown(remarks: &[Remark]) -> String {
    remarks.iter().fold(String::new(), |mut out, remark| {
        let (kind, nodes) = (remark.kind.name(), remark.nodes.join(", "));
        let _ = writeln!(
            out,
            "// {}: {kind} [{nodes}]: {}",
            remark.pass,
            remark.message.replace('\n', "\n//   ")
        );
        if let Some(at) = &remark.at {
            let _ = writeln!(out, "//   at {at}");
        }
        out
    })
}

/// The rewritten graph computes what the source computes, in f64 on random inputs.
fn same_results(case: &Case, model: &Model, graph: &Graph) -> Result<(), Failed> {
    let dims = match case.get("dims") {
        Some(text) => numbers::dims(text)?,
        None => numbers::some_dims(model),
    };
    let inputs = numbers::inputs(case, model, &dims)?;
    let mut rewritten = model.clone();
    rewritten.graph = graph.clone();
    let run = |model: &Model| oracle::run(model, &inputs, &dims).map_err(|e| e.to_string());
    let (expected, found) = (run(model)?, run(&rewritten)?);
    // Where values are stored as halves, a fused graph rounds less often.
    let known = Tolerance::of_model(model);
    let tolerance = Tolerance {
        rtol: known.storage.is_none().then_some(1e-6),
        atol: known.storage.is_none().then_some(1e-9),
        ..known
    };
    numbers::agree(&expected, &found, &tolerance).map_err(|e| {
        format!(
            "the rewritten graph computes something else:\n{e}\n\n{}",
            text::print(graph)
        )
        .into()
    })
}

/// Every pass of the pipeline has a folder with a case.
pub(crate) fn every_pass_has_a_case(cases: &[Case]) -> Result<(), String> {
    let folders: BTreeSet<&str> = cases
        .iter()
        .filter_map(|c| c.name.strip_prefix("passes/")?.split_once('/'))
        .map(|(f, _)| f)
        .collect();
    let passes = pipeline(&Options::default());
    let missing: BTreeSet<_> = passes
        .iter()
        .map(|p| p.name())
        .filter(|n| !folders.contains(n))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "no case under passes/ for: {}",
        missing.into_iter().collect::<Vec<_>>().join(", ")
    ))
}
