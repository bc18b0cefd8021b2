//! The f32 executor: the default backend of a machine without a GPU.
//!
//! ```
//! use attnc_cpu::{Executor, Tensor};
//! use attnc_ir::{DType, Graph, Op, TensorType};
//! let mut g = Graph::new("scores");
//! let x = g.add_input("x", TensorType::new(DType::F32, ["S", "S"]));
//! let p = g.apply(Op::Softmax { axis: 1 }, &[x]).unwrap();
//! g.add_output("p", p);
//! let mut executor = Executor::new(g)?;
//! // Any length will do; it follows from the inputs.
//! for s in [1, 3] {
//!     let x = Tensor::f32(vec![s, s], vec![0.5; s * s]);
//!     let out = executor.run(&[("x".to_owned(), x)])?;
//!     assert_eq!(out[0].1.shape(), [s, s]);
//! }
//! # Ok::<(), attnc_cpu::ExecError>(())
//! ```
//!
//! A graph is planned once a set of lengths: views become strides, everything with a scalar form becomes a
//! tape, buffers get slots of an arena that stays allocated. The same lengths again only run.
//!
//! Invariant: between runs every slot of the arena has the size the plan says.

mod attention;
mod blocks;
mod conv;
mod copy;
mod gemm;
mod layout;
mod linear_attention;
mod math;
mod matmul;
mod plan;
mod rows;
mod slots;
mod tape;
mod view;
mod weights;

use crate::bind::{Bound, bind_dims};
use crate::error::place;
use crate::interp::check_weights;
use crate::lazy::OutOfRange;
use crate::{Dims, ExecError, Tensor};
use attnc_ir::scalar::{ScalarExpr, of_node};
use attnc_ir::{Graph, Op};
use plan::{Kernel, Place, Plan, Program, Source, Step};
use std::borrow::Cow;
use view::View;
use weights::Weight;

/// Runs one graph in f32.
#[derive(Debug)]
pub struct Executor {
    graph: Graph,
    weights: Vec<Weight>,
    /// Number of the weight of each constant, by value.
    weight_of: Vec<Option<usize>>,
    /// The scalar form of each node that has one, by value.
    forms: Vec<Option<ScalarExpr>>,
    /// The plan for the lengths of the last run.
    plan: Option<(Dims, Plan)>,
    arena: Vec<Vec<u32>>,
}

impl Executor {
    /// Prepares a graph. f32 and integer weights are read where they are; others are converted here.
    ///
    /// # Errors
    /// Weights without data, and graphs that do not verify.
    pub fn new(mut graph: Graph) -> Result<Self, ExecError> {
        graph.remove_dead();
        check_weights(&graph)?;
        let mut weights = Vec::new();
        let mut weight_of = vec![None; graph.id_bound()];
        let mut forms = vec![None; graph.id_bound()];
        for id in graph.values() {
            if let Op::Constant(data) = &graph.node(id).op {
                let weight = Weight::new(data).ok_or_else(|| ExecError::Malformed {
                    at: place(&graph, id),
                    message: format!("its data does not have the size of {}", data.ty()),
                })?;
                weight_of[id.index()] = Some(weights.len());
                weights.push(weight);
            } else {
                forms[id.index()] = of_node(&graph, id);
            }
        }
        Ok(Self {
            graph,
            weights,
            weight_of,
            forms,
            plan: None,
            arena: Vec::new(),
        })
    }

    /// The graph it runs.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Bytes of intermediate values for the lengths of the last run.
    #[must_use]
    pub fn arena_bytes(&self) -> usize {
        self.arena.iter().map(|slot| slot.len() * 4).sum()
    }

