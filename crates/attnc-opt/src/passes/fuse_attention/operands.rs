//! Clean-up of Q, K and V: views of rank 4, no factors, grouped heads.
//!
//! On exit `q [B, H, M, D]`, `k [B, H_kv, N, D]`, `v [B, H_kv, N, Dv]` are views of what the source
//! computes, of one element type, and the factor that was on them is returned.

use super::structure::Structure;
use attnc_ir::layout::source_index;
use attnc_ir::scalar::ScalarBuilder;
use attnc_ir::{Atom, BinaryOp, DType, Diagnostic, Dim, Extents, Graph, Op, Shape, ValueId};

/// The operands of an attention node.
pub(crate) struct Operands {
    pub(crate) q: ValueId,
    pub(crate) k: ValueId,
    pub(crate) v: ValueId,
    /// The factor taken off q and k, and the op's own.
    pub(crate) scale: f64,
}

type Result<T> = std::result::Result<T, Diagnostic>;

/// Batch and heads of the attention: the softmax's leading axes as two.
pub(crate) fn batch_and_heads(batch: &[Dim]) -> [Dim; 2] {
    match batch {
        [] => [Dim::one(), Dim::one()],
        [heads] => [Dim::one(), heads.clone()],
        [lead @ .., heads] => [lead.iter().cloned().product(), heads.clone()],
    }
}

/// Q, K and V of the structure found.
pub(crate) fn clean(graph: &mut Graph, found: &Structure) -> Result<Operands> {
    let Some((score, sum)) = found.score.zip(found.sum) else {
        return clean_op(graph, found);
    };
    let [left, right] = operands_of(graph, score);
    let (q, k) = if found.score_turned {
        (turn(graph, right)?, left)
    } else {
        (left, turn(graph, right)?)
    };
    let [left, right] = operands_of(graph, sum);
    let v = if found.sum_turned {
        turn(graph, left)?
    } else {
        right
    };
    let [m, n] = &found.lengths;
    let k = rows(graph, k, &found.first_key, n)?;
    let v = rows(graph, v, &found.first_value, n)?;
    let (q, q_scale) = strip_scale(graph, q)?;
    let (k, k_scale) = strip_scale(graph, k)?;
    let q = to_rank_4(graph, q, &found.batch, m)?;
    let k = to_rank_4(graph, k, &found.batch, n)?;
    let v = to_rank_4(graph, v, &found.batch, n)?;
    let (k, v) = group_heads(graph, k, v)?;
    let [q, k, v] = of_one_type(graph, [q, k, v])?;
    Ok(Operands {
        q,
        k,
        v,
        scale: q_scale * k_scale * found.scale,
    })
}

fn clean_op(graph: &mut Graph, found: &Structure) -> Result<Operands> {
    let operands = graph.node(found.node).operands().to_vec();
    let (q, q_scale) = strip_scale(graph, operands[0])?;
    let (k, k_scale) = strip_scale(graph, operands[1])?;
    let (k, v) = group_heads(graph, k, operands[2])?;
    let [q, k, v] = of_one_type(graph, [q, k, v])?;
    Ok(Operands {
        q,
        k,
        v,
        scale: q_scale * k_scale * found.scale,
    })
}

fn operands_of(graph: &Graph, value: ValueId) -> [ValueId; 2] {
    let o = graph.node(value).operands();
    [o[0], o[1]]
}

/// `count` rows of a value from `first` on.
fn rows(graph: &mut Graph, value: ValueId, first: &Dim, count: &Dim) -> Result<ValueId> {
    let axis = graph.ty(value).rank() - 2;
    if graph.ty(value).shape[axis] == *count {
        return Ok(value);
    }
    let op = Op::Slice {
        axis,
        start: first.clone(),
        len: count.clone(),
        step: 1,
    };
    graph.apply(op, &[value])
}

/// The value with its last two axes swapped.
fn turn(graph: &mut Graph, value: ValueId) -> Result<ValueId> {
    let rank = graph.ty(value).rank();
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 2, rank - 1);
    graph.apply(Op::Transpose(perm), &[value])
}

/// The value without multiplications by literals, also behind views, and their product.
///
/// `softmax((a q)(b k)ᵀ)` is `softmax(a b q kᵀ)`: the factor is applied once, in f32, as the source's
/// are. Factors of zero, infinities and NaN stay where they are.
fn strip_scale(graph: &mut Graph, value: ValueId) -> Result<(ValueId, f64)> {
    let node = graph.node(value);
    match node.op.clone() {
        Op::Binary(op @ (BinaryOp::Mul | BinaryOp::Div)) => {
            let [a, b] = operands_of(graph, value);
            let factor = |v: ValueId| match &graph.node(v).op {
                Op::Constant(data) => data.splat_f64().filter(|f| f.is_finite() && *f != 0.0),
                _ => None,
            };
            let (rest, f) = match (factor(a), factor(b), op) {
                (_, Some(f), BinaryOp::Mul) => (a, f),
                (_, Some(f), _) => (a, 1.0 / f),
                (Some(f), None, BinaryOp::Mul) => (b, f),
                _ => return Ok((value, 1.0)),
            };
            if graph.ty(rest) != graph.ty(value) {
                return Ok((value, 1.0));
            }
            let (inner, more) = strip_scale(graph, rest)?;
            Ok((inner, f * more))
        }
        op if op.is_view() => {
            let source = graph.node(value).operands()[0];
            let (inner, scale) = strip_scale(graph, source)?;
            if inner == source {
                return Ok((value, scale));
            }
            Ok((graph.apply(op, &[inner])?, scale))
        }
        _ => Ok((value, 1.0)),
    }
}

