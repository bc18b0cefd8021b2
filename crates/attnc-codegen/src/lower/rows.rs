//! The row kernels: softmax, norms, reductions, running sums.
//!
//! Row `row` counts the axes that stay, `i` the axes that are reduced or normalised over; both row-major. Where
//! lanes share a row ([`super::row_shape`]), `i` counts its packs: elements, or vectors of four where all that is
//! read along the row lies so.

use super::kernel::Dispatch;
use super::pointwise::operations;
use super::row_shape::{self, Lanes};
use super::turns::looped;
use super::{Lowerer, div_ceil, label};
use crate::Stored;
use crate::mods::{Function, IndexSpace, Mods, NameTensor, Printed, Returns, wgsl_type};
use crate::params;
use crate::stored::multiple_of;
use attnc_ir::scalar::{ExprId, ScalarBuilder, ScalarExpr};
use attnc_ir::{BinaryOp, DType, Diagnostic, Dim, Extents, Op, ReduceOp, ValueId, layout};
use attnc_plan::Uniform;

/// What differs between the row kernels.
struct Family {
    /// The file in which an invocation owns a row.
    kernel: &'static str,
    /// The file in which lanes share one.
    shared: Option<&'static str>,
    combine: Option<&'static str>,
    /// The axes that a row runs along.
    axes: Vec<usize>,
    /// The type that rows are read as.
    acc: DType,
    /// Uniform words after those that all have.
    extra: Vec<Uniform>,
    /// Names of captured tensors.
    names: NameTensor,
    /// Operations an element.
    cost: usize,
}

fn rms_norm_names(operand: usize, dtype: DType, index: &[Dim]) -> &'static str {
    match operand {
        1 => "gain",
        _ => row_names(operand, dtype, index),
    }
}

fn layer_norm_names(operand: usize, dtype: DType, index: &[Dim]) -> &'static str {
    match operand {
        1 => "gain",
        2 => "bias",
        _ => row_names(operand, dtype, index),
    }
}

fn row_names(operand: usize, dtype: DType, _index: &[Dim]) -> &'static str {
    match (operand, dtype) {
        (0, _) => "x",
        (_, DType::Bool) => "mask",
        _ => "t",
    }
}

