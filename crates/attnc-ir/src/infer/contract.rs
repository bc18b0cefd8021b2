//! Types of products: matrices, convolutions, attention.

use super::{Result, broadcast, check_expr, expect_float, expect_same_dtype, shape_error};
use crate::{Attention, Conv, DType, Dim, Extents, TensorType};

pub(super) fn matmul(a: &TensorType, b: &TensorType) -> Result<TensorType> {
    expect_float("matmul", a)?;
    expect_same_dtype("matmul", a, b)?;
    if a.rank() < 2 || b.rank() < 2 {
        return Err(shape_error(format!(
            "matmul takes operands of 2 or more axes, found {a} and {b}"
        )));
    }
    let (ka, kb) = (&a.shape[a.rank() - 1], &b.shape[b.rank() - 2]);
    if ka != kb {
        return Err(shape_error(format!(
            "matmul of {a} and {b}: {ka} columns against {kb} rows"
        )));
    }
    let mut shape = broadcast(&a.shape[..a.rank() - 2], &b.shape[..b.rank() - 2])?;
    shape.push(a.shape[a.rank() - 2].clone());
    shape.push(b.shape[b.rank() - 1].clone());
    Ok(TensorType {
        dtype: a.dtype,
        shape,
    })
}

pub(super) fn convolution(conv: &Conv, operands: &[&TensorType]) -> Result<TensorType> {
    let (x, w) = (operands[0], operands[1]);
    expect_float("conv", x)?;
    expect_same_dtype("conv", x, w)?;
    let spatial = x.rank().saturating_sub(2);
    let lists = [
        &conv.strides,
        &conv.dilations,
        &conv.pads_before,
        &conv.pads_after,
    ];
    if spatial == 0 || w.rank() != x.rank() || lists.iter().any(|l| l.len() != spatial) {
        return Err(shape_error(format!(
            "conv of {x} with kernel {w}: ranks or parameter lists do not fit"
        )));
    }
    let groups = Dim::from(conv.groups);
    if conv.groups == 0
        || w.shape[1].clone() * groups.clone() != x.shape[1]
        || w.shape[0].exact_div(&groups).is_none()
    {
        return Err(shape_error(format!(
            "conv of {x} with kernel {w} in {} groups: channels do not fit",
            conv.groups
        )));
    }
    if let Some(bias) = operands.get(2)
        && bias.shape != [w.shape[0].clone()]
    {
        return Err(shape_error(format!(
            "conv takes a bias of [{}], found {bias}",
            w.shape[0]
        )));
    }
    let mut shape = vec![x.shape[0].clone(), w.shape[0].clone()];
    for n in 0..spatial {
        if conv.strides[n] == 0 || conv.dilations[n] == 0 {
            return Err(shape_error(
                "conv with a stride or dilation of 0".to_owned(),
            ));
        }
        let window =
            (w.shape[n + 2].clone() - Dim::one()) * Dim::from(conv.dilations[n]) + Dim::one();
        let padded =
            x.shape[n + 2].clone() + Dim::from(conv.pads_before[n]) + Dim::from(conv.pads_after[n]);
        let steps = (padded - window).floor_div(&Dim::from(conv.strides[n]), &Extents::none());
        shape.push(steps + Dim::one());
    }
    Ok(TensorType {
        dtype: x.dtype,
        shape,
    })
}

pub(super) fn attention_type(
    attention: &Attention,
    operands: &[&TensorType],
) -> Result<TensorType> {
    let (q, k, v) = (operands[0], operands[1], operands[2]);
    expect_float("attention", q)?;
    expect_same_dtype("attention", q, k)?;
    expect_same_dtype("attention", q, v)?;
    if [q, k, v].iter().any(|t| t.rank() != 4) {
        return Err(shape_error(format!(
            "attention takes q, k and v of 4 axes, found {q}, {k} and {v}"
        )));
    }
    let same = q.shape[0] == k.shape[0] && k.shape[..3] == v.shape[..3] && q.shape[3] == k.shape[3];
    if !same || q.shape[1].exact_div(&k.shape[1]).is_none() {
        return Err(shape_error(format!(
            "attention takes q [B, H, M, D], k [B, H_kv, N, D] and v [B, H_kv, N, Dv], found {q}, {k} and {v}"
        )));
    }
    let extents = [
        q.shape[0].clone(),
        q.shape[1].clone(),
        q.shape[2].clone(),
        k.shape[2].clone(),
    ];
    for (name, expr) in attention.functions() {
        let (axes, wanted) = match name {
            "mask_mod" => (4, DType::Bool),
            // One logit for all keys of a row.
            "sink" => (3, DType::F32),
            _ => (4, DType::F32),
        };
        check_expr(name, expr, &extents[..axes], operands, wanted)?;
    }
    Ok(TensorType {
        dtype: q.dtype,
        shape: vec![
            extents[0].clone(),
            extents[1].clone(),
            extents[2].clone(),
            v.shape[3].clone(),
        ],
    })
}
