//! Fused attention: the kernel that computes it, and the functions between the products.

use super::attention_kernel::{AttentionKernel, AttentionNeeds};
use super::attention_problem::{Problem, Sizes, Window, column_blocks, key};
use super::attention_turns::of_attention;
use super::blocks::{Tiles, attention_tiles};
use super::kernel::Dispatch;
use super::{Lowerer, constant, label};
use crate::Stored;
use crate::micro::{Access, AttentionTile, Weights};
use crate::mods::{Function, Mods, NameTensor, Printed, Returns};
use crate::params;
use attnc_ir::scalar::Scalar;
use attnc_ir::{Attention, DType, Diagnostic, Dim, Extents, ValueId};

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
        let (profile, choices) = (&self.plan.profile, self.choices);
        if !decodes || !AttentionKernel::decodes_otherwise(&any, &single, profile, choices) {
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
        let turns = of_attention(&kernel, sizes, &tiles, &self.plan.profile);
        let mut dispatch = Dispatch {
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
            counters: None,
            images: kernel.images(),
            workgroups: kernel.workgroups(sizes, size) * when.clone(),
            flops: problem.flops(attention) * when.clone(),
            turns: turns.foreseen,
        };
        if kernel.is_scheduled() {
            self.schedule(&mut dispatch, &turns.at_worst);
        }
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