impl Lowerer<'_> {
    /// A softmax, norm, reduction or running sum.
    pub(super) fn rows(&mut self, value: ValueId) -> Result<(), Diagnostic> {
        let graph = self.graph;
        let node = graph.node(value);
        if node.storage.is_some() {
            return Err(Diagnostic::error(
                "unsupported-storage",
                format!("`{}` writes its axes in their order only", node.op.name()),
            ));
        }
        let x = graph.ty(node.operands()[0]);
        let family = family(&node.op, x.rank(), x.dtype)?;
        if self.stored(value).is_packed() && !family.owns_words(&x.shape) {
            return self.through_f32(value, None, |lowerer| lowerer.rows_step(value, &family));
        }
        self.rows_step(value, &family)
    }

    fn rows_step(&mut self, value: ValueId, family: &Family) -> Result<(), Diagnostic> {
        let node = self.graph.node(value);
        let x = self.graph.ty(node.operands()[0]);
        let result = self.buffer(value)?;
        let stored = self.stored_in(result);
        let epilogue = epilogue(self.graph, value, family)?;
        let (rows, len) = (family.rows(&x.shape), family.len(&x.shape));
        let form = self.form(value, family, &epilogue.expr, stored)?;
        let combine = family.combine.map(|c| c.trim_start_matches("mods/reduce_"));
        let types = label::types(x.dtype, self.plan.buffer(result).dtype);
        let types = if form.vectors {
            format!("{types}x4")
        } else {
            types
        };
        let cost = Dim::from(family.cost + operations(&epilogue.expr));
        let (workgroups, loads) = match &form.lanes {
            Some(lanes) => {
                let each = if form.vectors { 4 } else { 1 };
                (rows.clone(), div_ceil(&len, each * lanes.count))
            }
            None => (div_ceil(&rows, self.workgroup_size), len.clone()),
        };
        let label = [
            Some(form.kernel),
            Some(types.as_str()),
            combine,
            epilogue.label.as_deref(),
        ];
        let by_vectors = form.vectors && !family.reduces();
        let dispatch = Dispatch {
            kernel: form.kernel,
            key: label.into_iter().flatten().collect::<Vec<_>>().join("."),
            params: self.row_params(node.ty.dtype, family, &form, stored),
            micro: None,
            combine: family.combine,
            store: Some(if by_vectors {
                stored.store_vectors_file()
            } else {
                stored.store_file()
            }),
            op: None,
            mod_files: form.files(family),
            mods: form.mods,
            tile: form.lanes.as_ref().map(Lanes::describe).unwrap_or_default(),
            uniforms: match &form.lanes {
                Some(_) => family.shared_uniforms(&x.shape, form.vectors),
                None => family.uniforms(&x.shape),
            },
            operands: vec![result],
            workgroups,
            turns: turns(form.kernel, &loads),
            flops: rows * len * cost,
        };
        self.dispatch(value, dispatch)
    }

    /// The shape of the kernel and its `mods`: lanes that take vectors, lanes that take elements, an invocation.
    fn form(
        &self,
        value: ValueId,
        family: &Family,
        epilogue: &ScalarExpr,
        stored: Stored,
    ) -> Result<Form, Diagnostic> {
        let x = self.graph.ty(self.graph.node(value).operands()[0]);
        let profile = &self.plan.profile;
        let len = family.len(&x.shape);
        let shared = family.shared.filter(|_| family.is_trailing(x.rank()));
        if let Some(kernel) = shared {
            let last = x.shape.last().filter(|last| multiple_of(last, 4));
            let packs = last.and_then(|_| len.exact_div(&Dim::from(4)));
            if let Some(lanes) = packs.and_then(|packs| row_shape::lanes(profile, &packs, 1))
                && let Ok(mods) = self.row_mods(value, family, kernel, epilogue, true)
            {
                return Ok(Form {
                    kernel,
                    lanes: Some(lanes),
                    vectors: true,
                    mods,
                });
            }
            // Lanes that write elements would write two halves of one word.
            let own_words = !stored.is_packed();
            if let (Some(lanes), true) = (row_shape::lanes(profile, &len, 2), own_words) {
                return Ok(Form {
                    kernel,
                    lanes: Some(lanes),
                    vectors: false,
                    mods: self.row_mods(value, family, kernel, epilogue, false)?,
                });
            }
        }
        Ok(Form {
            kernel: family.kernel,
            lanes: None,
            vectors: false,
            mods: self.row_mods(value, family, family.kernel, epilogue, false)?,
        })
    }

    fn row_params(&self, dtype: DType, family: &Family, form: &Form, stored: Stored) -> String {
        let by_vectors = form.vectors && !family.reduces();
        let (elem, item) = if by_vectors {
            ("vec4<f32>", stored.vec4())
        } else {
            (wgsl_type(dtype), stored.item())
        };
        let acc = wgsl_type(family.acc);
        let mut aliases = vec![("out_elem", elem)];
        if matches!(family.kernel, "reduce_rows" | "scan_rows") {
            aliases.push(("acc_elem", acc));
        }
        if !stored.is_packed() {
            aliases.push(("out_item", item));
        }
        let Some(lanes) = &form.lanes else {
            return params::print(&aliases, self.workgroup_size);
        };
        aliases.push(("lane_elem", acc));
        params::print(&aliases, lanes.count) + &lanes.params()
    }

    /// `load_element` and `epilogue`.
    fn row_mods(
        &self,
        value: ValueId,
        family: &Family,
        kernel: &'static str,
        epilogue: &ScalarExpr,
        vectors: bool,
    ) -> Result<Printed, Diagnostic> {
        let node = self.graph.node(value);
        let x = self.graph.ty(node.operands()[0]);
        let mut space = IndexSpace {
            logical: x.shape.clone(),
            ..IndexSpace::default()
        };
        space.cover("row", &family.kept(x.rank()));
        if vectors {
            space.cover_vectors("i", &family.axes);
        } else {
            space.cover("i", &family.axes);
        }
        let stored = |value| self.stored(value);
        let mut mods = Mods::new(self.graph, &stored, kernel, family.names);
        let (base, _) = layout::source_index(self.graph, node.operands()[0]);
        if self.in_place.get(&base) == Some(&value) {
            mods.over(base, vectors);
        }
        mods.function(&Function {
            name: "load_element",
            arg: None,
            space: &space,
            result: Returns::Value(family.acc),
            expr: &load_expression(&x.shape, x.dtype, family.acc),
            operands: node.operands(),
        })?;
        if family.reduces() {
            space = reduced_space(&node.ty.shape);
        }
        let argument = if space.vectors {
            "vec4<f32>"
        } else {
            wgsl_type(family.acc)
        };
        mods.function(&Function {
            name: "epilogue",
            arg: Some(("value", argument)),
            space: &space,
            result: Returns::Value(node.ty.dtype),
            expr: epilogue,
            operands: node.operands(),
        })?;
        Ok(mods.finish())
    }
}

