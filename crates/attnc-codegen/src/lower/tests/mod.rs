//! Lowering, held to what plans and kernels say: graphs that the tests share, and how their plans are read.

mod attention;
mod matmul;
mod plan;
mod pointwise;
mod rows;
mod schedule;

use crate::lower::{Lowered, lower};
use attnc_ir::scalar::{ScalarBuilder, ScalarExpr};
use attnc_ir::{
    Attention, BinaryOp, DType, Dim, Extents, Graph, Op, Shape, TensorData, TensorType, UnaryOp,
    ValueId,
};
use attnc_plan::{DeviceProfile, DimValues, KernelArtifact, SubgroupSizes};

fn dims(text: &[&str]) -> Shape {
    text.iter().map(|t| t.parse().unwrap()).collect()
}

fn f32s(text: &[&str]) -> TensorType {
    ty(DType::F32, text)
}

fn ty(dtype: DType, text: &[&str]) -> TensorType {
    TensorType {
        dtype,
        shape: dims(text),
    }
}

/// What has vectors of 8 lanes: a CPU, of two cores.
fn cpu() -> DeviceProfile {
    let mut profile = DeviceProfile::webgpu();
    profile.busy_workgroups = 2;
    profile.features.subgroups = Some(SubgroupSizes { min: 8, max: 8 });
    profile
}

/// Lowers for the `webgpu` profile and checks the plan.
fn plan(graph: &Graph) -> Lowered {
    let lowered = lower(graph, &DeviceProfile::webgpu()).unwrap_or_else(|e| panic!("{e}"));
    lowered.plan.check().unwrap_or_else(|e| panic!("{e}"));
    lowered
}

fn names(lowered: &Lowered) -> Vec<&str> {
    lowered
        .plan
        .kernels
        .iter()
        .map(|k| k.name.as_str())
        .collect()
}

/// The only kernel's text after the kernel file: micro and mods.
fn kernel(lowered: &Lowered) -> &KernelArtifact {
    assert_eq!(lowered.plan.kernels.len(), 1, "{:?}", names(lowered));
    &lowered.plan.kernels[0]
}

/// The text of the module `mods`.
#[track_caller]
fn mods(kernel: &KernelArtifact) -> &str {
    let start = kernel.wgsl.find("// ---- mods (generated)").expect("mods");
    let rest = &kernel.wgsl[start + 24..];
    let end = rest.find("// ---- ").unwrap_or(rest.len());
    rest[..end].trim()
}

fn uniform_values(lowered: &Lowered, step: usize, lengths: &DimValues) -> Vec<u32> {
    let launch = lowered.plan.steps[step].launch(lengths, 65535).unwrap();
    launch
        .uniforms
        .chunks_exact(4)
        .map(|c| u32::from_le_bytes(c.try_into().unwrap()))
        .collect()
}

fn weight(g: &mut Graph, name: &str, shape: &[usize]) -> ValueId {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|i| i as f32).collect();
    g.add_constant(TensorData::f32(shape.to_vec(), &values).named(name))
}

/// `acc (+ bias[last])`, then `then`.
fn bias_epilogue(shape: &[Dim], then: Option<UnaryOp>, residual: bool) -> ScalarExpr {
    let mut e = ScalarBuilder::new(Extents::new(shape.to_vec()));
    let index = e.indices();
    let acc = e.arg();
    let bias = e.load(2, DType::F32, vec![*index.last().unwrap()]);
    let mut x = e.binary(BinaryOp::Add, acc, bias);
    if let Some(op) = then {
        x = e.unary(op, x);
    }
    if residual {
        let r = e.load(3, DType::F32, index);
        x = e.binary(BinaryOp::Add, x, r);
    }
    e.finish(x)
}

