//! One spelling for what can be spelled in many ways.
//!
//! ```text
//! %a = reshape %x, shape = [4 * B, S, 16]
//! %b = transpose %a, perm = [0, 2, 1]            %c = transpose %x, perm = [0, 1, 3, 2]
//! %c = reshape %b, shape = [B, 4, 16, S]
//! ```
//!
//! * chains of views that amount to nothing, one transpose or one reshape become that;
//! * pointwise ops with a neutral constant, and casts to the same type, go;
//! * softmax runs over the last axis, reductions over trailing axes, with transposes around them;
//! * concatenations of many operands become trees that kernels can bind, and slices of one operand are that;
//! * equal nodes exist once.
//!
//! On exit no two equal nodes remain, and no chain of views is nothing, one transpose or one reshape of what
//! it starts from.

use crate::{Change, Pass, Trace};
use attnc_ir::layout::{row_major, source_index};
use attnc_ir::{BinaryOp, Diagnostics, Dim, Extents, Graph, Op, Shape, ValueId};
use std::collections::HashMap;

/// See the module.
pub struct Canonicalise;

impl Pass for Canonicalise {
    fn name(&self) -> &'static str {
        "canonicalise"
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut changed = false;
        for value in graph.topo_order() {
            let rules = [
                merge_slices,
                slice_of_part,
                merge_views,
                drop_neutral,
                softmax_last,
                reduce_trailing,
                split_concat,
            ];
            let Some(new) = rules.iter().find_map(|rule| rule(graph, value)) else {
                continue;
            };
            if !trace.claim() {
                break;
            }
            let origin = graph.node(value).origin.clone();
            if graph.node(new).origin.is_empty() {
                graph.node_mut(new).origin = origin;
            }
            graph.supersede(value, new);
            changed = true;
        }
        changed |= deduplicate(graph, trace);
        if changed {
            graph.remove_dead();
        }
        Ok(Change::from(changed))
    }
}

fn insert(graph: &mut Graph, op: Op, operands: &[ValueId]) -> ValueId {
    graph
        .apply(op, operands)
        .expect("a rewrite of a verified node has a type")
}

/// A slice of a slice along the same axis is one slice.
fn merge_slices(graph: &mut Graph, value: ValueId) -> Option<ValueId> {
    let slice = |graph: &Graph, v: ValueId| match &graph.node(v).op {
        Op::Slice {
            axis,
            start,
            len,
            step,
        } => Some((*axis, start.clone(), len.clone(), *step)),
        _ => None,
    };
    let (axis, start, len, step) = slice(graph, value)?;
    let inner = graph.node(value).operands()[0];
    let (inner_axis, inner_start, _, inner_step) = slice(graph, inner)?;
    if axis != inner_axis {
        return None;
    }
    let start = inner_start + start * Dim::from(inner_step);
    let step = inner_step.checked_mul(step)?;
    let source = graph.node(inner).operands()[0];
    Some(insert(
        graph,
        Op::Slice {
            axis,
            start,
            len,
            step,
        },
        &[source],
    ))
}

/// A slice that lies in one operand of a concatenation is one of that operand.
fn slice_of_part(graph: &mut Graph, value: ValueId) -> Option<ValueId> {
    let Op::Slice {
        axis,
        start,
        len,
        step: 1,
    } = graph.node(value).op.clone()
    else {
        return None;
    };
    let joined = graph.node(value).operands()[0];
    if graph.node(joined).op != (Op::Concat { axis }) {
        return None;
    }
    let none = Extents::none();
    let mut offset = Dim::zero();
    for &part in graph.node(joined).operands() {
        let size = graph.ty(part).shape[axis].clone();
        let first = start.clone() - offset.clone();
        let behind = size.clone() - first.clone() - len.clone();
        if first.is_nonneg(&none) && behind.is_nonneg(&none) {
            if graph.ty(part) == graph.ty(value) {
                return Some(part);
            }
            let own = Op::Slice {
                axis,
                start: first,
                len,
                step: 1,
            };
            return Some(insert(graph, own, &[part]));
        }
        offset = offset + size;
    }
    None
}