/// How a kernel is made for one value.
struct Form {
    kernel: &'static str,
    /// Who shares a row, if not one invocation owns it.
    lanes: Option<Lanes>,
    /// Whether rows are read by vectors, and written so if they are written.
    vectors: bool,
    mods: Printed,
}

impl Form {
    /// Files of the slots `lanes` and `pack`.
    fn files(&self, family: &Family) -> Vec<&'static str> {
        let pack = match (self.vectors, family.reduces()) {
            (false, false) => "pack/one",
            (true, false) => "pack/four",
            (false, true) => "pack/one_combined",
            (true, true) => "pack/four_combined",
        };
        let files = |lanes: &Lanes| vec![lanes.file, pack];
        self.lanes.as_ref().map(files).unwrap_or_default()
    }
}

impl Family {
    /// Whether a row is one run of memory.
    fn is_trailing(&self, rank: usize) -> bool {
        !self.axes.is_empty() && self.axes.iter().copied().eq(rank - self.axes.len()..rank)
    }

    /// The words of `Shape` where lanes share a row.
    fn shared_uniforms(&self, shape: &[Dim], vectors: bool) -> Vec<Uniform> {
        let (rows, mut len) = (self.rows(shape), self.len(shape));
        if vectors {
            len = len.exact_div(&Dim::from(4)).expect("whole vectors");
        }
        let words = [rows, len, Dim::zero()].map(Uniform::U32);
        words
            .into_iter()
            .chain(self.extra.iter().cloned())
            .collect()
    }

    fn reduces(&self) -> bool {
        self.combine.is_some()
    }

    /// Whether a row is whole words of two elements, one after the other.
    fn owns_words(&self, shape: &[Dim]) -> bool {
        let last = self.axes.last().is_some_and(|n| n + 1 == shape.len());
        !self.reduces() && last && multiple_of(&self.len(shape), 2)
    }

    /// The axes that rows are counted over.
    fn kept(&self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|n| !self.axes.contains(n)).collect()
    }

    fn rows(&self, shape: &[Dim]) -> Dim {
        let kept = self.kept(shape.len()).into_iter();
        kept.map(|n| shape[n].clone()).product()
    }

    fn len(&self, shape: &[Dim]) -> Dim {
        self.axes.iter().map(|&n| shape[n].clone()).product()
    }

    /// The words of `Shape`, in order; results are contiguous.
    fn uniforms(&self, shape: &[Dim]) -> Vec<Uniform> {
        let (rows, len) = (self.rows(shape), self.len(shape));
        let mut words = vec![rows, len.clone()];
        if self.reduces() {
            words.push(Dim::zero());
        } else {
            let behind = self.axes.last().map_or(shape.len(), |n| n + 1);
            let inner: Dim = shape[behind..].iter().cloned().product();
            let strides = [len * inner.clone(), Dim::one(), inner.clone()];
            words.extend([inner, Dim::zero()].into_iter().chain(strides));
        }
        let words = words.into_iter().map(Uniform::U32);
        words.chain(self.extra.iter().cloned()).collect()
    }
}

