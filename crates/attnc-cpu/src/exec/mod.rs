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
mod conv;
mod copy;
mod gemm;
mod layout;
mod linear_attention;
mod mat;
mod math;
mod matmul;
mod microkernel;
mod panels;
mod plan;
mod rows;
mod scratch;
mod slots;
mod streamed;
mod tape;
mod view;
mod weights;

use crate::bind::{Bound, Given, dims_of};
use crate::error::place;
use crate::interp::check_weights;
use crate::lazy::OutOfRange;
use crate::{Dims, ExecError, Tensor};
use attnc_ir::scalar::{ScalarExpr, of_node};
use attnc_ir::{DType, Graph, Op, TensorData};
use plan::{Kernel, Place, Plan, Program, Source, Step};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::time::{Duration, Instant};
use view::View;
use weights::{PackedWeights, Weight};

/// Runs one graph in f32.
#[derive(Debug)]
pub struct Executor {
    graph: Graph,
    weights: Vec<Weight>,
    packed_weights: PackedWeights,
    /// Number of the weight of each constant, by value.
    weight_of: Vec<Option<usize>>,
    /// The scalar form of each node that has one, by value.
    forms: Vec<Option<ScalarExpr>>,
    /// The plan for the shapes of the last run.
    planned: Option<Planned>,
    arena: Vec<Vec<u32>>,
    /// Kept for [`Executor::run_each`], empty between runs.
    lanes: Vec<Weight>,
    /// Kept for outputs whose elements do not lie one after another.
    packed: Vec<u32>,
}

/// A plan, and what it was made for.
#[derive(Debug)]
struct Planned {
    /// The lengths given, and the shapes of the inputs in the order of the graph.
    given: Dims,
    shapes: Vec<Vec<usize>>,
    plan: Plan,
}

/// Is told of each step and how long it took.
type Observe<'a> = &'a mut (dyn FnMut(&Step, Duration) + Send);

/// How long one step took.
#[derive(Debug, Clone, PartialEq)]
pub struct StepTime {
    /// The node it is for.
    pub at: String,
    /// What it does.
    pub kernel: &'static str,
    /// How long.
    pub time: Duration,
}

