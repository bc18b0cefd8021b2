//! The operators of `com.microsoft` that optimised files hold, but for attention: see [`super::contrib_attention`].
//!
//! Definitions are those of ONNX Runtime's contrib operators. They become the operations they were fused
//! from, which this compiler fuses its own way.

use super::{elementwise, norm, rotary};
use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Op, ReduceOp, UnaryOp};

/// Epsilon where the attribute is left out.
const EPSILON: f32 = 1e-12;

fn epsilon(c: &Call<'_, '_>) -> OpResult<f64> {
    let epsilon = f64::from(c.attrs.float("epsilon")?.unwrap_or(EPSILON));
    if epsilon < 0.0 {
        let message = format!("epsilon is {epsilon}");
        return Err(OpError::invalid("bad-attribute", message));
    }
    Ok(epsilon)
}

/// Results 1 and 2 are of training; 3 is the sum that is normalised.
fn with_sum(c: &mut Call<'_, '_>, normed: Value, sum: Value) -> OpResult<Vec<Value>> {
    if c.wants(1) || c.wants(2) {
        return Err(OpError::unsupported(
            "the mean and deviation as results",
            "the first and fourth result only",
        ));
    }
    let unused = normed.clone();
    Ok(vec![normed, unused.clone(), unused, sum])
}

/// `input + skip + bias`, of the input's shape.
fn skipped(c: &mut Call<'_, '_>, bias: usize) -> OpResult<Value> {
    let (x, skip) = (c.input(0)?, c.input(1)?);
    let mut sum = c.binary(BinaryOp::Add, &x, &skip)?;
    if let Some(bias) = c.optional(bias) {
        sum = c.binary(BinaryOp::Add, &sum, &bias)?;
    }
    if c.shape(&sum) != c.shape(&x) {
        let message = format!("{} does not broadcast to {}", c.ty(&skip), c.ty(&x));
        return Err(OpError::invalid("shape-mismatch", message));
    }
    Ok(sum)
}

fn last_axis(c: &Call<'_, '_>, x: &Value) -> OpResult<usize> {
    c.axis_of(-1, c.rank(x))
}

pub(super) fn skip_layer_norm(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let sum = skipped(c, 4)?;
    let (axis, eps) = (last_axis(c, &sum)?, epsilon(c)?);
    let gain = c.input(2)?;
    let bias = match c.optional(3) {
        Some(bias) => bias,
        None => norm::no_bias(c, &gain),
    };
    let normed = c.apply(Op::LayerNorm { axis, eps }, &[&sum, &gain, &bias])?;
    with_sum(c, normed, sum)
}

pub(super) fn skip_rms_norm(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let sum = skipped(c, 3)?;
    let (axis, eps) = (last_axis(c, &sum)?, epsilon(c)?);
    let gain = c.input(2)?;
    let normed = c.apply(Op::RmsNorm { axis, eps }, &[&sum, &gain])?;
    with_sum(c, normed, sum)
}

/// Word, position and segment embeddings, summed and normalised. Result 1 counts the unmasked tokens.
pub(super) fn embed_layer_norm(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (ids, words, positions) = (c.input(0)?, c.input(2)?, c.input(3)?);
    let eps = epsilon(c)?;
    if let Some(kind) = c.attrs.int("mask_index_type")?.filter(|&n| n > 1) {
        return Err(OpError::unsupported(format!("mask_index_type {kind}"), "0"));
    }
    if c.rank(&ids) != 2 || c.rank(&words) != 2 || c.rank(&positions) != 2 {
        let message = format!(
            "input_ids is {}, the tables {} and {}, expected 2 axes each",
            c.ty(&ids),
            c.ty(&words),
            c.ty(&positions)
        );
        return Err(OpError::invalid("shape-mismatch", message));
    }
    let look_up = Op::Gather { axis: 0 };
    let mut sum = c.apply(look_up.clone(), &[&words, &ids])?;
    let shape = c.shape(&sum);
    let place = match c.optional(8) {
        Some(ids) => c.apply(look_up.clone(), &[&positions, &ids])?,
        None => {
            let len = shape[1].clone();
            let size = c.shape(&positions)[0].clone();
            c.cx.require(len.clone(), size, || "the table of positions".to_owned());
            let op = Op::Slice {
                axis: 0,
                start: Dim::zero(),
                len,
                step: 1,
            };
            c.apply(op, &[&positions])?
        }
    };
    sum = c.binary(BinaryOp::Add, &sum, &place)?;
    if let (Some(ids), Some(table)) = (c.optional(1), c.optional(4)) {
        let segment = c.apply(look_up, &[&table, &ids])?;
        sum = c.binary(BinaryOp::Add, &sum, &segment)?;
    }
    let (gain, bias) = (c.input(5)?, c.input(6)?);
    let axis = last_axis(c, &sum)?;
    let normed = c.apply(Op::LayerNorm { axis, eps }, &[&sum, &gain, &bias])?;
    let counts = match c.optional(7) {
        Some(mask) => {
            let one = c.scalar_like(&mask, 1.0);
            let unmasked = c.compare(CompareOp::Eq, &mask, &one)?;
            let unmasked = c.cast(DType::I32, &unmasked)?;
            let count = Op::Reduce {
                op: ReduceOp::Sum,
                axes: vec![c.axis_of(1, c.rank(&mask))?],
                keep_dims: false,
            };
            c.apply(count, &[&unmasked])?
        }
        None => c.splat(DType::I32, &shape[..1], 0.0)?,
    };
    Ok(vec![normed, counts, sum])
}