fn family(op: &Op, rank: usize, dtype: DType) -> Result<Family, Diagnostic> {
    let trailing = |axis: usize| (axis..rank).collect();
    let dtype = if dtype.is_float() { DType::F32 } else { dtype };
    let (kernel, combine, axes, acc, extra, cost) = match op {
        Op::Softmax { axis } => ("softmax_rows", None, vec![*axis], DType::F32, vec![], 5),
        Op::LayerNorm { axis, eps } => (
            "layer_norm_rows",
            None,
            trailing(*axis),
            DType::F32,
            vec![epsilon(*eps)],
            6,
        ),
        Op::RmsNorm { axis, eps } => (
            "rms_norm_rows",
            None,
            trailing(*axis),
            DType::F32,
            vec![epsilon(*eps)],
            4,
        ),
        Op::CumSum {
            axis,
            exclusive,
            reverse,
        } => {
            let flags = [*exclusive, *reverse].map(|f| Uniform::U32(Dim::from(usize::from(f))));
            ("scan_rows", None, vec![*axis], dtype, flags.to_vec(), 1)
        }
        Op::Reduce { op, axes, .. } => {
            let (file, acc) = match op {
                ReduceOp::Sum => ("mods/reduce_sum", dtype),
                ReduceOp::Mean => ("mods/reduce_mean", dtype),
                ReduceOp::Min => ("mods/reduce_min", dtype),
                ReduceOp::Max => ("mods/reduce_max", dtype),
                ReduceOp::Prod => ("mods/reduce_prod", dtype),
                ReduceOp::Any => ("mods/reduce_max", DType::Bool),
                ReduceOp::All => ("mods/reduce_min", DType::Bool),
            };
            let extra = vec![Uniform::U32(Dim::from(bits_of_none(*op, acc)))];
            ("reduce_rows", Some(file), axes.clone(), acc, extra, 1)
        }
        _ => unreachable!("rows() is asked for row ops only"),
    };
    Ok(Family {
        kernel,
        shared: match kernel {
            "softmax_rows" => Some("softmax_lanes"),
            "layer_norm_rows" => Some("layer_norm_lanes"),
            "rms_norm_rows" => Some("rms_norm_lanes"),
            "reduce_rows" => Some("reduce_lanes"),
            _ => None,
        },
        combine,
        axes,
        acc,
        extra,
        names: match op {
            Op::LayerNorm { .. } => layer_norm_names,
            Op::RmsNorm { .. } => rms_norm_names,
            _ => row_names,
        },
        cost,
    })
}

/// Turns of the walks over a row of so many loads.
fn turns(kernel: &str, loads: &Dim) -> Dim {
    let (walks, a_turn) = match kernel {
        "softmax_rows" | "softmax_lanes" | "layer_norm_rows" => (3, 1),
        "layer_norm_lanes" | "rms_norm_rows" | "rms_norm_lanes" => (2, 1),
        "scan_rows" => (1, 4),
        _ => (1, 1),
    };
    looped(&div_ceil(loads, a_turn), 0) * Dim::from(walks)
}

