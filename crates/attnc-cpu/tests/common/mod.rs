//! What the tests share: reproducible numbers, and holding the executor to the oracle.

#![allow(dead_code, reason = "every test file uses a part of it")]

use attnc_cpu::{Dims, Executor, Tensor, interp};
use attnc_ir::{DType, Dim, Graph, Op, TensorType, ValueId};

/// A graph under construction, and values for its inputs.
pub(crate) struct Case {
    pub(crate) graph: Graph,
    pub(crate) inputs: Vec<(String, Tensor)>,
    state: u64,
}

impl Case {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            graph: Graph::new("case"),
            inputs: Vec::new(),
            state: seed.wrapping_mul(2).wrapping_add(0x9E37_79B9_7F4A_7C15),
        }
    }

    /// The next number of splitmix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n).unwrap()).unwrap()
    }

    /// In [-1, 1).
    pub(crate) fn unit(&mut self) -> f32 {
        f32::from(i16::try_from(self.below(65536) as i64 - 32768).unwrap()) / 32768.0
    }

    /// An f32 input whose axes are lengths known at run time only, with values in [-scale, scale).
    pub(crate) fn floats(&mut self, name: &str, shape: &[usize], scale: f32) -> ValueId {
        let data = (0..shape.iter().product())
            .map(|_| self.unit() * scale)
            .collect();
        self.given(name, Tensor::f32(shape.to_vec(), data))
    }

    /// An i32 input with values from `low` up to `high`.
    pub(crate) fn ints(&mut self, name: &str, shape: &[usize], low: i32, high: i32) -> ValueId {
        let span = usize::try_from(high - low + 1).unwrap();
        let data = (0..shape.iter().product())
            .map(|_| low + i32::try_from(self.below(span)).unwrap())
            .collect();
        self.given(name, Tensor::i32(shape.to_vec(), data))
    }

    /// A bool input.
    pub(crate) fn bools(&mut self, name: &str, shape: &[usize]) -> ValueId {
        let data = (0..shape.iter().product())
            .map(|_| self.below(2) == 1)
            .collect();
        self.given(name, Tensor::bool(shape.to_vec(), data))
    }

    /// An input of that value.
    pub(crate) fn given(&mut self, name: &str, value: Tensor) -> ValueId {
        let ty = TensorType::new(value.dtype(), value.shape().iter().copied());
        self.inputs.push((name.to_owned(), value));
        self.graph.add_input(name, ty)
    }

    pub(crate) fn apply(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        self.graph.apply(op, operands).unwrap()
    }

    pub(crate) fn shape(&self, value: ValueId) -> Vec<usize> {
        let dim = |d: &Dim| usize::try_from(d.as_const().unwrap()).unwrap();
        self.graph.ty(value).shape.iter().map(dim).collect()
    }

    pub(crate) fn dtype(&self, value: ValueId) -> DType {
        self.graph.ty(value).dtype
    }

    /// Runs the graph with that one output in f32.
    pub(crate) fn run(&self, out: ValueId) -> Tensor {
        let mut graph = self.graph.clone();
        graph.add_output("out", out);
        let mut executor = Executor::new(graph).unwrap();
        executor.run(&self.inputs).unwrap().remove(0).1
    }

    /// Runs the graph with that one output in f64.
    pub(crate) fn oracle(&self, out: ValueId) -> Tensor {
        let mut graph = self.graph.clone();
        graph.add_output("out", out);
        interp::run(&graph, &Dims::new(), &self.inputs)
            .unwrap()
            .remove(0)
            .1
    }

    /// Holds the executor to the oracle: largest error at most `tolerance` of the largest magnitude.
    pub(crate) fn check(&self, out: ValueId, tolerance: f64) {
        let (found, expected) = (self.run(out), self.oracle(out));
        assert_close(&found, &expected, tolerance);
    }
}

/// Integers and truth values are equal, infinities and NaN are in the same places, other floats are close.
pub(crate) fn assert_close(found: &Tensor, expected: &Tensor, tolerance: f64) {
    assert_eq!(found.dtype(), expected.dtype());
    assert_eq!(found.shape(), expected.shape());
    let (found, expected) = (found.to_f64(), expected.to_f64());
    let size = expected
        .iter()
        .filter(|x| x.is_finite())
        .fold(1e-3f64, |m, x| m.max(x.abs()));
    for (n, (f, e)) in found.iter().zip(&expected).enumerate() {
        let same = if e.is_finite() {
            (f - e).abs() <= tolerance * size
        } else {
            f == e || (f.is_nan() && e.is_nan())
        };
        assert!(
            same,
            "element {n}: found {f}, expected {e} of at most {size}"
        );
    }
}

/// Sizes as lengths.
pub(crate) fn dims(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|&d| d.into()).collect()
}