/// An output where it lies.
#[derive(Debug, Clone, Copy)]
pub struct Output<'a> {
    /// The element type.
    pub dtype: DType,
    /// Sizes of the axes.
    pub shape: &'a [usize],
    /// Row-major, 32 bits an element: the bits of f32 for all floating-point types, of i32 and u32; truth
    /// values are 0 or not.
    pub lanes: &'a [u32],
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
            packed_weights: PackedWeights::default(),
            weight_of,
            forms,
            planned: None,
            arena: Vec::new(),
            lanes: Vec::new(),
            packed: Vec::new(),
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

    /// Bytes of the weights that are kept packed beside the model's own.
    #[must_use]
    pub fn packed_bytes(&self) -> usize {
        self.packed_weights.bytes()
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
        let given: Vec<_> = inputs
            .iter()
            .map(|(name, t)| Given {
                name,
                dtype: t.dtype(),
                shape: t.shape(),
            })
            .collect();
        self.plan_for(dims, &given)?;
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
        let mut outputs = Vec::with_capacity(self.graph.outputs().len());
        let mut keep = |_, output: Output<'_>| {
            let (shape, lanes) = (output.shape.to_vec(), output.lanes.to_vec());
            outputs.push(Tensor::from_lanes(output.dtype, shape, lanes));
        };
        self.execute(&lanes, &mut keep, &mut |_, _| ())?;
        let names = self.graph.outputs().iter().map(|(name, _)| name.clone());
        Ok(names.zip(outputs).collect())
    }

    /// As [`Executor::run_with`], on stored tensors in the order of the graph's inputs, handing each output to
    /// `each` where it lies. A run at the shapes of the run before it copies no tensor of 32-bit elements.
    ///
    /// # Errors
    /// As [`Executor::run`].
    pub fn run_each(
        &mut self,
        dims: &Dims,
        inputs: &[TensorData],
        each: &mut dyn FnMut(usize, Output<'_>),
    ) -> Result<(), ExecError> {
        self.run_observed(dims, inputs, each, &mut |_, _| ())
    }

    /// As [`Executor::run_each`], and says how long each step took instead of what came out.
    ///
    /// # Errors
    /// As [`Executor::run`].
    pub fn time_steps(
        &mut self,
        dims: &Dims,
        inputs: &[TensorData],
    ) -> Result<Vec<StepTime>, ExecError> {
        let mut steps = Vec::new();
        self.run_observed(dims, inputs, &mut |_, _| (), &mut |step, time| {
            steps.push((step.id, step.kernel.name(), time));
        })?;
        let named = steps.into_iter().map(|(id, kernel, time)| StepTime {
            at: place(&self.graph, id),
            kernel,
            time,
        });
        Ok(named.collect())
    }

    fn run_observed(
        &mut self,
        dims: &Dims,
        inputs: &[TensorData],
        each: &mut dyn FnMut(usize, Output<'_>),
        observe: Observe<'_>,
    ) -> Result<(), ExecError> {
        if !self.is_planned(dims, inputs) {
            let names = self.graph.inputs().iter();
            let names: Vec<_> = names
                .map(|&id| self.graph.node(id).name().to_owned())
                .collect();
            let given = names.iter().zip(inputs).map(|(name, data)| Given {
                name,
                dtype: data.dtype,
                shape: &data.shape,
            });
            self.plan_for(dims, &given.collect::<Vec<_>>())?;
        }
        let mut lanes = std::mem::take(&mut self.lanes);
        let result = self
            .stored(inputs, &mut lanes)
            .and_then(|()| self.execute(&lanes, each, observe));
        // What the host lent is given back.
        lanes.clear();
        self.lanes = lanes;
        result
    }

    fn stored(&self, inputs: &[TensorData], lanes: &mut Vec<Weight>) -> Result<(), ExecError> {
        for (&id, data) in self.graph.inputs().iter().zip(inputs) {
            lanes.push(Weight::new(data).ok_or_else(|| ExecError::Malformed {
                at: place(&self.graph, id),
                message: format!("its data does not have the size of {}", data.ty()),
            })?);
        }
        Ok(())
    }

    /// Runs the plan on the lanes of the inputs.
    fn execute<I: AsRef<[u32]> + Sync>(
        &mut self,
        inputs: &[I],
        each: &mut dyn FnMut(usize, Output<'_>),
        observe: Observe<'_>,
    ) -> Result<(), ExecError> {
        let planned = self.planned.as_ref().expect("planned before");
        // Handing work to the pool and waiting for it takes longer than many a step: once a run, not once a step.
        match planned.plan.shares_work() {
            true => rayon::scope(|_| self.run_steps(inputs, observe))?,
            false => self.run_steps(inputs, observe)?,
        }
        let plan = &self.planned.as_ref().expect("planned before").plan;
        for (at, (_, dtype, place)) in plan.outputs.iter().enumerate() {
            let view = place.view(&self.weights, inputs, &self.arena);
            let (first, len) = (place.layout.offset, place.layout.elements());
            let lanes = if len == 0 || place.layout.is_packed() {
                view.lanes.get(first..first + len).unwrap_or_default()
            } else {
                self.packed.resize(len, 0);
                copy::pack(&view, &mut self.packed);
                &self.packed
            };
            let (dtype, shape) = (*dtype, place.layout.shape.as_slice());
            each(
                at,
                Output {
                    dtype,
                    shape,
                    lanes,
                },
            );
        }
        Ok(())
    }

    fn run_steps<I: AsRef<[u32]>>(
        &mut self,
        inputs: &[I],
        observe: Observe<'_>,
    ) -> Result<(), ExecError> {
        let plan = &self.planned.as_ref().expect("planned before").plan;
        for step in &plan.steps {
            let start = Instant::now();
            let mut out = std::mem::take(&mut self.arena[step.out]);
            let result = step.run(&self.weights, inputs, &self.arena, &mut out[..step.len]);
            self.arena[step.out] = out;
            result.map_err(|e| ExecError::IndexOutOfRange {
                at: place(&self.graph, step.id),
                index: e.index,
                size: e.size,
            })?;
            observe(step, start.elapsed());
        }
        Ok(())
    }

    /// Whether the plan is for these lengths and shapes.
    fn is_planned(&self, dims: &Dims, inputs: &[TensorData]) -> bool {
        self.planned.as_ref().is_some_and(|planned| {
            let types = self.graph.inputs().iter().map(|&id| self.graph.ty(id));
            let mut all = types.zip(&planned.shapes).zip(inputs);
            planned.given == *dims
                && planned.shapes.len() == inputs.len()
                && all.all(|((ty, shape), data)| ty.dtype == data.dtype && *shape == data.shape)
        })
    }

    fn plan_for(&mut self, given: &Dims, inputs: &[Given<'_>]) -> Result<(), ExecError> {
        let dims = dims_of(&self.graph, given, inputs)?;
        let names = self.graph.inputs().iter();
        let shapes: Vec<Vec<usize>> = names
            .map(|&id| {
                let name = self.graph.node(id).name();
                let found = inputs.iter().find(|t| t.name == name);
                found.expect("inputs are checked").shape.to_vec()
            })
            .collect();
        if let Some(planned) = &self.planned
            && planned.given == *given
            && planned.shapes == shapes
        {
            return Ok(());
        }
        // Another plan needs another arena; an old one must not count against the memory there is.
        self.planned = None;
        let bound = Bound::new(&self.graph, dims)?;
        let program = Program {
            graph: &self.graph,
            weights: &self.weight_of,
            forms: &self.forms,
        };
        let mut plan = Plan::new(program, &bound)?;
        for step in &mut plan.steps {
            if matmul::worth_packing(step)
                && let Source::Weight(number) = step.operands[1].source
            {
                let layout = &step.operands[1].layout;
                let packed = self.packed_weights.get(number, &self.weights, layout);
                step.kernel = Kernel::MatMul(Some(packed));
            }
        }
        self.arena.truncate(plan.slots.len());
        self.arena.resize(plan.slots.len(), Vec::new());
        for (slot, &len) in self.arena.iter_mut().zip(&plan.slots) {
            if slot.len() < len {
                *slot = vec![0; len];
            } else {
                slot.truncate(len);
            }
        }
        self.planned = Some(Planned {
            given: given.clone(),
            shapes,
            plan,
        });
        Ok(())
    }
}

impl Place {
    fn view<'a, I: AsRef<[u32]>>(
        &'a self,
        weights: &'a [Weight],
        inputs: &'a [I],
        arena: &'a [Vec<u32>],
    ) -> View<'a> {
        View {
            lanes: match self.source {
                Source::Input(n) => inputs[n].as_ref(),
                Source::Weight(n) => weights[n].lanes(),
                Source::Slot(n) => &arena[n],
            },
            layout: &self.layout,
        }
    }
}

impl Step {
    fn run<I: AsRef<[u32]>>(
        &self,
        weights: &[Weight],
        inputs: &[I],
        arena: &[Vec<u32>],
        out: &mut [u32],
    ) -> Result<(), OutOfRange> {
        // Few operations have more operands than that; then there is one allocation.
        let operands: SmallVec<[View<'_>; 8]> = self
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
            Self::MatMul(packed) => {
                matmul::matmul(&operands[0], &operands[1], packed.as_deref(), floats(out));
            }
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