/// What no elements reduce to, as the bits of the type that is reduced in; a mean divides it by 0.
fn bits_of_none(op: ReduceOp, acc: DType) -> usize {
    let bits = match (op, acc) {
        (ReduceOp::Prod, DType::F32) => 1.0_f32.to_bits(),
        (ReduceOp::Max, DType::F32) => f32::NEG_INFINITY.to_bits(),
        (ReduceOp::Min, DType::F32) => f32::INFINITY.to_bits(),
        (ReduceOp::Max, DType::I32) => i32::MIN.cast_unsigned(),
        (ReduceOp::Min, DType::I32) => i32::MAX.cast_unsigned(),
        (ReduceOp::Min, DType::U32) => u32::MAX,
        (ReduceOp::Prod | ReduceOp::All, _) | (ReduceOp::Min, DType::Bool) => 1,
        _ => 0,
    };
    bits as usize
}

#[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
fn epsilon(eps: f64) -> Uniform {
    Uniform::F32(eps as f32)
}

/// The element itself, as the kernel wants it.
fn load_expression(shape: &[Dim], dtype: DType, acc: DType) -> ScalarExpr {
    let mut e = ScalarBuilder::new(Extents::new(shape.to_vec()));
    let index = e.indices();
    let x = e.load(0, dtype, index);
    let x = e.cast(acc, x);
    e.finish(x)
}

/// Row `row` of a reduction is an element of its result; `i` is always 0.
fn reduced_space(shape: &[Dim]) -> IndexSpace {
    let mut space = IndexSpace {
        logical: shape.to_vec(),
        ..IndexSpace::default()
    };
    space.cover("row", &(0..shape.len()).collect::<Vec<_>>());
    space.cover("i", &[]);
    space
}

struct Epilogue {
    expr: ScalarExpr,
    label: Option<String>,
}

/// Gain and bias of a norm, then the node's own epilogue.
fn epilogue(
    graph: &attnc_ir::Graph,
    value: ValueId,
    family: &Family,
) -> Result<Epilogue, Diagnostic> {
    let node = graph.node(value);
    let mut e = ScalarBuilder::new(Extents::new(node.ty.shape.clone()));
    let mut x = if family.acc.is_float() {
        e.arg()
    } else if node.epilogue.is_none() {
        // The argument of an expression is f32; without an epilogue other types are handed through.
        let x = e.arg();
        return Ok(Epilogue {
            expr: e.finish(x),
            label: None,
        });
    } else {
        return Err(Diagnostic::error(
            "unsupported-epilogue",
            format!(
                "an epilogue of `{}` needs f32 elements, found {}",
                node.op.name(),
                family.acc
            ),
        ));
    };
    if matches!(node.op, Op::LayerNorm { .. } | Op::RmsNorm { .. }) {
        let gain = broadcast_load(&mut e, graph, value, 1);
        x = e.binary(BinaryOp::Mul, x, gain);
        if matches!(node.op, Op::LayerNorm { .. }) {
            let bias = broadcast_load(&mut e, graph, value, 2);
            x = e.binary(BinaryOp::Add, x, bias);
        }
    }
    let mut name = None;
    if let Some(own) = &node.epilogue {
        let indices = e.indices();
        x = e.inline(own, &indices, Some(x), &mut |e, operand, dtype, index| {
            e.load(operand, dtype, index)
        });
        name = Some(label::epilogue(own, node.ty.rank()));
    }
    Ok(Epilogue {
        expr: e.finish(x),
        label: name,
    })
}

/// Operand `operand` at the result's index, its axes aligned at the last.
fn broadcast_load(
    e: &mut ScalarBuilder,
    graph: &attnc_ir::Graph,
    value: ValueId,
    operand: usize,
) -> ExprId {
    let ty = graph.ty(graph.node(value).operands()[operand]);
    let skip = graph.ty(value).rank() - ty.rank();
    let index = ty
        .shape
        .iter()
        .enumerate()
        .map(|(n, size)| {
            if size.is(1) {
                e.int(0)
            } else {
                e.index(u32::try_from(n + skip).expect("few axes"))
            }
        })
        .collect();
    e.load(operand, ty.dtype, index)
}
