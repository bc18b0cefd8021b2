//! Attention of few queries, whose keys are walked in parts: when that pays, and the step that joins the parts.
//!
//! A workgroup (or, of the kernel by rows, each of its lanes) walks some hundred keys of its rows and writes what they
//! come to; `flash_attention_combine` joins the parts of a row (Milakov and Gimelshein 2018, arXiv:1805.02867, §3.1).
//! How many there are is ⌈kv_len / keys⌉ at run time. Their length is a constant, so that a row comes out the same
//! whatever the batch. Where a finite fill is why keys are skipped, a part decides for itself whether its rows are
//! walked again: its greatest score is no greater than the row's, so it may do so in vain and never fails to.
//!
//! On entry: what an attention needs. On exit: candidates beside those that walk all keys, or none where its rows are
//! many, its keys few, or a weight needs the sum of its row.

use super::attention::score_tensor;
use super::attention_kernel::{AttentionKernel, AttentionNeeds, rows, subgroup};
use super::attention_problem::{Problem, Window};
use super::kernel::Dispatch;
use super::turns::looped;
use super::{Lowerer, div_ceil, label};
use crate::Stored;
use crate::choice::{Candidate, Costs, KernelShape};
use crate::micro::{Access, AttentionTile, CombineTile, STATE, Weights};
use crate::mods::Mods;
use crate::params::{self, BLOCK};
use attnc_ir::layout::storage_strides;
use attnc_ir::{Attention, DType, Diagnostic, Dim, ValueId};
use attnc_plan::{Buffer, BufferId, DeviceProfile, Uniform};

/// Queries of a head beyond which there is work enough without parts.
pub(super) const FEW: u32 = 16;
/// Keys that are expected where their number is known only at run time: a conversation, a page.
const USUAL_KEYS: u32 = 2048;
/// Keys of a part at most: a cache of a few thousand has several.
const MOST: u32 = 1024;
/// Workgroups that are wanted for each that leaves no core idle, so that none waits long for the last.
const SPARE: f64 = 4.0;

/// Keys that are expected.
fn keys(needs: &AttentionNeeds) -> u32 {
    needs.kv_len.unwrap_or(USUAL_KEYS).max(1)
}

/// How much longer it takes for want of workgroups, of which there are so many and one subgroup of each has work.
pub(super) fn idle(workgroups: u32, costs: &Costs) -> f64 {
    let workgroups = f64::from(workgroups);
    costs.unfilled(workgroups, workgroups)
}

/// The kernels that walk a part of the keys, each with the cost of joining them.
pub(super) fn split(
    needs: &AttentionNeeds,
    profile: &DeviceProfile,
    costs: &Costs,
) -> Vec<(AttentionKernel, Candidate)> {
    let all = &needs.rows;
    let few = needs.q_len.is_some_and(|n| n <= FEW);
    let joined = !matches!(all.weights, Weights::AfterSum { .. });
    let keys = needs.kv_len.is_none_or(|n| n > BLOCK);
    if !(few && joined && keys && all.v_dim.is_multiple_of(4)) {
        return Vec::new();
    }
    let of_part = AttentionNeeds {
        rows: AttentionTile {
            o: Access::Vec4,
            result: Stored::F32,
            sink: false,
            part: true,
            ..all.clone()
        },
        ..needs.clone()
    };
    let bases = [
        Some(rows(&of_part, costs)),
        subgroup(&of_part, profile, costs),
    ];
    let bases = bases.into_iter().flatten();
    bases
        .map(|(kernel, of)| in_parts(kernel, &of, needs, profile, costs))
        .collect()
}

fn in_parts(
    kernel: AttentionKernel,
    of: &Candidate,
    needs: &AttentionNeeds,
    profile: &DeviceProfile,
    costs: &Costs,
) -> (AttentionKernel, Candidate) {
    let size = kernel.workgroup_size(params::workgroup_size(profile));
    let expected = keys(needs);
    let workgroups = |keys: u32| kernel.part_workgroups(needs, size, expected.div_ceil(keys));
    let wanted = |keys: &u32| f64::from(workgroups(*keys)) >= SPARE * costs.busy;
    let sizes = std::iter::successors(Some(MOST), |keys| Some(keys / 2));
    let mut sizes = sizes.take_while(|keys| *keys >= BLOCK);
    let part_keys = sizes.find(wanted).unwrap_or(BLOCK);
    let walk = of.cost * idle(workgroups(part_keys), costs);
    // Each four columns of a part of a row are loaded beside its state.
    let vectors = f64::from(needs.rows.v_dim / 4);
    let join = vectors * (2.0 * costs.load(4) + 24.0) / f64::from(costs.lanes * part_keys);
    let rows = f64::from(needs.q_len.unwrap_or(1) * needs.heads.unwrap_or(1));
    let dispatch = costs.dispatch * costs.busy / (rows * f64::from(expected));
    // What a part skips by a fill it may walk after all.
    let again = if needs.fills { 2.0 } else { 1.0 };
    let candidate = Candidate {
        shape: KernelShape::Split,
        tile: format!("k{part_keys}{}", of.tile),
        cost: walk * again + join + dispatch,
    };
    (
        AttentionKernel::Split(Box::new(kernel), part_keys),
        candidate,
    )
}

