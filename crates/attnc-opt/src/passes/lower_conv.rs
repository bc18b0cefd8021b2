//! A convolution is a product of gathered patches with the kernel.
//!
//! ```text
//! %p = map %x { patch p of x, element k }    [N, OH * OW, C * KH * KW]
//! %y = matmul %p, kernelᵀ                    [N, OH * OW, F]
//! ```
//!
//! Where kernel and stride are equal (patch embedding) the patches are a view of the input. Chellapilla,
//! Puri and Simard 2006, "High performance convolutional neural networks for document processing".
//!
//! On exit no `conv` remains.

use crate::{Change, Pass, Trace};
use attnc_ir::scalar::{ScalarBuilder, ScalarExpr};
use attnc_ir::{
    BinaryOp, CompareOp, Conv, DType, Diagnostics, Dim, Extents, Graph, Op, Shape, ValueId,
};

/// See the module.
pub struct LowerConv;

impl Pass for LowerConv {
    fn name(&self) -> &'static str {
        "lower-conv"
    }

    fn is_lowering(&self) -> bool {
        true
    }

    fn run(&self, graph: &mut Graph, _trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut changed = false;
        for value in graph.topo_order() {
            let Op::Conv(conv) = graph.node(value).op.clone() else {
                continue;
            };
            let new = lower(graph, value, &conv)?;
            graph.supersede(value, new);
            changed = true;
        }
        if changed {
            graph.remove_dead();
        }
        Ok(Change::from(changed))
    }
}

fn lower(graph: &mut Graph, value: ValueId, conv: &Conv) -> Result<ValueId, Diagnostics> {
    let operands = graph.node(value).operands().to_vec();
    let origin = graph.node(value).origin.clone();
    let (x, w) = (graph.ty(operands[0]).clone(), graph.ty(operands[1]).clone());
    let out = graph.ty(value).shape.clone();
    let groups = Dim::from(conv.groups);
    let positions: Dim = out[2..].iter().cloned().product();
    let window: Dim = w.shape[1..].iter().cloned().product();
    let filters = w.shape[0]
        .exact_div(&groups)
        .expect("verified: filters divide into groups");

    let shape = vec![
        x.shape[0].clone(),
        groups.clone(),
        positions.clone(),
        window.clone(),
    ];
    let expr = patches(conv, &x.shape, &w.shape, &out, &shape, x.dtype);
    let dtype = x.dtype;
    let patches = graph.apply(Op::Map { expr, shape, dtype }, &operands[..1])?;
    let kernel = graph.apply(Op::Reshape(vec![groups, filters, window]), &operands[1..2])?;
    let kernel = graph.apply(Op::Transpose(vec![0, 2, 1]), &[kernel])?;
    let product = graph.apply(Op::MatMul, &[patches, kernel])?;
    graph.node_mut(patches).origin.clone_from(&origin);
    graph.node_mut(product).origin.clone_from(&origin);
    // [N, G, P, F / G] -> [N, G, F / G, P] -> [N, F, spatial..]
    let turned = graph.apply(Op::Transpose(vec![0, 1, 3, 2]), &[product])?;
    let result = graph.apply(Op::Reshape(out.clone()), &[turned])?;
    let Some(&bias) = operands.get(2) else {
        return Ok(result);
    };
    let mut bias_shape: Shape = vec![Dim::one(); out.len() - 1];
    bias_shape[0] = out[1].clone();
    let bias = graph.apply(Op::Reshape(bias_shape), &[bias])?;
    let sum = graph.apply(Op::Binary(BinaryOp::Add), &[result, bias])?;
    graph.node_mut(sum).origin = origin;
    Ok(sum)
}

/// Element `k` of patch `p` of group `g` of image `n`, over `d0 = n, d1 = g, d2 = p, d3 = k`.
fn patches(
    conv: &Conv,
    x: &[Dim],
    w: &[Dim],
    out: &[Dim],
    shape: &[Dim],
    dtype: DType,
) -> ScalarExpr {
    let ext = Extents::new(shape.to_vec());
    let position = unravel(&Dim::index(2), &out[2..], &ext);
    let element = unravel(&Dim::index(3), &w[1..], &ext);
    let mut e = ScalarBuilder::new(ext);
    let channel = Dim::index(1) * w[1].clone() + element[0].clone();
    let mut index = vec![e.int(Dim::index(0)), e.int(channel)];
    let mut inside = e.bool(true);
    for (n, at) in position.iter().enumerate() {
        let tap = element[n + 1].clone() * Dim::from(conv.dilations[n]);
        let at = at.clone() * Dim::from(conv.strides[n]) + tap - Dim::from(conv.pads_before[n]);
        let at = e.int(at);
        let (zero, size) = (e.int(0), e.int(x[n + 2].clone()));
        // Without padding before, the first comparison folds away; the second matters with padding after.
        if conv.pads_before[n] > 0 {
            let low = e.compare(CompareOp::Ge, at, zero);
            inside = e.binary(BinaryOp::And, inside, low);
        }
        if conv.pads_before[n] + conv.pads_after[n] > 0 {
            let high = e.compare(CompareOp::Lt, at, size);
            inside = e.binary(BinaryOp::And, inside, high);
        }
        index.push(at);
    }
    let value = e.load(0, dtype, index);
    let zero = e.float(0.0);
    let root = e.select(inside, value, zero);
    e.finish(root)
}

fn unravel(linear: &Dim, shape: &[Dim], ext: &Extents) -> Vec<Dim> {
    let mut rest = linear.clone();
    let mut out = vec![Dim::zero(); shape.len()];
    for n in (0..shape.len()).rev() {
        out[n] = if n == 0 {
            rest.clone()
        } else {
            rest.modulo(&shape[n], ext)
        };
        rest = rest.floor_div(&shape[n], ext);
    }
    out
}
