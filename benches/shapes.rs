//! The lists of shapes that are measured.
//!
//! * [`portable`]: what one model layer asks of a small machine, by the letters of the documentation, and
//!   the growth series [`GROWTH`];
//! * [`discrete`]: sizes that keep a discrete card busy, in f32 and f16.

use crate::models;
use crate::shape::{Attention, Mask, Shape, Work};
use attnc::HostDType;
use std::path::Path;

/// Series along which only the length doubles: their names, from 1024 to 8192 keys.
pub const GROWTH: [(&str, [&str; 4]); 2] = [
    ("causal", ["g1k", "g2k", "g", "g8k"]),
    ("window 256", ["w1k", "w2k", "w4k", "w8k"]),
];

/// Heads of Q, heads of K and V, queries, keys, width.
type Sizes = [usize; 5];

const ATTENTION: [(&str, Sizes, Mask); 15] = [
    ("a", [8, 8, 512, 512, 64], Mask::None),
    ("b", [8, 8, 512, 512, 64], Mask::Causal),
    ("c", [8, 8, 1024, 1024, 64], Mask::Causal),
    ("d", [8, 8, 1, 4096, 64], Mask::None),
    ("e", [32, 8, 1, 2048, 128], Mask::None),
    ("f", [12, 12, 128, 128, 32], Mask::None),
    ("g", [1, 1, 4096, 4096, 64], Mask::Causal),
    ("h", [8, 8, 2048, 2048, 128], Mask::Window(256)),
    ("g1k", [1, 1, 1024, 1024, 64], Mask::Causal),
    ("g2k", [1, 1, 2048, 2048, 64], Mask::Causal),
    ("g8k", [1, 1, 8192, 8192, 64], Mask::Causal),
    ("w1k", [1, 1, 1024, 1024, 64], Mask::Window(256)),
    ("w2k", [1, 1, 2048, 2048, 64], Mask::Window(256)),
    ("w4k", [1, 1, 4096, 4096, 64], Mask::Window(256)),
    ("w8k", [1, 1, 8192, 8192, 64], Mask::Window(256)),
];

const MATMUL: [[usize; 3]; 4] = [
    [128, 384, 384],
    [128, 384, 1536],
    [512, 512, 512],
    [1, 576, 1536],
];

const LARGE_ATTENTION: [(&str, Sizes, Mask); 4] = [
    ("l64", [16, 16, 4096, 4096, 64], Mask::None),
    ("l64c", [16, 16, 4096, 4096, 64], Mask::Causal),
    ("l128", [16, 16, 4096, 4096, 128], Mask::None),
    ("l128c", [16, 16, 4096, 4096, 128], Mask::Causal),
];

const LARGE_MATMUL: [usize; 3] = [512, 2048, 4096];

/// How many of [`ATTENTION`] are no growth series.
const LETTERS: usize = 8;

/// What runs anywhere in f32, and a sentence for what cannot be measured.
#[must_use]
pub fn portable() -> (Vec<Shape>, Vec<String>) {
    let mut shapes: Vec<Shape> = ATTENTION[..LETTERS]
        .iter()
        .map(|row| attention(row, HostDType::F32))
        .collect();
    shapes.extend(MATMUL.map(|[m, k, n]| matmul(m, k, n, HostDType::F32)));
    let found = models::found();
    let minilm = |file: &&std::path::PathBuf| file.to_string_lossy().contains("minilm");
    if let Some(file) = found.models.iter().find(minilm) {
        shapes.extend([1, 8].map(|batch| model("minilm", file, batch, 128)));
    }
    shapes.extend(
        ATTENTION[LETTERS..]
            .iter()
            .map(|row| attention(row, HostDType::F32)),
    );
    (shapes, found.skipped)
}

/// What keeps a discrete card busy, each in f32 and f16.
#[must_use]
pub fn discrete() -> Vec<Shape> {
    let types = [HostDType::F32, HostDType::F16];
    let rows = ATTENTION[..LETTERS].iter().chain(&LARGE_ATTENTION);
    let attentions = rows.flat_map(|row| types.map(|dtype| attention(row, dtype)));
    let matmuls = LARGE_MATMUL
        .iter()
        .flat_map(|&n| types.map(|dtype| matmul(n, n, n, dtype)));
    matmuls.chain(attentions).collect()
}

/// A few small shapes of every kind, to see that everything works.
#[must_use]
pub fn smoke() -> Vec<Shape> {
    let each = |dtype| {
        let small = [
            ("a", [2, 2, 128, 128, 64], Mask::None),
            ("b", [2, 2, 128, 128, 64], Mask::Causal),
            ("e", [4, 2, 1, 256, 64], Mask::None),
            ("h", [2, 2, 256, 256, 64], Mask::Window(64)),
        ];
        let attentions = small.map(|row| attention(&row, dtype));
        attentions.into_iter().chain([matmul(64, 64, 64, dtype)])
    };
    each(HostDType::F32).chain(each(HostDType::F16)).collect()
}

fn attention((name, sizes, mask): &(&str, Sizes, Mask), dtype: HostDType) -> Shape {
    let [heads, kv_heads, q, kv, d] = *sizes;
    let heads_text = if heads == kv_heads {
        heads.to_string()
    } else {
        format!("{heads}/{kv_heads}")
    };
    let lengths = if q == kv {
        q.to_string()
    } else {
        format!("{q}x{kv}")
    };
    let mask_text = match mask {
        Mask::None => String::new(),
        Mask::Causal => " causal".to_owned(),
        Mask::Window(size) => format!(" window {size}"),
    };
    Shape {
        name: named(name, dtype),
        title: format!("attention {heads_text} x {lengths} x d{d}{mask_text}"),
        work: Work::Attention(Attention {
            heads,
            kv_heads,
            q,
            kv,
            d,
            mask: *mask,
        }),
        dtype,
    }
}

fn matmul(m: usize, k: usize, n: usize, dtype: HostDType) -> Shape {
    let sizes = if m == k && k == n {
        m.to_string()
    } else {
        format!("{m}x{k}x{n}")
    };
    Shape {
        name: named(&format!("mm{sizes}"), dtype),
        title: format!("matmul {m} x {k} x {n}"),
        work: Work::Matmul { m, k, n },
        dtype,
    }
}

fn model(name: &str, file: &Path, batch: usize, tokens: usize) -> Shape {
    Shape {
        name: format!("{name}{batch}"),
        title: format!("{name} {batch} x {tokens}"),
        work: Work::Model {
            file: file.to_owned(),
            batch,
            tokens,
        },
        dtype: HostDType::F32,
    }
}

fn named(name: &str, dtype: HostDType) -> String {
    if dtype == HostDType::F32 {
        name.to_owned()
    } else {
        format!("{name}.{}", dtype_name(dtype))
    }
}

/// `f32`, `f16`: the name in graphs, WGSL and the protocol of peers.
#[must_use]
pub fn dtype_name(dtype: HostDType) -> &'static str {
    if dtype == HostDType::F16 {
        "f16"
    } else {
        "f32"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growth_series_doubles() {
        let (shapes, _) = portable();
        for (_, names) in GROWTH {
            let keys =
                names.map(
                    |name| match &shapes.iter().find(|s| s.name == name).unwrap().work {
                        Work::Attention(attention) => attention.kv,
                        other => panic!("{other:?}"),
                    },
                );
            assert_eq!(keys, [1024, 2048, 4096, 8192]);
        }
    }
}
