//! Attention by cooperative matrices, those of the adapter and emulated ones: operands of f16 of every kind that its
//! kernel tells apart.

use super::shapes::attention;
use super::{Family, Fill, Lengths, leaks};
use crate::emulated::MATRICES;
use crate::forced::OWN_MATRICES;
use crate::support::{Need, trial};
use libtest_mimic::Trial;

pub(super) fn trials() -> Vec<Trial> {
    let sites = [(MATRICES, Need::Gpu), (OWN_MATRICES, Need::Matrices)];
    sites
        .into_iter()
        .flat_map(|(site, need)| on(site, &need))
        .collect()
}

fn on(site: &'static str, need: &Need) -> Vec<Trial> {
    let of_family = |family: Family| {
        let name = format!("properties/{} in f16 on {site}", family.name);
        trial(name, std::slice::from_ref(need), move || family.check(site))
    };
    let mut trials: Vec<_> = families().into_iter().map(of_family).collect();
    trials.extend(leaks::of_halves(site, need));
    trials
}

/// Probabilities are rounded to f16, and then the result is.
const RTOL: f64 = 1.5 / 1024.0;

fn family(name: &'static str, text: &str, fills: &[(&'static str, Fill)]) -> Family {
    Family {
        name,
        text: text.replace("f32", "f16"),
        lengths: vec![
            ("B", Lengths::To(2)),
            ("M", Lengths::SmallEdges),
            ("N", Lengths::Tiles),
        ],
        fills: fills.to_vec(),
        fused: 1,
        rtol: RTOL,
        cases: 6,
    }
}

fn families() -> Vec<Family> {
    let causal = "kv_idx <= q_idx + (N - M)";
    let masked = |mask: &str, rest: &str| format!(", mask_mod = {{ {mask} }}{rest}");
    let window = format!("{causal} & q_idx + (N - M) - kv_idx < 70");
    let sink = masked(&window, ", sink = { max(%logits[h], row_max) }");
    let keep = ("keep", Fill::MaskWithDeadRows);
    let blocks =
        ", score_mod = { score + select(kv_idx < 30 | kv_idx > q_idx + 150, 0.0, -10000.0) }";
    vec![
        family(
            "grouped heads",
            &attention([4, 2], [16, 8], "", &masked(causal, "")),
            &[],
        ),
        family("heads of 64", &attention([2, 2], [64, 64], "", ""), &[]),
        family("heads of 128", &attention([2, 1], [128, 128], "", ""), &[]),
        family("columns apart", &attention([2, 1], [20, 72], "", ""), &[]),
        family(
            "columns that vectors do not divide",
            &attention([2, 1], [15, 7], "", &masked(causal, "")),
            &[],
        ),
        family(
            "padding",
            &attention(
                [2, 2],
                [8, 8],
                "%keep: bool[B, N]",
                &masked("%keep[b, kv_idx]", ""),
            ),
            &[keep],
        ),
        family(
            "window and sink",
            &attention([4, 1], [8, 8], "%logits: f32[4]", &sink),
            &[("logits", Fill::Times(3.0))],
        ),
        family(
            "blocks by a fill",
            &attention([2, 2], [8, 8], "", blocks),
            &[],
        ),
    ]
}
