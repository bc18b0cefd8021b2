//! Attention: head dims, ragged lengths, every kind of mask, grouped heads.
//!
//! Queries and keys have lengths of their own, both from 1 to beyond twice a workgroup's rows.

use super::families::{ADDED, ALL, BOOLEAN, CAUSAL, Heads, attention};
use super::{Family, Fill, Lengths};

/// f32 against f64: scores of a few units, sums of some hundred terms.
const RTOL: f64 = 2e-5;

fn family(name: &'static str, text: String, fills: &[(&'static str, Fill)]) -> Family {
    Family {
        name,
        text,
        lengths: vec![
            ("B", Lengths::To(3)),
            ("M", Lengths::Edges),
            ("N", Lengths::SmallEdges),
        ],
        fills: fills.to_vec(),
        fused: 1,
        rtol: RTOL,
        cases: 32,
    }
}

pub(super) fn families() -> Vec<Family> {
    let mut all = shapes();
    all.extend(masks());
    all.extend(head_dims());
    all.extend(lengths());
    all
}

/// Head dims that vectors divide and that they do not, scales, groups.
fn shapes() -> Vec<Family> {
    let wide = Heads {
        value_dim: 12,
        scale: 0.7,
        ..Heads::of(20)
    };
    let widened = Heads {
        value_dim: 96,
        ..Heads::of(64)
    };
    let grouped = Heads {
        queries: 6,
        keys: 2,
        ..Heads::of(16)
    };
    let one_key_head = Heads {
        queries: 4,
        keys: 1,
        ..Heads::of(8)
    };
    let negative = Heads {
        scale: -0.9,
        ..Heads::of(8)
    };
    // The product overflows f32, and the scores do not: the scale goes before.
    let tiny_scale = Heads {
        scale: 2e-38,
        ..Heads::of(8)
    };
    let overflow = Family {
        rtol: 1e-4,
        ..family(
            "attention tiny scale",
            attention(tiny_scale, "", ALL),
            &[("q", Fill::Times(1e20)), ("k", Fill::Times(1e19))],
        )
    };
    let long_keys = Family {
        lengths: vec![
            ("B", Lengths::To(2)),
            ("M", Lengths::SmallEdges),
            ("N", Lengths::Edges),
        ],
        ..family(
            "attention long keys",
            attention(Heads::of(8), "", CAUSAL),
            &[],
        )
    };
    vec![
        family("attention of dim 8", attention(Heads::of(8), "", ALL), &[]),
        family(
            "attention of dim 15",
            attention(Heads::of(15), "", CAUSAL),
            &[],
        ),
        family(
            "attention of dim 32",
            attention(Heads::of(32), "", CAUSAL),
            &[],
        ),
        family(
            "attention of dim 64",
            attention(Heads::of(64), "", ALL),
            &[],
        ),
        family(
            "attention of dim 80",
            attention(Heads::of(80), "", CAUSAL),
            &[],
        ),
        family("attention of two dims", attention(wide, "", ALL), &[]),
        // So many columns that a workgroup's rows could straddle tiles of queries.
        Family {
            lengths: vec![
                ("B", Lengths::To(2)),
                ("M", Lengths::Tiles),
                ("N", Lengths::Tiles),
            ],
            ..family(
                "attention of more columns of V",
                attention(widened, "", CAUSAL),
                &[],
            )
        },
        family("attention grouped", attention(grouped, "", CAUSAL), &[]),
        family(
            "attention one key head",
            attention(one_key_head, "", ALL),
            &[],
        ),
        family(
            "attention negative scale",
            attention(negative, "", ALL),
            &[],
        ),
        long_keys,
        overflow,
    ]
}

