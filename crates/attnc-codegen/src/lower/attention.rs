//! `flash_attention_fwd_rows`: strides of Q, K, V and O, and the two functions between the products.

use super::kernel::Dispatch;
use super::pointwise::operations;
use super::{Lowerer, div_ceil, label, multiple_of_4};
use crate::micro::{Access, AttentionTile};
use crate::mods::{Function, IndexSpace, Mods, Returns};
use crate::params;
use attnc_ir::layout::{self, Layout, storage_strides};
use attnc_ir::{Attention, DType, Diagnostic, Dim, ValueId};
use attnc_plan::{Buffer, Uniform};

/// Query rows an invocation owns: with 4, one loaded row of K and V serves a vector of scores.
const ROWS: u32 = 4;

/// `[B, H, N, D]` in memory: offset, then strides.
struct Window {
    offset: Dim,
    strides: Vec<Dim>,
    access: Access,
}

impl Window {
    fn new(offset: Dim, strides: Vec<Dim>, columns: &Dim) -> Self {
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

    fn words(&self) -> impl Iterator<Item = Uniform> {
        let words = [&self.offset].into_iter().chain(&self.strides);
        words
            .cloned()
            .map(Uniform::U32)
            .collect::<Vec<_>>()
            .into_iter()
    }
}

impl Lowerer<'_> {
    /// One fused attention. What follows it as an epilogue is a step of its own, since the kernel has no
    /// seam for one.
    pub(super) fn attention(
        &mut self,
        value: ValueId,
        attention: &Attention,
    ) -> Result<(), Diagnostic> {
        let node = self.graph.node(value);
        super::check_dtype(node.ty.dtype)?;
        let Some(epilogue) = &node.epilogue else {
            return self.attention_step(value, attention);
        };
        if node.ty.dtype != DType::F32 {
            return Err(Diagnostic::error(
                "unsupported-dtype",
                format!(
                    "`attention` stores f32, its epilogue gives {}",
                    node.ty.dtype
                ),
            ));
        }
        let result = self.buffer(value)?;
        let between = Buffer::temp(node.name(), node.ty.dtype, node.ty.shape.clone());
        let between = self
            .plan
            .add_buffer(between.with_axes(&["B", "H", "M", "D"]));
        self.buffers.insert(value, between);
        let steps = self
            .attention_step(value, attention)
            .and_then(|()| self.epilogue_step(value, epilogue, result));
        self.buffers.insert(value, result);
        steps
    }

    fn attention_step(&mut self, value: ValueId, attention: &Attention) -> Result<(), Diagnostic> {
        let graph = self.graph;
        let node = graph.node(value);
        let shapes: Vec<&[Dim]> = node.operands()[..3]
            .iter()
            .map(|&v| graph.ty(v).shape.as_slice())
            .collect();
        let [q, k, v] = [0, 1, 2].map(|n| self.window(value, n));
        let (q, k, v) = (q?, k?, v?);
        let strides = storage_strides(&node.ty.shape, node.storage.as_deref());
        let o = Window::new(Dim::zero(), strides, &node.ty.shape[3]);

        let [batch, heads, q_len, _] = [0, 1, 2, 3].map(|n| shapes[0][n].clone());
        let kv_len = shapes[1][2].clone();
        let tile = AttentionTile {
            rows: few_rows(&q_len),
            qk_dim: head_dim(&shapes[0][3], "Q and K")?,
            v_dim: head_dim(&shapes[2][3], "V")?,
            q: q.access,
            k: k.access,
            v: v.access,
            o: o.access,
            masked: attention.mask_mod.is_some() || attention.score_mod.is_some(),
        };
        let micro = tile.print().map_err(|error| {
            Diagnostic::error(
                "no-tile",
                format!("no register tile for this attention: {error}"),
            )
        })?;

        let space = IndexSpace::identity(vec![
            ("b", batch.clone()),
            ("h", heads.clone()),
            ("q_idx", q_len.clone()),
            ("kv_idx", kv_len.clone()),
        ]);
        let (mods, mod_files) = self.attention_mods(value, attention, &space)?;
        let heads_per_kv = heads_per_kv(&heads, &shapes[1][1])?;
        #[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
        let scale = Uniform::F32(attention.scale as f32);
        let sizes = [&batch, &heads, &heads_per_kv, &q_len, &kv_len];
        let mut uniforms: Vec<_> = sizes.map(|d| Uniform::U32(d.clone())).to_vec();
        uniforms.push(scale);
        for window in [&q, &k, &v, &o] {
            uniforms.extend(window.words());
        }

        let blocks = div_ceil(&q_len, tile.rows * self.workgroup_size);
        let pairs = batch.clone() * heads.clone() * q_len * kv_len;
        let steps = attention
            .score_mod
            .iter()
            .chain(&attention.mask_mod)
            .map(operations);
        let cost = 2 * (tile.qk_dim + tile.v_dim) as usize + 4 + steps.sum::<usize>();
        let mut operands = Vec::new();
        for n in 0..3 {
            operands.push(self.operand_buffer(value, n)?);
        }
        operands.push(self.buffer(value)?);
        let dispatch = Dispatch {
            kernel: "flash_attention_fwd_rows",
            key: key(&tile, attention),
            params: params::print(&[("elem", "f32")], self.workgroup_size),
            micro: Some(micro),
            combine: None,
            op: None,
            mod_files,
            mods,
            tile: format!(
                "{} query rows in registers, {} B a lane; no workgroup memory",
                tile.rows,
                4 * tile.rows * (tile.qk_dim + tile.v_dim)
            ),
            uniforms,
            operands,
            workgroups: blocks * heads * batch,
            flops: pairs * Dim::from(cost),
        };
        self.dispatch(value, dispatch)
    }

