//! `pointwise`: any scalar expression, one item of memory an invocation.
//!
//! An item is four elements where the innermost axis in memory is a multiple of 4 long and the expression has a
//! form for four ([`crate::mods`]); else one, or two of a packed type.

use super::kernel::Dispatch;
use super::turns::loop_of;
use super::{Lowerer, div_ceil, label};
use crate::choice::is_cpu;
use crate::mods::{Function, IndexSpace, Mods, Printed, Returns, wgsl_type};
use crate::params;
use crate::stored::multiple_of;
use attnc_ir::scalar::{Scalar, ScalarBuilder, ScalarExpr};
use attnc_ir::{DType, Diagnostic, Dim, Extents, ValueId};
use attnc_plan::{BufferId, Uniform};

/// Items of an invocation where a workgroup is a CPU's vector unit: starting one costs lavapipe as much as some six
/// items (copying 1024 × 384 took 1.7 ms at 1, 0.86 at 4, 0.69 at 16, 0.65 at 32; few leave more to spread).
const ITEMS_ON_CPU: u32 = 16;

/// What a pointwise kernel writes.
struct Target {
    dtype: DType,
    shape: Vec<Dim>,
    /// Axes in memory order, outermost first.
    order: Vec<usize>,
    buffer: BufferId,
}

impl Target {
    /// Whether memory is whole vectors of floats.
    fn has_vectors(&self) -> bool {
        let innermost = self.order.last().map(|&axis| &self.shape[axis]);
        self.dtype.is_float() && innermost.is_some_and(|len| multiple_of(len, 4))
    }
}

fn names(_operand: usize, dtype: DType, _index: &[Dim]) -> &'static str {
    match dtype {
        DType::Bool => "mask",
        DType::I32 | DType::U32 => "ids",
        _ => "x",
    }
}