/// Operands that one kernel can read, with room for what is fused into it.
const MAX_CONCAT: usize = 6;

/// Concatenations of more operands than a kernel can bind become a tree.
fn split_concat(graph: &mut Graph, value: ValueId) -> Option<ValueId> {
    let Op::Concat { axis } = graph.node(value).op else {
        return None;
    };
    let mut parts = graph.node(value).operands().to_vec();
    if parts.len() <= MAX_CONCAT {
        return None;
    }
    while parts.len() > 1 {
        let join = |group: &[ValueId]| match group {
            [one] => *one,
            _ => insert(graph, Op::Concat { axis }, group),
        };
        parts = parts.chunks(MAX_CONCAT).map(join).collect();
    }
    parts.pop()
}

/// A chain of views as no view, one transpose or one reshape.
fn merge_views(graph: &mut Graph, value: ValueId) -> Option<ValueId> {
    if !graph.node(value).op.is_view() {
        return None;
    }
    let (base, index) = source_index(graph, value);
    let (from, to) = (graph.ty(base).shape.clone(), graph.ty(value).shape.clone());
    let single = graph.node(value).operands()[0] == base;
    if from == to && index.iter().enumerate().all(|(n, d)| is_axis(d, n, &from)) {
        return Some(base);
    }
    if let Some(perm) = as_permutation(&index, &from, &to) {
        let already = single && matches!(graph.node(value).op, Op::Transpose(_));
        return (!already).then(|| insert(graph, Op::Transpose(perm), &[base]));
    }
    if !single && is_reshape(&index, &from, &to) {
        return Some(insert(graph, Op::Reshape(to), &[base]));
    }
    None
}

fn is_axis(index: &Dim, axis: usize, shape: &[Dim]) -> bool {
    if shape[axis].is(1) {
        index.is(0)
    } else {
        index.as_index() == u32::try_from(axis).ok()
    }
}

/// Result axis `n` is base axis `perm[n]`; axes of length 1 fill the gaps in order.
fn as_permutation(index: &[Dim], from: &Shape, to: &Shape) -> Option<Vec<usize>> {
    if from.len() != to.len() {
        return None;
    }
    let mut perm: Vec<Option<usize>> = vec![None; to.len()];
    let mut ones = Vec::new();
    for (axis, i) in index.iter().enumerate() {
        match i.as_index() {
            Some(n) if perm[n as usize].is_none() && to[n as usize] == from[axis] => {
                perm[n as usize] = Some(axis);
            }
            None if i.is(0) && from[axis].is(1) => ones.push(axis),
            _ => return None,
        }
    }
    let mut ones = ones.into_iter();
    (0..to.len())
        .map(|n| perm[n].or_else(|| if to[n].is(1) { ones.next() } else { None }))
        .collect()
}

fn is_reshape(index: &[Dim], from: &Shape, to: &Shape) -> bool {
    let same_count = from.iter().cloned().product::<Dim>() == to.iter().cloned().product();
    let flat: Dim = index
        .iter()
        .cloned()
        .zip(row_major(from))
        .map(|(i, s)| i * s)
        .sum();
    let linear: Dim = (0..to.len())
        .filter(|&n| !to[n].is(1))
        .zip(
            row_major(to)
                .into_iter()
                .enumerate()
                .filter(|(n, _)| !to[*n].is(1)),
        )
        .map(|(n, (_, s))| Dim::index(u32::try_from(n).expect("few axes")) * s)
        .sum();
    same_count && flat == linear
}

