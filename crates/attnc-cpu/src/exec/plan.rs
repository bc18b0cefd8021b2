//! What to do for given lengths: steps over buffers whose layouts and sizes are known.
//!
//! Views become layouts; only what a kernel cannot read is packed first.
//!
//! Invariant on exit: a step reads inputs, weights and slots that an earlier step wrote, all inside of their
//! buffers, and never the slot it writes.

use super::attention::{Attention, Blocks, PackedKeys, Pool};
use super::layout::Layout;
use super::panels::Panels;
use super::slots;
use super::tape::Tape;
use super::{copy, gemm};
use crate::bind::Bound;
use crate::error::place;
use crate::{ExecError, LengthError, memory};
use attnc_ir::scalar::ScalarExpr;
use attnc_ir::scalar::block_mask::{BlockMask, counted};
use attnc_ir::{
    Conv, DType, Dim, DimError, Extents, Graph, LinearAttention, Op, ReduceOp, ValueId,
};
use std::sync::Arc;

/// Where a buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Number of the graph input.
    Input(usize),
    /// Number of the weight.
    Weight(usize),
    /// Number of the slot of the arena; of the buffer while planning.
    Slot(usize),
}

/// A value: a buffer and where its elements lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) source: Source,
    pub(crate) layout: Layout,
}

/// What a step computes.
#[derive(Debug, Clone)]
pub(crate) enum Kernel {
    Fill(Box<Tape>),
    Pack,
    Concat(usize),
    Softmax(usize),
    LayerNorm(usize, f64),
    RmsNorm(usize, f64),
    Reduce(DType, ReduceOp, Vec<usize>),
    /// Element type, axis, exclusive and reverse.
    CumSum(DType, usize, [bool; 2]),
    /// With the right side, where it is a weight that is kept packed.
    MatMul(Option<Arc<Panels>>),
    /// With the shape of the result.
    Conv(Conv, Vec<usize>),
    Attention(Box<Attention>),
    LinearAttention(LinearAttention),
}

impl Kernel {
    /// What it is called where steps are timed.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Fill(_) => "pointwise",
            Self::Pack => "copy",
            Self::Concat(_) => "concat",
            Self::Softmax(_) => "softmax",
            Self::LayerNorm(..) => "layer_norm",
            Self::RmsNorm(..) => "rms_norm",
            Self::Reduce(..) => "reduce",
            Self::CumSum(..) => "cumsum",
            Self::MatMul(Some(_)) => "matmul, packed weight",
            Self::MatMul(None) => "matmul",
            Self::Conv(..) => "conv",
            Self::Attention(_) => "attention",
            Self::LinearAttention(_) => "linear_attention",
        }
    }
}

/// One step.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The node it is for.
    pub(crate) id: ValueId,
    pub(crate) kernel: Kernel,
    pub(crate) epilogue: Option<Tape>,
    pub(crate) operands: Vec<Place>,
    /// The slot it writes, and how many elements.
    pub(crate) out: usize,
    pub(crate) len: usize,
}

impl Step {
    /// Whether it is enough work to be shared among threads, about.
    fn shares_work(&self) -> bool {
        let shape = |n: usize| &self.operands[n].layout.shape[..];
        let (work, most) = match &self.kernel {
            Kernel::MatMul(_) => {
                let depth = shape(0).last().copied().unwrap_or(1);
                (self.len.saturating_mul(depth), gemm::SEQUENTIAL)
            }
            Kernel::Attention(_) => {
                let (queries, keys) = (self.operands[0].layout.elements(), shape(1)[2]);
                (queries.saturating_mul(2 * keys), gemm::SEQUENTIAL)
            }
            Kernel::Conv(..) | Kernel::LinearAttention(_) => (usize::MAX, 0),
            _ => {
                let read = self.operands.iter().map(|o| o.layout.elements()).max();
                (self.len.max(read.unwrap_or(0)), copy::SEQUENTIAL)
            }
        };
        work > most
    }
}

/// All steps for given lengths.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// Elements of each slot.
    pub(crate) slots: Vec<usize>,
    /// Name, type and place of each output.
    pub(crate) outputs: Vec<(String, DType, Place)>,
}

/// What of a graph does not depend on lengths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) graph: &'a Graph,
    /// Number of the weight of each constant, by value.
    pub(crate) weights: &'a [Option<usize>],
    /// The scalar form of each node that has one, by value.
    pub(crate) forms: &'a [Option<ScalarExpr>],
}

impl Plan {
    /// Plans a graph with its lengths bound.
    pub(crate) fn new(program: Program<'_>, bound: &Bound) -> Result<Self, ExecError> {
        let mut planner = Planner {
            program,
            bound,
            places: vec![None; program.graph.id_bound()],
            steps: Vec::new(),
            buffers: Vec::new(),
        };
        for &id in &bound.order {
            if program.graph.is_used(id) {
                let place = planner.node(id)?;
                planner.places[id.index()] = Some(place);
            }
        }
        let outputs = program
            .graph
            .outputs()
            .iter()
            .map(|(name, id)| {
                let dtype = program.graph.ty(*id).dtype;
                (name.clone(), dtype, planner.place(*id).clone())
            })
            .collect();
        let mut plan = Self {
            steps: planner.steps,
            slots: Vec::new(),
            outputs,
        };
        slots::assign(&mut plan, &planner.buffers);
        plan.check_memory(program.graph)?;
        Ok(plan)
    }

