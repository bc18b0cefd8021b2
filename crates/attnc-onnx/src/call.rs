//! One node being imported: its operands, its attributes, and the words its importer is written in.

use crate::attrs::Attrs;
use crate::context::Context;
use crate::error::{OpError, OpResult};
use crate::eval::Elems;
use crate::file::Files;
use crate::value::Value;
use attnc_ir::{
    BinaryOp, CompareOp, DType, Dim, Op, Shape, TensorData, TensorType, UnaryOp, ValueId, infer,
};

/// What an importer gets.
pub(crate) struct Call<'a, 'm> {
    pub(crate) cx: &'a mut Context,
    pub(crate) files: &'a mut Files,
    /// Version of the operator set.
    pub(crate) opset: i64,
    pub(crate) attrs: Attrs<'m>,
    pub(crate) inputs: Vec<Option<Value>>,
    /// Which results somebody asked for.
    pub(crate) wanted: Vec<bool>,
}

impl Call<'_, '_> {
    /// Operand `n`.
    pub(crate) fn input(&self, n: usize) -> OpResult<Value> {
        self.optional(n)
            .ok_or_else(|| OpError::invalid("operand-count", format!("operand {n} is missing")))
    }

    /// Operand `n`, which may be left out.
    pub(crate) fn optional(&self, n: usize) -> Option<Value> {
        self.inputs.get(n).cloned().flatten()
    }

    /// All operands; none may be left out.
    pub(crate) fn all(&self) -> OpResult<Vec<Value>> {
        (0..self.inputs.len()).map(|n| self.input(n)).collect()
    }

    /// Whether somebody asked for result `n`.
    pub(crate) fn wants(&self, n: usize) -> bool {
        self.wanted.get(n).copied().unwrap_or(false)
    }

    pub(crate) fn ty(&self, value: &Value) -> TensorType {
        self.cx.ty(value)
    }

    pub(crate) fn dtype(&self, value: &Value) -> DType {
        self.cx.ty(value).dtype
    }

    pub(crate) fn shape(&self, value: &Value) -> Shape {
        self.cx.shape(value)
    }

    pub(crate) fn rank(&self, value: &Value) -> usize {
        self.cx.ty(value).rank()
    }

    pub(crate) fn apply(&mut self, op: Op, args: &[&Value]) -> OpResult<Value> {
        self.cx.apply(op, args)
    }

    pub(crate) fn unary(&mut self, op: UnaryOp, a: &Value) -> OpResult<Value> {
        self.apply(Op::Unary(op), &[a])
    }

    pub(crate) fn binary(&mut self, op: BinaryOp, a: &Value, b: &Value) -> OpResult<Value> {
        self.apply(Op::Binary(op), &[a, b])
    }

    pub(crate) fn compare(&mut self, op: CompareOp, a: &Value, b: &Value) -> OpResult<Value> {
        self.apply(Op::Compare(op), &[a, b])
    }

    pub(crate) fn cast(&mut self, dtype: DType, a: &Value) -> OpResult<Value> {
        self.apply(Op::Cast(dtype), &[a])
    }

    pub(crate) fn reshape(&mut self, a: &Value, shape: Shape) -> OpResult<Value> {
        self.apply(Op::Reshape(shape), &[a])
    }

    pub(crate) fn transpose(&mut self, a: &Value, perm: Vec<usize>) -> OpResult<Value> {
        self.apply(Op::Transpose(perm), &[a])
    }

    pub(crate) fn broadcast(&mut self, a: &Value, shape: &[Dim]) -> OpResult<Value> {
        let shape = infer::broadcast(&self.shape(a), shape)?;
        self.apply(Op::Broadcast(shape), &[a])
    }

    /// The last two axes exchanged.
    pub(crate) fn swap_last(&mut self, a: &Value) -> OpResult<Value> {
        let rank = self.rank(a);
        let mut perm: Vec<_> = (0..rank).collect();
        if rank >= 2 {
            perm.swap(rank - 2, rank - 1);
        }
        self.transpose(a, perm)
    }

    /// A number of the element type of `like`.
    pub(crate) fn scalar_like(&mut self, like: &Value, value: f64) -> Value {
        let dtype = self.dtype(like);
        self.cx.scalar(dtype, value)
    }

    /// `value op number`.
    pub(crate) fn with(&mut self, op: BinaryOp, a: &Value, number: f64) -> OpResult<Value> {
        let number = self.scalar_like(a, number);
        self.binary(op, a, &number)
    }

    /// A constant whose elements are all the same.
    pub(crate) fn splat(&mut self, dtype: DType, shape: &[Dim], value: f64) -> OpResult<Value> {
        let scalar = self.cx.scalar(dtype, value);
        self.broadcast(&scalar, shape)
    }

    /// A constant vector of that length, not a broadcast one: parameters of norms.
    pub(crate) fn vector(&mut self, dtype: DType, len: usize, value: f64) -> Value {
        let data = vec![value; len];
        Value::constant(
            Elems {
                dtype,
                shape: vec![len],
                data,
            }
            .to_constant(),
        )
    }

