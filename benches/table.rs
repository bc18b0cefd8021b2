//! The table: a row for each shape and contestant, and what follows from the rows.

use crate::contestant::{OWN_CHOICE, Side};
use crate::peak::{Bound, Peaks};
use crate::roofline::Piece;
use crate::shape::Shape;
use crate::shapes::GROWTH;
use crate::turns::Outcome;
use std::fmt::Write as _;

/// A row.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Row {
    /// The shape's name.
    pub shape: String,
    /// What it is.
    pub title: String,
    /// What was measured.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The median.
    pub median_ms: Option<f64>,
    /// Useful operations a nanosecond.
    pub gflops: Option<f64>,
    /// Bytes of K and V a nanosecond, for decode shapes.
    pub kv_gbs: Option<f64>,
    /// The least time by the adapter's peaks, at the pace it had between turns, over the time it took.
    pub share_of_peak: Option<f64>,
    /// What the least time is bound by.
    pub bound: Option<Bound>,
    /// Its time over that of attnc on the same side: above 1, attnc is faster.
    pub times_attnc: Option<f64>,
    /// Whether its result differs from the reference by more than rounding.
    pub wrong: bool,
}

/// The rows of a shape, whose least work is `pieces`.
#[must_use]
pub fn rows(
    shape: &Shape,
    outcomes: Vec<Outcome>,
    peaks: Option<&Peaks>,
    pieces: &[Piece],
) -> Vec<Row> {
    let ours = |name| {
        let ours = outcomes.iter().find(|o: &&Outcome| o.who == name);
        ours.and_then(Outcome::median)
    };
    let (gpu, cpu) = (ours(OWN_CHOICE), ours("attnc cpu"));
    let flops: f64 = pieces.iter().map(|piece| piece.flops).sum();
    let row = |outcome: Outcome| {
        let median_ms = outcome.median();
        let rate = |amount: f64| median_ms.map(|ms| amount / (ms * 1e6));
        let peaks = peaks.filter(|_| outcome.side == Side::Gpu);
        let least = peaks.map(|peaks| pieces.iter().map(|p| p.seconds(peaks, shape.dtype)).sum());
        let bound = match (peaks, pieces) {
            (Some(peaks), [piece]) => Some(piece.bound(peaks, shape.dtype)),
            _ => None,
        };
        let ours = if outcome.side == Side::Gpu { gpu } else { cpu };
        Row {
            shape: shape.name.clone(),
            title: shape.title.clone(),
            median_ms,
            gflops: rate(flops),
            kv_gbs: shape.kv_bytes().and_then(rate),
            share_of_peak: median_ms
                .zip(least)
                .map(|(ms, least): (f64, f64)| 1e3 * least / ms / outcome.median_pace()),
            bound,
            times_attnc: median_ms.zip(ours).map(|(ms, ours)| ms / ours),
            wrong: outcome.error.is_some_and(|error| error > shape.tolerance()),
            outcome,
        }
    };
    outcomes.iter().cloned().map(row).collect()
}

/// The table as text.
#[must_use]
pub fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut last = "";
    for row in rows {
        if row.shape != last {
            last = &row.shape;
            let head = format!("({}) {}", row.shape, row.title);
            let _ = writeln!(text, "\n{head}\n{HEAD}");
        }
        text.push_str(&line(row));
    }
    text
}

const HEAD: &str =
    "                        median  fastest  GFLOP/s KV GB/s    peak x attnc    error  kernel";

fn line(row: &Row) -> String {
    let outcome = &row.outcome;
    if let Some(why) = &outcome.cannot {
        let words: Vec<&str> = why.split_whitespace().collect();
        let why: String = words.join(" ").chars().take(200).collect();
        return format!("  {:19}        - {why}\n", outcome.who);
    }
    let fastest = outcome.ms.iter().copied().fold(f64::INFINITY, f64::min);
    let or_none =
        |value: Option<f64>, digits| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
    let share = row
        .share_of_peak
        .map_or("-".to_owned(), |s| format!("{:.0} %", 100.0 * s));
    let error = outcome.error.map_or("-".to_owned(), |e| format!("{e:.0e}"));
    let wrong = if row.wrong { "WRONG " } else { "" };
    format!(
        "  {:19}{:>9}{:>9}{:>9}{:>8}{:>8}{:>8}{:>9}  {wrong}{}\n",
        outcome.who,
        or_none(row.median_ms, 3),
        or_none(Some(fastest), 3),
        or_none(row.gflops, 1),
        or_none(row.kv_gbs, 1),
        share,
        or_none(row.times_attnc, 2),
        error,
        outcome.kernel
    )
}

/// A step of a growth series.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Growth {
    /// The series.
    pub series: &'static str,
    /// The contestant.
    pub who: String,
    /// The longer shape.
    pub shape: String,
    /// Its time over that of half the length, both at the pace that the adapter had between turns.
    pub time: f64,
    /// The same for the fastest run of each, which has least of what else the machine does.
    pub fastest: f64,
    /// The same for bytes of inputs, results and intermediates.
    pub memory: Option<f64>,
}

