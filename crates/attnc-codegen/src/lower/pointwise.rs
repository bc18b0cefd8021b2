//! `pointwise`: any scalar expression, one element an invocation.

use super::kernel::Dispatch;
use super::{Lowerer, div_ceil, label};
use crate::mods::{Function, IndexSpace, Mods, Returns, wgsl_type};
use crate::params;
use attnc_ir::scalar::{Scalar, ScalarBuilder, ScalarExpr};
use attnc_ir::{DType, Diagnostic, Dim, Extents, ValueId};
use attnc_plan::{BufferId, Uniform};

/// What a pointwise kernel writes.
struct Target {
    dtype: DType,
    shape: Vec<Dim>,
    /// Axes in memory order, outermost first.
    order: Vec<usize>,
    buffer: BufferId,
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

    /// An epilogue as a step of its own: reads the buffer that `value` has now, writes `result`.
    pub(super) fn epilogue_step(
        &mut self,
        value: ValueId,
        epilogue: &ScalarExpr,
        result: BufferId,
    ) -> Result<(), Diagnostic> {
        let node = self.graph.node(value);
        let mut operands = node.operands().to_vec();
        let mut e = ScalarBuilder::new(Extents::new(node.ty.shape.clone()));
        let index = e.indices();
        let arg = e.load(operands.len(), node.ty.dtype, index.clone());
        operands.push(value);
        let root = e.inline(
            epilogue,
            &index,
            Some(arg),
            &mut |e, operand, dtype, index| e.load(operand, dtype, index),
        );
        let target = Target {
            dtype: node.ty.dtype,
            shape: node.ty.shape.clone(),
            order: self.order(value),
            buffer: result,
        };
        self.map(value, &e.finish(root), &operands, target, Some("epilogue"))
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
        let count: Dim = target.shape.iter().cloned().product();
        let mut space = IndexSpace {
            logical: target.shape,
            ..IndexSpace::default()
        };
        space.cover("i", &target.order);
        let mut mods = Mods::new(self.graph, "pointwise", |_, dtype, _| match dtype {
            DType::Bool => "mask",
            DType::I32 | DType::U32 => "ids",
            _ => "x",
        });
        mods.function(&Function {
            name: "element",
            arg: None,
            space: &space,
            result: Returns::Stored(target.dtype),
            expr,
            operands,
        })?;
        let elem = wgsl_type(target.dtype);
        self.dispatch(
            value,
            Dispatch {
                kernel: "pointwise",
                key: format!("pointwise.{}.{}", target.dtype, label::map(expr)),
                params: params::print(&[("out_elem", elem)], self.workgroup_size),
                micro: None,
                combine: None,
                op,
                mod_files: Vec::new(),
                mods: mods.finish(),
                tile: String::new(),
                uniforms: vec![Uniform::U32(count.clone()), Uniform::U32(Dim::zero())],
                operands: vec![target.buffer],
                workgroups: div_ceil(&count, self.workgroup_size),
                flops: count * Dim::from(operations(expr)),
            },
        )
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
