//! Ops by name, with their attributes.

use super::attributes::Attributes;
use super::expression::Scope;
use super::parse::{Parser, Read};
use super::statement::Stated;
use crate::{
    Attention, BinaryOp, CompareOp, Conv, DType, Dim, LinearAttention, LinearResult, Op, PadMode,
    ReduceOp, TensorType, UnaryOp, UpdateRule,
};

/// The ops with a name of their own; the pointwise ones and reductions are listed by their enums.
const NAMED: [&str; 23] = [
    "constant",
    "reshape",
    "transpose",
    "broadcast",
    "slice",
    "concat",
    "pad",
    "gather",
    "gather_elements",
    "gather_nd",
    "iota",
    "length",
    "where",
    "cast",
    "cumsum",
    "softmax",
    "layer_norm",
    "rms_norm",
    "matmul",
    "conv",
    "attention",
    "linear_attention",
    "map",
];

pub(super) fn op_names() -> impl Iterator<Item = &'static str> {
    let reductions = [
        "reduce_sum",
        "reduce_mean",
        "reduce_min",
        "reduce_max",
        "reduce_prod",
        "reduce_any",
        "reduce_all",
    ];
    NAMED
        .into_iter()
        .chain(UnaryOp::ALL.iter().map(|op| op.name()))
        .chain(BinaryOp::ALL.iter().map(|op| op.name()))
        .chain(CompareOp::ALL.iter().map(|op| op.name()))
        .chain(reductions)
}

impl Parser<'_> {
    pub(super) fn op(
        &mut self,
        name: &str,
        stated: Stated,
        a: &mut Attributes,
        scope: &Scope,
    ) -> Read<Op> {
        if let Some(op) = UnaryOp::from_name(name) {
            return Ok(Op::Unary(op));
        }
        if let Some(op) = BinaryOp::from_name(name) {
            return Ok(Op::Binary(op));
        }
        if let Some(op) = CompareOp::from_name(name) {
            return Ok(Op::Compare(op));
        }
        if let Some(op) = name.strip_prefix("reduce_").and_then(ReduceOp::from_name) {
            let axes = self.required(a, "axes", Self::counts)?;
            let keep_dims = self.optional(a, "keep_dims", Self::flag)?.unwrap_or(false);
            return Ok(Op::Reduce {
                op,
                axes,
                keep_dims,
            });
        }
        Ok(match name {
            "reshape" => Op::Reshape(self.shape(a)?),
            "broadcast" => Op::Broadcast(self.shape(a)?),
            "transpose" => Op::Transpose(self.required(a, "perm", Self::counts)?),
            "slice" => Op::Slice {
                axis: self.axis(a)?,
                start: self.required(a, "start", Self::dim)?,
                len: self.required(a, "len", Self::dim)?,
                step: self.optional(a, "step", Self::integer)?.unwrap_or(1),
            },
            "concat" => Op::Concat {
                axis: self.axis(a)?,
            },
            "pad" => self.pad(a)?,
            "gather" => Op::Gather {
                axis: self.axis(a)?,
            },
            "gather_elements" => Op::GatherElements {
                axis: self.axis(a)?,
            },
            "gather_nd" => Op::GatherNd {
                batch_dims: self.required(a, "batch_dims", Self::count)?,
            },
            "iota" => Op::Iota {
                shape: stated.ty.unwrap_or(TensorType::scalar(DType::I32)).shape,
                axis: self.axis(a)?,
                start: self.optional(a, "start", Self::dim)?.unwrap_or_default(),
                step: self.optional(a, "step", Self::dim)?.unwrap_or(Dim::one()),
            },
            "length" => Op::Length(stated.length.unwrap_or_default()),
            "where" => Op::Where,
            "cast" => Op::Cast(self.required(a, "to", Self::element_type)?),
            "cumsum" => Op::CumSum {
                axis: self.axis(a)?,
                exclusive: self.optional(a, "exclusive", Self::flag)?.unwrap_or(false),
                reverse: self.optional(a, "reverse", Self::flag)?.unwrap_or(false),
            },
            "softmax" => Op::Softmax {
                axis: self.axis(a)?,
            },
            "layer_norm" => Op::LayerNorm {
                axis: self.axis(a)?,
                eps: self.required(a, "eps", Self::double)?,
            },
            "rms_norm" => Op::RmsNorm {
                axis: self.axis(a)?,
                eps: self.required(a, "eps", Self::double)?,
            },
            "matmul" => Op::MatMul,
            "conv" => Op::Conv(Conv {
                strides: self.required(a, "strides", Self::counts)?,
                dilations: self.required(a, "dilations", Self::counts)?,
                pads_before: self.required(a, "pads_before", Self::counts)?,
                pads_after: self.required(a, "pads_after", Self::counts)?,
                groups: self.optional(a, "groups", Self::count)?.unwrap_or(1),
            }),
            "attention" => self.attention(a, scope)?,
            "linear_attention" => self.linear_attention(a)?,
            _ => {
                let TensorType { dtype, shape } =
                    stated.ty.unwrap_or(TensorType::scalar(DType::F32));
                Op::Map {
                    expr: self.required(a, "expr", |p| p.expression(scope))?,
                    shape,
                    dtype,
                }
            }
        })
    }

    fn axis(&mut self, a: &mut Attributes) -> Read<usize> {
        self.required(a, "axis", Self::count)
    }

    fn shape(&mut self, a: &mut Attributes) -> Read<Vec<Dim>> {
        self.required(a, "shape", |p| {
            let start = p.peek().span.start;
            let shape = p.dim_list()?;
            p.sized(
                &TensorType {
                    dtype: DType::F32,
                    shape: shape.clone(),
                },
                start,
            )?;
            Ok(shape)
        })
    }

    fn pad(&mut self, a: &mut Attributes) -> Read<Op> {
        let before = self.required(a, "before", Self::dim_list)?;
        let after = self.required(a, "after", Self::dim_list)?;
        let modes = [("edge", PadMode::Edge), ("reflect", PadMode::Reflect)];
        let mode = match self.optional(a, "mode", |p| p.choice(&modes))? {
            Some(mode) => mode,
            None => PadMode::Constant(self.required(a, "value", Self::double)?),
        };
        Ok(Op::Pad {
            before,
            after,
            mode,
        })
    }

    fn linear_attention(&mut self, a: &mut Attributes) -> Read<Op> {
        let rules: Vec<_> = UpdateRule::ALL.iter().map(|r| (r.name(), *r)).collect();
        let results: Vec<_> = LinearResult::ALL.iter().map(|r| (r.name(), *r)).collect();
        Ok(Op::LinearAttention(LinearAttention {
            rule: self.required(a, "rule", |p| p.choice(&rules))?,
            scale: self.required(a, "scale", Self::double)?,
            result: self.required(a, "result", |p| p.choice(&results))?,
        }))
    }

    fn attention(&mut self, a: &mut Attributes, scope: &Scope) -> Read<Op> {
        let scale = self.required(a, "scale", Self::double)?;
        let mut function = |name| {
            let scope = Scope {
                captured_from: 3,
                attention: true,
                arg: Attention::argument(name),
                ..scope.clone()
            };
            self.optional(a, name, |p| p.expression(&scope))
        };
        Ok(Op::Attention(Attention {
            scale,
            score_mod: function("score_mod")?,
            mask_mod: function("mask_mod")?,
            sink: function("sink")?,
            prob_mod: function("prob_mod")?,
        }))
    }
}
