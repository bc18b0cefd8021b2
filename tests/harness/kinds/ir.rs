//! `ir/ok`: the text form is a fixed point. `ir/err`: what people read about a text with mistakes.

use crate::harness::bless;
use crate::harness::file::Case;
use attnc::ir::{render_diagnostics, text};
use libtest_mimic::Failed;
use std::collections::BTreeSet;

/// The graph reads, prints as it is written, and the printed text prints the same again.
pub(crate) fn ok(case: &Case) -> Result<(), Failed> {
    case.check(&[], false)?;
    let source = case.source();
    let graph =
        text::parse(&source).map_err(|found| render_diagnostics(&case.name, &source, &found))?;
    let printed = text::print(&graph);
    let again =
        text::parse(&printed).map_err(|found| render_diagnostics("printed", &printed, &found))?;
    if text::print(&again) != printed {
        return Err(bless::difference(
            &case.name,
            &printed,
            &text::print(&again),
        ));
    }
    bless::expect_source(case, &printed)
}

/// The text does not read, and says why.
pub(crate) fn err(case: &Case) -> Result<(), Failed> {
    case.check(&[], true)?;
    let source = case.source();
    match text::parse(&source) {
        Ok(_) => Err("the text reads; expected diagnostics".into()),
        Err(found) => bless::expect(
            case,
            &render_diagnostics(&format!("{}.attn", case.stem()), &source, &found),
        ),
    }
}

/// Every code of the parser occurs in a case. (Those of the verifier have unit tests.)
pub(crate) fn every_code_has_a_case(cases: &[Case]) -> Result<(), String> {
    let expected: BTreeSet<&str> = text::CODES.iter().map(|(code, _)| *code).collect();
    let errors = cases.iter().filter(|c| c.name.starts_with("ir/err/"));
    let lines: Vec<&str> = errors
        .filter_map(|c| c.expected.as_deref())
        .flat_map(str::lines)
        .collect();
    let seen: BTreeSet<&str> = lines
        .iter()
        .filter_map(|l| {
            l.strip_prefix("error[")?
                .split_once(']')
                .map(|(code, _)| code)
        })
        .collect();
    let missing: Vec<_> = expected.difference(&seen).copied().collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("no case in ir/err for: {}", missing.join(", ")))
    }
}
