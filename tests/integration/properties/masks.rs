//! Masks: every rank with every broadcast, both corners of a causal one, rules that leave whole tiles of keys
//! without a reader.

use super::families::{Heads, attention, padded_decoder};
use super::{Family, Fill, Lengths};

/// f32 against f64: scores of a few units, sums of some hundred terms.
const RTOL: f64 = 2e-5;

pub(super) fn families() -> Vec<Family> {
    let mut all: Vec<_> = (1..=4).flat_map(broadcasts).collect();
    all.extend(rules());
    all
}

const NAMES: [&str; 16] = [
    "mask0", "mask1", "mask2", "mask3", "mask4", "mask5", "mask6", "mask7", "mask8", "mask9",
    "mask10", "mask11", "mask12", "mask13", "mask14", "mask15",
];

/// One graph of an attention for each way in which a mask of so many axes broadcasts, boolean and added.
fn broadcasts(rank: usize) -> [Family; 2] {
    let count = 1 << rank;
    let shape = |n: usize| {
        let axes = ["B", "2", "M", "N"][4 - rank..].iter().enumerate();
        let axes = axes.map(|(at, axis)| if n >> at & 1 == 1 { axis } else { "1" });
        axes.collect::<Vec<_>>().join(", ")
    };
    let graph = |dtype: &str, masked: fn(usize) -> String| {
        let masks = (0..count).map(|n| format!(", %mask{n}: {dtype}[{}]", shape(n)));
        let attentions = (0..count).map(|n| {
            format!(
                "  {}\n  %p{n} = softmax %m{n}, axis = 3\n  %o{n} = matmul %p{n}, %v\n",
                masked(n)
            )
        });
        let outputs: Vec<_> = (0..count).map(|n| format!("%o{n}")).collect();
        format!(
            "graph @g(%q: f32[B, 2, M, 4], %k: f32[B, 2, N, 4], %v: f32[B, 2, N, 4]{}) {{
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %r = matmul %q, %kt
  %s = mul %r, 0.9
{}  return {}
}}",
            masks.collect::<String>(),
            attentions.collect::<String>(),
            outputs.join(", ")
        )
    };
    let family = |name: &'static str, text, fill| Family {
        name,
        text,
        lengths: vec![
            ("B", Lengths::To(2)),
            ("M", Lengths::To(12)),
            ("N", Lengths::SmallEdges),
        ],
        fills: NAMES[..count].iter().map(|name| (*name, fill)).collect(),
        fused: count,
        rtol: RTOL,
        cases: 12,
    };
    let names = [
        [
            "masks of 1 axis",
            "masks of 2 axes",
            "masks of 3 axes",
            "masks of 4 axes",
        ],
        [
            "added masks of 1 axis",
            "added masks of 2 axes",
            "added masks of 3 axes",
            "added masks of 4 axes",
        ],
    ];
    let boolean = graph("bool", |n| format!("%m{n} = where %mask{n}, %s, -inf"));
    let added = graph("f32", |n| format!("%m{n} = add %s, %mask{n}"));
    [
        family(names[0][rank - 1], boolean, Fill::MaskWithDeadRows),
        family(names[1][rank - 1], added, Fill::Additive(f64::NEG_INFINITY)),
    ]
}

/// Positions of queries and keys, and what is true of them where there is a key.
fn rule(corner: &str, alive: &str) -> String {
    format!(
        "  %rows = iota i32[M, 1], axis = 0, start = {corner}, step = 1
  %columns = iota i32[1, N], axis = 1, start = 0, step = 1
  %causal = le %columns, %rows
{alive}
  %m = where %alive, %s, -inf"
    )
}

/// Rules of position and of data, at lengths of several tiles.
fn rules() -> Vec<Family> {
    let family = |name, extra: &str, masked: &str, fills: &[(&'static str, Fill)]| Family {
        name,
        text: attention(Heads::of(8), extra, masked),
        lengths: vec![
            ("B", Lengths::To(2)),
            ("M", Lengths::Tiles),
            ("N", Lengths::Tiles),
        ],
        fills: fills.to_vec(),
        fused: 1,
        rtol: RTOL,
        cases: 16,
    };
    let placed = |name, corner, alive: &str| family(name, "", &rule(corner, alive), &[]);
    let near = "  %back = sub %rows, %columns\n  %near = lt %back, 19\n";
    let documents = "%of_query: i32[B, M], %of_key: i32[B, N]";
    let same = "  %a = reshape %of_query, shape = [B, 1, M, 1]
  %b = reshape %of_key, shape = [B, 1, 1, N]
  %same = eq %a, %b\n";
    let sorted = [
        ("of_query", Fill::Ascending(5)),
        ("of_key", Fill::Ascending(5)),
    ];
    vec![
        placed(
            "causal at the top left",
            "0",
            "  %alive = and %causal, true",
        ),
        placed(
            "causal at the bottom right",
            "N - M",
            "  %alive = and %causal, true",
        ),
        placed(
            "window at the top left",
            "0",
            &format!("{near}  %alive = and %causal, %near"),
        ),
        placed(
            "window at the bottom right",
            "N - M",
            &format!("{near}  %alive = and %causal, %near"),
        ),
        placed(
            "prefix",
            "0",
            "  %prefix = lt %columns, 37\n  %alive = or %causal, %prefix",
        ),
        placed(
            "blocks and global keys",
            "0",
            "  %a = div %rows, 16
  %b = div %columns, 16
  %same = eq %a, %b
  %global = lt %columns, 3
  %alive = or %same, %global",
        ),
        family(
            "documents",
            documents,
            &rule("0", &format!("{same}  %alive = and %same, true")),
            &sorted,
        ),
        family(
            "documents, causal",
            documents,
            &rule("0", &format!("{same}  %alive = and %same, %causal")),
            &sorted,
        ),
        family(
            "keys up to a length",
            "%length: i32[B]",
            &rule(
                "0",
                "  %l = reshape %length, shape = [B, 1, 1, 1]\n  %alive = lt %columns, %l",
            ),
            &[("length", Fill::Below(150))],
        ),
        // Left padding leaves the first rows of a causal mask without a key that is not filled.
        family(
            "causal and padded with -3.4e38",
            "%mask: bool[B, 1, 1, N]",
            &padded_decoder("-3.4028235e38"),
            &[("mask", Fill::MaskWithDeadRows)],
        ),
        family(
            "causal and padded with -1e9",
            "%mask: bool[B, 1, 1, N]",
            &padded_decoder("-1e9"),
            &[("mask", Fill::MaskWithDeadRows)],
        ),
        family(
            "causal and padded with -1e4",
            "%mask: bool[B, 1, 1, N]",
            &padded_decoder("-1e4"),
            &[("mask", Fill::MaskWithDeadRows)],
        ),
        family(
            "a row in places without a key",
            "%mask: bool[B, 1, M, N]",
            "  %m = where %mask, %s, -inf",
            &[("mask", Fill::MaskWithDeadRows)],
        ),
    ]
}
