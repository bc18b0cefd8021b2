//! Building a graph in Rust: operations by name, all mistakes at the end.
//!
//! ```
//! use attnc_ir::{Builder, DType, Dim};
//! let mut b = Builder::new("attention");
//! let (batch, queries, keys) = (Dim::sym("B"), Dim::sym("M"), Dim::sym("N"));
//! let q = b.input("q", DType::F32, [batch.clone(), 8.into(), queries, 64.into()]);
//! let k = b.input("k", DType::F32, [batch.clone(), 8.into(), keys.clone(), 64.into()]);
//! let v = b.input("v", DType::F32, [batch, 8.into(), keys, 64.into()]);
//! let kt = b.transpose(k, &[0, 1, 3, 2]);
//! let scores = b.matmul(q, kt);
//! let scale = b.scalar(0.125);
//! let scaled = b.mul(scores, scale);
//! let weights = b.softmax(scaled, 3);
//! let out = b.matmul(weights, v);
//! b.output("out", out);
//! let graph = b.finish().unwrap();
//! assert_eq!(graph.outputs().len(), 1);
//! ```
//!
//! A mistake (shapes that do not fit, say) makes a value that is *unknown*: whatever uses it is unknown too and
//! not reported again. [`Builder::finish`] gives the verified graph, or every mistake.

use crate::{
    Attention, BinaryOp, CompareOp, DType, Diagnostics, Dim, Graph, Op, Shape, TensorData,
    TensorType, UnaryOp, ValueId, verify,
};

/// A value of a graph that is being built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value(Option<ValueId>);

/// Builds one [`Graph`]; see the module.
#[derive(Debug, Clone)]
pub struct Builder {
    graph: Graph,
    found: Diagnostics,
}

