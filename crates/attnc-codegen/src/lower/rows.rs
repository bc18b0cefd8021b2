//! The row kernels: softmax, norms, reductions, running sums.
//!
//! Row `row` counts the axes that stay, `i` the axes that are reduced or normalised over; both row-major. Where
//! lanes share a row ([`super::row_shape`]), `i` counts its packs: elements, or vectors of four where all that is
//! read along the row lies so. How they differ is in [`super::row_family`].

use super::kernel::Dispatch;
use super::pointwise::operations;
use super::row_family::{Family, family, turns};
use super::row_shape::{self, Lanes};
use super::{Lowerer, div_ceil, label};
use crate::Stored;
use crate::mods::{Function, IndexSpace, Mods, Printed, Returns, wgsl_type};
use crate::params;
use crate::stored::multiple_of;
use attnc_ir::scalar::{ExprId, ScalarBuilder, ScalarExpr};
use attnc_ir::{BinaryOp, DType, Diagnostic, Dim, Extents, Op, ValueId, layout};

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
            counters: None,
            images: Vec::new(),
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