/// Masks of every rank, each broadcast its own way.
fn masks() -> Vec<Family> {
    let dead = |fill| vec![("mask", fill)];
    let mask = |name, ty: &str, masked: &str, fill| {
        let extra = format!("%mask: {ty}");
        family(name, attention(Heads::of(8), &extra, masked), &dead(fill))
    };
    let boolean = Fill::MaskWithDeadRows;
    let minus_infinity = Fill::Additive(f64::NEG_INFINITY);
    vec![
        mask("mask [N]", "bool[N]", BOOLEAN, boolean),
        mask("mask [M, 1]", "bool[M, 1]", BOOLEAN, boolean),
        mask("mask [M, N]", "bool[M, N]", BOOLEAN, boolean),
        mask("mask [H, M, N]", "bool[2, M, N]", BOOLEAN, boolean),
        mask("mask [B, 1, 1, N]", "bool[B, 1, 1, N]", BOOLEAN, boolean),
        mask("mask [B, H, M, N]", "bool[B, 2, M, N]", BOOLEAN, boolean),
        mask("mask []", "bool[]", BOOLEAN, Fill::Mask),
        mask("added mask [M, N]", "f32[M, N]", ADDED, minus_infinity),
        mask(
            "added mask [B, 1, M, N]",
            "f32[B, 1, M, N]",
            ADDED,
            minus_infinity,
        ),
        mask("bias [H, M, N]", "f32[2, M, N]", ADDED, Fill::Times(3.0)),
        mask("bias [H, 1, N]", "f32[2, 1, N]", ADDED, Fill::Times(3.0)),
    ]
}

/// Head dims with and without vectors, of one chunk and of many, and wider than a register tile.
fn head_dims() -> Vec<Family> {
    let of = |name, dim, value_dim, masked: &str| {
        let heads = Heads {
            value_dim,
            scale: 0.3,
            ..Heads::of(dim)
        };
        Family {
            lengths: vec![
                ("B", Lengths::To(2)),
                ("M", Lengths::SmallEdges),
                ("N", Lengths::SmallEdges),
            ],
            cases: 8,
            ..family(name, attention(heads, "", masked), &[])
        }
    };
    vec![
        of("attention of dim 1", 1, 1, CAUSAL),
        of("attention of dim 2", 2, 2, ALL),
        of("attention of dim 3", 3, 3, CAUSAL),
        of("attention of dim 4", 4, 4, ALL),
        of("attention of dim 16", 16, 16, CAUSAL),
        of("attention of dim 40", 40, 40, CAUSAL),
        of("attention of dim 128", 128, 128, CAUSAL),
        of("attention of dim 256", 256, 256, CAUSAL),
        of("attention of dim 320", 320, 320, CAUSAL),
        of("attention of dim 576 and values of 512", 576, 512, CAUSAL),
        of("attention of dim 261 and values of 3", 261, 3, CAUSAL),
        of("attention of dim 3 and values of 262", 3, 262, ALL),
    ]
}

/// One query, no query, no key, nothing.
fn lengths() -> Vec<Family> {
    let one_query = Family {
        lengths: vec![("B", Lengths::To(3)), ("N", Lengths::Edges)],
        ..family(
            "attention of one query",
            attention(Heads::of(16), "", ALL).replace('M', "1"),
            &[],
        )
    };
    let empty = |name, masked: &str| Family {
        lengths: vec![
            ("B", Lengths::FromNone(2)),
            ("M", Lengths::FromNone(3)),
            ("N", Lengths::FromNone(3)),
        ],
        ..family(name, attention(Heads::of(8), "", masked), &[])
    };
    let scale = "graph @op(%q: f32[B, 4, M, 8], %k: f32[B, 2, N, 8], %v: f32[B, 2, N, 4]) {
  %o = attention %q, %k, %v, scale = -1.7, mask_mod = { kv_idx <= q_idx + 2 }
  return %o
}";
    vec![
        one_query,
        empty("attention of empty lengths", ALL),
        empty("causal attention of empty lengths", CAUSAL),
        family("attention as an operation", scale.to_owned(), &[]),
    ]
}
