//! Every operand of a contraction becomes a strided window on a buffer.
//!
//! Views are free where they compose to an offset and strides. Where they do not, the kernel that makes
//! the value is told to lay its axes out in another order ([`attnc_ir::Node::storage`]): attention writes
//! `[B, M, H, D]` when its result is merged into `[B, M, H * D]`. Only where no order serves every reader
//! is the value copied, with a remark.
//!
//! On exit operands of `matmul` resolve to strided windows, and those of `attention` to windows whose last
//! axis is contiguous.

use crate::{Change, Pass, RemarkKind, Trace};
use attnc_ir::layout::{self, Layout};
use attnc_ir::scalar::ScalarBuilder;
use attnc_ir::{Diagnostics, Extents, Graph, Op, TensorType, ValueId};

/// See the module.
pub struct FoldViews;

impl Pass for FoldViews {
    fn name(&self) -> &'static str {
        "fold-views"
    }

    fn is_lowering(&self) -> bool {
        true
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut changed = false;
        for kernel in graph.topo_order() {
            if takes_storage(graph, kernel) {
                changed |= choose_storage(graph, kernel);
            }
        }
        for kernel in graph.topo_order() {
            for slot in 0..windows(graph, kernel) {
                let operand = graph.node(kernel).operands()[slot];
                if !is_window(graph, kernel, operand) {
                    copy_operand(graph, kernel, slot, trace)?;
                    changed = true;
                }
            }
        }
        Ok(Change::from(changed))
    }
}

/// How many leading operands of a kernel must be strided windows.
fn windows(graph: &Graph, kernel: ValueId) -> usize {
    match graph.node(kernel).op {
        Op::MatMul => 2,
        Op::Attention(_) => 3,
        _ => 0,
    }
}

fn takes_storage(graph: &Graph, kernel: ValueId) -> bool {
    let node = graph.node(kernel);
    let strided = windows(graph, kernel) > 0 || matches!(node.op, Op::LinearAttention(_));
    strided && node.storage.is_none()
}

fn is_window(graph: &Graph, kernel: ValueId, operand: ValueId) -> bool {
    let Some(layout) = layout::resolve(graph, operand) else {
        return false;
    };
    match graph.node(kernel).op {
        Op::Attention(_) => last_is_contiguous(graph, operand, &layout),
        _ => true,
    }
}

fn last_is_contiguous(graph: &Graph, value: ValueId, layout: &Layout) -> bool {
    let shape = &graph.ty(value).shape;
    let last = shape.len() - 1;
    layout.strides[last].is(1) || shape[last].is(1)
}

/// A kernel operand, or an output, that is a view of `producer`.
enum Reader {
    Window { kernel: ValueId, operand: ValueId },
    Output(ValueId),
}

fn readers(graph: &Graph, producer: ValueId) -> Vec<Reader> {
    let mut out = Vec::new();
    let mut stack = vec![producer];
    while let Some(value) = stack.pop() {
        if graph.is_output(value) {
            out.push(Reader::Output(value));
        }
        for user in graph.users(value) {
            if graph.node(user).op.is_view() {
                stack.push(user);
            } else {
                let leading = &graph.node(user).operands()[..windows(graph, user)];
                if leading.contains(&value) {
                    out.push(Reader::Window {
                        kernel: user,
                        operand: value,
                    });
                }
            }
        }
    }
    out
}

/// How many readers would need a copy.
fn unhappy(graph: &Graph, readers: &[Reader]) -> usize {
    let happy = |reader: &&Reader| match reader {
        Reader::Window { kernel, operand } => is_window(graph, *kernel, *operand),
        Reader::Output(value) => layout::resolve(graph, *value)
            .is_some_and(|l| l.offset.is(0) && l.is_contiguous(&graph.ty(*value).shape)),
    };
    readers.iter().filter(|r| !happy(r)).count()
}

fn choose_storage(graph: &mut Graph, producer: ValueId) -> bool {
    let readers = readers(graph, producer);
    let mut best = (unhappy(graph, &readers), None);
    for order in orders(graph, producer) {
        if best.0 == 0 {
            break;
        }
        graph.node_mut(producer).storage = Some(order.clone());
        let count = unhappy(graph, &readers);
        if count < best.0 {
            best = (count, Some(order));
        }
    }
    let changed = best.1.is_some();
    graph.node_mut(producer).storage = best.1;
    changed
}

/// Axis orders worth trying: those of the transposes that read the value, also behind reshapes that
/// only split or join axes of length 1.
fn orders(graph: &Graph, producer: ValueId) -> Vec<Vec<usize>> {
    let rank = graph.ty(producer).rank();
    let mut found: Vec<Vec<usize>> = Vec::new();
    let mut stack = vec![producer];
    while let Some(value) = stack.pop() {
        for user in graph
            .users(value)
            .into_iter()
            .filter(|&u| graph.node(u).op.is_view())
        {
            stack.push(user);
            let (base, index) = layout::source_index(graph, user);
            if base != producer {
                continue;
            }
            // Base axes in the order in which the view's axes read them.
            let mut order: Vec<(u32, usize)> = index
                .iter()
                .enumerate()
                .filter_map(|(axis, d)| d.as_index().map(|n| (n, axis)))
                .collect();
            order.sort_unstable();
            let mut order: Vec<usize> = order.into_iter().map(|(_, axis)| axis).collect();
            let missing: Vec<usize> = (0..rank).filter(|n| !order.contains(n)).collect();
            if missing.iter().all(|&n| graph.ty(producer).shape[n].is(1)) {
                order.splice(0..0, missing);
                if !found.contains(&order) {
                    found.push(order);
                }
            }
        }
    }
    found
}

fn copy_operand(
    graph: &mut Graph,
    kernel: ValueId,
    slot: usize,
    trace: &mut Trace,
) -> Result<(), Diagnostics> {
    let operand = graph.node(kernel).operands()[slot];
    let (base, index) = layout::source_index(graph, operand);
    let TensorType { dtype, shape } = graph.ty(operand).clone();
    let mut e = ScalarBuilder::new(Extents::new(shape.clone()));
    let index = index.into_iter().map(|d| e.int(d)).collect();
    let root = e.load(0, dtype, index);
    let expr = e.finish(root);
    let copy = graph.apply(Op::Map { expr, shape, dtype }, &[base])?;
    graph.node_mut(copy).origin = graph.node(operand).origin.clone();
    let message = format!(
        "operand {slot} of {} is copied: its views are no strides",
        graph.node(kernel).op.name()
    );
    trace.remark(RemarkKind::Note, graph, &[kernel], message);
    let mut operands = graph.node(kernel).operands().to_vec();
    operands[slot] = copy;
    graph.set_operands(kernel, &operands);
    Ok(())
}
