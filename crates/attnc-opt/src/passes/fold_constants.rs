//! Computes small pointwise and data nodes whose operands are all constants.
//!
//! Views stay: they are free, and folding them would copy weights. Each node is rounded to its element
//! type as the source would have it.
//!
//! On exit no such node of at most [`MAX_ELEMENTS`] elements remains.

use crate::{Change, Pass, Trace};
use attnc_ir::scalar::eval::Env;
use attnc_ir::scalar::{ScalarExpr, of_node};
use attnc_ir::{DType, Diagnostics, Graph, Op, TensorData, ValueId};

/// Larger results are left to run time (or to formulas).
pub(super) const MAX_ELEMENTS: usize = 1 << 16;

/// See the module.
pub struct FoldConstants;

impl Pass for FoldConstants {
    fn name(&self) -> &'static str {
        "fold-constants"
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut changed = false;
        for value in graph.topo_order() {
            let Some(data) = fold(graph, value) else {
                continue;
            };
            if !trace.claim() {
                break;
            }
            let folded = graph.add_constant(data);
            graph.node_mut(folded).origin = graph.node(value).origin.clone();
            graph.supersede(value, folded);
            changed = true;
        }
        if changed {
            graph.remove_dead();
        }
        Ok(Change::from(changed))
    }
}

fn fold(graph: &Graph, value: ValueId) -> Option<TensorData> {
    let node = graph.node(value);
    if node.op.is_view() || node.operands().is_empty() {
        return None;
    }
    let shape = const_shape(graph, value)?;
    let operands: Vec<&TensorData> = node
        .operands()
        .iter()
        .map(|&o| match &graph.node(o).op {
            Op::Constant(data) if data.bytes.is_some() => Some(data),
            _ => None,
        })
        .collect::<Option<_>>()?;
    let expr = of_node(graph, value)?;
    evaluate(&expr, node.ty.dtype, &shape, &operands)
}

/// The shape, where it is constant and small.
fn const_shape(graph: &Graph, value: ValueId) -> Option<Vec<usize>> {
    let shape: Vec<usize> = graph
        .ty(value)
        .shape
        .iter()
        .map(|d| d.as_const().and_then(|n| usize::try_from(n).ok()))
        .collect::<Option<_>>()?;
    let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    (count <= MAX_ELEMENTS).then_some(shape)
}

/// Every element of an expression over constants; `None` where an element has no value.
pub(crate) fn evaluate(
    expr: &ScalarExpr,
    dtype: DType,
    shape: &[usize],
    operands: &[&TensorData],
) -> Option<TensorData> {
    let count: usize = shape.iter().product();
    let mut bytes = Vec::with_capacity(count * dtype.bytes());
    let mut index = vec![0i64; shape.len()];
    for _ in 0..count {
        let load = |operand: usize, at: &[i64]| element(operands[operand], at);
        let value = expr
            .eval(&Env {
                index: &index,
                arg: 0.0,
                length: &|_| None,
                load: &load,
            })
            .ok()?;
        push(&mut bytes, dtype, value)?;
        advance(&mut index, shape);
    }
    Some(TensorData::new(dtype, shape.to_vec(), bytes.into()))
}

/// The element at an index, `None` outside.
pub(crate) fn element(data: &TensorData, at: &[i64]) -> Option<f64> {
    let mut flat = 0usize;
    for (&i, &size) in at.iter().zip(&data.shape) {
        let i = usize::try_from(i).ok().filter(|&i| i < size)?;
        flat = flat * size + i;
    }
    data.get_f64(flat)
}

/// The next index in row-major order.
pub(crate) fn advance(index: &mut [i64], shape: &[usize]) {
    for (i, &size) in index.iter_mut().zip(shape).rev() {
        *i += 1;
        if usize::try_from(*i).is_ok_and(|i| i < size) {
            return;
        }
        *i = 0;
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounding to the element type is the point"
)]
fn push(bytes: &mut Vec<u8>, dtype: DType, value: f64) -> Option<()> {
    match dtype {
        DType::F32 => bytes.extend((value as f32).to_le_bytes()),
        DType::I32 => bytes.extend((value as i32).to_le_bytes()),
        DType::U32 => bytes.extend((value as u32).to_le_bytes()),
        DType::Bool => bytes.extend(u32::from(value != 0.0).to_le_bytes()),
        DType::F16 | DType::BF16 => return None,
    }
    Some(())
}
