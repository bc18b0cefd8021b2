//! Lowers a graph to a plan: which kernel computes each value, on which buffers, with which launch.
//!
//! Views cost nothing: they are strides and offsets of whoever reads them. Every other value gets one step:
//!
//! | op | kernel |
//! | --- | --- |
//! | `matmul` | `matmul_rows`, with its epilogue |
//! | `attention` | `flash_attention_fwd_rows`, with `score_mod` and `mask_mod`; `block_mask` before it where the mask is data |
//! | `linear_attention` | `linear_attention`, one result a step |
//! | `softmax`, `layer_norm`, `rms_norm`, `reduce`, `cumsum` | the row kernels, with their epilogues |
//! | anything with a scalar form | `pointwise` |
//!
//! ```
//! use attnc_codegen::lower;
//! use attnc_ir::{BinaryOp, DType, Graph, Op, TensorType};
//! use attnc_plan::DeviceProfile;
//!
//! let mut g = Graph::new("twice");
//! let x = g.add_input("x", TensorType::new(DType::F32, ["B"]));
//! let y = g.apply(Op::Binary(BinaryOp::Add), &[x, x]).unwrap();
//! g.add_output("y", y);
//! let lowered = lower(&g, &DeviceProfile::webgpu()).unwrap();
//! assert_eq!(lowered.plan.kernels[0].name, "pointwise.f32.add");
//! ```
//!
//! Elements of 16 bits are read and written by every kernel ([`crate::Stored`]); sums and products are f32.
//! Where a kernel cannot own whole words of packed elements (an odd number of columns, a strided result), it
//! writes f32 and a `pointwise` step packs that.
//!
//! On entry: a verified graph. On exit: a plan that [`Plan::check`] accepts, or every value for which there
//! is no kernel. Equal layers share kernels: texts name what a tensor is for, never which one it is.

mod attention;
mod attention_kernel;
mod attention_parts;
mod attention_problem;
mod attention_staged;
mod attention_turns;
mod blocks;
mod images;
mod in_place;
mod kernel;
mod label;
mod linear_attention;
mod matmul;
mod matmul_kernel;
mod matmul_mods;
mod matmul_step;
mod panels;
mod pointwise;
mod row_family;
mod row_shape;
mod rows;
mod schedule;
mod turns;

pub use blocks::{Skipping, Tiles, attention_tiles};

use crate::choice::{Candidate, Choices, Decision};
use crate::params;
use crate::stored::{Stored, multiple_of};
use attnc_ir::{DType, Diagnostic, Diagnostics, Dim, Graph, Op, TensorData, ValueId, layout};
use attnc_plan::{Buffer, BufferId, BufferKind, DeviceProfile, Panels, Plan, Port};
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};

/// A plan and the constants it needs.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// Kernels, buffers, steps.
    pub plan: Plan,
    /// The data of every weight buffer, by the name the plan uses.
    pub weights: IndexMap<String, TensorData>,
    /// What was chosen where there was a choice, by problem.
    pub decisions: Vec<Decision>,
}

/// Lowers a graph for a device.
///
/// # Errors
/// Every node that no kernel computes, with what was expected of it.
pub fn lower(graph: &Graph, profile: &DeviceProfile) -> Result<Lowered, Diagnostics> {
    lower_with(graph, profile, &Choices::default())
}

/// As [`lower`], with kernels chosen otherwise than by the cost model.
///
/// # Errors
/// As [`lower`].
pub fn lower_with(
    graph: &Graph,
    profile: &DeviceProfile,
    choices: &Choices,
) -> Result<Lowered, Diagnostics> {
    let mut lowerer = Lowerer::new(graph, profile, choices);
    lowerer.ports();
    let mut problems = Diagnostics(Vec::new());
    let live = live(graph);
    lowerer.find_in_place(&live);
    for value in graph.topo_order() {
        if !live.contains(&value) || graph.node(value).op.is_view() {
            continue;
        }
        if let Err(problem) = lowerer.value(value) {
            problems.push(problem.at(format!("%{}", graph.node(value).name())));
        }
    }
    for n in 0..graph.outputs().len() {
        if let Err(problem) = lowerer.copy_output(n) {
            problems.push(problem.at(format!("output `{}`", graph.outputs()[n].0)));
        }
    }
    problems.into_result()?;
    Ok(Lowered {
        plan: lowerer.plan,
        weights: lowerer.weights,
        decisions: lowerer.decisions,
    })
}

