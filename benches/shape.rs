//! Shapes: what is computed, at which lengths, how many operations that takes, and as which graph.
//!
//! ```
//! use attnc_benches::shape::{Attention, Mask};
//! let causal = Attention { heads: 8, kv_heads: 8, q: 512, kv: 512, d: 64, mask: Mask::Causal };
//! assert_eq!(causal.pairs(), 512 * 513 / 2);
//! assert_eq!(causal.flops(), (4 * 8 * 64 * causal.pairs()) as f64);
//! ```
//!
//! Useful work is counted: a product and a sum each for the pairs of query and key that the mask allows, in
//! both contractions. Who computes masked pairs too gets no credit for them.

use attnc::HostDType;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Which keys a query sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// All.
    None,
    /// Those up to its own place, counted from the start.
    Causal,
    /// The last so many up to its own place.
    Window(usize),
}

/// One attention, batch 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    /// Heads of Q.
    pub heads: usize,
    /// Heads of K and V, a divisor of `heads`.
    pub kv_heads: usize,
    /// Queries.
    pub q: usize,
    /// Keys.
    pub kv: usize,
    /// Width of a head.
    pub d: usize,
    /// Which keys count.
    pub mask: Mask,
}

impl Attention {
    /// Pairs of query and key of one head that the mask allows.
    #[must_use]
    pub fn pairs(&self) -> usize {
        (0..self.q).map(|row| self.keys(row).len()).sum()
    }

    /// The keys that a query sees.
    #[must_use]
    pub fn keys(&self, row: usize) -> std::ops::Range<usize> {
        let end = (row + 1).min(self.kv);
        match self.mask {
            Mask::None => 0..self.kv,
            Mask::Causal => 0..end,
            Mask::Window(size) => (row + 1).saturating_sub(size).min(end)..end,
        }
    }

    /// Operations.
    #[must_use]
    pub fn flops(&self) -> f64 {
        (4 * self.heads * self.d * self.pairs()) as f64
    }

    /// The graph as exporters write it, without one op for attention; Q and K lengths are symbols, as in an
    /// exported model.
    #[must_use]
    pub fn graph_text(&self, dtype: &str) -> String {
        let Self {
            heads, kv_heads, d, ..
        } = *self;
        let keys = if self.mask == Mask::None { "N" } else { "M" };
        let mut text = format!(
            "graph @attention(%q: {dtype}[1, {heads}, M, {d}], %k: {dtype}[1, {kv_heads}, {keys}, {d}], \
             %v: {dtype}[1, {kv_heads}, {keys}, {d}]) {{\n"
        );
        let (mut k, mut v) = ("k", "v");
        if kv_heads != heads {
            for name in [k, v] {
                let _ = writeln!(
                    text,
                    "  %{name}1 = reshape %{name}, shape = [1, {kv_heads}, 1, {keys}, {d}]\n  \
                     %{name}2 = broadcast %{name}1, shape = [1, {kv_heads}, {}, {keys}, {d}]\n  \
                     %{name}3 = reshape %{name}2, shape = [1, {heads}, {keys}, {d}]",
                    heads / kv_heads
                );
            }
            (k, v) = ("k3", "v3");
        }
        let _ = writeln!(
            text,
            "  %kt = transpose %{k}, perm = [0, 1, 3, 2]\n  %s = matmul %q, %kt\n  %z = mul %s, {}",
            1.0 / (d as f64).sqrt()
        );
        let scores = self.write_mask(&mut text);
        let _ = writeln!(
            text,
            "  %p = softmax %{scores}, axis = 3\n  %o = matmul %p, %{v}\n  return %o as \"out\"\n}}"
        );
        text
    }

