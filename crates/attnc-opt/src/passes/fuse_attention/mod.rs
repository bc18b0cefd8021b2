//! `QKᵀ → scale → mask → softmax → ·V` becomes one `attention` node.
//!
//! ```text
//! %ks = mul %kt, 0.125
//! %s  = matmul %q, %ks                %o = attention %q, %k, %v, %mask, scale = 0.125,
//! %m  = where %mask, %s, -inf              mask_mod = { %mask[b, 0, 0, kv_idx] }
//! %p  = softmax %m, axis = 3
//! %o  = matmul %p, %v
//! ```
//!
//! In two phases, so that operand order, casts, permutes and the place of the scale do not multiply into
//! patterns. *Structure* ([`structure`]): a softmax, whose input is an expression of one contraction and of
//! its index, whose result a second contraction sums over the same axis. *Clean-up* ([`operands`],
//! [`mods`]): operands become views of rank 4, scales on any side one factor, repeated KV heads grouped
//! heads, and what stands between product and softmax `score_mod` and `mask_mod`.
//!
//! Every candidate ends as fused or declined, the refusal naming the first node in the way. Attention ops
//! of the source go through the same clean-up. What merely looks like attention gets a note ([`near_misses`]). Dao et al. 2022, arXiv:2205.14135 (why one pass);
//! FlexAttention, arXiv:2412.05496 (the two functions).
//!
//! On exit no candidate that could fuse remains.

mod guards;
mod mods;
mod near_misses;
mod one_query;
mod operands;
mod path;
mod renormalise;
mod scores;
mod structure;
mod weights;

use self::near_misses::near_misses;
use crate::candidates::{Candidate, find_attention};
use crate::{Change, Pass, RemarkKind, Trace, source_name};
use attnc_ir::scalar::print::Names;
use attnc_ir::{Attention, Diagnostics, Graph, Op, ValueId};
use std::collections::BTreeSet;

/// See the module.
pub struct FuseAttention;

/// Tensors that the functions of an attention may load: WebGPU guarantees 8 storage bindings a stage, and q,
/// k, v and the result take four.
const MAX_CAPTURED: usize = 4;

/// Why a candidate stays as it is, and the node in the way.
pub(crate) struct Decline {
    reason: String,
    at: Option<ValueId>,
}

impl Decline {
    fn at(value: ValueId, reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            at: Some(value),
        }
    }
}

impl Pass for FuseAttention {
    fn name(&self) -> &'static str {
        "fuse-attention"
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut fused_nodes = Vec::new();
        let candidates = find_attention(graph);
        for missed in near_misses(graph, &candidates) {
            trace.note(graph, missed.node, missed.reason, missed.at);
        }
        for mut candidate in candidates {
            let result = structure_of(graph, &mut candidate)?;
            let found = match result {
                Ok(found) => found,
                Err(decline) => {
                    trace.decline(graph, candidate.node, decline.reason, decline.at);
                    continue;
                }
            };
            if !trace.claim() {
                break;
            }
            // Taken before the new node takes over the name of the last.
            let nodes = [found.score, Some(candidate.node), found.sum]
                .into_iter()
                .flatten()
                .map(|v| source_name(graph, v))
                .collect();
            let fused = build(graph, &found)?;
            trace.remark_on(RemarkKind::Fused, nodes, describe(graph, fused));
            fused_nodes.push((candidate.node, found.score));
        }
        if fused_nodes.is_empty() {
            return Ok(Change::None);
        }
        graph.remove_dead();
        for (softmax, score) in fused_nodes {
            note_tables(graph, softmax, score, trace);
        }
        Ok(Change::Some)
    }
}

/// The structure around a candidate; a query axis that the source left out is put back for it.
fn structure_of(
    graph: &mut Graph,
    candidate: &mut Candidate,
) -> Result<Result<structure::Structure, Decline>, Diagnostics> {
    if candidate.is_op {
        return Ok(structure::of_op(graph, candidate.node));
    }
    let result = structure::of_softmax(graph, candidate);
    if result.is_ok() {
        return Ok(result);
    }
    if let Some((with_axis, softmax)) = one_query::restored(graph, candidate)?
        && let Ok(found) = structure::of_softmax(&with_axis, &softmax)
    {
        (*graph, *candidate) = (with_axis, softmax);
        return Ok(Ok(found));
    }
    Ok(result)
}