/// What each doubling of the length costs.
#[must_use]
pub fn growth(rows: &[Row]) -> Vec<Growth> {
    let mut steps = Vec::new();
    for (series, names) in GROWTH {
        for pair in names.windows(2) {
            for longer in rows.iter().filter(|row| row.shape == pair[1]) {
                let half =
                    |row: &&Row| row.shape == pair[0] && row.outcome.who == longer.outcome.who;
                let Some(half) = rows.iter().find(half) else {
                    continue;
                };
                let at_pace = |row: &Row| row.median_ms.map(|ms| ms * row.outcome.median_pace());
                let (Some(a), Some(b)) = (at_pace(half), at_pace(longer)) else {
                    continue;
                };
                let fastest =
                    |row: &Row| row.outcome.ms.iter().copied().fold(f64::INFINITY, f64::min);
                let memory = half.outcome.memory.zip(longer.outcome.memory);
                steps.push(Growth {
                    series,
                    who: longer.outcome.who.clone(),
                    shape: longer.shape.clone(),
                    time: b / a,
                    fastest: fastest(longer) / fastest(half),
                    memory: memory.map(|(a, b)| b as f64 / a as f64),
                });
            }
        }
    }
    steps
}

/// The growth as text; empty where nothing grows.
#[must_use]
pub fn growth_text(steps: &[Growth]) -> String {
    let mut text = String::new();
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for step in steps {
        if seen.contains(&(step.series, step.who.as_str())) {
            continue;
        }
        seen.push((step.series, &step.who));
        let same = steps
            .iter()
            .filter(|s| s.series == step.series && s.who == step.who);
        let _ = write!(text, "  {:12}{:18}", step.series, step.who);
        for step in same {
            let memory = step
                .memory
                .map_or(String::new(), |m| format!(", memory x{m:.2}"));
            let Growth {
                shape,
                time,
                fastest,
                ..
            } = step;
            let _ = write!(
                text,
                "  {shape}: time x{time:.2} (fastest x{fastest:.2}){memory}"
            );
        }
        text.push('\n');
    }
    if text.is_empty() {
        text
    } else {
        format!("\neach doubling of the keys\n{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes;

    fn outcome(who: &str, side: Side, ms: f64, memory: u64) -> Outcome {
        Outcome {
            who: who.to_owned(),
            side,
            kernel: "k".to_owned(),
            pace: Vec::new(),
            ms: vec![ms; 3],
            prepare_ms: 1.0,
            error: Some(if who == "burn" { 0.5 } else { 1e-7 }),
            memory: Some(memory),
            cannot: None,
        }
    }

    fn shape(name: &str) -> Shape {
        shapes::portable()
            .0
            .into_iter()
            .find(|s| s.name == name)
            .unwrap()
    }

    #[test]
    fn a_share_is_the_least_time_over_the_time() {
        let shape = shape("d");
        let piece = Piece {
            flops: shape.flops().unwrap(),
            bytes: shape.bytes().unwrap(),
        };
        let peaks = Peaks {
            flops_f32: 1e11,
            flops_f16: None,
            copy: shape.bytes().unwrap() * 1e3,
        };
        let outcomes = vec![
            outcome("attnc gpu", Side::Gpu, 4.0, 1),
            outcome("burn", Side::Gpu, 8.0, 1),
            outcome("torch cpu", Side::Cpu, 1.0, 1),
            Outcome {
                pace: vec![0.4, 0.5, 1.0],
                ..outcome("disturbed", Side::Gpu, 4.0, 1)
            },
        ];
        let rows = rows(&shape, outcomes, Some(&peaks), &[piece]);
        assert_eq!(rows[0].share_of_peak, Some(0.25));
        assert_eq!(rows[0].bound, Some(Bound::Bandwidth));
        assert_eq!((rows[1].times_attnc, rows[1].wrong), (Some(2.0), true));
        assert_eq!((rows[2].times_attnc, rows[2].share_of_peak), (None, None));
        assert_eq!(
            rows[3].share_of_peak,
            Some(0.5),
            "the adapter was at half its pace"
        );
        let text = text(&rows);
        assert!(text.contains("25 %") && text.contains("WRONG"), "{text}");
    }

    #[test]
    fn growth_is_of_the_same_contestant() {
        let row = |name: &str, ms, pace, memory| {
            let outcome = Outcome {
                pace: vec![pace],
                ..outcome(OWN_CHOICE, Side::Gpu, ms, memory)
            };
            rows(&shape(name), vec![outcome], None, &[])
        };
        let all: Vec<Row> = [
            row("g1k", 1.0, 1.0, 10),
            row("g2k", 8.0, 0.5, 20),
            row("w1k", 1.0, 1.0, 10),
        ]
        .concat();
        let steps = growth(&all);
        assert_eq!(steps.len(), 1);
        assert_eq!((steps[0].time, steps[0].memory), (4.0, Some(2.0)));
        assert_eq!(steps[0].fastest, 8.0);
        assert!(growth_text(&steps).contains("g2k: time x4.00 (fastest x8.00), memory x2.00"));
    }
}