    /// Whether some step is enough work to be shared among threads, about.
    pub(crate) fn shares_work(&self) -> bool {
        self.steps.iter().any(Step::shares_work)
    }

    fn check_memory(&self, graph: &Graph) -> Result<(), ExecError> {
        let outputs = self.outputs.iter().map(|(_, _, p)| p.layout.elements());
        let elements: u128 = self
            .slots
            .iter()
            .copied()
            .chain(outputs)
            .map(|n| n as u128)
            .sum();
        let (needed, available) = (elements * 4, memory::available_bytes());
        if needed <= available {
            return Ok(());
        }
        let largest = self.steps.iter().max_by_key(|s| s.len);
        Err(ExecError::TooLarge {
            at: largest.map_or_else(|| format!("@{}", graph.name()), |s| place(graph, s.id)),
            needed,
            available,
        })
    }
}

struct Planner<'a> {
    program: Program<'a>,
    bound: &'a Bound,
    places: Vec<Option<Place>>,
    steps: Vec<Step>,
    /// Elements of each buffer.
    buffers: Vec<usize>,
}

impl Planner<'_> {
    fn place(&self, id: ValueId) -> &Place {
        self.places[id.index()]
            .as_ref()
            .expect("operands come first")
    }

    fn operands(&self, id: ValueId) -> Vec<Place> {
        let operands = self.program.graph.node(id).operands();
        operands.iter().map(|&o| self.place(o).clone()).collect()
    }

    fn node(&mut self, id: ValueId) -> Result<Place, ExecError> {
        let graph = self.program.graph;
        let node = graph.node(id);
        let shape = self.bound.shape(id);
        if node.epilogue.is_some() && !node.op.takes_epilogue() {
            return Err(self.malformed(id, "this operation takes no epilogue"));
        }
        let stored = |source| Place {
            source,
            layout: Layout::packed(shape),
        };
        match &node.op {
            Op::Input => {
                let n = graph.inputs().iter().position(|&i| i == id);
                Ok(stored(Source::Input(n.expect("inputs are listed"))))
            }
            Op::Constant(_) => {
                let n = self.program.weights[id.index()];
                Ok(stored(Source::Weight(n.expect("constants are loaded"))))
            }
            op if op.is_view() => self.view(id),
            _ => {
                let mut operands = self.operands(id);
                let kernel = self.kernel(id)?;
                if matches!(kernel, Kernel::Conv(..) | Kernel::LinearAttention(_)) {
                    operands = operands.into_iter().map(|o| self.packed(id, o)).collect();
                }
                let epilogue = node.epilogue.as_ref();
                let epilogue = epilogue
                    .map(|e| self.tape(id, e, shape, true))
                    .transpose()?;
                Ok(self.step(id, kernel, epilogue, operands, shape))
            }
        }
    }

    /// What computes a node that is neither stored nor a view.
    fn kernel(&self, id: ValueId) -> Result<Kernel, ExecError> {
        let node = self.program.graph.node(id);
        Ok(match &node.op {
            Op::Concat { axis } => Kernel::Concat(*axis),
            Op::Reduce { op, axes, .. } => {
                let dtype = self.program.graph.ty(node.operands()[0]).dtype;
                Kernel::Reduce(dtype, *op, axes.clone())
            }
            Op::CumSum {
                axis,
                exclusive,
                reverse,
            } => Kernel::CumSum(node.ty.dtype, *axis, [*exclusive, *reverse]),
            Op::Softmax { axis } => Kernel::Softmax(*axis),
            Op::LayerNorm { axis, eps } => Kernel::LayerNorm(*axis, *eps),
            Op::RmsNorm { axis, eps } => Kernel::RmsNorm(*axis, *eps),
            Op::MatMul => Kernel::MatMul(None),
            Op::Conv(conv) => Kernel::Conv(conv.clone(), self.bound.shape(id).to_vec()),
            Op::Attention(attention) => Kernel::Attention(Box::new(self.attention(id, attention)?)),
            Op::LinearAttention(linear) => Kernel::LinearAttention(linear.clone()),
            _ => Kernel::Fill(Box::new(self.form(id)?)),
        })
    }

    fn malformed(&self, id: ValueId, message: &str) -> ExecError {
        ExecError::Malformed {
            at: place(self.program.graph, id),
            message: message.to_owned(),
        }
    }

    fn step(
        &mut self,
        id: ValueId,
        kernel: Kernel,
        epilogue: Option<Tape>,
        operands: Vec<Place>,
        shape: &[usize],
    ) -> Place {
        let layout = Layout::packed(shape);
        let (out, len) = (self.buffers.len(), layout.elements());
        self.buffers.push(len);
        self.steps.push(Step {
            id,
            kernel,
            epilogue,
            operands,
            out,
            len,
        });
        Place {
            source: Source::Slot(out),
            layout,
        }
    }

    /// The value packed at the start of a buffer.
    fn packed(&mut self, id: ValueId, place: Place) -> Place {
        if place.layout.is_packed() && place.layout.offset == 0 {
            return place;
        }
        let shape = place.layout.shape.clone();
        self.step(id, Kernel::Pack, None, vec![place], &shape)
    }

    fn view(&mut self, id: ValueId) -> Result<Place, ExecError> {
        let graph = self.program.graph;
        let node = graph.node(id);
        let shape = self.bound.shape(id);
        let x = self.place(node.operands()[0]).clone();
        let error = |error: LengthError| ExecError::Length {
            at: place(graph, id),
            error,
        };
        let layout = match &node.op {
            Op::Transpose(perm) => x.layout.transpose(perm),
            Op::Broadcast(_) => x.layout.broadcast(shape),
            Op::Slice {
                axis, start, step, ..
            } => {
                let start = self.bound.value(graph, id, start)?;
                let len = shape[*axis];
                x.layout.slice(*axis, start, *step, len).map_err(error)?
            }
            _ => {
                if x.layout.elements() != shape.iter().product::<usize>() {
                    return Err(error(LengthError::Mismatch {
                        from: x.layout.shape.to_vec(),
                        to: shape.to_vec(),
                    }));
                }
                match x.layout.reshape(shape) {
                    Some(layout) => layout,
                    None => {
                        let packed = self.packed(id, x);
                        return Ok(Place {
                            source: packed.source,
                            layout: Layout::packed(shape),
                        });
                    }
                }
            }
        };
        Ok(Place {
            source: x.source,
            layout,
        })
    }

    fn attention(
        &self,
        id: ValueId,
        attention: &attnc_ir::Attention,
    ) -> Result<Attention, ExecError> {
        let operands = self.program.graph.node(id).operands();
        let mut extents = self.bound.shape(operands[0]).to_vec();
        extents[3] = self.bound.shape(operands[1])[2];
        let tape = |expr: &Option<ScalarExpr>, axes: usize| {
            expr.as_ref()
                .map(|e| self.tape(id, e, &extents[..axes], false))
                .transpose()
        };
        #[expect(clippy::cast_possible_truncation, reason = "scores are f32")]
        let scale = attention.scale as f32;
        Ok(Attention {
            scale,
            score_mod: tape(&attention.score_mod, 4)?,
            mask_mod: tape(&attention.mask_mod, 4)?,
            sink: tape(&attention.sink, 3)?,
            prob_mod: tape(&attention.prob_mod, 4)?,
            weighs_before_sum: attention.weighs_before_sum(),
            skips_absent: attention.skips_absent_keys(),
            blocks: self.blocks(id, attention, &extents)?,
            pool: Pool::default(),
            packed_keys: PackedKeys::default(),
        })
    }

    /// Which blocks of an attention with axes of these sizes can be told to be skipped.
    fn blocks(
        &self,
        id: ValueId,
        attention: &attnc_ir::Attention,
        sizes: &[usize],
    ) -> Result<Option<Blocks>, ExecError> {
        let extents = Extents::new(sizes.iter().map(|&n| Dim::from(n)).collect());
        let worth = |mask: &ScalarExpr| BlockMask::of(mask, &extents).skips();
        let Some(counted) = counted(attention, &extents, &worth) else {
            return Ok(None);
        };
        let tiles = counted.tiles(attention, &extents);
        let [b, h, m, n] = [0, 1, 2, 3].map(|axis| sizes[axis]);
        let tape = |expr| self.tape(id, expr, &[b, h, m, m, n, n], false);
        Ok(Some(Blocks {
            some: tape(&tiles.some)?,
            all: tape(&tiles.all)?,
            settled_above: counted.settled_above,
        }))
    }

    fn form(&self, id: ValueId) -> Result<Tape, ExecError> {
        let form = self.program.forms[id.index()].as_ref();
        let form = form.ok_or_else(|| self.malformed(id, "this node has no scalar form"))?;
        self.tape(id, form, self.bound.shape(id), true)
    }

    fn tape(
        &self,
        id: ValueId,
        expr: &ScalarExpr,
        extents: &[usize],
        merge: bool,
    ) -> Result<Tape, ExecError> {
        let operands = self.program.graph.node(id).operands();
        let layouts: Vec<&Layout> = operands.iter().map(|&o| &self.place(o).layout).collect();
        let tape = Tape::new(expr, &self.bound.dims, extents, &layouts, merge);
        tape.map_err(|error: DimError| ExecError::Length {
            at: place(self.program.graph, id),
            error: error.into(),
        })
    }
}
