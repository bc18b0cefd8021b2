//! Connected pointwise, view and data ops become as few `map` nodes as they can.
//!
//! ```text
//! %a = gather %table, %ids
//! %b = gather %positions, %i            %c = map %table, %ids, %positions { t0[t1[d0, d1], d2] + t2[d1, d2] }
//! %c = add %a, %b
//! ```
//!
//! A node is a kernel of its own (a *root*) where a kernel or an output reads it, or where its users end
//! up in more than one root and it is more than index arithmetic; every other node is substituted into its
//! user. An expression that would need more storage bindings than every WebGPU device has is split.
//!
//! On exit no pointwise or data op remains: they are `map` nodes, whose operands are never views.

use crate::extract::{Extractor, Step};
use crate::{Change, Pass, RemarkKind, Trace, source_name};
use attnc_ir::scalar::{ScalarBuilder, has_form};
use attnc_ir::{Diagnostics, Extents, Graph, Op, TensorType, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Storage buffers a kernel may bind: WebGPU guarantees 8 a stage.
pub(super) const MAX_BINDINGS: usize = 8;

/// See the module.
pub struct FusePointwise;

impl Pass for FusePointwise {
    fn name(&self) -> &'static str {
        "fuse-pointwise"
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut roots = find_roots(graph);
        split_large(graph, &mut roots);
        let mut changed = false;
        for root in graph.topo_order() {
            if !roots.contains(&root) || matches!(graph.node(root).op, Op::Constant(_)) {
                continue;
            }
            if !trace.claim() {
                break;
            }
            build(graph, root, &roots, trace);
            changed = true;
        }
        if changed {
            graph.remove_dead();
        }
        Ok(Change::from(changed))
    }
}

/// Whether a value is computed elementwise, so that it could be part of a `map`.
fn is_elementwise(graph: &Graph, value: ValueId) -> bool {
    let node = graph.node(value);
    !node.op.is_view() && !matches!(node.op, Op::Constant(_)) && has_form(graph, value)
}

/// Index arithmetic and literals: computed anew wherever they are read.
fn is_free(graph: &Graph, value: ValueId) -> bool {
    let node = graph.node(value);
    match &node.op {
        Op::Iota { .. } | Op::Length(_) => true,
        Op::Constant(data) => data.splat_f64().is_some(),
        Op::Map { .. } => node.operands().is_empty(),
        op if op.is_view() || op.is_pointwise() => {
            node.operands().iter().all(|&o| is_free(graph, o))
        }
        _ => false,
    }
}

fn find_roots(graph: &Graph) -> BTreeSet<ValueId> {
    let mut roots = BTreeSet::new();
    // For each value, the roots its elements end up in.
    let mut ends: BTreeMap<ValueId, BTreeSet<ValueId>> = BTreeMap::new();
    for value in graph.topo_order().into_iter().rev() {
        let mut into = BTreeSet::new();
        let mut needed = graph.is_output(value);
        for user in graph.users(value) {
            if graph.node(user).op.is_view() || is_elementwise(graph, user) {
                needed |= graph.node(user).op.is_view() && roots.contains(&user);
                into.extend(ends.get(&user).into_iter().flatten().copied());
            } else {
                needed = true;
            }
        }
        if graph.node(value).op.is_view() {
            // A view that a kernel or an output reads asks for its operand to be there.
            if needed {
                roots.insert(value);
            }
            ends.insert(value, into);
            continue;
        }
        if is_elementwise(graph, value) {
            let several = into.len() > 1 && !is_free(graph, value);
            if needed || several {
                roots.insert(value);
                into = BTreeSet::from([value]);
            }
        }
        ends.insert(value, into);
    }
    roots.retain(|&v| !graph.node(v).op.is_view());
    roots
}

/// Where a root would load from too many values, its elementwise operands become roots as well.
fn split_large(graph: &Graph, roots: &mut BTreeSet<ValueId>) {
    let mut queue: Vec<ValueId> = roots.iter().copied().collect();
    while let Some(root) = queue.pop() {
        if extract(graph, root, roots).1.len() < MAX_BINDINGS {
            continue;
        }
        let operands: Vec<_> = graph
            .node(root)
            .operands()
            .iter()
            .map(|&o| attnc_ir::layout::source_index(graph, o).0)
            .filter(|&o| is_elementwise(graph, o) && !is_free(graph, o) && !roots.contains(&o))
            .collect();
        roots.extend(&operands);
        queue.extend(&operands);
    }
}

fn extract(
    graph: &Graph,
    root: ValueId,
    roots: &BTreeSet<ValueId>,
) -> (attnc_ir::scalar::ScalarExpr, Vec<ValueId>) {
    let mut e = ScalarBuilder::new(Extents::new(graph.ty(root).shape.clone()));
    let mut extractor = Extractor::new(graph, 0);
    let index = e.indices();
    let expr = extractor.element(&mut e, root, index, &mut |_, v, _| {
        if v != root && roots.contains(&v) && !is_free(graph, v) {
            Step::Load
        } else {
            Step::Inline
        }
    });
    (e.finish(expr), extractor.loads)
}

fn build(graph: &mut Graph, root: ValueId, roots: &BTreeSet<ValueId>, trace: &mut Trace) {
    let (expr, loads) = extract(graph, root, roots);
    let TensorType { dtype, shape } = graph.ty(root).clone();
    let sources = sources(graph, root, &loads);
    // Operands the expression no longer loads from are dropped.
    let used = expr.loaded_operands();
    let operands: Vec<ValueId> = used.iter().map(|&n| loads[n]).collect();
    let expr = expr.map_operands(|n| used.iter().position(|&u| u == n).expect("used"));
    if sources.len() > 1 {
        let names: Vec<_> = sources.iter().map(|&v| source_name(graph, v)).collect();
        let message = format!(
            "{} pointwise nodes are one kernel: {}",
            names.len(),
            names.join(", ")
        );
        trace.remark(RemarkKind::Fused, graph, &[root], message);
    }
    let mut origin: Vec<String> = Vec::new();
    for v in &sources {
        origin.extend(
            graph
                .node(*v)
                .origin
                .iter()
                .filter(|o| !origin.contains(o))
                .cloned()
                .collect::<Vec<_>>(),
        );
    }
    graph.set_operands(root, &operands);
    let node = graph.node_mut(root);
    node.op = Op::Map { expr, shape, dtype };
    node.origin = origin;
}

/// The elementwise nodes that end up in a root, in program order.
fn sources(graph: &Graph, root: ValueId, loads: &[ValueId]) -> Vec<ValueId> {
    let mut seen = BTreeSet::new();
    let mut stack = vec![root];
    while let Some(v) = stack.pop() {
        if loads.contains(&v) || !seen.insert(v) {
            continue;
        }
        stack.extend(graph.node(v).operands());
    }
    seen.into_iter()
        .filter(|&v| is_elementwise(graph, v))
        .collect()
}
