//! Fused attention: strides of Q, K, V and O, the kernel that computes it, and the functions between the products.

use super::attention_kernel::{AttentionKernel, AttentionNeeds, dims};
use super::attention_parts::FEW;
use super::blocks::{Tiles, attention_tiles};
use super::kernel::Dispatch;
use super::pointwise::operations;
use super::{Lowerer, constant, label, multiple_of_4};
use crate::Stored;
use crate::micro::{Access, AttentionTile, MAX_HELD, Weights};
use crate::mods::{Function, IndexSpace, Mods, NameTensor, Printed, Returns};
use crate::params;
use crate::stored::multiple_of;
use attnc_ir::layout::{self, Layout, storage_strides};
use attnc_ir::scalar::Scalar;
use attnc_ir::{Attention, DType, Diagnostic, Dim, Extents, Graph, ValueId};
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
    fn by_eights(&self) -> bool {
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
fn column_blocks(graph: &Graph, value: ValueId) -> Result<Vec<Range<u32>>, Diagnostic> {
    let v_dim = head_dim(&graph.node(value).ty.shape[3], "V")?;
    let blocks = v_dim.div_ceil(MAX_HELD).max(1);
    let width = v_dim.div_ceil(blocks).next_multiple_of(4).min(v_dim);
    let starts = (0..v_dim).step_by(width.max(1) as usize);
    Ok(starts.map(|at| at..v_dim.min(at + width)).collect())
}

impl Lowerer<'_> {
    /// One fused attention. What follows it as an epilogue is a step of its own, since the kernel has no
    /// seam for one; only another element type is stored at once.
    pub(super) fn attention(
        &mut self,
        value: ValueId,
        attention: &Attention,
    ) -> Result<(), Diagnostic> {
        let blocks = column_blocks(self.graph, value)?.into_iter();
        let problems: Vec<Problem> = blocks
            .map(|columns| Problem::of(self.graph, value, attention, columns))
            .collect::<Result<_, _>>()?;
        let scalar = problems
            .iter()
            .any(|p| p.windows[3].access == Access::Scalar);
        let epilogue = self.graph.node(value).epilogue.as_ref();
        let epilogue = epilogue.filter(|e| !matches!(e.node(e.root()), Scalar::Arg));
        let words = scalar && self.stored(value).is_packed();
        if epilogue.is_none() && !words {
            return self.attention_steps(value, attention, problems);
        }
        self.through_f32(value, epilogue, |lowerer| {
            lowerer.attention_steps(value, attention, problems)
        })
    }

    /// One dispatch for each block of columns of V and O; the scores are computed anew for each.
    fn attention_steps(
        &mut self,
        value: ValueId,
        attention: &Attention,
        problems: Vec<Problem>,
    ) -> Result<(), Diagnostic> {
        let mut steps = problems.into_iter();
        steps.try_for_each(|problem| self.attention_step(value, attention, problem))
    }

    /// One step; or two where a model with a cache may decode, and one query has better kernels than many: one for a
    /// single query and one for more, of which the lengths of a run leave one empty.
    fn attention_step(
        &mut self,
        value: ValueId,
        attention: &Attention,
        problem: Problem,
    ) -> Result<(), Diagnostic> {
        let Sizes { q_len, kv_len, .. } = &problem.sizes;
        let any = self.attention_needs(value, &problem)?;
        let single = AttentionNeeds {
            q_len: Some(1),
            ..any.clone()
        };
        let decodes = any.q_len.is_none() && q_len != kv_len;
        if !decodes || !AttentionKernel::decodes_otherwise(&any, &single, &self.plan.profile) {
            return self.attention_case(value, attention, &problem, &any, &Dim::one());
        }
        let none = Extents::none();
        let more = q_len.floor_div(&Dim::from(2), &none);
        let more = more.minimum(&Dim::one(), &none);
        let one = Dim::one() - more.clone();
        self.attention_case(value, attention, &problem, &single, &one)?;
        self.attention_case(value, attention, &problem, &any, &more)
    }

    /// What the kernel must be able to do.
    fn attention_needs(
        &mut self,
        value: ValueId,
        problem: &Problem,
    ) -> Result<AttentionNeeds, Diagnostic> {
        let operands = self.graph.ty(self.graph.node(value).operands()[0]).dtype;
        let result = self.buffer(value)?;
        let tiles = attention_tiles(self.graph, value, &self.plan.profile);
        Ok(AttentionNeeds {
            rows: AttentionTile {
                operands: Stored::of(operands, &self.plan.profile),
                result: self.stored_in(result),
                ..problem.tile.clone()
            },
            kv_by_eights: problem.windows[1..3].iter().all(Window::by_eights),
            q_len: constant(&problem.sizes.q_len),
            kv_len: constant(&problem.sizes.kv_len),
            heads: constant(&problem.sizes.heads)
                .map(|heads| heads * constant(&problem.sizes.batch).unwrap_or(1)),
            fills: tiles.settled_above.is_some(),
            heads_per_kv: match tiles.differs_along(1) {
                true => 1,
                false => constant(&problem.sizes.heads_per_kv).unwrap_or(1),
            },
        })
    }

    /// The step for what `needs` says; `when` is 1 in runs that it is for, else 0.
    fn attention_case(
        &mut self,
        value: ValueId,
        attention: &Attention,
        problem: &Problem,
        needs: &AttentionNeeds,
        when: &Dim,
    ) -> Result<(), Diagnostic> {
        let operands = self.graph.ty(self.graph.node(value).operands()[0]).dtype;
        let result = self.buffer(value)?;
        let types = label::types(operands, self.plan.buffer(result).dtype);
        let Problem { sizes, .. } = problem;
        let tiles = attention_tiles(self.graph, value, &self.plan.profile);
        let table = self.table_of(value, &tiles)?;
        let text = problem.text(&types, attention, needs.q_len);
        let candidates = AttentionKernel::candidates(needs, &self.plan.profile);
        let (kernel, chosen) = self.choose(text, candidates);
        let micro = kernel.print().map_err(|error| {
            let message = format!("no register tile for this attention: {error}");
            Diagnostic::error("no-tile", message)
        })?;
        let (mods, mod_files) = self.attention_mods(value, attention, &tiles, problem, &kernel)?;
        let part_keys = kernel.part_keys();
        let parts = part_keys.map(|keys| self.parts(value, problem, keys, when));
        let (out, window) = match &parts {
            Some((buffer, window)) => (*buffer, window),
            None => (result, &problem.windows[3]),
        };
        let mut operands = Vec::new();
        for n in 0..3 {
            operands.push(self.operand_buffer(value, n)?);
        }
        operands.push(out);
        operands.extend(table);
        let size = kernel.workgroup_size(self.workgroup_size);
        let params = params::print(&[], size) + &params::blocks();
        let part = part_keys.map(|keys| [("PART_KEYS", "u32", format!("{keys}u"))]);
        let part = part.map_or(String::new(), |part| params::constants(&part));
        let dispatch = Dispatch {
            kernel: kernel.name(),
            key: key(kernel.name(), &types, &chosen.tile, attention),
            params: params + &part,
            micro: Some(micro),
            combine: None,
            store: None,
            op: None,
            mod_files,
            mods,
            tile: format!("{}; {}", kernel.describe(), chosen.why),
            uniforms: problem.uniforms(attention.scale, window),
            operands,
            workgroups: kernel.workgroups(sizes, size) * when.clone(),
            flops: problem.flops(attention) * when.clone(),
        };
        self.dispatch(value, dispatch)?;
        if let (Some((buffer, _)), Some(keys)) = (parts, part_keys) {
            self.also(&chosen);
            self.join_parts(value, attention, problem, (buffer, keys), when)?;
        }
        Ok(())
    }

    /// The attention's functions and what they do on tiles, printed or the identity's file.
    fn attention_mods(
        &self,
        value: ValueId,
        attention: &Attention,
        tiles: &Tiles,
        problem: &Problem,
        kernel: &AttentionKernel,
    ) -> Result<(Printed, Vec<&'static str>), Diagnostic> {
        let stored = |value| self.stored(value);
        let mut mods = Mods::new(self.graph, &stored, kernel.name(), score_tensor);
        let mut functions = vec!["score_mod", "mask_mod", "prob_mod"];
        if kernel.part_keys().is_none() {
            functions.push("sink"); // of a row, not of a part of it
        }
        self.attention_functions(value, attention, problem, &functions, &mut mods)?;
        let identities = [
            (attention.score_mod.is_none(), "mods/score_identity"),
            (attention.mask_mod.is_none(), "mods/mask_none"),
        ];
        let files = identities.iter().filter(|(none, _)| *none).map(|(_, f)| *f);
        let mut files: Vec<_> = files.chain(kernel.walk()).collect();
        // Who walks twice looks at every key.
        if !matches!(problem.tile.weights, Weights::AfterSum { .. }) {
            mods.name_tensors(score_tensor);
            self.block_mods(value, attention, tiles, &mut mods, &mut files)?;
        }
        Ok((mods.finish(), files))
    }

    /// Those of the attention's functions that are called so.
    pub(super) fn attention_functions(
        &self,
        value: ValueId,
        attention: &Attention,
        problem: &Problem,
        names: &[&str],
        mods: &mut Mods<'_>,
    ) -> Result<(), Diagnostic> {
        let operands = self.graph.node(value).operands();
        let (over_keys, over_rows) = problem.sizes.spaces();
        let functions = attention.functions();
        for (name, expr) in functions.filter(|(name, _)| names.contains(name)) {
            let (names, space): (NameTensor, _) = match name {
                "sink" => (|_, _, _| "logits", &over_rows),
                "prob_mod" => (|_, _, _| "weights", &over_keys),
                _ => (score_tensor, &over_keys),
            };
            mods.name_tensors(names);
            mods.function(&Function {
                name,
                arg: Attention::argument(name).map(|arg| (arg, "f32")),
                space,
                result: match name {
                    "mask_mod" => Returns::Bool,
                    _ => Returns::Value(DType::F32),
                },
                expr,
                operands,
            })?;
        }
        Ok(())
    }
}

/// What a tensor is that scores and masks are made with.
pub(super) fn score_tensor(_: usize, dtype: DType, index: &[Dim]) -> &'static str {
    match (dtype, index.len()) {
        (DType::Bool, _) => "mask",
        (DType::I32 | DType::U32, _) => "ids",
        (_, 1) => "slope",
        _ => "bias",
    }
}

/// The lengths of the axes.
#[derive(Clone)]
pub(super) struct Sizes {
    pub(super) batch: Dim,
    pub(super) heads: Dim,
    heads_per_kv: Dim,
    pub(super) q_len: Dim,
    pub(super) kv_len: Dim,
}

impl Sizes {
    /// The index spaces of functions of a key, and of a row.
    fn spaces(&self) -> (IndexSpace, IndexSpace) {
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
    fn of(
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
    fn text(&self, types: &str, attention: &Attention, rows: Option<u32>) -> String {
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
    fn uniforms(&self, scale: f64, out: &Window) -> Vec<Uniform> {
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

    fn flops(&self, attention: &Attention) -> Dim {
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
fn key(kernel: &str, types: &str, tile: &str, attention: &Attention) -> String {
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