/// `f(x + bias)`, the bias being optional.
pub(super) fn biased(c: &mut Call<'_, '_>, op: UnaryOp) -> OpResult<Vec<Value>> {
    let mut x = c.input(0)?;
    if let Some(bias) = c.optional(1) {
        x = c.binary(BinaryOp::Add, &x, &bias)?;
    }
    Ok(vec![c.unary(op, &x)?])
}

/// `x * sigmoid(alpha * x)`, alpha 1.702 where it is left out.
pub(super) fn quick_gelu(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let alpha = f64::from(c.attrs.float("alpha")?.unwrap_or(1.702));
    elementwise::swish_of(c, alpha)
}

/// As the standard's, with other operands: `x, positions, cos, sin`; one position is that of the first query.
pub(super) fn rotary_embedding(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    if c.attrs.flag("is_packed_batching", false)? {
        return Err(OpError::unsupported("is_packed_batching = 1", "0"));
    }
    if let Some(scale) = c.attrs.float("scale")?.filter(|&s| s != 1.0) {
        return Err(OpError::unsupported(format!("scale {scale}"), "1"));
    }
    let (x, positions) = (c.input(0)?, c.input(1)?);
    let (cos, sin) = (c.input(2)?, c.input(3)?);
    let shape = c.shape(&x);
    let rotated = c.attrs.int("rotary_embedding_dim")?.unwrap_or(0);
    let heads = c.attrs.int("num_heads")?.unwrap_or(0);
    let half = c.shape(&cos).last().cloned().unwrap_or_else(Dim::zero);
    let (apart, axis) = match shape.as_slice() {
        [_, _, _, _] => (x.clone(), 1),
        [batch, len, hidden] => {
            // Without a count of heads, the tables tell how wide one is.
            let (count, dim) = if heads > 0 {
                (Some(Dim::from(heads)), hidden.exact_div(&Dim::from(heads)))
            } else {
                let dim = half.clone() * Dim::from(2);
                (hidden.exact_div(&dim), Some(dim))
            };
            let (Some(count), Some(dim)) = (count, dim) else {
                let message = format!("{} in heads of {half} pairs", c.ty(&x));
                return Err(OpError::invalid("shape-mismatch", message));
            };
            (
                c.reshape(&x, vec![batch.clone(), len.clone(), count, dim])?,
                2,
            )
        }
        _ => {
            let message = format!("the operand is {}, expected 3 or 4 axes", c.ty(&x));
            return Err(OpError::invalid("shape-mismatch", message));
        }
    };
    let len = c.shape(&apart)[3 - axis].clone();
    let positions = absolute(c, &positions, &len)?;
    let angles = rotary::Angles {
        cos: c.apply(Op::Gather { axis: 0 }, &[&cos, &positions])?,
        sin: c.apply(Op::Gather { axis: 0 }, &[&sin, &positions])?,
        interleaved: c.attrs.flag("interleaved", false)?,
        rotated: (rotated > 0).then(|| Dim::from(rotated)),
    };
    let out = rotary::rotate(c, &apart, axis, &angles)?;
    Ok(vec![c.reshape(&out, shape)?])
}

/// One position counted on, or positions as they are.
fn absolute(c: &mut Call<'_, '_>, positions: &Value, len: &Dim) -> OpResult<Value> {
    if c.rank(positions) == 2 {
        return Ok(positions.clone());
    }
    let count = Op::Iota {
        shape: vec![Dim::one(), len.clone()],
        axis: 1,
        start: Dim::zero(),
        step: Dim::one(),
    };
    let count = c.apply(count, &[])?;
    let first = c.cast(DType::I32, positions)?;
    let first = c.reshape(&first, vec![Dim::one(), Dim::one()])?;
    c.binary(BinaryOp::Add, &count, &first)
}
