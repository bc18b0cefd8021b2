//! Attention as its kernels see it: strides of Q, K, V and O, lengths of the axes, the tile that can do everything.
//!
//! On entry: a fused attention of a verified graph. On exit: windows of buffers and constant head dims, or what kept
//! an operand from being one.

use super::attention_kernel::dims;
use super::attention_parts::FEW;
use super::pointwise::operations;
use super::{constant, label, multiple_of_4};
use crate::Stored;
use crate::micro::{Access, AttentionTile, MAX_HELD, Weights};
use crate::mods::IndexSpace;
use crate::stored::multiple_of;
use attnc_ir::layout::{self, Layout, storage_strides};
use attnc_ir::{Attention, Diagnostic, Dim, Graph, ValueId};
use attnc_plan::Uniform;
use std::ops::Range;

/// `[B, H, N, D]` in memory: offset, then strides.
pub(super) struct Window {
    offset: Dim,
    strides: Vec<Dim>,
    pub(super) access: Access,
}

impl Window {
    pub(super) fn new(offset: Dim, strides: Vec<Dim>, columns: &Dim) -> Self {
        let vectors = strides[3].is(1)
            && multiple_of_4(columns)
            && multiple_of_4(&offset)
            && strides[..3].iter().all(multiple_of_4);
        let access = if vectors {
            Access::Vec4
        } else {
            Access::Scalar
        };
        Self {
            offset,
            strides,
            access,
        }
    }

    /// Whether rows of a multiple of 8 columns may be read by eights.
    pub(super) fn by_eights(&self) -> bool {
        let outer = self.strides[..3].iter();
        self.strides[3].is(1) && outer.chain([&self.offset]).all(|s| multiple_of(s, 8))
    }

    /// What `Shape` has of it.
    pub(super) fn words(&self) -> impl Iterator<Item = &Dim> {
        [&self.offset].into_iter().chain(&self.strides)
    }

    /// The columns in a range alone.
    fn columns(self, range: &Range<u32>) -> Self {
        let width = Dim::from(i64::from(range.end - range.start));
        let first = Dim::from(i64::from(range.start)) * self.strides[3].clone();
        Self::new(self.offset + first, self.strides, &width)
    }
}

/// The columns of V in equal blocks that a register tile holds.
pub(super) fn column_blocks(graph: &Graph, value: ValueId) -> Result<Vec<Range<u32>>, Diagnostic> {
    let v_dim = head_dim(&graph.node(value).ty.shape[3], "V")?;
    let blocks = v_dim.div_ceil(MAX_HELD).max(1);
    let width = v_dim.div_ceil(blocks).next_multiple_of(4).min(v_dim);
    let starts = (0..v_dim).step_by(width.max(1) as usize);
    Ok(starts.map(|at| at..v_dim.min(at + width)).collect())
}

/// The lengths of the axes.
#[derive(Clone)]
pub(super) struct Sizes {
    pub(super) batch: Dim,
    pub(super) heads: Dim,
    pub(super) heads_per_kv: Dim,
    pub(super) q_len: Dim,
    pub(super) kv_len: Dim,
}

impl Sizes {
    /// The index spaces of functions of a key, and of a row.
    pub(super) fn spaces(&self) -> (IndexSpace, IndexSpace) {
        let rows = vec![
            ("b", self.batch.clone()),
            ("h", self.heads.clone()),
            ("q_idx", self.q_len.clone()),
        ];
        let mut keys = rows.clone();
        keys.push(("kv_idx", self.kv_len.clone()));
        (IndexSpace::identity(keys), IndexSpace::identity(rows))
    }
}

/// Attention as the kernel sees it.
pub(super) struct Problem {
    pub(super) sizes: Sizes,
    /// Q, K, V, O.
    pub(super) windows: [Window; 4],
    pub(super) tile: AttentionTile,
}

impl Problem {
    pub(super) fn of(
        graph: &Graph,
        value: ValueId,
        attention: &Attention,
        columns: Range<u32>,
    ) -> Result<Self, Diagnostic> {
        let node = graph.node(value);
        let [q_shape, k_shape] = [0, 1].map(|n| &graph.ty(node.operands()[n]).shape);
        let strides = storage_strides(&node.ty.shape, node.storage.as_deref());
        let windows = [
            operand_window(graph, value, 0)?,
            operand_window(graph, value, 1)?,
            operand_window(graph, value, 2)?.columns(&columns),
            Window::new(Dim::zero(), strides, &node.ty.shape[3]).columns(&columns),
        ];
        let qk_dim = head_dim(&q_shape[3], "Q and K")?;
        let v_dim = columns.end - columns.start;
        let [q, k, v, o] = [0, 1, 2, 3].map(|n| windows[n].access);
        let tile = AttentionTile {
            rows: 1,
            qk_dim,
            v_dim,
            q,
            k,
            v,
            o,
            operands: Stored::F32,
            result: Stored::F32,
            masked: attention.mask_mod.is_some() || attention.score_mod.is_some(),
            scores_mask: attention.score_mod.is_some(),
            sink: attention.sink.is_some(),
            weights: weights(attention),
            part: false,
        };
        let sizes = Sizes {
            batch: q_shape[0].clone(),
            heads: q_shape[1].clone(),
            heads_per_kv: heads_per_kv(&q_shape[1], &k_shape[1])?,
            q_len: q_shape[2].clone(),
            kv_len: k_shape[2].clone(),
        };
        Ok(Self {
            sizes,
            windows,
            tile,
        })
    }

