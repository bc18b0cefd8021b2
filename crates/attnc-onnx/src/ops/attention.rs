//! The `Attention` operator of opsets 23 to 25.
//!
//! Order as in the standard: scale, softcap, mask, softmax. A truth-valued mask, causality, windows and the
//! count of valid keys become the `mask_mod`; softcap and a number-valued mask the `score_mod`. Causality is
//! aligned by the past: query `i` sees key `j` where `j <= i + past`.

use super::attend::{self, KV, Mods, Q};
use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Op, PadMode, Shape};

pub(super) fn attention(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let mode = check(c)?;
    let (q, k, v) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let flat = c.rank(&q) == 3;
    let q = heads(c, &q, "q_num_heads")?;
    let k = heads(c, &k, "kv_num_heads")?;
    let v = heads(c, &v, "kv_num_heads")?;
    let (past, k, v) = with_past(c, &k, &v)?;
    let extents = attend::extents(c, &q, &k)?;
    let scale = attend::scale(c, c.attrs.float("scale")?, &c.shape(&q)[3])?;
    let mut mods = Mods::new(&extents);
    softcap(c, &mut mods)?;
    masks(c, &mut mods, &extents, &past)?;
    let mut out = mods.attention(c, [&q, &k, &v], scale)?;
    if flat {
        out = attend::merge_heads(c, &out)?;
    }
    let mut results = vec![out, k.clone(), v];
    if c.wants(3) {
        results.push(scores(c, &q, &k, &extents, &past, (scale, mode))?);
    }
    Ok(results)
}

/// Which scores are a result: see [`scores`].
fn check(c: &mut Call<'_, '_>) -> OpResult<i64> {
    let mode = c.attrs.int("qk_matmul_output_mode")?.unwrap_or(0);
    if !(0..=3).contains(&mode) {
        return Err(OpError::invalid(
            "bad-attribute",
            format!("qk_matmul_output_mode is {mode}"),
        ));
    }
    attend::check_precision(c)?;
    Ok(mode)
}

/// The scores as a result of their own: 0 only scaled, 1 after the softcap, 2 after the mask, 3 after the
/// softmax. The attention itself does not read them.
fn scores(
    c: &mut Call<'_, '_>,
    q: &Value,
    k: &Value,
    extents: &Shape,
    past: &Dim,
    (scale, mode): (f64, i64),
) -> OpResult<Value> {
    let raw = attend::product(c, q, k, scale)?;
    if mode == 0 {
        return Ok(raw);
    }
    let mut mods = Mods::of_scores(c, &raw, extents);
    softcap(c, &mut mods)?;
    if mode >= 2 {
        masks(c, &mut mods, extents, past)?;
    }
    let mut out = mods.scores(c)?;
    if mode == 3 {
        out = c.apply(Op::Softmax { axis: 3 }, &[&out])?;
    }
    let dtype = c.dtype(q);
    c.cast(dtype, &out)
}

/// `[B, N, H * D]` as `[B, H, N, D]`; what has 4 axes is that already.
fn heads(c: &mut Call<'_, '_>, x: &Value, attr: &str) -> OpResult<Value> {
    let shape = c.shape(x);
    let count = c.attrs.int(attr)?;
    match (shape.len(), count) {
        (4, None) => Ok(x.clone()),
        (4, Some(n)) if shape[1].is(n) => Ok(x.clone()),
        (3, Some(n)) => attend::split_heads(c, x, n, attr),
        _ => {
            let count = count.map_or("not given".to_owned(), |n| n.to_string());
            let found = c.ty(x);
            Err(OpError::invalid(
                "shape-mismatch",
                format!("{attr} is {count}, the operand is {found}"),
            ))
        }
    }
}