    /// The mask by the comparisons that exporters write; gives the name of the masked scores.
    fn write_mask(&self, text: &mut String) -> &'static str {
        let first = match self.mask {
            Mask::None => return "z",
            Mask::Causal => None,
            Mask::Window(size) => Some(1 - size as i64),
        };
        text.push_str(
            "  %row = iota i32[M, M], axis = 0, start = 0, step = 1\n  \
             %column = iota i32[M, M], axis = 1, start = 0, step = 1\n  \
             %past = le %column, %row\n",
        );
        let mut seen = "past";
        if let Some(first) = first {
            let _ = writeln!(
                text,
                "  %oldest = iota i32[M, M], axis = 0, start = {first}, step = 1\n  \
                 %recent = ge %column, %oldest\n  %seen = and %past, %recent"
            );
            seen = "seen";
        }
        let _ = writeln!(text, "  %masked = where %{seen}, %z, -inf");
        "masked"
    }
}

/// What is computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Attention over inputs `q`, `k`, `v`.
    Attention(Attention),
    /// `[m, k]` times a weight `[k, n]`, which may be laid out beforehand.
    Matmul {
        /// Rows.
        m: usize,
        /// Inner length.
        k: usize,
        /// Columns.
        n: usize,
    },
    /// A whole model.
    Model {
        /// Its file.
        file: PathBuf,
        /// Batch size.
        batch: usize,
        /// Tokens of each.
        tokens: usize,
    },
}

/// A line of the bench.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// A short name: `a`.
    pub name: String,
    /// What it is: `8 heads, 512, d 64`.
    pub title: String,
    /// What is computed.
    pub work: Work,
    /// The element type, `F32` or `F16`.
    pub dtype: HostDType,
}

impl Shape {
    /// Operations; `None` for a model, which is not one kernel.
    #[must_use]
    pub fn flops(&self) -> Option<f64> {
        match &self.work {
            Work::Attention(attention) => Some(attention.flops()),
            Work::Matmul { m, k, n } => Some((2 * m * k * n) as f64),
            Work::Model { .. } => None,
        }
    }

    /// Bytes of inputs and results: what has to move at least.
    #[must_use]
    pub fn bytes(&self) -> Option<f64> {
        let elements = match &self.work {
            Work::Attention(a) => 2 * a.d * (a.heads * a.q + a.kv_heads * a.kv),
            Work::Matmul { m, k, n } => m * k + k * n + m * n,
            Work::Model { .. } => return None,
        };
        Some((elements * self.dtype.bytes()) as f64)
    }

    /// Bytes of K and V, where a few queries read them: the decode shapes.
    #[must_use]
    pub fn kv_bytes(&self) -> Option<f64> {
        match &self.work {
            Work::Attention(a) if a.q == 1 => {
                Some((2 * a.kv_heads * a.kv * a.d * self.dtype.bytes()) as f64)
            }
            _ => None,
        }
    }

    /// How far a result may be from the reference before it is called wrong.
    #[must_use]
    pub fn tolerance(&self) -> f64 {
        if self.dtype == HostDType::F16 {
            2e-2
        } else {
            1e-3
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnc::Model;

    const SMALL: Attention = Attention {
        heads: 4,
        kv_heads: 2,
        q: 40,
        kv: 40,
        d: 8,
        mask: Mask::Window(16),
    };

    #[test]
    fn a_window_has_its_size_of_keys_but_at_the_start() {
        assert_eq!(SMALL.keys(0), 0..1);
        assert_eq!(SMALL.keys(15), 0..16);
        assert_eq!(SMALL.keys(39), 24..40);
        assert_eq!(SMALL.pairs(), 16 * 17 / 2 + 24 * 16);
    }

    #[test]
    fn every_mask_is_a_graph_that_fuses() {
        for mask in [Mask::None, Mask::Causal, Mask::Window(16)] {
            let text = Attention { mask, ..SMALL }.graph_text("f32");
            let model = Model::from_text("attention", &text).unwrap();
            let options = attnc::opt::Options::default();
            let report = attnc::optimise(&model.graph, &options).unwrap().attention;
            assert_eq!((report.found, report.fused), (1, 1), "{text}");
        }
    }
}
