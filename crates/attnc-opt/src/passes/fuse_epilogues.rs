//! Pointwise users of one kernel ride on its stores.
//!
//! ```text
//! %a = matmul %x, %w
//! %b = add %a, %bias                 %c = matmul %x, %w, %bias, epilogue = { gelu(acc + %bias[d1]) }
//! %c = gelu %b
//! ```
//!
//! A user is taken where it is the only one, has the kernel's elements one to one (through reshapes and
//! transposes, whose index maps are inverted), and the kernel still fits the storage bindings every WebGPU
//! device has. What the user reads besides is captured: loaded in the epilogue. Where an element has several users
//! that all lead to one value by pointwise ops, that value is taken and they with it: `x * sigmoid(1.702 * x)`.
//!
//! On exit no kernel that takes an epilogue has such a user.

use crate::extract::{Extractor, Step, value_dtype};
use crate::passes::fuse_pointwise::MAX_BINDINGS;
use crate::{Change, Pass, RemarkKind, Trace, source_name};
use attnc_ir::scalar::{ExprId, ScalarBuilder, load_indices};
use attnc_ir::{Atom, Diagnostics, Dim, Extents, Graph, Op, ValueId};
use std::collections::BTreeSet;

/// See the module.
pub struct FuseEpilogues;

impl Pass for FuseEpilogues {
    fn name(&self) -> &'static str {
        "fuse-epilogues"
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut changed = false;
        for kernel in graph.topo_order() {
            if !graph.contains(kernel) || !graph.node(kernel).op.takes_epilogue() {
                continue;
            }
            let mut taken = Vec::new();
            while let Some(user) = find_user(graph, kernel) {
                let name = source_name(graph, user.value);
                if !absorb(graph, kernel, &user, trace) {
                    break;
                }
                taken.push(name);
            }
            if !taken.is_empty() {
                let message = format!(
                    "{} takes {} on its stores",
                    graph.node(kernel).op.name(),
                    taken.join(", ")
                );
                trace.remark(RemarkKind::Fused, graph, &[kernel], message);
                changed = true;
            }
        }
        if changed {
            graph.remove_dead();
        }
        Ok(Change::from(changed))
    }
}

/// A pointwise node, and what leads to it from the kernel.
struct User {
    value: ValueId,
    /// Views, nearest the kernel first.
    views: Vec<ValueId>,
    /// Pointwise nodes between the last view and the value, where that is reached in several ways.
    between: Vec<ValueId>,
}

impl User {
    /// The value of the kernel's elements that the user reads.
    fn reads(&self, kernel: ValueId) -> ValueId {
        self.views.last().copied().unwrap_or(kernel)
    }
}

/// At most so many nodes lie between an element and the value where its users meet.
const MAX_BETWEEN: usize = 24;

fn find_user(graph: &Graph, kernel: ValueId) -> Option<User> {
    let (mut at, mut views) = (kernel, Vec::new());
    loop {
        let Some(user) = graph.only_user(at) else {
            let (value, between) = meeting(graph, at)?;
            return Some(User {
                value,
                views,
                between,
            });
        };
        match &graph.node(user).op {
            Op::Reshape(_) | Op::Transpose(_) => {
                views.push(user);
                at = user;
            }
            op if op.is_pointwise() && graph.ty(user).shape == graph.ty(at).shape => {
                return Some(User {
                    value: user,
                    views,
                    between: Vec::new(),
                });
            }
            _ => return None,
        }
    }
}

/// The value where all users of `at` meet, and the nodes on the ways there: all pointwise, of one shape, and read
/// by nothing else.
fn meeting(graph: &Graph, at: ValueId) -> Option<(ValueId, Vec<ValueId>)> {
    let mut inside = vec![at];
    loop {
        if inside.iter().any(|&value| graph.is_output(value)) {
            return None;
        }
        let users = inside.iter().flat_map(|&value| graph.users(value));
        let outside: BTreeSet<ValueId> = users.filter(|user| !inside.contains(user)).collect();
        let same = |&user: &ValueId| {
            graph.node(user).op.is_pointwise() && graph.ty(user).shape == graph.ty(at).shape
        };
        if !outside.iter().all(same) || inside.len() > MAX_BETWEEN {
            return None;
        }
        let next = *outside.iter().find(|&&user| {
            // One that does not wait for another.
            let operands = graph.node(user).operands();
            operands.iter().all(|operand| !outside.contains(operand))
        })?;
        if outside.len() == 1 {
            inside.remove(0);
            return Some((next, inside));
        }
        inside.push(next);
    }
}

