//! `linear_attention`: operands as functions of their index, so that views and broadcasts cost nothing.

use super::kernel::Dispatch;
use super::{Lowerer, div_ceil, label};
use crate::mods::{Function, IndexSpace, Mods, NameTensor, Printed, Returns};
use crate::params;
use attnc_ir::layout::storage_strides;
use attnc_ir::scalar::{ScalarBuilder, ScalarExpr};
use attnc_ir::{
    DType, Diagnostic, Dim, Extents, LinearAttention, LinearResult, Shape, UnaryOp, ValueId,
};
use attnc_plan::Uniform;

/// Rows of the state that an invocation holds: WGSL allows 8 KiB of variables, of which this is half.
const MAX_KEY_DIM: u32 = 1024;

impl Lowerer<'_> {
    /// One result of a linear attention. Neighbouring columns belong to two invocations, so that a result of
    /// two elements a word goes through f32.
    pub(super) fn linear_attention(
        &mut self,
        value: ValueId,
        linear: &LinearAttention,
    ) -> Result<(), Diagnostic> {
        if self.stored(value).is_packed() {
            return self.through_f32(value, None, |lowerer| lowerer.recurrence(value, linear));
        }
        self.recurrence(value, linear)
    }

    fn recurrence(&mut self, value: ValueId, linear: &LinearAttention) -> Result<(), Diagnostic> {
        let node = self.graph.node(value);
        let result = self.buffer(value)?;
        let stored = self.stored_in(result);
        let [q, k, v] = [0, 1, 2].map(|n| &self.graph.ty(node.operands()[n]).shape);
        let key_dim = key_dim(&k[3])?;
        let heads_per_kv = q[1].exact_div(&k[1]).ok_or_else(|| {
            let message = format!("{} query heads are no multiple of {} key heads", q[1], k[1]);
            Diagnostic::error("uneven-heads", message)
        })?;
        let columns = k[0].clone() * k[1].clone() * v[3].clone();
        let returns_state = linear.result == LinearResult::State;
        let mut words = vec![
            Uniform::U32(k[0].clone()),
            Uniform::U32(k[1].clone()),
            Uniform::U32(heads_per_kv.clone()),
            Uniform::U32(k[2].clone()),
            Uniform::U32(v[3].clone()),
            scale(linear.scale),
            Uniform::U32(Dim::zero()),
        ];
        let strides = storage_strides(&node.ty.shape, node.storage.as_deref());
        words.extend(strides.into_iter().map(Uniform::U32));
        let consts = [
            ("KEY_DIM", "u32", format!("{key_dim}u")),
            ("IS_DELTA", "bool", linear.rule.is_delta().to_string()),
            ("RETURNS_STATE", "bool", returns_state.to_string()),
        ];
        let aliases = [("out_elem", "f32"), ("out_item", stored.item())];
        let params = params::print(&aliases, self.workgroup_size);
        let operands = self.graph.ty(node.operands()[0]).dtype;
        let types = label::types(operands, self.plan.buffer(result).dtype);
        // Decay, the products with k (twice by the delta rule) and q.
        let cost =
            usize::from(linear.rule.is_gated()) + 2 + 2 * usize::from(linear.rule.is_delta());
        let reads = heads_per_kv * Dim::from(if returns_state { 0 } else { 2 });
        let flops = k[2].clone() * k[3].clone() * (Dim::from(cost) + reads) * columns.clone();
        let dispatch = Dispatch {
            kernel: "linear_attention",
            key: format!(
                "linear_attention.{types}.d{key_dim}.{}.{}",
                linear.rule.name(),
                linear.result.name()
            ),
            params: params + &params::constants(&consts),
            micro: None,
            combine: None,
            store: Some(stored.store_file()),
            op: None,
            mod_files: Vec::new(),
            mods: self.linear_mods(value, linear)?,
            tile: format!(
                "a column of the state in registers, {} B a lane; no workgroup memory",
                4 * key_dim
            ),
            uniforms: words,
            operands: vec![result],
            workgroups: div_ceil(&columns, self.workgroup_size),
            flops,
        };
        self.dispatch(value, dispatch)
    }

    /// The functions that give the elements of the operands; of those that are not there, 0 or 1.
    fn linear_mods(&self, value: ValueId, linear: &LinearAttention) -> Result<Printed, Diagnostic> {
        let graph = self.graph;
        let node = graph.node(value);
        let stored = |value| self.stored(value);
        let names: NameTensor = if linear.rule.is_gated() {
            |operand, _, _| ["q", "k", "v", "first_state", "decay", "beta"][operand]
        } else {
            |operand, _, _| ["q", "k", "v", "first_state", "beta"][operand]
        };
        let mut mods = Mods::new(self.graph, &stored, "linear_attention", names);
        let read = (linear.result == LinearResult::Output).then_some(0);
        let rule = linear.rule;
        let rows = ["b", "h", "t", "d"];
        let functions = [
            ("q_element", rows, read, 0.0),
            ("k_element", rows, Some(1), 0.0),
            ("v_element", ["b", "h", "t", "j"], Some(2), 0.0),
            ("state_element", ["b", "h", "d", "j"], Some(3), 0.0),
            ("decay_element", rows, rule.decay_operand(), 1.0),
            (
                "beta_element",
                ["b", "h", "t", ""],
                rule.beta_operand(),
                1.0,
            ),
        ];
        for (name, parameters, operand, absent) in functions {
            let shape = match operand {
                Some(n) => graph.ty(node.operands()[n]).shape.clone(),
                None => vec![Dim::one(); 4],
            };
            let mut space =
                IndexSpace::identity(parameters.into_iter().zip(shape.iter().cloned()).collect());
            space.parameters.retain(|(name, _)| !name.is_empty());
            let is_decay = name == "decay_element";
            let expr = match operand {
                Some(n) => element(n, graph.ty(node.operands()[n]).dtype, &shape, is_decay),
                None => literal(absent),
            };
            mods.function(&Function {
                name,
                arg: None,
                space: &space,
                result: Returns::Value(DType::F32),
                expr: &expr,
                operands: node.operands(),
            })?;
        }
        Ok(mods.finish())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
fn scale(scale: f64) -> Uniform {
    Uniform::F32(scale as f32)
}

fn key_dim(dim: &Dim) -> Result<u32, Diagnostic> {
    let known = dim.as_const().and_then(|n| u32::try_from(n).ok());
    known
        .filter(|n| (1..=MAX_KEY_DIM).contains(n))
        .ok_or_else(|| {
            let message = format!(
                "linear_attention needs a constant number of columns of Q and K from 1 to {MAX_KEY_DIM}, \
                 found {dim}"
            );
            Diagnostic::error("symbolic-head-dim", message)
        })
}

/// The element of an operand at an index; of the decay its exponential.
fn element(operand: usize, dtype: DType, shape: &Shape, is_decay: bool) -> ScalarExpr {
    let mut e = ScalarBuilder::new(Extents::new(shape.clone()));
    let axes = shape.iter().zip(0u32..);
    let index = axes.map(|(size, n)| if size.is(1) { e.int(0) } else { e.index(n) });
    let index = index.collect();
    let mut x = e.load(operand, dtype, index);
    if is_decay {
        x = e.unary(UnaryOp::Exp, x);
    }
    e.finish(x)
}

fn literal(value: f32) -> ScalarExpr {
    let mut e = ScalarBuilder::new(Extents::new(Vec::new()));
    let x = e.float(value);
    e.finish(x)
}