/// `x + 0`, `x - 0`, `x * 1`, `x / 1`, `cast` to the type it has.
fn drop_neutral(graph: &mut Graph, value: ValueId) -> Option<ValueId> {
    let node = graph.node(value);
    if node.epilogue.is_some() {
        return None;
    }
    let splat = |v: ValueId| match &graph.node(v).op {
        Op::Constant(data) => data.splat_f64(),
        _ => None,
    };
    let kept = match &node.op {
        Op::Cast(to) => (graph.ty(node.operands()[0]).dtype == *to).then(|| node.operands()[0]),
        Op::Binary(op) => {
            let (a, b) = (node.operands()[0], node.operands()[1]);
            let neutral = match op {
                BinaryOp::Add | BinaryOp::Sub => 0.0,
                BinaryOp::Mul | BinaryOp::Div => 1.0,
                _ => return None,
            };
            if splat(b) == Some(neutral) {
                Some(a)
            } else if matches!(op, BinaryOp::Add | BinaryOp::Mul) && splat(a) == Some(neutral) {
                Some(b)
            } else {
                None
            }
        }
        _ => None,
    }?;
    (graph.ty(kept) == &node.ty).then_some(kept)
}

fn softmax_last(graph: &mut Graph, value: ValueId) -> Option<ValueId> {
    let Op::Softmax { axis } = graph.node(value).op else {
        return None;
    };
    let rank = graph.ty(value).rank();
    if axis == rank - 1 {
        return None;
    }
    // Swapping two axes is its own inverse.
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(axis, rank - 1);
    let x = graph.node(value).operands()[0];
    let turned = insert(graph, Op::Transpose(perm.clone()), &[x]);
    let softmax = insert(graph, Op::Softmax { axis: rank - 1 }, &[turned]);
    graph.node_mut(softmax).origin = graph.node(value).origin.clone();
    Some(insert(graph, Op::Transpose(perm), &[softmax]))
}

fn reduce_trailing(graph: &mut Graph, value: ValueId) -> Option<ValueId> {
    let Op::Reduce { op, axes, .. } = graph.node(value).op.clone() else {
        return None;
    };
    let x = graph.node(value).operands()[0];
    let rank = graph.ty(x).rank();
    let kept = rank - axes.len();
    if axes.iter().copied().eq(kept..rank) {
        return None;
    }
    let perm: Vec<usize> = (0..rank)
        .filter(|n| !axes.contains(n))
        .chain(axes.iter().copied())
        .collect();
    let shape = graph.ty(value).shape.clone();
    let turned = insert(graph, Op::Transpose(perm), &[x]);
    let reduced = insert(
        graph,
        Op::Reduce {
            op,
            axes: (kept..rank).collect(),
            keep_dims: false,
        },
        &[turned],
    );
    graph.node_mut(reduced).origin = graph.node(value).origin.clone();
    Some(insert(graph, Op::Reshape(shape), &[reduced]))
}

/// Constants larger than this are compared by where they lie, not by what they hold.
const COMPARE_BYTES: usize = 4096;

/// Equal nodes become the first of them.
fn deduplicate(graph: &mut Graph, trace: &mut Trace) -> bool {
    let mut seen: HashMap<(&'static str, Vec<ValueId>), Vec<ValueId>> = HashMap::new();
    let mut changed = false;
    for value in graph.topo_order() {
        if graph.node(value).op == Op::Input {
            continue;
        }
        let key = (
            graph.node(value).op.name(),
            graph.node(value).operands().to_vec(),
        );
        let same = seen.entry(key).or_default();
        if let Some(&first) = same.iter().find(|&&v| equal(graph, v, value)) {
            if !trace.claim() {
                return changed;
            }
            graph.supersede(value, first);
            changed = true;
        } else {
            same.push(value);
        }
    }
    changed
}

fn equal(graph: &Graph, a: ValueId, b: ValueId) -> bool {
    let (a, b) = (graph.node(a), graph.node(b));
    if a.ty != b.ty || a.epilogue != b.epilogue || a.storage != b.storage {
        return false;
    }
    match (&a.op, &b.op) {
        (Op::Constant(x), Op::Constant(y)) => match (&x.bytes, &y.bytes) {
            (Some(p), Some(q)) if p.len() > COMPARE_BYTES => p.as_ptr() == q.as_ptr(),
            _ => x == y,
        },
        (x, y) => x == y,
    }
}
