//! The table at the end: a line a family, and the kinds of refusals below it.

use super::known::Expected;
use super::verdict::{Place, Verdict};
use attnc::opt::AttentionReport;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A line of the table.
#[derive(Default)]
struct Line {
    right: usize,
    wrong: usize,
    refused: usize,
    /// Attention found and fused, and how much a case says there is.
    attention: [usize; 3],
}

#[derive(Default)]
struct Table {
    lines: BTreeMap<String, Line>,
    /// How many models are refused, by the words of the list and the backend.
    refused: BTreeMap<(&'static str, &'static str), usize>,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    lines: BTreeMap::new(),
    refused: BTreeMap::new(),
});

/// Enters what became of a model, and what the list says of it.
pub(super) fn enter(
    place: &Place,
    verdict: &Verdict,
    expected: Option<Expected>,
    attention: Option<&AttentionReport>,
) {
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let line = table.lines.entry(place.family.clone()).or_default();
    match verdict {
        Verdict::Right | Verdict::Invalid(_) => line.right += 1,
        Verdict::Wrong(_) => line.wrong += 1,
        Verdict::Refused(_) => line.refused += 1,
    }
    if let Some(report) = attention {
        let seen = [report.found, report.fused, place.there.unwrap_or(0)];
        for (sum, n) in line.attention.iter_mut().zip(seen) {
            *sum += n;
        }
    }
    if let (Verdict::Refused(_), Some(Expected::Refused(says))) = (verdict, expected) {
        *table.refused.entry((says, place.backend)).or_default() += 1;
    }
}

/// Prints the table, where anything was entered.
pub(crate) fn print() {
    let table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    if table.lines.is_empty() {
        return;
    }
    let headings = ["right", "wrong", "refused", "found", "fused", "attention"];
    eprint!("{:32}", "family");
    headings.iter().for_each(|h| eprint!("{h:>10}"));
    eprintln!();
    let mut sums = [0; 6];
    for (family, line) in &table.lines {
        let [found, fused, there] = line.attention;
        let row = [line.right, line.wrong, line.refused, found, fused, there];
        print_row(family, row);
        for (sum, n) in sums.iter_mut().zip(row) {
            *sum += n;
        }
    }
    print_row("all", sums);
    for ((says, backend), count) in &table.refused {
        eprintln!("refused on {backend}: {count} models: {says}");
    }
}

fn print_row(family: &str, row: [usize; 6]) {
    eprint!("{family:32}");
    row.iter().for_each(|n| eprint!("{n:10}"));
    eprintln!();
}