impl Builder {
    /// An empty graph of that name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            graph: Graph::new(name),
            found: Diagnostics::default(),
        }
    }

    /// An input. Lengths are numbers, or names of what is known at run time.
    pub fn input(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = impl Into<Dim>>,
    ) -> Value {
        Value(Some(
            self.graph.add_input(name, TensorType::new(dtype, shape)),
        ))
    }

    /// A constant; a named one is a weight.
    pub fn constant(&mut self, data: TensorData) -> Value {
        Value(Some(self.graph.add_constant(data)))
    }

    /// An f32 without axes.
    pub fn scalar(&mut self, value: f32) -> Value {
        self.constant(TensorData::f32(Vec::new(), &[value]))
    }

    /// Any operation.
    pub fn apply(&mut self, op: Op, operands: &[Value]) -> Value {
        let Some(operands) = operands.iter().map(|v| v.0).collect::<Option<Vec<_>>>() else {
            return Value(None);
        };
        let names: Vec<_> = operands
            .iter()
            .map(|&o| format!("%{}", self.graph.node(o).name()))
            .collect();
        let at = format!("{} of {}", op.name(), names.join(", "));
        match self.graph.apply(op, &operands) {
            Ok(id) => Value(Some(id)),
            Err(diagnostic) => {
                self.found.push(diagnostic.at(at));
                Value(None)
            }
        }
    }

    /// Calls a value `name` in texts and reports; a taken name gets a number behind it.
    pub fn name(&mut self, value: Value, name: &str) -> Value {
        if let Some(id) = value.0 {
            self.graph.rename(id, name);
        }
        value
    }

    /// Makes a value an output.
    pub fn output(&mut self, name: &str, value: Value) {
        if let Some(id) = value.0 {
            self.graph.add_output(name, id);
        }
    }

    /// The type of a value; none where it is unknown.
    #[must_use]
    pub fn ty(&self, value: Value) -> Option<&TensorType> {
        value.0.map(|id| self.graph.ty(id))
    }

    /// The graph, verified.
    ///
    /// # Errors
    /// Every operation that did not fit its operands, else every rule the graph breaks.
    pub fn finish(self) -> Result<Graph, Diagnostics> {
        self.found.into_result()?;
        verify(&self.graph)?;
        Ok(self.graph)
    }

    /// The elements of `x` under another shape.
    pub fn reshape(&mut self, x: Value, shape: impl IntoIterator<Item = impl Into<Dim>>) -> Value {
        let shape: Shape = shape.into_iter().map(Into::into).collect();
        self.apply(Op::Reshape(shape), &[x])
    }

    /// Result axis `i` is axis `perm[i]` of `x`.
    pub fn transpose(&mut self, x: Value, perm: &[usize]) -> Value {
        self.apply(Op::Transpose(perm.to_vec()), &[x])
    }

    /// Rows of `x` along an axis, by index.
    pub fn gather(&mut self, x: Value, indices: Value, axis: usize) -> Value {
        self.apply(Op::Gather { axis }, &[x, indices])
    }

    /// The product of matrices, leading axes broadcast.
    pub fn matmul(&mut self, a: Value, b: Value) -> Value {
        self.apply(Op::MatMul, &[a, b])
    }

    /// `softmax(x)` along an axis.
    pub fn softmax(&mut self, x: Value, axis: usize) -> Value {
        self.apply(Op::Softmax { axis }, &[x])
    }

    /// Layer norm over the axes from `axis` on.
    pub fn layer_norm(
        &mut self,
        x: Value,
        gain: Value,
        bias: Value,
        axis: usize,
        eps: f64,
    ) -> Value {
        self.apply(Op::LayerNorm { axis, eps }, &[x, gain, bias])
    }

    /// RMS norm over the axes from `axis` on.
    pub fn rms_norm(&mut self, x: Value, gain: Value, axis: usize, eps: f64) -> Value {
        self.apply(Op::RmsNorm { axis, eps }, &[x, gain])
    }

    /// Fused attention without functions; see [`Attention`] for the shapes.
    pub fn attention(&mut self, q: Value, k: Value, v: Value, scale: f64) -> Value {
        self.apply(Op::Attention(Attention::new(scale)), &[q, k, v])
    }

    /// A function of each element.
    pub fn unary(&mut self, op: UnaryOp, x: Value) -> Value {
        self.apply(Op::Unary(op), &[x])
    }

    /// An operation on two elements, broadcast.
    pub fn binary(&mut self, op: BinaryOp, x: Value, y: Value) -> Value {
        self.apply(Op::Binary(op), &[x, y])
    }

    /// A comparison, broadcast.
    pub fn compare(&mut self, op: CompareOp, x: Value, y: Value) -> Value {
        self.apply(Op::Compare(op), &[x, y])
    }

    /// `x + y`.
    pub fn add(&mut self, x: Value, y: Value) -> Value {
        self.binary(BinaryOp::Add, x, y)
    }

    /// `x - y`.
    pub fn sub(&mut self, x: Value, y: Value) -> Value {
        self.binary(BinaryOp::Sub, x, y)
    }

    /// `x * y`.
    pub fn mul(&mut self, x: Value, y: Value) -> Value {
        self.binary(BinaryOp::Mul, x, y)
    }

    /// `x / y`.
    pub fn div(&mut self, x: Value, y: Value) -> Value {
        self.binary(BinaryOp::Div, x, y)
    }

    /// `x` where the condition is true, else `y`.
    pub fn select(&mut self, condition: Value, x: Value, y: Value) -> Value {
        self.apply(Op::Where, &[condition, x, y])
    }

    /// `x` in another element type.
    pub fn cast(&mut self, x: Value, to: DType) -> Value {
        self.apply(Op::Cast(to), &[x])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graph_is_what_the_text_says() {
        let mut b = Builder::new("g");
        let x = b.input("x", DType::F32, ["B".into(), Dim::from(4)]);
        let ids = b.input("ids", DType::I32, ["N"]);
        let half = b.scalar(0.5);
        let scaled = b.mul(x, half);
        let row = b.gather(scaled, ids, 1);
        b.name(row, "rows");
        b.output("picked", row);
        let graph = b.finish().unwrap();
        assert_eq!(
            graph.to_string(),
            "graph @g(%x: f32[B, 4], %ids: i32[N]) {\n  %1 = mul %x, 0.5\n  \
             %rows = gather %1, %ids, axis = 1\n  return %rows as \"picked\"\n}\n"
        );
    }

    #[test]
    fn all_mistakes_are_reported_once() {
        let mut b = Builder::new("g");
        let x = b.input("x", DType::F32, ["B".into(), Dim::from(4)]);
        let i = b.input("i", DType::I32, ["B"]);
        let sum = b.add(x, i);
        let again = b.unary(UnaryOp::Exp, sum);
        let product = b.matmul(again, x);
        let rows = b.softmax(x, 2);
        b.output("out", product);
        b.output("rows", rows);
        let found = b.finish().unwrap_err();
        let pairs: Vec<_> = found
            .0
            .iter()
            .map(|d| (d.code, d.at.as_deref().unwrap_or_default()))
            .collect();
        assert_eq!(
            pairs,
            [
                ("dtype-mismatch", "add of %x, %i"),
                ("bad-axis", "softmax of %x")
            ]
        );
    }
}