/// How many storage buffers the kernel that computes `value` binds; 0 for what needs no kernel.
///
/// The optimiser keeps this within [`attnc_plan::Limits::storage_buffers`] when it fuses.
#[must_use]
pub fn storage_bindings_needed(graph: &Graph, value: ValueId) -> usize {
    let node = graph.node(value);
    let captured = |operands: &[ValueId]| {
        let bases = operands.iter().map(|&v| layout::source_index(graph, v).0);
        let bound = bases.filter(|&base| !is_literal(graph, base));
        bound.collect::<HashSet<_>>().len()
    };
    match &node.op {
        Op::Input | Op::Constant(_) => 0,
        op if op.is_view() => 0,
        Op::MatMul => 3 + captured(&node.operands()[2..]),
        Op::Attention(_) => 4 + captured(&node.operands()[3..]),
        _ => 1 + captured(node.operands()),
    }
}

/// Whether loads of the value are printed as a literal.
fn is_literal(graph: &Graph, base: ValueId) -> bool {
    matches!(&graph.node(base).op, Op::Constant(data) if data.len() == 1 && data.bytes.is_some())
}

/// The values that outputs depend on.
fn live(graph: &Graph) -> HashSet<ValueId> {
    let mut live = HashSet::new();
    let mut stack: Vec<_> = graph.outputs().iter().map(|(_, v)| *v).collect();
    while let Some(value) = stack.pop() {
        if live.insert(value) {
            stack.extend(graph.node(value).operands());
        }
    }
    live
}

/// The tile that a problem got, by name, and why.
struct Chosen {
    tile: String,
    why: &'static str,
    decision: usize,
}

/// The state of one lowering.
struct Lowerer<'g> {
    graph: &'g Graph,
    plan: Plan,
    weights: IndexMap<String, TensorData>,
    /// Where values that are no views lie.
    buffers: HashMap<ValueId, BufferId>,
    /// Values whose buffer is that of an output, with the output's number.
    output_of: HashMap<ValueId, usize>,
    /// Scores that their softmax is written over.
    in_place: HashMap<ValueId, ValueId>,
    /// Weights that lie in panels.
    panels: HashMap<ValueId, Panels>,
    /// Kernels by what their text is linked from.
    kernels: HashMap<kernel::Parts, kernel::Known>,
    /// How many kernels have a key.
    keys: HashMap<String, usize>,
    /// Tables of tiles that layers share.
    tables: blocks::Tables,
    choices: &'g Choices,
    decisions: Vec<Decision>,
    workgroup_size: u32,
}

impl<'g> Lowerer<'g> {
    fn new(graph: &'g Graph, profile: &DeviceProfile, choices: &'g Choices) -> Self {
        let mut plan = Plan::new(graph.name(), profile.clone());
        plan.dims = graph.symbols();
        Self {
            graph,
            plan,
            weights: IndexMap::new(),
            buffers: HashMap::new(),
            output_of: HashMap::new(),
            in_place: HashMap::new(),
            panels: HashMap::new(),
            kernels: HashMap::new(),
            keys: HashMap::new(),
            tables: blocks::Tables::new(),
            choices,
            decisions: Vec::new(),
            workgroup_size: params::workgroup_size(profile),
        }
    }

