//! Causal linear attention written with running sums gets its name.
//!
//! ```text
//! %kv = mul %k [.., S, D, 1], %v [.., S, 1, Dv]
//! %s  = cumsum %kv, axis = S
//! %o  = matmul %q [.., S, 1, D], %s               %o = linear_attention %q, %k, %v, 0
//! ```
//!
//! Row `t` of both is `q_tᵀ Σ_{s ≤ t} k_s ⊗ v_s`: Katharopoulos et al. 2020, arXiv:2006.16236, eq. 18 to 20,
//! without the normaliser, which stays as it is. Written out, a table of `S × D × Dv` is stored; the kernel
//! keeps `D × Dv` of it in registers.
//!
//! On exit no product of this form remains whose `D` is a constant that the kernel takes.

use super::matching::pair;
use crate::{Change, Pass, RemarkKind, Trace};
use attnc_ir::{
    BinaryOp, Diagnostics, Dim, Graph, LinearAttention, LinearResult, Op, Shape, TensorData,
    UpdateRule, ValueId,
};

/// Columns of Q and K that the kernel takes.
const MAX_KEY_DIM: i64 = 1024;

/// See the module.
pub struct RecogniseLinearAttention;

impl Pass for RecogniseLinearAttention {
    fn name(&self) -> &'static str {
        "recognise-linear-attention"
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut changed = false;
        for value in graph.topo_order() {
            let Some(found) = recurrence(graph, value) else {
                continue;
            };
            if !trace.claim() {
                break;
            }
            let new = build(graph, &found)?;
            let result = Op::Reshape(graph.ty(value).shape.clone());
            let result = graph.apply(result, &[new])?;
            for node in [new, result] {
                graph.node_mut(node).origin = graph.node(value).origin.clone();
            }
            let message =
                "the product with running sums of keys times values is a linear attention";
            trace.remark(RemarkKind::Recognised, graph, &[new], message);
            graph.supersede(value, result);
            changed = true;
        }
        if changed {
            graph.remove_dead();
        }
        Ok(Change::from(changed))
    }
}

/// The operands of a recurrence, with axes of length 1 still in them.
struct Recurrence {
    q: ValueId,
    k: ValueId,
    v: ValueId,
    /// Axes before the keys, as batch and heads.
    lead: [Dim; 2],
    /// Keys, columns of Q and K, columns of V.
    sizes: [Dim; 3],
}

fn recurrence(graph: &Graph, value: ValueId) -> Option<Recurrence> {
    if graph.node(value).op != Op::MatMul {
        return None;
    }
    let [q, sums] = pair(graph, value);
    let Op::CumSum {
        axis,
        exclusive: false,
        reverse: false,
    } = graph.node(sums).op
    else {
        return None;
    };
    let products = graph.node(sums).operands()[0];
    if graph.node(products).op != Op::Binary(BinaryOp::Mul) {
        return None;
    }
    let shape = &graph.ty(products).shape;
    let rank = shape.len();
    if rank < 3 || axis != rank - 3 {
        return None;
    }
    let (keys, outer) = (&shape[axis], &shape[..axis]);
    let [depth, width] = [&shape[rank - 2], &shape[rank - 1]];
    let small = depth
        .as_const()
        .is_some_and(|d| (1..=MAX_KEY_DIM).contains(&d));
    let is = |x: ValueId, rows: &Dim, columns: &Dim| {
        let found = &graph.ty(x).shape;
        found[..found.len().min(axis + 1)] == shape[..=axis]
            && found[axis + 1..] == [rows.clone(), columns.clone()]
    };
    let one = Dim::one();
    let [a, b] = pair(graph, products);
    let (k, v) = if is(a, depth, &one) && is(b, &one, width) {
        (a, b)
    } else {
        (b, a)
    };
    let fits = is(k, depth, &one) && is(v, &one, width) && is(q, &one, depth);
    (small && fits).then(|| Recurrence {
        q,
        k,
        v,
        lead: lead(outer),
        sizes: [keys.clone(), depth.clone(), width.clone()],
    })
}

/// Batch and heads where there are two axes, else all of them as the batch.
fn lead(outer: &[Dim]) -> [Dim; 2] {
    match outer {
        [batch, heads] => [batch.clone(), heads.clone()],
        _ => [outer.iter().cloned().product(), Dim::one()],
    }
}

fn build(graph: &mut Graph, found: &Recurrence) -> Result<ValueId, Diagnostics> {
    let [keys, depth, width] = &found.sizes;
    let shape = |a: &Dim, b: &Dim| -> Shape {
        let tail = [a.clone(), b.clone()];
        found.lead.iter().cloned().chain(tail).collect()
    };
    let q = graph.apply(Op::Reshape(shape(keys, depth)), &[found.q])?;
    let k = graph.apply(Op::Reshape(shape(keys, depth)), &[found.k])?;
    let v = graph.apply(Op::Reshape(shape(keys, width)), &[found.v])?;
    let zero = graph.add_constant(TensorData::f32(Vec::new(), &[0.0]));
    let state = graph.apply(Op::Broadcast(shape(depth, width)), &[zero])?;
    let linear = LinearAttention {
        rule: UpdateRule::Linear,
        scale: 1.0,
        result: LinearResult::Output,
    };
    Ok(graph.apply(Op::LinearAttention(linear), &[q, k, v, state])?)
}