impl Lowerer<'_> {
    /// A value with a scalar form.
    pub(super) fn pointwise(
        &mut self,
        value: ValueId,
        expr: &ScalarExpr,
    ) -> Result<(), Diagnostic> {
        let node = self.graph.node(value);
        let target = Target {
            dtype: node.ty.dtype,
            shape: node.ty.shape.clone(),
            order: self.order(value),
            buffer: self.buffer(value)?,
        };
        let operands = node.operands().to_vec();
        self.map(value, expr, &operands, target, None)
    }

    /// Copies a value, through its views, to the front of a buffer.
    pub(super) fn copy(&mut self, value: ValueId, buffer: BufferId) -> Result<(), Diagnostic> {
        let ty = self.graph.ty(value).clone();
        let mut e = ScalarBuilder::new(Extents::new(ty.shape.clone()));
        let index = e.indices();
        let root = e.load(0, ty.dtype, index);
        let target = Target {
            dtype: ty.dtype,
            order: (0..ty.rank()).collect(),
            shape: ty.shape,
            buffer,
        };
        self.map(value, &e.finish(root), &[value], target, Some("copy"))
    }

    /// Lets `step` compute a value into an f32 buffer in the order of its axes in memory, and a step behind it
    /// store that as the value is stored, with an epilogue if there is one.
    ///
    /// For kernels without a seam for epilogues, and for those that would write a word of two elements in two
    /// invocations.
    pub(super) fn through_f32(
        &mut self,
        value: ValueId,
        epilogue: Option<&ScalarExpr>,
        step: impl FnOnce(&mut Self) -> Result<(), Diagnostic>,
    ) -> Result<(), Diagnostic> {
        let result = self.buffer(value)?;
        let between = self.temp(value, DType::F32);
        self.buffers.insert(value, between);
        let steps = step(self).and_then(|()| self.finish_step(value, epilogue, result));
        self.buffers.insert(value, result);
        steps
    }

    /// Reads the buffer that `value` has now, writes `result`.
    fn finish_step(
        &mut self,
        value: ValueId,
        epilogue: Option<&ScalarExpr>,
        result: BufferId,
    ) -> Result<(), Diagnostic> {
        let node = self.graph.node(value);
        let mut operands = node.operands().to_vec();
        let mut e = ScalarBuilder::new(Extents::new(node.ty.shape.clone()));
        let index = e.indices();
        let computed = e.load(operands.len(), node.ty.dtype, index.clone());
        operands.push(value);
        let root = match epilogue {
            None => computed,
            Some(epilogue) => e.inline(
                epilogue,
                &index,
                Some(computed),
                &mut |e, operand, dtype, index| e.load(operand, dtype, index),
            ),
        };
        let target = Target {
            dtype: node.ty.dtype,
            shape: node.ty.shape.clone(),
            order: self.order(value),
            buffer: result,
        };
        let op = if epilogue.is_some() {
            "epilogue"
        } else {
            "pack"
        };
        self.map(value, &e.finish(root), &operands, target, Some(op))
    }

    /// The axes of a value in memory order.
    fn order(&self, value: ValueId) -> Vec<usize> {
        let node = self.graph.node(value);
        let axes = || (0..node.ty.rank()).collect();
        node.storage.clone().unwrap_or_else(axes)
    }

    fn map(
        &mut self,
        value: ValueId,
        expr: &ScalarExpr,
        operands: &[ValueId],
        target: Target,
        op: Option<&'static str>,
    ) -> Result<(), Diagnostic> {
        let stored = self.stored_in(target.buffer);
        let count: Dim = target.shape.iter().cloned().product();
        let name = match op {
            Some("pack") => "pack".to_owned(),
            _ => label::map(expr),
        };
        let vectors = target.has_vectors().then(|| {
            let mods = self.vector_mods(expr, operands, &target).ok()?;
            let items = count.exact_div(&Dim::from(4))?;
            Some((mods, stored.vec4(), items, "x4"))
        });
        let (mods, item, items, width) = match vectors.flatten() {
            Some(vectors) => vectors,
            None => {
                let mods = self.map_mods(expr, operands, &target, &count)?;
                let items = if stored.is_packed() {
                    div_ceil(&count, 2)
                } else {
                    count.clone()
                };
                (mods, stored.item(), items, "")
            }
        };
        let each = if is_cpu(&self.plan.profile) {
            ITEMS_ON_CPU
        } else {
            1
        };
        self.dispatch(
            value,
            Dispatch {
                kernel: "pointwise",
                key: format!("pointwise.{}{width}.{name}", target.dtype),
                params: params::print(&[("out_item", item)], self.workgroup_size)
                    + &params::constants(&[("ITEMS_PER_INVOCATION", "u32", format!("{each}u"))]),
                micro: None,
                combine: None,
                store: None,
                op,
                mod_files: Vec::new(),
                mods,
                tile: String::new(),
                uniforms: vec![Uniform::U32(items.clone()), Uniform::U32(Dim::zero())],
                operands: vec![target.buffer],
                counters: None,
                images: Vec::new(),
                workgroups: div_ceil(&items, self.workgroup_size * each),
                flops: count * Dim::from(operations(expr)),
                turns: loop_of(each).taken,
            },
        )
    }

    /// `element`, four at once.
    fn vector_mods(
        &self,
        expr: &ScalarExpr,
        operands: &[ValueId],
        target: &Target,
    ) -> Result<Printed, Diagnostic> {
        let mut space = IndexSpace {
            logical: target.shape.clone(),
            ..IndexSpace::default()
        };
        space.cover_vectors("i", &target.order);
        let stored_of = |value| self.stored(value);
        let mut mods = Mods::new(self.graph, &stored_of, "pointwise", names);
        let stored = self.stored_in(target.buffer);
        let as_it_is = stored.vec4() == "vec4<f32>";
        mods.function(&Function {
            name: if as_it_is { "element" } else { "value" },
            arg: None,
            space: &space,
            result: Returns::Value(target.dtype),
            expr,
            operands,
        })?;
        if !as_it_is {
            mods.vector_items(stored);
        }
        Ok(mods.finish())
    }

    /// `element`: the expression itself, or what packs or converts it.
    fn map_mods(
        &self,
        expr: &ScalarExpr,
        operands: &[ValueId],
        target: &Target,
        count: &Dim,
    ) -> Result<Printed, Diagnostic> {
        let mut space = IndexSpace {
            logical: target.shape.clone(),
            ..IndexSpace::default()
        };
        space.cover("i", &target.order);
        let stored_of = |value| self.stored(value);
        let mut mods = Mods::new(self.graph, &stored_of, "pointwise", names);
        let stored = self.stored_in(target.buffer);
        let as_it_is = stored.item() == wgsl_type(target.dtype);
        mods.function(&Function {
            name: if as_it_is { "element" } else { "value" },
            arg: None,
            space: &space,
            result: Returns::Value(target.dtype),
            expr,
            operands,
        })?;
        if !as_it_is {
            mods.items(stored, count);
        }
        Ok(mods.finish())
    }
}

/// Arithmetic operations of an expression on floats.
pub(super) fn operations(expr: &ScalarExpr) -> usize {
    let arithmetic = |id: &attnc_ir::scalar::ExprId| {
        matches!(expr.node(*id), Scalar::Unary(..) | Scalar::Binary(..))
            && expr.dtype(*id).is_float()
    };
    expr.ids().filter(arithmetic).count()
}
