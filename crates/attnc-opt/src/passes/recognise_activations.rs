//! GELU and SiLU written out in primitive ops get their names.
//!
//! They are recognised by what they compute, not by how they are spelled: the expression between a value
//! and a product of it is evaluated at sample points and compared with each activation. Exporters spell
//! GELU in a dozen ways; all of them have these values.
//!
//! ```text
//! %a = div %x, 1.4142135   %b = erf %a   %c = add %b, 1.0
//! %d = mul %x, %c          %e = mul %d, 0.5                      %e = gelu %x
//! ```
//!
//! On exit no written-out activation of the table remains.

use crate::extract::{Extractor, Step};
use crate::{Change, Pass, RemarkKind, Trace};
use attnc_ir::scalar::eval::{Env, unary_f64};
use attnc_ir::scalar::{ExprId, ScalarBuilder, ScalarExpr};
use attnc_ir::{BinaryOp, Diagnostics, Extents, Graph, Op, UnaryOp, ValueId};

/// See the module.
pub struct RecogniseActivations;

/// What is looked for.
const TABLE: [UnaryOp; 3] = [UnaryOp::Gelu, UnaryOp::GeluTanh, UnaryOp::Silu];

/// Constants are f32, so values agree to about its precision; the nearest two activations of the table
/// differ by more than 1e-4.
const TOLERANCE: f64 = 2e-6;

/// Activations are at most this many ops deep.
const MAX_DEPTH: usize = 9;

impl Pass for RecogniseActivations {
    fn name(&self) -> &'static str {
        "recognise-activations"
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut changed = false;
        // Users before operands: the whole of an activation comes before its parts.
        for value in graph.topo_order().into_iter().rev() {
            let Some((x, op)) = recognise(graph, value) else {
                continue;
            };
            if !trace.claim() {
                break;
            }
            let new = graph
                .apply(Op::Unary(op), &[x])
                .expect("an activation of a float value has a type");
            graph.node_mut(new).origin = graph.node(value).origin.clone();
            trace.remark(RemarkKind::Recognised, graph, &[new], op.name());
            graph.supersede(value, new);
            changed = true;
        }
        if changed {
            graph.remove_dead();
        }
        Ok(Change::from(changed))
    }
}

fn recognise(graph: &Graph, value: ValueId) -> Option<(ValueId, UnaryOp)> {
    let root = matches!(
        graph.node(value).op,
        Op::Binary(BinaryOp::Mul | BinaryOp::Div)
    );
    if !root {
        return None;
    }
    let (ancestors, curved) = ancestors(graph, value);
    if !curved {
        return None;
    }
    ancestors.into_iter().find_map(|x| {
        let expr = between(graph, value, x)?;
        TABLE
            .into_iter()
            .find(|&op| same_values(&expr, op))
            .map(|op| (x, op))
    })
}

/// The values of the same type that pointwise ops lead back to, nearest first, and whether any of the ops
/// could make an activation.
fn ancestors(graph: &Graph, value: ValueId) -> (Vec<ValueId>, bool) {
    let ty = graph.ty(value);
    let (mut found, mut curved) = (Vec::new(), false);
    let mut level = vec![value];
    for _ in 0..MAX_DEPTH {
        let mut next = Vec::new();
        for v in level {
            let node = graph.node(v);
            if !node.op.is_pointwise() {
                continue;
            }
            curved |= matches!(
                node.op,
                Op::Unary(UnaryOp::Erf | UnaryOp::Tanh | UnaryOp::Sigmoid | UnaryOp::Exp)
            );
            for &operand in node.operands() {
                if graph.ty(operand) == ty && !found.contains(&operand) {
                    found.push(operand);
                    next.push(operand);
                }
            }
        }
        level = next;
    }
    (found, curved)
}

/// The expression of `value` over elements of `x` and literals alone.
fn between(graph: &Graph, value: ValueId, x: ValueId) -> Option<ScalarExpr> {
    let mut e = ScalarBuilder::new(Extents::new(graph.ty(value).shape.clone()));
    let mut extractor = Extractor::new(graph, 0);
    let index = e.indices();
    let at = index.clone();
    let shape = &graph.ty(value).shape;
    // Along an axis of one element every index is the same.
    let elsewhere = |i: &[ExprId]| {
        let axes = i.iter().zip(&at).zip(shape);
        axes.into_iter()
            .any(|((i, at), size)| i != at && !size.is(1))
    };
    let mut foreign = false;
    let root = extractor.element(&mut e, value, index, &mut |e, v, i| {
        if v == x {
            foreign |= elsewhere(i);
            return Step::Replace(e.arg());
        }
        match &graph.node(v).op {
            Op::Constant(_) => Step::Inline,
            op if op.is_pointwise() => Step::Inline,
            _ => {
                foreign = true;
                Step::Load
            }
        }
    });
    (!foreign && extractor.loads.is_empty()).then(|| e.finish(root))
}

fn same_values(expr: &ScalarExpr, op: UnaryOp) -> bool {
    (-24..=24).all(|i| {
        let x = f64::from(i) * 0.25 + 0.03;
        let env = Env {
            index: &[],
            arg: x,
            length: &|_| None,
            load: &|_, _| None,
        };
        expr.eval(&env)
            .is_ok_and(|y| (y - unary_f64(op, x)).abs() <= TOLERANCE * x.abs().max(1.0))
    })
}
