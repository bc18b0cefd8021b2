//! `CausalConvWithState` of opset 27: a depthwise convolution over what came before and the input.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{Conv, Dim, Op, UnaryOp};

pub(super) fn causal_conv(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, w) = (c.input(0)?, c.input(1)?);
    let (x_ty, w_ty) = (c.ty(&x), c.ty(&w));
    let [batch, channels, len] = x_ty.shape.as_slice() else {
        let message = format!("expected a batch, channels and a length, found {x_ty}");
        return Err(OpError::invalid("shape-mismatch", message));
    };
    if w_ty.rank() != 3 || w_ty.shape[0] != *channels || !w_ty.shape[1].is(1) {
        let message = format!("the kernel is {w_ty}, expected [{channels}, 1, k]");
        return Err(OpError::invalid("shape-mismatch", message));
    }
    let groups = channels.as_const().and_then(|n| usize::try_from(n).ok());
    let groups = groups.filter(|&n| n > 0).ok_or_else(|| {
        OpError::unsupported(format!("{channels} channels"), "a constant number of them")
    })?;
    let kept = w_ty.shape[2].clone() - Dim::one();
    let state = vec![batch.clone(), channels.clone(), kept.clone()];
    let past = match c.optional(3) {
        Some(past) if c.shape(&past) != state => {
            let found = c.ty(&past);
            let message = format!("past_state is {found}, expected [{batch}, {channels}, {kept}]");
            return Err(OpError::invalid("shape-mismatch", message));
        }
        Some(past) => past,
        None => c.splat(x_ty.dtype, &state, 0.0)?,
    };
    let sequence = if kept.is(0) {
        x
    } else {
        c.apply(Op::Concat { axis: 2 }, &[&past, &x])?
    };
    let conv = Op::Conv(Conv {
        strides: vec![1],
        dilations: vec![1],
        pads_before: vec![0],
        pads_after: vec![0],
        groups,
    });
    let bias = c.optional(2);
    let operands: Vec<&Value> = [&sequence, &w].into_iter().chain(&bias).collect();
    let mut out = c.apply(conv, &operands)?;
    match c.attrs.string("activation")?.unwrap_or("none") {
        "none" => {}
        "silu" | "swish" => out = c.unary(UnaryOp::Silu, &out)?,
        other => {
            let message =
                format!("attribute `activation` is `{other}`, expected none, silu, swish");
            return Err(OpError::invalid("bad-attribute", message));
        }
    }
    let last = Op::Slice {
        axis: 2,
        start: len.clone(),
        len: kept,
        step: 1,
    };
    let present = c.apply(last, &[&sequence])?;
    Ok(vec![out, present])
}
