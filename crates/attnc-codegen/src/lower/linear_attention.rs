//! `linear_attention`: operands as functions of their index, so that views and broadcasts cost nothing.

use super::kernel::Dispatch;
use super::turns::{Turns, loop_of};
use super::{Lowerer, div_ceil, label};
use crate::micro::lines;
use crate::mods::{Function, IndexSpace, Mods, NameTensor, Printed, Returns};
use crate::params;
use crate::stored::multiple_of;
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
        let shares_state = !returns_state && !heads_per_kv.is(1);
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
            ("SHARES_STATE", "bool", shares_state.to_string()),
        ];
        let aliases = [("out_elem", "f32"), ("out_item", stored.item())];
        let params = params::print(&aliases, self.workgroup_size);
        let operands = self.graph.ty(node.operands()[0]).dtype;
        let types = label::types(operands, self.plan.buffer(result).dtype);
        // Decay, the products with k (twice by the delta rule) and q.
        let cost =
            usize::from(linear.rule.is_gated()) + 2 + 2 * usize::from(linear.rule.is_delta());
        let reads = heads_per_kv.clone() * Dim::from(if returns_state { 0 } else { 2 });
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
            counters: None,
            images: Vec::new(),
            workgroups: div_ceil(&columns, self.workgroup_size),
            flops,
            turns: turns(key_dim, &k[2], linear, &heads_per_kv),
        };
        self.dispatch(value, dispatch)
    }

    /// The functions that give the elements of the operands; of those that are not there, 0 or 1. Rows are read by
    /// vectors where they lie so.
    fn linear_mods(&self, value: ValueId, linear: &LinearAttention) -> Result<Printed, Diagnostic> {
        self.linear_functions(value, linear, true)
            .or_else(|_| self.linear_functions(value, linear, false))
    }

    fn linear_functions(
        &self,
        value: ValueId,
        linear: &LinearAttention,
        vectors: bool,
    ) -> Result<Printed, Diagnostic> {
        let node = self.graph.node(value);
        let key_dim = self.graph.ty(node.operands()[1]).shape[3].clone();
        let stored = |value| self.stored(value);
        let names: NameTensor = if linear.rule.is_gated() {
            |operand, _, _| ["q", "k", "v", "first_state", "decay", "beta"][operand]
        } else {
            |operand, _, _| ["q", "k", "v", "first_state", "beta"][operand]
        };
        let mut mods = Mods::new(self.graph, &stored, "linear_attention", names);
        let read = (linear.result == LinearResult::Output).then_some(0);
        let rule = linear.rule;
        let rows = [("b", 0), ("h", 1), ("t", 2), ("d", 3)];
        let column = [("b", 0), ("h", 1), ("j", 3), ("d", 2)];
        let functions = [
            ("q", rows, read, 0.0),
            ("k", rows, Some(1), 0.0),
            ("state", column, Some(3), 0.0),
            ("decay", rows, rule.decay_operand(), 1.0),
        ];
        for (name, parameters, operand, absent) in functions {
            let (mut shape, expr) = self.operand(value, operand, name == "decay", absent);
            shape[parameters[3].1] = key_dim.clone(); // also where one stands for all
            let form = Fours::of(&key_dim, vectors)?;
            let space = form.space(shape, parameters);
            self.operand_function(&mut mods, value, &form.inner(name), &space, &expr)?;
            mods.text(&form.wrapper(name, parameters.map(|(name, _)| name), &key_dim));
        }
        let v = (
            "v_element",
            vec![("b", 0), ("h", 1), ("t", 2), ("j", 3)],
            Some(2),
        );
        let beta = (
            "beta_element",
            vec![("b", 0), ("h", 1), ("t", 2)],
            rule.beta_operand(),
        );
        for (name, parameters, operand) in [v, beta] {
            let (logical, expr) = self.operand(value, operand, false, 1.0);
            let mut space = IndexSpace {
                logical,
                ..IndexSpace::default()
            };
            for (name, axis) in parameters {
                space.cover(name, &[axis]);
            }
            self.operand_function(&mut mods, value, name, &space, &expr)?;
        }
        Ok(mods.finish())
    }

    /// The shape of an operand and its element at an index; `absent` if it is not there.
    fn operand(
        &self,
        value: ValueId,
        operand: Option<usize>,
        is_decay: bool,
        absent: f32,
    ) -> (Shape, ScalarExpr) {
        let Some(n) = operand else {
            return (vec![Dim::one(); 4], literal(absent));
        };
        let ty = self.graph.ty(self.graph.node(value).operands()[n]);
        let expr = element(n, ty.dtype, &ty.shape, is_decay);
        (ty.shape.clone(), expr)
    }

    fn operand_function(
        &self,
        mods: &mut Mods<'_>,
        value: ValueId,
        name: &str,
        space: &IndexSpace,
        expr: &ScalarExpr,
    ) -> Result<(), Diagnostic> {
        mods.function(&Function {
            name,
            arg: None,
            space,
            result: Returns::Value(DType::F32),
            expr,
            operands: self.graph.node(value).operands(),
        })
    }
}