/// The number of keys before these, and all keys and values.
fn with_past(c: &mut Call<'_, '_>, k: &Value, v: &Value) -> OpResult<(Dim, Value, Value)> {
    match (c.optional(4), c.optional(5)) {
        (None, None) => Ok((Dim::zero(), k.clone(), v.clone())),
        (Some(past_k), Some(past_v)) if c.rank(&past_k) == 4 => {
            let past = c.shape(&past_k)[2].clone();
            let k = c.apply(Op::Concat { axis: 2 }, &[&past_k, k])?;
            let v = c.apply(Op::Concat { axis: 2 }, &[&past_v, v])?;
            Ok((past, k, v))
        }
        (Some(past_k), Some(_)) => Err(OpError::invalid(
            "shape-mismatch",
            format!("past_key is {}, expected 4 axes", c.ty(&past_k)),
        )),
        _ => Err(OpError::invalid(
            "operand-count",
            "past_key and past_value go together",
        )),
    }
}

fn softcap(c: &Call<'_, '_>, mods: &mut Mods) -> OpResult<()> {
    mods.softcap(c.attrs.float("softcap")?.unwrap_or(0.0));
    Ok(())
}

/// Everything that leaves keys out or adds to scores.
fn masks(c: &mut Call<'_, '_>, mods: &mut Mods, extents: &Shape, past: &Dim) -> OpResult<()> {
    if let Some(mask) = c.optional(3) {
        attn_mask(c, mods, mask, extents)?;
    }
    lengths(c, mods, extents, past)
}

/// A mask that broadcasts to `[B, H, M, N]`; from opset 24 it may end before the last key.
fn attn_mask(c: &mut Call<'_, '_>, mods: &mut Mods, mask: Value, extents: &Shape) -> OpResult<()> {
    let ty = c.ty(&mask);
    let mask = match ty.shape.last() {
        Some(last) if c.opset >= 24 && *last != extents[KV] => {
            let mut after = vec![Dim::zero(); ty.rank() - 1];
            after.push(extents[KV].clone() - last.clone());
            let before = vec![Dim::zero(); ty.rank()];
            let fill = if ty.dtype == DType::Bool {
                0.0
            } else {
                f64::NEG_INFINITY
            };
            let mode = PadMode::Constant(fill);
            let pad = Op::Pad {
                before,
                after,
                mode,
            };
            c.apply(pad, &[&mask])?
        }
        _ => mask,
    };
    match ty.dtype {
        DType::Bool => {
            let load = mods.load(c, &mask, "attn_mask")?;
            mods.and(load);
        }
        dtype if dtype.is_float() => {
            let load = mods.load(c, &mask, "attn_mask")?;
            mods.add(load);
        }
        _ => {
            return Err(OpError::invalid(
                "dtype-mismatch",
                format!("attn_mask is {ty}, expected bool or float"),
            ));
        }
    }
    Ok(())
}

/// Causality and windows, and the count of valid keys of each sequence, which aligns them where it is given.
fn lengths(c: &Call<'_, '_>, mods: &mut Mods, extents: &Shape, past: &Dim) -> OpResult<()> {
    let mut before = mods.e.int(past.clone());
    if let Some(valid) = c.optional(6) {
        if c.optional(4).is_some() {
            return Err(OpError::invalid(
                "operand-count",
                "nonpad_kv_seqlen and past_key exclude each other",
            ));
        }
        let count = mods.of_sequence(c, valid, "nonpad_kv_seqlen")?;
        let kv = mods.e.indices()[KV];
        let inside = mods.e.compare(CompareOp::Lt, kv, count);
        mods.and(inside);
        let queries = mods.e.int(extents[Q].clone());
        before = mods.e.binary(BinaryOp::Sub, count, queries);
    }
    let bound = |name: &str| match c.attrs.int(name)?.unwrap_or(-1) {
        -1 => Ok(None),
        n if (0..1 << 31).contains(&n) => Ok(Some(n)),
        n => Err(OpError::invalid(
            "bad-attribute",
            format!("attribute `{name}` is {n}, expected -1 or a number of keys"),
        )),
    };
    let left = bound("left_window_size")?;
    let mut right = bound("right_window_size")?;
    if c.attrs.flag("is_causal", false)? {
        right = Some(0);
    }
    mods.window(before, left, right);
    Ok(())
}
