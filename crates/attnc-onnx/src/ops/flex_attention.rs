//! `FlexAttention` of `ai.onnx.preview`: attention with subgraphs that change scores and probabilities.
//!
//! ```text
//! scores = scale * q kᵀ    score_mod    softmax    prob_mod    probabilities v
//! ```
//!
//! It is written out in the graph, with the subgraphs in their places, so that whatever they hold has its
//! literal meaning; recognising the attention again, with the subgraphs as its functions, is what the passes
//! do for every model that is written like this.

use super::attend;
use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{DType, Op, TensorType};

/// The scores, in the precision of the softmax.
pub(super) fn scores(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    attend::check_precision(c)?;
    let (q, k) = (c.input(0)?, c.input(1)?);
    scores_type(c)?;
    let scale = attend::scale(c, c.attrs.float("scale")?, &c.shape(&q)[3])?;
    let scores = attend::product(c, &q, &k, scale)?;
    Ok(vec![c.cast(DType::F32, &scores)?])
}

/// The probabilities of the scores that `score_mod` gave.
pub(super) fn probabilities(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let scores = changed(c, "score_mod")?;
    Ok(vec![c.apply(Op::Softmax { axis: 3 }, &[&scores])?])
}

/// The sum of the values under the weights that `prob_mod` gave.
pub(super) fn output(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let weights = changed(c, "prob_mod")?;
    let v = c.input(2)?;
    let weights = c.cast(c.dtype(&v), &weights)?;
    let heads = c.shape(&weights)[1].clone();
    let v = attend::repeat_heads(c, &v, &heads)?;
    Ok(vec![c.apply(Op::MatMul, &[&weights, &v])?])
}

/// `f32[B, H, M, N]`.
fn scores_type(c: &Call<'_, '_>) -> OpResult<TensorType> {
    let (q, k, v) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let shape = attend::extents(c, &q, &k)?;
    if c.rank(&v) != 4 {
        let message = format!("expected 4 axes, found {}", c.ty(&v));
        return Err(OpError::invalid("shape-mismatch", message));
    }
    let dtype = DType::F32;
    Ok(TensorType { dtype, shape })
}

/// What a subgraph made of its operand: of the same type.
fn changed(c: &Call<'_, '_>, subgraph: &str) -> OpResult<Value> {
    let (value, expected) = (c.input(3)?, scores_type(c)?);
    let found = c.ty(&value);
    if found == expected {
        return Ok(value);
    }
    let message = format!("{subgraph} gives {found}, expected {expected}");
    Err(OpError::invalid("shape-mismatch", message))
}