    /// Adds inputs and outputs, and decides which values are computed straight into an output's buffer.
    fn ports(&mut self) {
        let graph = self.graph;
        for &input in graph.inputs() {
            let (node, ty) = (graph.node(input), graph.ty(input));
            let buffer = self
                .plan
                .add_input(Port::new(node.name(), ty.dtype, ty.shape.clone()));
            self.buffers.insert(input, buffer);
        }
        for (n, (name, value)) in graph.outputs().iter().enumerate() {
            let ty = graph.ty(*value);
            let port = self.free_port(name);
            let buffer = self
                .plan
                .add_output(Port::new(&port, ty.dtype, ty.shape.clone()));
            if let Some(base) = self.whole(*value)
                && !self.buffers.contains_key(&base)
            {
                self.buffers.insert(base, buffer);
                self.output_of.insert(base, n);
            }
        }
    }

    /// Hosts bind inputs and outputs by name alike, so an output that is called as another port is gets a
    /// suffix, and the plan says so.
    fn free_port(&mut self, name: &str) -> String {
        let ports = self.plan.inputs.iter().chain(&self.plan.outputs);
        let taken: HashSet<&str> = ports.map(|p| p.name.as_str()).collect();
        if !taken.contains(name) {
            return name.to_owned();
        }
        let suffixed = (1..).map(|n| format!("{name}.out{n}"));
        let free = suffixed.into_iter().find(|n| !taken.contains(n.as_str()));
        let free = free.expect("some number is free");
        let note = format!("output `{name}` is bound as `{free}`: another port has its name");
        self.plan.notes.push(note);
        free
    }

    /// Takes one of the candidates for the step that comes next, the cheapest of which stands first.
    ///
    /// # Panics
    /// If there is none.
    fn choose<T>(&mut self, problem: String, candidates: Vec<(T, Candidate)>) -> (T, Chosen) {
        let (mut kernels, candidates): (Vec<T>, Vec<Candidate>) = candidates.into_iter().unzip();
        let (at, why) = self.choices.pick(&problem, &candidates);
        let step = self.plan.steps.len();
        let known = self.decisions.iter().position(|d| d.problem == problem);
        let chosen = Chosen {
            tile: candidates[at].tile.clone(),
            why: why.words(),
            decision: known.unwrap_or(self.decisions.len()),
        };
        match known {
            Some(known) => self.decisions[known].steps.push(step),
            None => self.decisions.push(Decision {
                problem,
                candidates,
                chosen: at,
                why,
                steps: vec![step],
                joins: Vec::new(),
            }),
        }
        (kernels.swap_remove(at), chosen)
    }

    /// Counts the step that comes next to what was chosen.
    fn also(&mut self, chosen: &Chosen) {
        let step = self.plan.steps.len();
        self.decisions[chosen.decision].joins.push(step);
    }

    /// How a buffer of the plan holds its elements.
    fn stored_in(&self, buffer: BufferId) -> Stored {
        Stored::of(self.plan.buffer(buffer).dtype, &self.plan.profile)
    }

    /// How the buffer of a value that is no view holds its elements.
    fn stored(&self, value: ValueId) -> Stored {
        match self.buffers.get(&value) {
            Some(&buffer) => self.stored_in(buffer),
            None => Stored::of(self.graph.ty(value).dtype, &self.plan.profile),
        }
    }

    /// The computed value whose whole buffer, in its order, is `value`.
    fn whole(&self, value: ValueId) -> Option<ValueId> {
        let layout = layout::resolve(self.graph, value)?;
        let (node, ty) = (self.graph.node(layout.base), self.graph.ty(value));
        let computed = !matches!(node.op, Op::Input | Op::Constant(_));
        let all = node.ty.elements() == ty.elements() && layout.offset.is(0);
        (computed && all && layout.is_contiguous(&ty.shape)).then_some(layout.base)
    }

    /// The buffer of a value that is no view: a weight's on its first use.
    fn buffer(&mut self, value: ValueId) -> Result<BufferId, Diagnostic> {
        if let Some(&buffer) = self.buffers.get(&value) {
            return Ok(buffer);
        }
        let node = self.graph.node(value);
        let buffer = match &node.op {
            _ if self.in_place.contains_key(&value) => self.buffer(self.in_place[&value])?,
            Op::Constant(data) => {
                let weight = self.weight(data)?;
                self.plan.buffers[weight.index()].panels = self.panels.get(&value).copied();
                weight
            }
            _ => self.temp(value, node.ty.dtype),
        };
        self.buffers.insert(value, buffer);
        Ok(buffer)
    }