    /// An axis counted from the front.
    pub(crate) fn axis_of(&self, axis: i64, rank: usize) -> OpResult<usize> {
        let size = i64::try_from(rank).unwrap_or(i64::MAX);
        let from_front = if axis < 0 { axis + size } else { axis };
        usize::try_from(from_front)
            .ok()
            .filter(|&n| n < rank)
            .ok_or_else(|| {
                OpError::invalid(
                    "bad-axis",
                    format!("axis {axis} of a value with {rank} axes"),
                )
            })
    }

    /// Attribute `axis` of an operand, counted from the front.
    pub(crate) fn axis(&self, default: i64, rank: usize) -> OpResult<usize> {
        self.axis_of(self.attrs.int("axis")?.unwrap_or(default), rank)
    }

    /// Axes counted from the front, ascending, each once.
    pub(crate) fn axes_of(&self, axes: &[i64], rank: usize) -> OpResult<Vec<usize>> {
        let mut out = axes
            .iter()
            .map(|&a| self.axis_of(a, rank))
            .collect::<OpResult<Vec<_>>>()?;
        out.sort_unstable();
        if out.windows(2).any(|w| w[0] == w[1]) {
            return Err(OpError::invalid(
                "bad-axis",
                format!("axes {axes:?} repeat"),
            ));
        }
        Ok(out)
    }

    /// The elements of a list of lengths.
    pub(crate) fn dims(&mut self, value: &Value, what: &str) -> OpResult<Vec<Dim>> {
        let ty = self.ty(value);
        if let Value::Graph(id) = *value
            && ty.dtype.is_int()
            && ty.rank() <= 1
            && let Some(count) = ty.elements().as_const().filter(|n| (1..=16).contains(n))
        {
            return self.data_lengths(id, count, what);
        }
        let found = value.as_ints().filter(|ints| ints.dtype != DType::Bool);
        match found {
            Some(ints) if ints.shape.len() <= 1 => Ok(ints.data),
            Some(ints) => Err(OpError::invalid(
                "shape-mismatch",
                format!("{what} has shape {:?}, expected a list", ints.shape),
            )),
            None => Err(OpError::unsupported(
                format!("{what} depends on data"),
                "a constant, or something that follows from the lengths of the inputs",
            )),
        }
    }

    /// The lengths that a list computed from data is: each is known before a run, see
    /// [`crate::DerivedInput`].
    fn data_lengths(&mut self, list: ValueId, count: i64, what: &str) -> OpResult<Vec<Dim>> {
        let length = |found: Option<Dim>| {
            found.ok_or_else(|| {
                OpError::unsupported(
                    format!("{what} depends on data"),
                    "a constant, or something that follows from the lengths of the inputs",
                )
            })
        };
        if count == 1 {
            return Ok(vec![length(self.cx.length_of(list))?]);
        }
        // The parts of a list that was put together, some of which may be known.
        let node = self.cx.graph.node(list);
        if let Op::Concat { .. } = node.op {
            let parts = node.operands().to_vec();
            let mut dims = Vec::new();
            for part in parts {
                let count = self.cx.graph.ty(part).elements();
                let count = count.as_const().unwrap_or(0);
                dims.extend(self.data_lengths(part, count, what)?);
            }
            return Ok(dims);
        }
        let mut dims = Vec::new();
        for n in 0..count {
            let part = Op::Slice {
                axis: 0,
                start: Dim::from(n),
                len: Dim::one(),
                step: 1,
            };
            match self.apply(part, &[&Value::Graph(list)])? {
                Value::Graph(id) => dims.push(length(self.cx.length_of(id))?),
                known => dims.extend(known.as_ints().into_iter().flat_map(|ints| ints.data)),
            }
        }
        Ok(dims)
    }

    /// One length.
    pub(crate) fn dim(&mut self, value: &Value, what: &str) -> OpResult<Dim> {
        let mut dims = self.dims(value, what)?;
        match (dims.pop(), dims.is_empty()) {
            (Some(dim), true) => Ok(dim),
            _ => Err(OpError::invalid(
                "shape-mismatch",
                format!("{what} is not one number"),
            )),
        }
    }

    /// Constant integers.
    pub(crate) fn ints(&mut self, value: &Value, what: &str) -> OpResult<Vec<i64>> {
        self.dims(value, what)?
            .iter()
            .map(|d| {
                d.as_const().ok_or_else(|| {
                    OpError::unsupported(format!("{what} depends on a length: {d}"), "a constant")
                })
            })
            .collect()
    }

    /// Integers that are an attribute in old operator sets and operand `n` in newer ones.
    pub(crate) fn ints_by(&mut self, name: &str, n: usize) -> OpResult<Option<Vec<i64>>> {
        if let Some(ints) = self.attrs.ints(name)? {
            return Ok(Some(ints));
        }
        self.optional(n).map(|v| self.ints(&v, name)).transpose()
    }

    /// The constant that a value is.
    pub(crate) fn number(&self, value: &Value, what: &str) -> OpResult<f64> {
        value
            .as_splat()
            .ok_or_else(|| OpError::unsupported(format!("{what} depends on data"), "a constant"))
    }

    /// A constant of f32 elements.
    pub(crate) fn floats(values: &[f32]) -> Value {
        Value::constant(TensorData::f32(vec![values.len()], values))
    }
}