/// `x W + b`, with an activation or a residual.
fn linear(
    g: &mut Graph,
    name: &str,
    x: ValueId,
    out: usize,
    then: Option<UnaryOp>,
    residual: Option<ValueId>,
) -> ValueId {
    let width = g.ty(x).shape.last().unwrap().as_const().unwrap() as usize;
    let w = weight(g, &format!("{name}.weight"), &[width, out]);
    let b = weight(g, &format!("{name}.bias"), &[out]);
    let y = g.apply(Op::MatMul, &[x, w]).unwrap();
    let mut operands = vec![x, w, b];
    operands.extend(residual);
    g.set_operands(y, &operands);
    let shape = g.ty(y).shape.clone();
    g.node_mut(y).epilogue = Some(bias_epilogue(&shape, then, residual.is_some()));
    y
}

fn heads(g: &mut Graph, x: ValueId, heads: i64) -> ValueId {
    let shape = g.ty(x).shape.clone();
    let dim = shape[2].as_const().unwrap() / heads;
    let split = vec![shape[0].clone(), shape[1].clone(), heads.into(), dim.into()];
    let split = g.apply(Op::Reshape(split), &[x]).unwrap();
    g.apply(Op::Transpose(vec![0, 2, 1, 3]), &[split]).unwrap()
}

/// `mask[b, kv_idx]`, operand 3.
fn padding(extents: &[Dim]) -> ScalarExpr {
    let mut e = ScalarBuilder::new(Extents::new(extents.to_vec()));
    let (b, n) = (e.index(0), e.index(3));
    let keep = e.load(3, DType::Bool, vec![b, n]);
    e.finish(keep)
}

fn attend(g: &mut Graph, q: ValueId, k: ValueId, v: ValueId, mask: Option<ValueId>) -> ValueId {
    let mut extents = g.ty(q).shape[..3].to_vec();
    extents.push(g.ty(k).shape[2].clone());
    let op = Op::Attention(Attention {
        mask_mod: mask.map(|_| padding(&extents)),
        ..Attention::new(0.25)
    });
    let operands: Vec<_> = [q, k, v].into_iter().chain(mask).collect();
    let o = g.apply(op, &operands).unwrap();
    g.node_mut(o).storage = Some(vec![0, 2, 1, 3]);
    o
}

fn layer_norm(g: &mut Graph, name: &str, x: ValueId) -> ValueId {
    let width = g.ty(x).shape[2].as_const().unwrap() as usize;
    let gain = weight(g, &format!("{name}.gain"), &[width]);
    let bias = weight(g, &format!("{name}.bias"), &[width]);
    g.apply(
        Op::LayerNorm {
            axis: 2,
            eps: 1e-12,
        },
        &[x, gain, bias],
    )
    .unwrap()
}

/// One layer of BERT, 48 wide, 3 heads.
fn layer(g: &mut Graph, name: &str, x: ValueId, mask: ValueId) -> ValueId {
    let [q, k, v] = ["q", "k", "v"].map(|n| {
        let y = linear(g, &format!("{name}.{n}"), x, 48, None, None);
        heads(g, y, 3)
    });
    let o = attend(g, q, k, v, Some(mask));
    let joined = g.apply(Op::Transpose(vec![0, 2, 1, 3]), &[o]).unwrap();
    let joined = g
        .apply(Op::Reshape(dims(&["B", "S", "48"])), &[joined])
        .unwrap();
    let y = linear(g, &format!("{name}.out"), joined, 48, None, Some(x));
    let x = layer_norm(g, &format!("{name}.ln1"), y);
    let y = linear(g, &format!("{name}.up"), x, 192, Some(UnaryOp::Gelu), None);
    let y = linear(g, &format!("{name}.down"), y, 48, None, Some(x));
    layer_norm(g, &format!("{name}.ln2"), y)
}

fn add_map(g: &mut Graph, expr: ScalarExpr, shape: &[&str], operands: &[ValueId]) -> ValueId {
    let op = Op::Map {
        dtype: expr.result(),
        expr,
        shape: dims(shape),
    };
    g.apply(op, operands).unwrap()
}