    /// A new buffer for a value, whose elements lie there as `dtype`.
    fn temp(&mut self, value: ValueId, dtype: DType) -> BufferId {
        let node = self.graph.node(value);
        let mut buffer = Buffer::temp(node.name(), dtype, node.ty.shape.clone());
        if matches!(node.op, Op::Attention(_)) {
            buffer = buffer.with_axes(&["B", "H", "M", "D"]);
        }
        self.plan.add_buffer(buffer)
    }

    /// A weight under its own name, or `const.0`, `const.1`, …; the same data under one name is one buffer.
    fn weight(&mut self, data: &TensorData) -> Result<BufferId, Diagnostic> {
        if data.bytes.is_none() {
            let name = data.name.as_deref().unwrap_or("without a name");
            return Err(Diagnostic::error(
                "missing-weight",
                format!("the data of weight `{name}` has not been supplied"),
            ));
        }
        let known = self.plan.weights().find(|(_, name, _)| {
            self.weights
                .get(*name)
                .is_some_and(|w| data.name.is_some() && w.name == data.name && w == data)
        });
        if let Some((buffer, ..)) = known {
            return Ok(buffer);
        }
        let name = data
            .name
            .as_deref()
            .map(str::to_owned)
            .filter(|name| !self.weights.contains_key(name))
            .unwrap_or_else(|| {
                (0..)
                    .map(|n| format!("const.{n}"))
                    .find(|name| !self.weights.contains_key(name))
                    .expect("endless")
            });
        let ty = data.ty();
        self.weights.insert(name.clone(), data.clone());
        Ok(self.plan.add_buffer(Buffer::new(
            &name.clone(),
            BufferKind::Weight { name },
            ty.dtype,
            ty.shape,
        )))
    }

    /// Adds the step that computes a value.
    fn value(&mut self, value: ValueId) -> Result<(), Diagnostic> {
        let node = self.graph.node(value);
        match &node.op {
            Op::Input | Op::Constant(_) => Ok(()),
            Op::MatMul => self.matmul(value),
            Op::Attention(attention) => self.attention(value, attention),
            Op::LinearAttention(linear) => self.linear_attention(value, linear),
            Op::Softmax { .. }
            | Op::LayerNorm { .. }
            | Op::RmsNorm { .. }
            | Op::Reduce { .. }
            | Op::CumSum { .. } => self.rows(value),
            op => match attnc_ir::scalar::of_node(self.graph, value) {
                Some(expr) => self.pointwise(value, &expr),
                None => Err(Diagnostic::error(
                    "no-kernel",
                    format!("no kernel computes `{}`", op.name()),
                )
                .note("run the passes that rewrite it first: all of the pipeline's")),
            },
        }
    }

    /// Copies an output that no step wrote into its buffer: an input, a weight, a strided view, or a value
    /// that is another output too.
    fn copy_output(&mut self, n: usize) -> Result<(), Diagnostic> {
        let (_, value) = self.graph.outputs()[n];
        if let Some(base) = self.whole(value)
            && self.output_of.get(&base) == Some(&n)
        {
            return Ok(());
        }
        let buffer = self.plan.outputs[n].buffer;
        self.copy(value, buffer)
    }
}

/// A length that is known when compiling.
fn constant(dim: &Dim) -> Option<u32> {
    dim.as_const().and_then(|n| u32::try_from(n).ok())
}

/// Whether every value of the polynomial is a multiple of 4.
fn multiple_of_4(dim: &Dim) -> bool {
    multiple_of(dim, 4)
}

/// `ceil(a / b)`.
fn div_ceil(a: &Dim, b: u32) -> Dim {
    a.ceil_div(&Dim::from(i64::from(b)), &attnc_ir::Extents::none())
}

#[cfg(test)]
mod tests;