    /// An operand as a strided window.
    fn window(&self, value: ValueId, operand: usize) -> Result<Window, Diagnostic> {
        let id = self.graph.node(value).operands()[operand];
        let ty = self.graph.ty(id);
        let Some(Layout {
            offset, strides, ..
        }) = layout::resolve(self.graph, id)
        else {
            let which = ["query", "key", "value"][operand];
            return Err(Diagnostic::error(
                "not-strided",
                format!(
                    "{which} operand %{} of attention is no strided window of a buffer",
                    self.graph.node(id).name()
                ),
            )
            .note("run fold-views, which copies what views cannot express"));
        };
        Ok(Window::new(offset, strides, &ty.shape[3]))
    }

    /// `score_mod` and `mask_mod`, printed or the identity's file.
    fn attention_mods(
        &self,
        value: ValueId,
        attention: &Attention,
        space: &IndexSpace,
    ) -> Result<(crate::mods::Printed, Vec<&'static str>), Diagnostic> {
        let node = self.graph.node(value);
        let mut files = Vec::new();
        let mut mods = Mods::new(
            self.graph,
            "flash_attention_fwd_rows",
            |_, dtype, index| match (dtype, index.len()) {
                (DType::Bool, _) => "mask",
                (DType::I32 | DType::U32, _) => "ids",
                (_, 1) => "slope",
                _ => "bias",
            },
        );
        match &attention.score_mod {
            Some(expr) => mods.function(&Function {
                name: "score_mod",
                arg: Some(("score", "f32")),
                space,
                result: Returns::Stored(DType::F32),
                expr,
                operands: node.operands(),
            })?,
            None => files.push("mods/score_identity"),
        }
        match &attention.mask_mod {
            Some(expr) => mods.function(&Function {
                name: "mask_mod",
                arg: None,
                space,
                result: Returns::Bool,
                expr,
                operands: node.operands(),
            })?,
            None => files.push("mods/mask_none"),
        }
        Ok((mods.finish(), files))
    }
}

fn few_rows(q_len: &Dim) -> u32 {
    let len = q_len.as_const().and_then(|n| u32::try_from(n).ok());
    len.map_or(ROWS, |n| n.clamp(1, ROWS))
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

/// `flash_attention_fwd_rows.f32.r4d32.padding`.
fn key(tile: &AttentionTile, attention: &Attention) -> String {
    let mut key = format!(
        "flash_attention_fwd_rows.f32.r{}d{}",
        tile.rows, tile.qk_dim
    );
    if tile.v_dim != tile.qk_dim {
        key = format!("{key}v{}", tile.v_dim);
    }
    let scalar = [("q", tile.q), ("k", tile.k), ("v", tile.v), ("o", tile.o)];
    for (name, _) in scalar.into_iter().filter(|(_, a)| *a == Access::Scalar) {
        key = format!("{key}{name}s");
    }
    let score = attention.score_mod.as_ref().map(label::score_mod);
    let mask = attention.mask_mod.as_ref().map(label::mask_mod);
    for part in score.into_iter().chain(mask) {
        key = format!("{key}.{part}");
    }
    key
}