fn absorb(graph: &mut Graph, kernel: ValueId, user: &User, trace: &mut Trace) -> bool {
    let node = graph.node(kernel);
    if !graph.ty(user.value).dtype.is_float() {
        return false;
    }
    let shape = node.ty.shape.clone();
    let mut e = ScalarBuilder::new(Extents::new(shape));
    let own = node.operands().len();
    let mut extractor = Extractor::new(graph, own);
    let index = user_index(graph, kernel, user, &mut e);
    let before = match &node.epilogue {
        Some(epilogue) => {
            let indices = e.indices();
            e.inline(epilogue, &indices, None, &mut |e, operand, dtype, index| {
                e.load(operand, dtype, index)
            })
        }
        None => e.arg(),
    };
    let reads = user.reads(kernel);
    let root = extractor.element(&mut e, user.value, index, &mut |_, v, _| {
        if v == user.value || user.between.contains(&v) {
            Step::Inline
        } else if v == reads {
            Step::Replace(before)
        } else if sinks(graph, v) {
            Step::Inline
        } else {
            Step::Load
        }
    });
    // The kernel's own operands, what is captured, and the result.
    let captured = extractor.loads;
    let expr = e.finish(root);
    if own + captured.len() + 1 > MAX_BINDINGS || !trace.claim() {
        return false;
    }
    let mut operands = graph.node(kernel).operands().to_vec();
    operands.extend(&captured);
    let dtype = value_dtype(&expr, graph.ty(user.value).dtype);
    graph.set_operands(kernel, &operands);
    let origin = |&v: &ValueId| graph.node(v).origin.clone();
    let with = user.between.iter().chain([&user.value]);
    let origins: Vec<_> = with.flat_map(origin).collect();
    let node = graph.node_mut(kernel);
    node.epilogue = Some(expr);
    node.ty.dtype = dtype;
    node.origin.extend(origins);
    for &view in &user.views {
        graph.node_mut(view).ty.dtype = dtype;
    }
    graph.supersede(user.value, reads);
    // Gone at once, so that the kernel's next user is the only one again.
    graph.remove(user.value);
    for &value in user.between.iter().rev() {
        graph.remove(value);
    }
    true
}

/// What costs nothing to compute where it is read: views, repeated constants, index arithmetic.
fn sinks(graph: &Graph, value: ValueId) -> bool {
    let node = graph.node(value);
    match &node.op {
        op if op.is_view() => true,
        Op::Constant(data) => data.splat_f64().is_some(),
        Op::Iota { .. } | Op::Length(_) => true,
        Op::Map { .. } => node.operands().is_empty(),
        _ => false,
    }
}

/// The user's index of the element that the kernel computes at `d0, d1, …`.
fn user_index(graph: &Graph, kernel: ValueId, user: &User, e: &mut ScalarBuilder) -> Vec<ExprId> {
    let ext = e.extents().clone();
    let mut index: Vec<Dim> = (0..graph.ty(kernel).rank())
        .map(|n| Dim::index(u32::try_from(n).expect("few axes")))
        .collect();
    let mut from = kernel;
    for &view in &user.views {
        let (a, b) = (&graph.ty(from).shape, &graph.ty(view).shape);
        index = match &graph.node(view).op {
            Op::Transpose(perm) => perm.iter().map(|&p| index[p].clone()).collect(),
            // A reshape back from `b` to `a` says where an element of `a` stands in `b`.
            _ => load_indices(&Op::Reshape(a.clone()), b, a)
                .expect("reshapes have an index map")
                .iter()
                .map(|d| {
                    d.substitute(&ext, &|atom| match atom {
                        Atom::Index(n) => Some(index[*n as usize].clone()),
                        _ => None,
                    })
                })
                .collect(),
        };
        from = view;
    }
    index.into_iter().map(|d| e.int(d)).collect()
}
