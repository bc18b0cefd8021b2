//! The table of `docs/hand-cases.md`: what becomes of each hand-written module among the exports, and why.
//!
//! The outcome of every row is checked; `ATTNC_BLESS=1` writes it. What a case is, the second column, is
//! written by hand.

use crate::support::{Outcome, absent, ensure, material, trial, workspace};
use attnc::opt::{AttentionReport, Optimised, Options, RemarkKind};
use attnc::{Model, compile};
use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

#[derive(Deserialize)]
struct Case {
    case: String,
    exporter: String,
}

const PREFIX: &str = "hand_";

pub(super) fn trials() -> Vec<Trial> {
    let name = "models/hand cases are as the documentation says";
    match material("exports") {
        Some(_) => vec![trial(name, &[], table_holds)],
        None => vec![absent(
            name,
            "no ../shared/cases/exports beside the workspace",
        )],
    }
}

fn table_holds() -> Outcome {
    let path = workspace().join("docs/hand-cases.md");
    let text = std::fs::read_to_string(&path)?;
    let outcomes = outcomes()?;
    let is_row = |line: &str| line.starts_with("| `");
    let known: BTreeMap<&str, &str> = text
        .lines()
        .filter(|line| is_row(line))
        .filter_map(described)
        .collect();
    let rows: String = outcomes
        .iter()
        .map(|(case, outcome)| {
            let what = known.get(case.as_str()).unwrap_or(&"");
            format!("| `{case}` | {what} | {outcome} |\n")
        })
        .collect();
    let (before, after): (Vec<&str>, Vec<&str>) = (
        text.split_inclusive('\n')
            .take_while(|l| !is_row(l))
            .collect(),
        text.split_inclusive('\n')
            .skip_while(|l| !is_row(l))
            .skip_while(|l| is_row(l))
            .collect(),
    );
    let wanted = format!("{}{rows}{}", before.concat(), after.concat());
    if std::env::var_os("ATTNC_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &wanted)?;
        return Ok(());
    }
    let now: BTreeSet<&str> = text.lines().collect();
    let new: Vec<_> = wanted.lines().filter(|line| !now.contains(line)).collect();
    ensure(text == wanted, || {
        format!(
            "docs/hand-cases.md differs from what `attnc explain` says; read, then bless with ATTNC_BLESS=1:\n{}",
            new.join("\n")
        )
    })?;
    let silent: Vec<_> = outcomes
        .keys()
        .filter(|case| known.get(case.as_str()).is_none_or(|what| what.is_empty()))
        .collect();
    ensure(silent.is_empty(), || {
        format!("docs/hand-cases.md does not say what these are: {silent:?}")
    })
}

/// The case of a row and what it says the case is.
fn described(row: &str) -> Option<(&str, &str)> {
    let mut cells = row.split(" | ");
    let case = cells.next()?.strip_prefix("| `")?.strip_suffix('`')?;
    Some((case, cells.next()?))
}

/// The folders of all exports, by name.
fn folders() -> Result<Vec<PathBuf>, Failed> {
    let folder = material("exports").ok_or("no exports")?;
    let entries = std::fs::read_dir(folder)?.flatten();
    let mut folders: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|p| p.is_dir())
        .collect();
    folders.sort();
    Ok(folders)
}

/// The last column by case: one sentence for each outcome, and for which exporters where they differ.
fn outcomes() -> Result<BTreeMap<String, String>, Failed> {
    let mut by_case: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for folder in folders()? {
        let case: Case = serde_json::from_str(&std::fs::read_to_string(folder.join("case.json"))?)?;
        let Some(name) = case.case.strip_prefix(PREFIX) else {
            continue;
        };
        let model = Model::open(folder.join("model.onnx"))?;
        let optimised = compile::optimise(&model.graph, &Options::default())?;
        let outcomes = by_case.entry(name.to_owned()).or_default();
        outcomes
            .entry(outcome(&optimised))
            .or_default()
            .push(case.exporter);
    }
    let line = |outcomes: BTreeMap<String, Vec<String>>| {
        let several = outcomes.len() > 1;
        let parts = outcomes.into_iter().map(|(outcome, exporters)| {
            if several {
                format!("{}: {outcome}", exporters.join(", "))
            } else {
                outcome
            }
        });
        parts.collect::<Vec<_>>().join("; ")
    };
    Ok(by_case
        .into_iter()
        .map(|(case, o)| (case, line(o)))
        .collect())
}

fn outcome(optimised: &Optimised) -> String {
    let AttentionReport {
        found,
        fused,
        declined,
    } = &optimised.attention;
    let state = match (found, fused) {
        (0, _) => "no softmax over keys".to_owned(),
        _ if found == fused => format!("{found} found, **fused**"),
        _ => format!("{found} found, {fused} fused, **declined**"),
    };
    let declined = declined.iter().map(|d| d.reason.as_str());
    let notes = optimised
        .remarks
        .iter()
        .filter(|r| r.pass == "fuse-attention" && r.kind == RemarkKind::Note);
    let why: BTreeSet<&str> = declined.chain(notes.map(|n| n.message.as_str())).collect();
    let why: Vec<_> = why
        .into_iter()
        .map(|text| {
            text.trim_start_matches("no attention: ")
                .replace('|', "\\|")
        })
        .collect();
    if why.is_empty() {
        state
    } else {
        format!("{state}: {}", why.join("; "))
    }
}
