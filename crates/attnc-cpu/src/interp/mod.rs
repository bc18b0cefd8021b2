//! The f64 oracle: any verified graph, naive and obviously right.
//!
//! Every operation is one plain loop written from its comment in [`attnc_ir::Op`], without looking at the
//! scalar forms that the optimiser and the executor use. Storage order is ignored: it is a memory layout
//! only. Values are f64 whatever their type; 32-bit integers are exact.
//!
//! Invariant: a value is there, with the shape its type has for the bound lengths, from its node to its
//! last user.

mod attention;
mod contract;
mod data;
mod linear_attention;
mod map;
mod pointwise;
mod rows;
mod views;

use crate::bind::{Bound, bind_dims};
use crate::error::place;
use crate::lazy::OutOfRange;
use crate::{Dims, ExecError, LengthError, Tensor, memory};
use attnc_ir::{DType, Dim, DimError, Graph, Node, Op, ValueId};

/// Runs a graph in f64.
///
/// Lengths follow from the shapes of the inputs; `dims` has those that do not. Outputs come in the order of
/// the graph; those of a floating-point type hold f64 elements.
///
/// # Errors
/// Inputs that do not fit, lengths without a value, weights without data, memory, and indices from data that
/// are out of range.
pub fn run(
    graph: &Graph,
    dims: &Dims,
    inputs: &[(String, Tensor)],
) -> Result<Vec<(String, Tensor)>, ExecError> {
    check_weights(graph)?;
    let bound = Bound::new(graph, bind_dims(graph, dims, inputs)?)?;
    let mut last_use = vec![usize::MAX; graph.id_bound()];
    for (at, &id) in bound.order.iter().enumerate() {
        for operand in graph.node(id).operands() {
            last_use[operand.index()] = at;
        }
    }
    for (_, id) in graph.outputs() {
        last_use[id.index()] = usize::MAX;
    }
    let mut budget = Budget::new();
    let mut values: Vec<Option<Value>> = vec![None; graph.id_bound()];
    for (at, &id) in bound.order.iter().enumerate() {
        if !graph.is_used(id) {
            continue;
        }
        budget.take(graph, id, bound.shape(id))?;
        values[id.index()] = Some(if graph.node(id).op == Op::Input {
            input(graph, id, inputs)
        } else {
            node(graph, &bound, id, &values)?
        });
        for operand in graph.node(id).operands() {
            if last_use[operand.index()] == at && values[operand.index()].take().is_some() {
                budget.give_back(bound.shape(*operand));
            }
        }
    }
    let output = |(name, id): &(String, ValueId)| {
        let value = values[id.index()].clone().expect("outputs stay");
        (
            name.clone(),
            Tensor::from_f64(value.dtype, value.shape, value.data),
        )
    };
    Ok(graph.outputs().iter().map(output).collect())
}

/// A value: row-major elements.
#[derive(Debug, Clone)]
struct Value {
    dtype: DType,
    shape: Vec<usize>,
    data: Vec<f64>,
}

/// What the loops of a node need.
struct At<'a> {
    graph: &'a Graph,
    bound: &'a Bound,
    id: ValueId,
    node: &'a Node,
    /// Its operands.
    operands: Vec<&'a Value>,
    /// Shape of its result.
    shape: &'a [usize],
}

impl At<'_> {
    /// The value of an expression of lengths.
    fn length(&self, dim: &Dim) -> Result<i64, ExecError> {
        self.bound.value(self.graph, self.id, dim)
    }

    fn length_error(&self, error: impl Into<LengthError>) -> ExecError {
        ExecError::Length {
            at: place(self.graph, self.id),
            error: error.into(),
        }
    }

    fn dim_error(&self, error: DimError) -> ExecError {
        self.length_error(error)
    }

    fn out_of_range(&self, error: OutOfRange) -> ExecError {
        ExecError::IndexOutOfRange {
            at: place(self.graph, self.id),
            index: error.index,
            size: error.size,
        }
    }
}

fn input(graph: &Graph, id: ValueId, inputs: &[(String, Tensor)]) -> Value {
    let name = graph.node(id).name();
    let (_, tensor) = inputs
        .iter()
        .find(|(n, _)| n == name)
        .expect("inputs are checked before");
    Value {
        dtype: tensor.dtype(),
        shape: tensor.shape().to_vec(),
        data: tensor.to_f64(),
    }
}