    /// Runs the graph; lengths follow from the shapes of the inputs. Outputs come in the order of the graph.
    ///
    /// # Errors
    /// Inputs that do not fit, lengths without a value, memory, and indices from data that are out of range.
    pub fn run(&mut self, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>, ExecError> {
        self.run_with(&Dims::new(), inputs)
    }

    /// As [`Executor::run`], with the lengths that do not follow from the inputs.
    ///
    /// # Errors
    /// As [`Executor::run`].
    pub fn run_with(
        &mut self,
        dims: &Dims,
        inputs: &[(String, Tensor)],
    ) -> Result<Vec<(String, Tensor)>, ExecError> {
        let dims = bind_dims(&self.graph, dims, inputs)?;
        self.plan_for(dims)?;
        let lanes: Vec<Cow<'_, [u32]>> = self
            .graph
            .inputs()
            .iter()
            .map(|&id| {
                let name = self.graph.node(id).name();
                let found = inputs.iter().find(|(n, _)| n == name);
                found.expect("inputs are checked").1.to_lanes()
            })
            .collect();
        let (_, plan) = self.plan.as_ref().expect("planned above");
        for step in &plan.steps {
            let mut out = std::mem::take(&mut self.arena[step.out]);
            let result = step.run(&self.weights, &lanes, &self.arena, &mut out[..step.len]);
            self.arena[step.out] = out;
            result.map_err(|e| ExecError::IndexOutOfRange {
                at: place(&self.graph, step.id),
                index: e.index,
                size: e.size,
            })?;
        }
        let outputs = plan.outputs.iter().map(|(name, dtype, place)| {
            let view = place.view(&self.weights, &lanes, &self.arena);
            let mut out = vec![0; place.layout.elements()];
            copy::pack(&view, &mut out);
            let shape = place.layout.shape.clone();
            (name.clone(), Tensor::from_lanes(*dtype, shape, out))
        });
        Ok(outputs.collect())
    }

    fn plan_for(&mut self, dims: Dims) -> Result<(), ExecError> {
        if self.plan.as_ref().is_some_and(|(known, _)| *known == dims) {
            return Ok(());
        }
        // Another plan needs another arena; an old one must not count against the memory there is.
        self.plan = None;
        let bound = Bound::new(&self.graph, dims)?;
        let program = Program {
            graph: &self.graph,
            weights: &self.weight_of,
            forms: &self.forms,
        };
        let plan = Plan::new(program, &bound)?;
        self.arena.truncate(plan.slots.len());
        self.arena.resize(plan.slots.len(), Vec::new());
        for (slot, &len) in self.arena.iter_mut().zip(&plan.slots) {
            if slot.len() < len {
                *slot = vec![0; len];
            } else {
                slot.truncate(len);
            }
        }
        self.plan = Some((bound.dims, plan));
        Ok(())
    }
}

impl Place {
    fn view<'a>(
        &'a self,
        weights: &'a [Weight],
        inputs: &'a [Cow<'_, [u32]>],
        arena: &'a [Vec<u32>],
    ) -> View<'a> {
        View {
            lanes: match self.source {
                Source::Input(n) => &inputs[n],
                Source::Weight(n) => weights[n].lanes(),
                Source::Slot(n) => &arena[n],
            },
            layout: &self.layout,
        }
    }
}

impl Step {
    fn run(
        &self,
        weights: &[Weight],
        inputs: &[Cow<'_, [u32]>],
        arena: &[Vec<u32>],
        out: &mut [u32],
    ) -> Result<(), OutOfRange> {
        let operands: Vec<View<'_>> = self
            .operands
            .iter()
            .map(|place| place.view(weights, inputs, arena))
            .collect();
        self.kernel.run(&operands, out)?;
        match &self.epilogue {
            Some(epilogue) => epilogue.transform(&operands, out),
            None => Ok(()),
        }
    }
}

impl Kernel {
    fn run(&self, operands: &[View<'_>], out: &mut [u32]) -> Result<(), OutOfRange> {
        match self {
            Self::Fill(tape) => return tape.fill(operands, out),
            Self::Pack => copy::pack(&operands[0], out),
            Self::Concat(axis) => copy::concat(operands, *axis, out),
            Self::Reduce(dtype, op, axes) => rows::reduce(&operands[0], *dtype, *op, axes, out),
            Self::CumSum(dtype, axis, flags) => {
                rows::cumsum(&operands[0], *dtype, *axis, *flags, out);
            }
            Self::Softmax(axis) => rows::softmax(&operands[0], *axis, floats(out)),
            Self::LayerNorm(axis, eps) => rows::layer_norm(operands, *axis, *eps, floats(out)),
            Self::RmsNorm(axis, eps) => rows::rms_norm(operands, *axis, *eps, floats(out)),
            Self::MatMul => matmul::matmul(&operands[0], &operands[1], floats(out)),
            Self::Conv(conv, shape) => conv::conv(operands, conv, shape, floats(out)),
            Self::Attention(attention) => return attention.run(operands, floats(out)),
            Self::LinearAttention(linear) => {
                linear_attention::linear_attention(operands, linear, out);
            }
        }
        Ok(())
    }
}

fn floats(lanes: &mut [u32]) -> &mut [f32] {
    bytemuck::cast_slice_mut(lanes)
}
