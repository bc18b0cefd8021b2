//! Layer norm and RMS norm written out in primitive ops get their names.
//!
//! ```text
//! %m = reduce_mean %x           %d = sub %x, %m
//! %v = reduce_mean (mul %d, %d)                                 %n = layer_norm %x, 1, 0
//! %n = div %d, sqrt(add %v, eps)
//! ```
//!
//! Gain and bias that follow stay pointwise and ride on the norm's epilogue. Ba, Kiros and Hinton 2016,
//! arXiv:1607.06450; Zhang and Sennrich 2019, arXiv:1910.07467.
//!
//! On exit no written-out norm over trailing axes remains that matches; what does not match stays right.

use super::matching::{kept_reduction, pair, unary_of};
use crate::{Change, Pass, RemarkKind, Trace};
use attnc_ir::{
    BinaryOp, DType, Diagnostics, Graph, Op, ReduceOp, TensorData, TensorType, UnaryOp, ValueId,
};

/// See the module.
pub struct RecogniseNorms;

impl Pass for RecogniseNorms {
    fn name(&self) -> &'static str {
        "recognise-norms"
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut changed = false;
        for value in graph.topo_order() {
            let Some(norm) = match_norm(graph, value) else {
                continue;
            };
            if !trace.claim() {
                break;
            }
            let new = norm.build(graph, value);
            trace.remark(RemarkKind::Recognised, graph, &[new], norm.describe());
            graph.supersede(value, new);
            changed = true;
        }
        if changed {
            graph.remove_dead();
        }
        Ok(Change::from(changed))
    }
}

struct Norm {
    x: ValueId,
    axis: usize,
    eps: f64,
    centred: bool,
}

impl Norm {
    fn describe(&self) -> String {
        let kind = if self.centred {
            "layer norm"
        } else {
            "RMS norm"
        };
        format!("{kind} over axes from {}, eps = {:e}", self.axis, self.eps)
    }

    fn build(&self, graph: &mut Graph, value: ValueId) -> ValueId {
        let dtype = graph.ty(self.x).dtype;
        let one = scalar(graph, dtype, 1.0);
        let new = if self.centred {
            let zero = scalar(graph, dtype, 0.0);
            graph.apply(
                Op::LayerNorm {
                    axis: self.axis,
                    eps: self.eps,
                },
                &[self.x, one, zero],
            )
        } else {
            graph.apply(
                Op::RmsNorm {
                    axis: self.axis,
                    eps: self.eps,
                },
                &[self.x, one],
            )
        }
        .expect("a norm of a float value has a type");
        graph.node_mut(new).origin = graph.node(value).origin.clone();
        new
    }
}

fn scalar(graph: &mut Graph, dtype: DType, value: f32) -> ValueId {
    if dtype == DType::F32 {
        return graph.add_constant(TensorData::f32(Vec::new(), &[value]));
    }
    let one = graph.add_constant(TensorData::f32(Vec::new(), &[value]));
    graph.insert(Op::Cast(dtype), &[one], TensorType::scalar(dtype), None)
}

/// `d / sqrt(mean(d * d) + eps)` in any spelling, with `d = x - mean(x)` or `d = x`.
fn match_norm(graph: &Graph, value: ValueId) -> Option<Norm> {
    let (d, variance) = match &graph.node(value).op {
        Op::Binary(BinaryOp::Div) => {
            let [a, b] = pair(graph, value);
            (a, unary_of(graph, b, UnaryOp::Sqrt)?)
        }
        Op::Binary(BinaryOp::Mul) => {
            let [a, b] = pair(graph, value);
            inverse_root(graph, b)
                .map(|v| (a, v))
                .or_else(|| inverse_root(graph, a).map(|v| (b, v)))?
        }
        _ => return None,
    };
    let (square_mean, eps) = add_splat(graph, variance)?;
    let (square, axis) = trailing_mean(graph, square_mean)?;
    if !is_square_of(graph, square, d) {
        return None;
    }
    match centred(graph, d, axis) {
        Some(x) => Some(Norm {
            x,
            axis,
            eps,
            centred: true,
        }),
        None => Some(Norm {
            x: d,
            axis,
            eps,
            centred: false,
        }),
    }
}

/// `v` where the value is `1 / sqrt(v)`.
fn inverse_root(graph: &Graph, value: ValueId) -> Option<ValueId> {
    if let Some(v) = unary_of(graph, value, UnaryOp::Rsqrt) {
        return Some(v);
    }
    if let Some(root) = unary_of(graph, value, UnaryOp::Reciprocal) {
        return unary_of(graph, root, UnaryOp::Sqrt);
    }
    if graph.node(value).op == Op::Binary(BinaryOp::Div) {
        let [one, root] = pair(graph, value);
        if splat(graph, one) == Some(1.0) {
            return unary_of(graph, root, UnaryOp::Sqrt);
        }
    }
    None
}

fn splat(graph: &Graph, value: ValueId) -> Option<f64> {
    match &graph.node(value).op {
        Op::Constant(data) => data.splat_f64(),
        _ => None,
    }
}

fn add_splat(graph: &Graph, value: ValueId) -> Option<(ValueId, f64)> {
    if graph.node(value).op != Op::Binary(BinaryOp::Add) {
        return None;
    }
    let [a, b] = pair(graph, value);
    splat(graph, b)
        .map(|eps| (a, eps))
        .or_else(|| splat(graph, a).map(|eps| (b, eps)))
}

fn trailing_mean(graph: &Graph, value: ValueId) -> Option<(ValueId, usize)> {
    kept_reduction(graph, value, ReduceOp::Mean)
}

fn is_square_of(graph: &Graph, square: ValueId, d: ValueId) -> bool {
    match &graph.node(square).op {
        Op::Binary(BinaryOp::Mul) => pair(graph, square) == [d, d],
        Op::Binary(BinaryOp::Pow) => {
            let [base, power] = pair(graph, square);
            base == d && splat(graph, power) == Some(2.0)
        }
        _ => false,
    }
}

/// `x` where `d` is `x - mean(x)` over the same axes.
fn centred(graph: &Graph, d: ValueId, axis: usize) -> Option<ValueId> {
    if graph.node(d).op != Op::Binary(BinaryOp::Sub) {
        return None;
    }
    let [x, mean] = pair(graph, d);
    (trailing_mean(graph, mean)? == (x, axis)).then_some(x)
}
