//! Normalisation over trailing axes.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::proto::data_type;
use crate::value::Value;
use attnc_ir::{Dim, Op};

/// The axis and epsilon, once the statistics are known to be computed as the graph computes them: in f32.
fn parameters(c: &Call<'_, '_>, x: &Value) -> OpResult<(usize, f64)> {
    let stash = c.attrs.int("stash_type")?.unwrap_or(1);
    if stash != i64::from(data_type::FLOAT) {
        return Err(OpError::unsupported(
            format!("stash_type {stash}"),
            "1, float",
        ));
    }
    let epsilon = f64::from(c.attrs.float("epsilon")?.unwrap_or(1e-5));
    if epsilon < 0.0 {
        return Err(OpError::invalid(
            "bad-attribute",
            format!("epsilon is {epsilon}"),
        ));
    }
    Ok((c.axis(-1, c.rank(x))?, epsilon))
}

fn one_result(c: &Call<'_, '_>) -> OpResult<()> {
    if c.wants(1) || c.wants(2) {
        return Err(OpError::unsupported(
            "the mean and deviation as results",
            "the first result only",
        ));
    }
    Ok(())
}

pub(super) fn layer_norm(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, gain) = (c.input(0)?, c.input(1)?);
    one_result(c)?;
    let (axis, eps) = parameters(c, &x)?;
    let bias = match c.optional(2) {
        Some(bias) => bias,
        None => {
            let last = c.shape(&gain).last().and_then(Dim::as_const).unwrap_or(1);
            let dtype = c.dtype(&gain);
            match usize::try_from(last) {
                Ok(len) if len <= 1 << 20 => c.vector(dtype, len, 0.0),
                _ => c.cx.scalar(dtype, 0.0),
            }
        }
    };
    Ok(vec![
        c.apply(Op::LayerNorm { axis, eps }, &[&x, &gain, &bias])?,
    ])
}

pub(super) fn rms_norm(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, gain) = (c.input(0)?, c.input(1)?);
    one_result(c)?;
    let (axis, eps) = parameters(c, &x)?;
    Ok(vec![c.apply(Op::RmsNorm { axis, eps }, &[&x, &gain])?])
}