/// The turns of an invocation, which takes sixteen rows of the state a turn.
fn turns(key_dim: u32, len: &Dim, linear: &LinearAttention, heads_per_kv: &Dim) -> Dim {
    let sixteens = loop_of(key_dim.div_ceil(16));
    let mut each = sixteens.clone();
    if linear.rule.is_delta() {
        each = each.then(&sixteens);
    }
    let last = match linear.result {
        LinearResult::Output if heads_per_kv.is(1) => Turns::none(),
        LinearResult::Output => {
            let others = heads_per_kv.clone() - Dim::one();
            each = each.then(&sixteens.repeated(&others));
            Turns::none()
        }
        LinearResult::State => loop_of(key_dim),
    };
    sixteens.then(&each.repeated(len)).then(&last).taken
}

/// How a kernel's functions of four elements along the key's axis are printed.
enum Fours {
    /// As such.
    Vectors,
    /// As such, and zeros for fours past the last, since the kernel takes four of them at a time.
    GuardedVectors,
    /// Of four calls of a function of one element, with zeros for elements past the last if there may be some.
    Elements { guarded: bool },
}

impl Fours {
    fn of(key_dim: &Dim, vectors: bool) -> Result<Self, Diagnostic> {
        match vectors {
            true if multiple_of(key_dim, 16) => Ok(Self::Vectors),
            true if multiple_of(key_dim, 4) => Ok(Self::GuardedVectors),
            true => Err(Diagnostic::error("no-vector-form", "rows are no vectors")),
            false => Ok(Self::Elements {
                guarded: !multiple_of(key_dim, 16),
            }),
        }
    }

    /// The space of the printed function; the last of `parameters` is the one of which there are four.
    fn space(&self, shape: Shape, parameters: [(&'static str, usize); 4]) -> IndexSpace {
        let mut space = IndexSpace {
            logical: shape,
            ..IndexSpace::default()
        };
        let [outer @ .., (last, axis)] = parameters;
        for (name, axis) in outer {
            space.cover(name, &[axis]);
        }
        match self {
            Self::Elements { .. } => space.cover(last, &[axis]),
            Self::Vectors | Self::GuardedVectors => space.cover_vectors(last, &[axis]),
        }
        space
    }

    /// The name of the printed function.
    fn inner(&self, name: &str) -> String {
        match self {
            Self::Vectors => format!("{name}_four"),
            Self::GuardedVectors => format!("{name}_vector"),
            Self::Elements { .. } => format!("{name}_element"),
        }
    }

    /// The function that the kernel calls, where it is another.
    fn wrapper(&self, name: &str, parameters: [&str; 4], key_dim: &Dim) -> String {
        let [b, h, t, d] = parameters;
        let inner = self.inner(name);
        let body = match self {
            Self::Vectors => return String::new(),
            Self::GuardedVectors => format!(
                "    if 4u * {d} >= {key_dim}u {{\n        return vec4<f32>();\n    }}\n    \
                 return {inner}({b}, {h}, {t}, {d});\n"
            ),
            Self::Elements { guarded } => {
                let four = lines(4, |i| {
                    let set = format!("four[{i}] = {inner}({b}, {h}, {t}, 4u * {d} + {i}u);");
                    match guarded {
                        true => {
                            format!("    if 4u * {d} + {i}u < {key_dim}u {{\n        {set}\n    }}")
                        }
                        false => format!("    {set}"),
                    }
                });
                format!("    var four = vec4<f32>();\n{four}    return four;\n")
            }
        };
        format!(
            "fn {name}_four({b}: u32, {h}: u32, {t}: u32, {d}: u32) -> vec4<f32> {{\n{body}}}\n"
        )
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