impl Lowerer<'_> {
    /// The buffer of the parts of an attention, and where a part of each row lies in it.
    pub(super) fn parts(
        &mut self,
        value: ValueId,
        problem: &Problem,
        part_keys: u32,
        when: &Dim,
    ) -> (BufferId, Window) {
        let sizes = &problem.sizes;
        let len = Dim::from(i64::from(problem.tile.v_dim + STATE));
        let count = div_ceil(&sizes.kv_len, part_keys);
        let rows = [&sizes.batch, &sizes.heads, &sizes.q_len].map(Dim::clone);
        let [batch, heads, q_len] = rows;
        let row = count.clone() * len.clone();
        let strides = storage_strides(&[batch.clone(), heads.clone(), q_len.clone(), row], None);
        let name = format!("{}.parts", self.graph.node(value).name());
        // Of no size in runs that it is not for.
        let shape = vec![batch * when.clone(), heads, q_len, count, len.clone()];
        let buffer = self.plan.add_buffer(Buffer::temp(&name, DType::F32, shape));
        (buffer, Window::new(Dim::zero(), strides, &len))
    }

    /// The step that joins the parts.
    pub(super) fn join_parts(
        &mut self,
        value: ValueId,
        attention: &Attention,
        problem: &Problem,
        parts: (BufferId, u32),
        when: &Dim,
    ) -> Result<(), Diagnostic> {
        let result = self.buffer(value)?;
        let (buffer, part_keys) = parts;
        let sizes = &problem.sizes;
        let tile = CombineTile {
            v_dim: problem.tile.v_dim,
            o: problem.windows[3].access,
            result: self.stored_in(result),
            sink: attention.sink.is_some(),
        };
        let micro = tile.print().map_err(|error| {
            let message = format!("no tile to join the parts of this attention: {error}");
            Diagnostic::error("no-tile", message)
        })?;
        let kernel = CombineTile::KERNEL;
        let stored = |value| self.stored(value);
        let mut mods = Mods::new(self.graph, &stored, kernel, score_tensor);
        self.attention_functions(value, attention, problem, &["sink"], &mut mods)?;
        let mods = mods.finish();
        let count = div_ceil(&sizes.kv_len, part_keys);
        let rows = sizes.batch.clone() * sizes.heads.clone() * sizes.q_len.clone() * when.clone();
        let lengths = [&sizes.batch, &sizes.heads, &sizes.q_len, &count];
        let words = lengths.into_iter().chain(problem.windows[3].words());
        let types = label::types(DType::F32, self.plan.buffer(result).dtype);
        let sink = attention.sink.as_ref().map(label::sink);
        let key = [format!("{kernel}.{types}.d{}", tile.v_dim)];
        let key: Vec<String> = key.into_iter().chain(sink).collect();
        let vectors = Dim::from(i64::from(tile.v_dim / 4));
        let dispatch = Dispatch {
            kernel,
            key: key.join("."),
            params: params::print(&[], self.workgroup_size),
            micro: Some(micro),
            combine: None,
            store: None,
            op: Some("attention_combine"),
            mod_files: vec!["walk/whole"],
            mods,
            tile: format!("four columns of a row a lane, parts of {part_keys} keys"),
            uniforms: words.cloned().map(Uniform::U32).collect(),
            operands: vec![buffer, result],
            counters: None,
            images: Vec::new(),
            workgroups: div_ceil(&(rows.clone() * vectors), self.workgroup_size),
            turns: looped(&count).taken,
            flops: rows * count * Dim::from(i64::from(4 * tile.v_dim + 8)),
        };
        self.dispatch(value, dispatch)
    }
}