fn node(
    graph: &Graph,
    bound: &Bound,
    id: ValueId,
    values: &[Option<Value>],
) -> Result<Value, ExecError> {
    let node = graph.node(id);
    let operands = node
        .operands()
        .iter()
        .map(|o| values[o.index()].as_ref().expect("operands come first"))
        .collect();
    let at = At {
        graph,
        bound,
        id,
        node,
        operands,
        shape: bound.shape(id),
    };
    let mut data = elements(&at)?;
    if data.len() != at.shape.iter().product::<usize>() {
        return Err(at.length_error(LengthError::Mismatch {
            from: vec![data.len()],
            to: at.shape.to_vec(),
        }));
    }
    if let Some(epilogue) = &node.epilogue {
        map::epilogue(&at, epilogue, &mut data)?;
    }
    Ok(Value {
        dtype: node.ty.dtype,
        shape: at.shape.to_vec(),
        data,
    })
}

/// The elements of a node's result, before the epilogue.
fn elements(at: &At<'_>) -> Result<Vec<f64>, ExecError> {
    match &at.node.op {
        Op::Input => unreachable!("inputs are taken as they are"),
        Op::Constant(data) => data
            .to_f64()
            .ok_or_else(|| missing_weights(vec![at.id], at.graph)),
        Op::Reshape(_) => Ok(at.operands[0].data.clone()),
        Op::Transpose(perm) => Ok(views::transpose(at.operands[0], perm)),
        Op::Broadcast(_) => Ok(views::broadcast(at.operands[0], at.shape)),
        Op::Slice {
            axis, start, step, ..
        } => views::slice(at, *axis, start, *step),
        Op::Concat { axis } => Ok(data::concat(&at.operands, *axis)),
        Op::Pad { before, mode, .. } => data::pad(at, before, *mode),
        Op::Gather { axis } => data::gather(at, *axis),
        Op::GatherElements { axis } => data::gather_elements(at, *axis),
        Op::GatherNd { batch_dims } => data::gather_nd(at, *batch_dims),
        Op::Iota {
            axis, start, step, ..
        } => data::iota(at, *axis, start, step),
        Op::Length(dim) => Ok(vec![crate::scalar64::wrap(DType::I32, at.length(dim)?)]),
        Op::Unary(op) => Ok(pointwise::unary(at, *op)),
        Op::Binary(op) => Ok(pointwise::binary(at, *op)),
        Op::Compare(op) => Ok(pointwise::compare(at, *op)),
        Op::Where => Ok(pointwise::select(at)),
        Op::Cast(to) => Ok(pointwise::cast(at, *to)),
        Op::Reduce { op, axes, .. } => Ok(rows::reduce(at.operands[0], *op, axes)),
        Op::CumSum {
            axis,
            exclusive,
            reverse,
        } => Ok(rows::cumsum(at.operands[0], *axis, *exclusive, *reverse)),
        Op::Softmax { axis } => Ok(rows::softmax(at.operands[0], *axis)),
        Op::LayerNorm { axis, eps } => Ok(rows::layer_norm(&at.operands, *axis, *eps)),
        Op::RmsNorm { axis, eps } => Ok(rows::rms_norm(&at.operands, *axis, *eps)),
        Op::MatMul => Ok(contract::matmul(at.operands[0], at.operands[1], at.shape)),
        Op::Conv(conv) => Ok(contract::conv(&at.operands, conv, at.shape)),
        Op::Attention(attention) => attention::attention(at, attention),
        Op::LinearAttention(linear) => Ok(linear_attention::linear_attention(at, linear)),
        Op::Map { expr, .. } => map::map(at, expr),
    }
}

/// Bytes that may still be taken.
struct Budget {
    left: u128,
}

impl Budget {
    fn new() -> Self {
        Self {
            left: memory::available_bytes(),
        }
    }

    fn bytes(shape: &[usize]) -> u128 {
        shape.iter().map(|&d| d as u128).product::<u128>() * 8
    }

    fn take(&mut self, graph: &Graph, id: ValueId, shape: &[usize]) -> Result<(), ExecError> {
        let needed = Self::bytes(shape);
        match self.left.checked_sub(needed) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(ExecError::TooLarge {
                at: place(graph, id),
                needed,
                available: self.left,
            }),
        }
    }

    fn give_back(&mut self, shape: &[usize]) {
        self.left += Self::bytes(shape);
    }
}

/// Names of the constants without data, if there are any.
pub(crate) fn check_weights(graph: &Graph) -> Result<(), ExecError> {
    let missing: Vec<_> = graph
        .values()
        .filter(|&id| matches!(&graph.node(id).op, Op::Constant(data) if data.bytes.is_none()))
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(missing_weights(missing, graph))
    }
}

fn missing_weights(ids: Vec<ValueId>, graph: &Graph) -> ExecError {
    let name = |id: ValueId| {
        let node = graph.node(id);
        let weight = match &node.op {
            Op::Constant(data) => data.name.as_deref(),
            _ => None,
        };
        format!("{}: {}", weight.unwrap_or(node.name()), node.ty)
    };
    ExecError::MissingWeights(ids.into_iter().map(name).collect())
}