/// `[batch.., length, width]` as `[B, H, length, width]`, repeated where several batches share it.
fn to_rank_4(graph: &mut Graph, value: ValueId, batch: &[Dim], length: &Dim) -> Result<ValueId> {
    let shape = graph.ty(value).shape.clone();
    let width = shape[shape.len() - 1].clone();
    let lead = &shape[..shape.len() - 2];
    let count = |dims: &[Dim]| dims.iter().cloned().product::<Dim>();
    let mut value = value;
    if count(lead) != count(batch) {
        let mut full: Shape = batch.to_vec();
        full.extend([length.clone(), width.clone()]);
        value = graph.apply(Op::Broadcast(full), &[value])?;
    }
    let [b, h] = batch_and_heads(batch);
    let wanted = vec![b, h, length.clone(), width];
    if graph.ty(value).shape == wanted {
        return Ok(value);
    }
    graph.apply(Op::Reshape(wanted), &[value])
}

/// K and V with the heads that are repeated for groups of query heads once: every `group`-th head is
/// taken, where all heads of a group are provably the same elements.
fn group_heads(graph: &mut Graph, k: ValueId, v: ValueId) -> Result<(ValueId, ValueId)> {
    let Some(heads) = graph.ty(k).shape[1]
        .as_const()
        .filter(|h| *h > 1 && *h <= 4096)
    else {
        return Ok((k, v));
    };
    let group = (2..=heads)
        .rev()
        .find(|g| heads % g == 0 && repeats(graph, k, *g) && repeats(graph, v, *g));
    let Some(group) = group else {
        return Ok((k, v));
    };
    let every = Op::Slice {
        axis: 1,
        start: Dim::zero(),
        len: Dim::from(heads / group),
        step: group,
    };
    Ok((graph.apply(every.clone(), &[k])?, graph.apply(every, &[v])?))
}

/// Whether the heads `group * i .. group * (i + 1)` of a value are one head repeated.
fn repeats(graph: &Graph, value: ValueId, group: i64) -> bool {
    let (_, index) = source_index(graph, value);
    let mut extents = graph.ty(value).shape.clone();
    let heads = extents[1].as_const().unwrap_or(1);
    extents[1] = Dim::from(heads / group);
    let member = u32::try_from(extents.len()).expect("few axes");
    extents.push(Dim::from(group));
    let ext = Extents::new(extents);
    let head = Dim::index(1) * Dim::from(group) + Dim::index(member);
    index.iter().all(|d| {
        let within = d.substitute(&ext, &|atom| {
            (*atom == Atom::Index(1)).then(|| head.clone())
        });
        !within.indices().contains(&member)
    })
}

/// Q, K and V in one element type. Everything is computed in f32, so that widening before it changes nothing:
/// where all three are widened from one type they are read as that, and where they differ they are widened.
fn of_one_type(graph: &mut Graph, operands: [ValueId; 3]) -> Result<[ValueId; 3]> {
    let mut narrow = operands;
    for value in &mut narrow {
        *value = strip_widening(graph, *value)?;
    }
    let same = |graph: &Graph, values: [ValueId; 3]| {
        let [a, b, c] = values.map(|v| graph.ty(v).dtype);
        a == b && b == c
    };
    if same(graph, narrow) {
        return Ok(narrow);
    }
    let mut wide = operands;
    if !same(graph, wide) {
        for value in &mut wide {
            if graph.ty(*value).dtype != DType::F32 {
                *value = graph.apply(Op::Cast(DType::F32), &[*value])?;
            }
        }
    }
    Ok(wide)
}

/// The value without a cast from 16 bits to f32, also behind views.
fn strip_widening(graph: &mut Graph, value: ValueId) -> Result<ValueId> {
    let op = graph.node(value).op.clone();
    let Some(&source) = graph.node(value).operands().first() else {
        return Ok(value);
    };
    if op == Op::Cast(DType::F32) && graph.ty(source).dtype.is_float() {
        return Ok(source);
    }
    if !op.is_view() {
        return Ok(value);
    }
    let inner = strip_widening(graph, source)?;
    if inner == source {
        return Ok(value);
    }
    graph.apply(op, &[inner])
}

/// Lets the attention store its f32 sums as the type of what it replaces.
pub(crate) fn store_as(graph: &mut Graph, fused: ValueId, dtype: DType) {
    if graph.ty(fused).dtype == dtype {
        return;
    }
    let mut e = ScalarBuilder::new(Extents::new(graph.ty(fused).shape.clone()));
    let acc = e.arg();
    let node = graph.node_mut(fused);
    node.epilogue = Some(e.finish(acc));
    node.ty.dtype = dtype;
}

/// The attention's result in the shape, and the order of axes, of what it replaces.
pub(crate) fn restore(graph: &mut Graph, found: &Structure, fused: ValueId) -> Result<ValueId> {
    let wanted = graph.ty(found.result).shape.clone();
    let mut value = fused;
    if found.sum_turned {
        value = turn(graph, value)?;
    }
    if graph.ty(value).shape == wanted {
        Ok(value)
    } else {
        graph.apply(Op::Reshape(wanted), &[value])
    }
}