    /// What there is to choose a kernel for: `attention.f32.d64.causal, 128 queries, 4 heads a KV head`. Of few
    /// queries also what decides how much work there is at once: `8 heads, any keys`.
    pub(super) fn text(&self, types: &str, attention: &Attention, rows: Option<u32>) -> String {
        let text = key("attention", types, &dims(&self.tile), attention);
        let rows_are_many = rows.is_none_or(|n| n > FEW);
        let rows = match rows {
            Some(1) => "1 query".to_owned(),
            Some(n) => format!("{n} queries"),
            None => "any queries".to_owned(),
        };
        let heads = match constant(&self.sizes.heads_per_kv) {
            Some(1) => String::new(),
            Some(n) => format!(", {n} heads a KV head"),
            None => ", any heads a KV head".to_owned(),
        };
        if rows_are_many {
            return format!("{text}, {rows}{heads}");
        }
        let number = |dim: &Dim| constant(dim).map_or("any".to_owned(), |n| n.to_string());
        let [all, keys] = [&self.sizes.heads, &self.sizes.kv_len].map(number);
        format!("{text}, {rows} of {all} heads{heads}, {keys} keys")
    }

    /// The words of `Shape`, in order, where results go to `out`.
    pub(super) fn uniforms(&self, scale: f64, out: &Window) -> Vec<Uniform> {
        let Sizes {
            batch,
            heads,
            heads_per_kv,
            q_len,
            kv_len,
        } = &self.sizes;
        let sizes = [batch, heads, heads_per_kv, q_len, kv_len];
        let mut words: Vec<_> = sizes.map(|d| Uniform::U32(d.clone())).to_vec();
        #[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
        words.push(Uniform::F32(scale as f32));
        let [q, k, v, _] = &self.windows;
        for window in [q, k, v, out] {
            words.extend(window.words().cloned().map(Uniform::U32));
        }
        words
    }

    pub(super) fn flops(&self, attention: &Attention) -> Dim {
        let Sizes {
            batch,
            heads,
            q_len,
            kv_len,
            ..
        } = self.sizes.clone();
        let of_score = attention.score_mod.iter().chain(&attention.mask_mod);
        let walks = match self.tile.weights {
            Weights::AfterSum { .. } => 2,
            _ => 1,
        };
        let score = 2 * self.tile.qk_dim as usize + of_score.map(operations).sum::<usize>();
        let weight = attention.prob_mod.as_ref().map_or(0, operations);
        // Two products, and the exponential, maximum, sum and rescaling between them.
        let cost = walks * score + 2 * self.tile.v_dim as usize + 4 + weight;
        batch * heads * q_len * kv_len * Dim::from(cost)
    }
}

/// Operand `operand` as a strided window.
fn operand_window(graph: &Graph, value: ValueId, operand: usize) -> Result<Window, Diagnostic> {
    let id = graph.node(value).operands()[operand];
    let Some(Layout {
        offset, strides, ..
    }) = layout::resolve(graph, id)
    else {
        let which = ["query", "key", "value"][operand];
        let name = graph.node(id).name();
        return Err(Diagnostic::error(
            "not-strided",
            format!("{which} operand %{name} of attention is no strided window of a buffer"),
        )
        .note("run fold-views, which copies what views cannot express"));
    };
    Ok(Window::new(offset, strides, &graph.ty(id).shape[3]))
}

fn head_dim(dim: &Dim, what: &str) -> Result<u32, Diagnostic> {
    dim.as_const()
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| {
            Diagnostic::error(
                "symbolic-head-dim",
                format!("attention needs a constant number of columns of {what}, found {dim}"),
            )
        })
}

fn heads_per_kv(heads: &Dim, kv_heads: &Dim) -> Result<Dim, Diagnostic> {
    heads.exact_div(kv_heads).ok_or_else(|| {
        Diagnostic::error(
            "uneven-heads",
            format!("{heads} query heads are no multiple of {kv_heads} key heads"),
        )
    })
}

/// When `prob_mod` may be applied.
fn weights(attention: &Attention) -> Weights {
    match attention.prob_mod {
        None => Weights::Probabilities,
        Some(_) if attention.weighs_before_sum() => Weights::BeforeSum,
        Some(_) => Weights::AfterSum {
            skips_absent: attention.skips_absent_keys(),
        },
    }
}

/// `flash_attention_fwd_rows.f32.r4d32.padding`.
pub(super) fn key(kernel: &str, types: &str, tile: &str, attention: &Attention) -> String {
    let mut key = format!("{kernel}.{types}.{tile}");
    let score = attention.score_mod.as_ref().map(label::score_mod);
    let mask = attention.mask_mod.as_ref().map(label::mask_mod);
    let sink = attention.sink.as_ref().map(label::sink);
    let weights = attention.prob_mod.as_ref().map(|_| "weights".to_owned());
    for part in [score, mask, sink, weights].into_iter().flatten() {
        key = format!("{key}.{part}");
    }
    key
}
