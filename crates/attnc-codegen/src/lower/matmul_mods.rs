//! What the kernels of matrix products call: `epilogue`, and what reads operands by elements.
//!
//! On entry: a product as `Problem` sees it. On exit: the `mods` module of its kernel.

use super::matmul::Problem;
use crate::Stored;
use crate::micro::Access;
use crate::mods::{Function, IndexSpace, Mods, Printed, Returns};
use attnc_ir::scalar::ScalarBuilder;
use attnc_ir::{DType, Diagnostic, Dim, Extents, Graph, ValueId};

impl Problem {
    /// `epilogue`, of an element or of four that lie along n, and what reads operands by elements.
    pub(super) fn mods(
        &self,
        graph: &Graph,
        value: ValueId,
        stored: &dyn Fn(ValueId) -> Stored,
        kernel: &'static str,
        of: Access,
    ) -> Result<Printed, Diagnostic> {
        let node = graph.node(value);
        let mut mods = Mods::new(graph, stored, kernel, names);
        self.element_functions(graph, value, &mut mods)?;
        let space = self.space(node.ty.rank(), &node.ty.shape, of);
        let as_it_is = || {
            let mut e = ScalarBuilder::new(Extents::new(node.ty.shape.clone()));
            let root = e.arg();
            e.finish(root)
        };
        mods.function(&Function {
            name: "epilogue",
            arg: Some(("acc", of.of_f32())),
            space: &space,
            result: Returns::Value(DType::F32),
            expr: &node.epilogue.clone().unwrap_or_else(as_it_is),
            operands: node.operands(),
        })?;
        Ok(mods.finish())
    }

    /// The result's index in terms of `b0, b1, m, n`, the last of which may count vectors.
    fn space(&self, rank: usize, shape: &[Dim], of: Access) -> IndexSpace {
        let mut space = IndexSpace {
            logical: shape.to_vec(),
            ..IndexSpace::default()
        };
        space.cover("b0", &self.b0.axes);
        space.cover("b1", &self.b1.axes);
        space.cover("m", &self.m.axes);
        match of {
            Access::Scalar => space.cover("n", &[rank - 1]),
            Access::Vec4 => space.cover_vectors("n", &[rank - 1]),
        }
        space
    }

    /// `a_element`, `b_element` for operands that are no strided windows.
    fn element_functions(
        &self,
        graph: &Graph,
        value: ValueId,
        mods: &mut Mods<'_>,
    ) -> Result<(), Diagnostic> {
        let node = graph.node(value);
        let rank = node.ty.rank();
        for (operand, name, missing) in [
            (0, "a_element", self.a_k.is_none()),
            (1, "b_element", self.b_k.is_none()),
        ] {
            if !missing {
                continue;
            }
            let ty = graph.ty(node.operands()[operand]);
            let mut space = self.operand_space(rank, &node.ty.shape, operand);
            let skip = rank - ty.rank();
            space.logical.drain(..skip);
            space.index.drain(..skip);
            for (n, size) in ty.shape.iter().enumerate() {
                if size.is(1) {
                    space.logical[n] = Dim::one();
                    space.index[n] = Dim::zero();
                }
            }
            let mut e = ScalarBuilder::new(Extents::new(ty.shape.clone()));
            let index = e.indices();
            let root = e.load(operand, ty.dtype, index);
            mods.function(&Function {
                name,
                arg: None,
                space: &space,
                result: Returns::Value(DType::F32),
                expr: &e.finish(root),
                operands: node.operands(),
            })?;
        }
        Ok(())
    }

    /// The operand's index, were it broadcast: `(b0, b1, m, k)` of A, `(b0, b1, k, n)` of B.
    fn operand_space(&self, rank: usize, shape: &[Dim], operand: usize) -> IndexSpace {
        let mut logical = shape.to_vec();
        logical[rank - 1 - operand] = self.k.clone();
        let mut space = IndexSpace {
            logical,
            ..IndexSpace::default()
        };
        space.cover("b0", &self.b0.axes);
        space.cover("b1", &self.b1.axes);
        if operand == 0 {
            space.cover("m", &self.m.axes);
            space.cover("k", &[rank - 1]);
        } else {
            space.cover("k", &[rank - 2]);
            space.cover("n", &[rank - 1]);
        }
        space
    }
}

/// What captured tensors are for.
fn names(operand: usize, dtype: DType, index: &[Dim]) -> &'static str {
    let variables = index.iter().filter(|d| !d.indices().is_empty()).count();
    match (operand, dtype, variables) {
        (0, ..) => "a_source",
        (1, ..) => "b_source",
        (_, DType::Bool, _) => "mask",
        (_, _, 0 | 1) => "bias",
        _ => "residual",
    }
}