/// Puts the attention node in place of what it computes.
fn build(graph: &mut Graph, found: &structure::Structure) -> Result<ValueId, Diagnostics> {
    let mut inputs = operands::clean(graph, found)?;
    let width = graph.ty(inputs.v).shape[3].clone();
    if found.rows.is_some() {
        inputs.v = renormalise::with_ones(graph, inputs.v)?;
    }
    let mods = mods::split(graph, found, inputs.scale);
    let mut all = vec![inputs.q, inputs.k, inputs.v];
    all.extend(&mods.captured);
    let fused = graph.apply(Op::Attention(mods.attention), &all)?;
    let origins = [found.score, Some(found.node), found.sum];
    graph.node_mut(fused).origin = origins
        .into_iter()
        .flatten()
        .flat_map(|v| graph.node(v).origin.clone())
        .collect::<Vec<_>>();
    operands::store_as(graph, fused, graph.ty(found.result).dtype);
    let result = match &found.rows {
        Some(rows) => rows.apply(graph, found, fused, &width)?,
        None => fused,
    };
    let result = operands::restore(graph, found, result)?;
    graph.supersede(found.result, result);
    Ok(fused)
}

/// Says so where something else than the product with V needs the probabilities, or the scores, which then
/// are computed apart.
fn note_tables(graph: &Graph, softmax: ValueId, score: Option<ValueId>, trace: &mut Trace) {
    let Some(score) = score else { return };
    let alive: BTreeSet<ValueId> = graph.values().collect();
    let left = [(softmax, "probabilities"), (score, "scores")];
    let Some((value, what)) = left.into_iter().find(|(v, _)| alive.contains(v)) else {
        return;
    };
    let is_output = graph.outputs().iter().any(|(_, v)| *v == value);
    let (needed, at) = match graph.users(value).first() {
        _ if is_output => ("are an output too", value),
        Some(&user) => ("are needed elsewhere too", user),
        None => return,
    };
    let message = format!("the {what} {needed}: a table of queries by keys, computed apart");
    trace.note(graph, value, message, at);
}

/// `scale 0.125, mask_mod = %mask[b, 0, 0, kv_idx], 8 query heads a KV head`.
fn describe(graph: &Graph, fused: ValueId) -> String {
    let node = graph.node(fused);
    let Op::Attention(attention) = &node.op else {
        unreachable!("just built")
    };
    let operand = |n: usize| format!("%{}", graph.node(node.operands()[n]).name());
    let index = |n: u32| ["b", "h", "q_idx", "kv_idx"][n as usize].to_owned();
    let mut text = format!("one attention: scale = {}", attention.scale);
    for (name, expr) in attention.functions() {
        let names = Names {
            operand: &operand,
            index: &index,
            arg: Attention::argument(name).unwrap_or("arg"),
        };
        text.push_str(&format!(", {name} = {{ {} }}", expr.to_text(&names)));
    }
    let (q, k) = (graph.ty(node.operands()[0]), graph.ty(node.operands()[1]));
    if q.shape[1] != k.shape[1] {
        text.push_str(&format!(
            ", {} query heads on {} KV heads",
            q.shape[1], k.shape[1]
        ));
    }
    if let Some(full) = node.operands()[3..]
        .iter()
        .find(|&&v| is_full(graph, v, fused))
    {
        text.push_str(&format!(
            "; {} is read as a whole query-by-key table",
            source_name(graph, *full)
        ));
    }
    text
}

/// Whether a captured value has both a query and a key axis.
fn is_full(graph: &Graph, value: ValueId, fused: ValueId) -> bool {
    let node = graph.node(fused);
    let (m, n) = (
        &graph.ty(node.operands()[0]).shape[2],
        &graph.ty(node.operands()[1]).shape[2],
    );
    let shape = &graph.ty(value).shape;
    let count = |d| shape.iter().filter(|s| *s == d).count();
    if m == n {
        !m.is(1) && count(m) > 1
    } else {
        count(m) > 0 && count(n) > 0
    }
}
