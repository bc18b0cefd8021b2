//! The attention operators of `com.microsoft`: `MultiHeadAttention`, `Attention` and `GroupQueryAttention`.
//!
//! Definitions are those of ONNX Runtime. A padding mask of the first two is a finite number added to the
//! scores (`mask_filter_value`, -10000), which is kept as what it is; causality leaves keys out.

use super::attend::{self, KV, Mods, Q};
use super::{cache_write, rotary};
use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Extents, Op, PadMode, Shape};

/// What is added where the padding mask of a key is 0.
const FILTER: f32 = -10000.0;

/// The attribute, which must be there and positive.
fn count(c: &Call<'_, '_>, name: &str) -> OpResult<i64> {
    match c.attrs.int(name)? {
        Some(n) if n > 0 => Ok(n),
        found => Err(OpError::invalid(
            "bad-attribute",
            format!("attribute `{name}` is {found:?}, expected a positive number"),
        )),
    }
}

fn mismatch(what: &str, found: &impl std::fmt::Display, expected: &str) -> OpError {
    OpError::invalid(
        "shape-mismatch",
        format!("{what} is {found}, expected {expected}"),
    )
}

/// A scale of 0 is the standard one.
fn scale(c: &Call<'_, '_>, q: &Value) -> OpResult<f64> {
    let given = c.attrs.float("scale")?.filter(|&s| s != 0.0);
    attend::scale(c, given, &c.shape(q)[3])
}

/// `len` elements of an axis, from `start` on.
fn part(c: &mut Call<'_, '_>, x: &Value, axis: usize, start: Dim, len: Dim) -> OpResult<Value> {
    let op = Op::Slice {
        axis,
        start,
        len,
        step: 1,
    };
    c.apply(op, &[x])
}

/// `MultiHeadAttention`: projections are done, heads may be packed, keys may be `[B, H, N, D]` already.
pub(super) fn multi_head(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    if c.wants(3) {
        return Err(OpError::unsupported(
            "the result qk",
            "the first three results only",
        ));
    }
    let heads = count(c, "num_heads")?;
    let [q, k, v] = separate(c, heads)?;
    let (past, k, v) = match (c.optional(6), c.optional(7)) {
        (None, None) => (Dim::zero(), k, v),
        (Some(past_k), Some(past_v)) if c.rank(&past_k) == 4 => {
            let past = c.shape(&past_k)[2].clone();
            let k = c.apply(Op::Concat { axis: 2 }, &[&past_k, &k])?;
            let v = c.apply(Op::Concat { axis: 2 }, &[&past_v, &v])?;
            (past, k, v)
        }
        (Some(past), Some(_)) => return Err(mismatch("past_key", &c.ty(&past), "4 axes")),
        _ => {
            return Err(OpError::invalid(
                "operand-count",
                "past_key and past_value go together",
            ));
        }
    };
    let out = attend_masked(c, [&q, &k, &v], c.optional(4), c.optional(5), &past)?;
    Ok(vec![out, k, v])
}

/// Queries, keys and values `[B, H, N, D]` with the biases of their projections.
fn separate(c: &mut Call<'_, '_>, heads: i64) -> OpResult<[Value; 3]> {
    let q = c.input(0)?;
    let packed = match (c.rank(&q), c.optional(1), c.optional(2)) {
        (5, None, None) => Some((q.clone(), 0, 3)),
        (3, Some(kv), None) if c.rank(&kv) == 5 => Some((kv, 1, 2)),
        _ => None,
    };
    let mut parts = [Some(q), c.optional(1), c.optional(2)];
    if let Some((from, first, many)) = packed {
        let shape = c.shape(&from);
        if !shape[2].is(heads) || !shape[3].is(many) {
            let expected = format!("[B, N, {heads}, {many}, D]");
            return Err(mismatch("packed heads", &c.ty(&from), &expected));
        }
        for (n, slot) in (0..many).zip(&mut parts[first..]) {
            let one = part(c, &from, 3, Dim::from(n), Dim::one())?;
            let flat = vec![
                shape[0].clone(),
                shape[1].clone(),
                shape[2].clone() * shape[4].clone(),
            ];
            *slot = Some(c.reshape(&one, flat)?);
        }
    }
    let mut start = Dim::zero();
    let bias = c.optional(3);
    let names = ["query", "key", "value"];
    let mut out = Vec::new();
    for (value, name) in parts.into_iter().zip(names) {
        let mut value = value.ok_or_else(|| {
            OpError::invalid("operand-count", format!("operand {name} is missing"))
        })?;
        if c.rank(&value) == 4 {
            if bias.is_some() {
                return Err(OpError::unsupported(
                    format!("a bias for a {name} with heads apart"),
                    "no bias, or 3 axes",
                ));
            }
            out.push(value);
            continue;
        }
        if let Some(bias) = &bias {
            let len = c.shape(&value).last().cloned().unwrap_or_else(Dim::zero);
            let own = part(c, bias, 0, start.clone(), len.clone())?;
            start = start + len;
            value = c.binary(BinaryOp::Add, &value, &own)?;
        }
        out.push(attend::split_heads(c, &value, heads, "num_heads")?);
    }
    if let Some(bias) = bias
        && c.shape(&bias) != [start.clone()]
    {
        return Err(mismatch("the bias", &c.ty(&bias), &format!("[{start}]")));
    }
    <[Value; 3]>::try_from(out).map_err(|_| OpError::invalid("operand-count", "expected 3 parts"))
}

/// The attention under a padding mask and a bias, `[B, M, H * D]`.
fn attend_masked(
    c: &mut Call<'_, '_>,
    [q, k, v]: [&Value; 3],
    mask: Option<Value>,
    bias: Option<Value>,
    past: &Dim,
) -> OpResult<Value> {
    let extents = attend::extents(c, q, k)?;
    let scale = scale(c, q)?;
    let mut mods = Mods::new(&extents);
    if let Some(bias) = bias {
        let bias = mods.load(c, &bias, "attention_bias")?;
        mods.add(bias);
    }
    if let Some(mask) = mask {
        padding(c, &mut mods, &mask, &extents)?;
    }
    if c.attrs.flag("unidirectional", false)? {
        let before = mods.e.int(past.clone());
        mods.window(before, None, Some(0));
    }
    let out = mods.attention(c, [q, k, v], scale)?;
    attend::merge_heads(c, &out)
}

/// A mask of 0 and 1 for each key (of each query), or the number of keys of each sequence.
fn padding(c: &mut Call<'_, '_>, mods: &mut Mods, mask: &Value, extents: &Shape) -> OpResult<()> {
    let shape = c.shape(mask);
    let (batch, queries, keys) = (&extents[0], &extents[Q], &extents[KV]);
    let kept = match shape.as_slice() {
        [n] if n == batch => {
            let len = mods.of_sequence(c, mask.clone(), "the mask")?;
            let kv = mods.e.indices()[KV];
            mods.e.compare(CompareOp::Lt, kv, len)
        }
        [b, n] if b == batch && n == keys => {
            let wide = vec![b.clone(), Dim::one(), Dim::one(), n.clone()];
            nonzero(c, mods, mask, wide)?
        }
        [b, m, n] if b == batch && m == queries && n == keys => {
            let wide = vec![b.clone(), Dim::one(), m.clone(), n.clone()];
            nonzero(c, mods, mask, wide)?
        }
        _ => {
            return Err(OpError::unsupported(
                format!("a mask {} for {keys} keys of {batch} sequences", c.ty(mask)),
                "[B], [B, N] or [B, M, N]",
            ));
        }
    };
    let filter = c.attrs.float("mask_filter_value")?.unwrap_or(FILTER);
    let (zero, filter) = (mods.e.float(0.0), mods.e.float(filter));
    let fill = mods.e.select(kept, zero, filter);
    mods.add(fill);
    Ok(())
}

fn nonzero(
    c: &mut Call<'_, '_>,
    mods: &mut Mods,
    mask: &Value,
    wide: Shape,
) -> OpResult<attnc_ir::scalar::ExprId> {
    if c.dtype(mask).is_float() {
        return Err(mismatch("the mask", &c.ty(mask), "integers"));
    }
    let mask = c.reshape(mask, wide)?;
    let kept = c.cast(DType::Bool, &mask)?;
    mods.load(c, &kept, "the mask")
}

/// `Attention`: one projection to queries, keys and values, and a past of both in one operand.
pub(super) fn packed(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    for attr in ["do_rotary", "past_present_share_buffer"] {
        if c.attrs.flag(attr, false)? {
            return Err(OpError::unsupported(format!("{attr} = 1"), "0"));
        }
    }
    let heads = count(c, "num_heads")?;
    let (x, weights) = (c.input(0)?, c.input(1)?);
    let mut all = c.apply(Op::MatMul, &[&x, &weights])?;
    if let Some(bias) = c.optional(2) {
        all = c.binary(BinaryOp::Add, &all, &bias)?;
    }
    let (rank, width) = (c.rank(&all), c.shape(&all).last().cloned());
    let (3, Some(width)) = (rank, width) else {
        return Err(mismatch("the projected input", &c.ty(&all), "3 axes"));
    };
    let sizes: Vec<Dim> = match c.attrs.ints("qkv_hidden_sizes")? {
        Some(sizes) => sizes.into_iter().map(Dim::from).collect(),
        None => {
            let third = width.exact_div(&Dim::from(3));
            vec![third.ok_or_else(|| mismatch("the projection", &width, "a multiple of 3"))?; 3]
        }
    };
    if sizes.len() != 3 || sizes.iter().cloned().sum::<Dim>() != width {
        return Err(mismatch(
            "qkv_hidden_sizes",
            &sizes.len(),
            "3 that sum up to the projection",
        ));
    }
    let mut start = Dim::zero();
    let mut parts = Vec::new();
    for len in sizes {
        let one = part(c, &all, 2, start.clone(), len.clone())?;
        start = start + len;
        parts.push(attend::split_heads(c, &one, heads, "num_heads")?);
    }
    let (q, mut k, mut v) = (parts[0].clone(), parts[1].clone(), parts[2].clone());
    let mut past_len = Dim::zero();
    if let Some(past) = c.optional(4) {
        let shape = c.shape(&past);
        if shape.len() != 5 || !shape[0].is(2) {
            return Err(mismatch("past", &c.ty(&past), "[2, B, H, P, D]"));
        }
        past_len = shape[3].clone();
        for (n, new) in [(0, &mut k), (1, &mut v)] {
            let old = part(c, &past, 0, Dim::from(n), Dim::one())?;
            let old = c.reshape(&old, shape[1..].to_vec())?;
            *new = c.apply(Op::Concat { axis: 2 }, &[&old, new])?;
        }
    }
    let out = attend_masked(c, [&q, &k, &v], c.optional(3), c.optional(5), &past_len)?;
    if !c.wants(1) {
        return Ok(vec![out]);
    }
    let mut both = Vec::new();
    for value in [&k, &v] {
        let mut shape = c.shape(value);
        shape.insert(0, Dim::one());
        both.push(c.reshape(value, shape)?);
    }
    let present = c.apply(Op::Concat { axis: 0 }, &[&both[0], &both[1]])?;
    Ok(vec![out, present])
}

/// `GroupQueryAttention`: causal, with new keys written into a cache behind those of each sequence.
pub(super) fn group_query(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    check_group_query(c)?;
    let (heads, kv_heads) = (count(c, "num_heads")?, count(c, "kv_num_heads")?);
    let [q, k, v] = groups(c, heads, kv_heads)?;
    let new = c.shape(&q)[2].clone();
    // The last key of each sequence, the number of those before the new ones.
    let last = c.input(5)?;
    let last = c.cast(DType::I32, &last)?;
    let batch = c.shape(&q)[0].clone();
    let last = c.reshape(&last, vec![batch])?;
    let step = Value::ints(crate::eval::Elems::scalar(
        DType::I32,
        new.clone() - Dim::one(),
    ));
    let before = c.binary(BinaryOp::Sub, &last, &step)?;
    let before = c.with(BinaryOp::Max, &before, 0.0)?;
    let (q, k) = if c.attrs.flag("do_rotary", false)? {
        rotated(c, &q, &k, &before)?
    } else {
        (q, k)
    };
    let k = cached(c, &k, 3, &before)?;
    let v = cached(c, &v, 4, &before)?;
    let extents = attend::extents(c, &q, &k)?;
    let scale = scale(c, &q)?;
    let mut mods = Mods::new(&extents);
    mods.softcap(c.attrs.float("softcap")?.unwrap_or(0.0));
    if let Some(bias) = c.optional(10) {
        let bias = mods.load(c, &bias, "attention_bias")?;
        mods.add(bias);
    }
    let before = mods.of_sequence(c, before, "seqlens_k")?;
    let left = c.attrs.int("local_window_size")?.filter(|&n| n >= 0);
    // Rows of padding see no padding either; what lies behind the last key of a cache is never read.
    let last = mods.of_sequence(c, last, "seqlens_k")?;
    let kv = mods.e.indices()[KV];
    let inside = mods.e.compare(CompareOp::Le, kv, last);
    mods.and(inside);
    // A window counts the query's own key.
    mods.window(before, left.map(|n| n - 1), Some(0));
    head_sink(c, &mut mods, &extents)?;
    let out = mods.attention(c, [&q, &k, &v], scale)?;
    let out = attend::merge_heads(c, &out)?;
    Ok(vec![out, k, v])
}

/// Logits of keys whose value is zero: one a head, or 0 under `smooth_softmax`.
fn head_sink(c: &Call<'_, '_>, mods: &mut Mods, extents: &Shape) -> OpResult<()> {
    if let Some(sink) = c.optional(11) {
        if c.shape(&sink) != extents[1..2] {
            let expected = format!("[{}], one a head", extents[1]);
            return Err(mismatch("head_sink", &c.ty(&sink), &expected));
        }
        let head = mods.e.indices()[1];
        let logit = mods.capture(c, sink, vec![head]);
        mods.sink(logit);
    } else if c.attrs.flag("smooth_softmax", false)? {
        let zero = mods.e.float(0.0);
        mods.sink(zero);
    }
    Ok(())
}

fn check_group_query(c: &Call<'_, '_>) -> OpResult<()> {
    if c.wants(3) {
        return Err(OpError::unsupported(
            "the result output_qk",
            "the first three results only",
        ));
    }
    let later = [
        "k_scale",
        "v_scale",
        "q_norm_weight",
        "k_norm_weight",
        "query_seqlens",
    ];
    match later
        .iter()
        .enumerate()
        .find(|(n, _)| c.optional(12 + n).is_some())
    {
        Some((_, name)) => Err(OpError::unsupported(
            format!("the operand {name}"),
            "the first 12 operands only",
        )),
        None => Ok(()),
    }
}

/// Queries `[B, H, M, D]`, keys and values `[B, H_kv, M, D]`, which may be packed in the first operand.
fn groups(c: &mut Call<'_, '_>, heads: i64, kv_heads: i64) -> OpResult<[Value; 3]> {
    let q = c.input(0)?;
    let (q, k, v) = match (c.optional(1), c.optional(2)) {
        (Some(k), Some(v)) => (q, k, v),
        (None, None) if c.rank(&q) == 3 => {
            let width = c.shape(&q)[2].clone();
            let dim = width.exact_div(&Dim::from(heads.saturating_add(2 * kv_heads)));
            let Some(dim) = dim else {
                let expected = format!("{heads} and 2 * {kv_heads} heads");
                return Err(mismatch("packed heads", &c.ty(&q), &expected));
            };
            let (of_q, of_k) = (dim.clone() * Dim::from(heads), dim * Dim::from(kv_heads));
            let k = part(c, &q, 2, of_q.clone(), of_k.clone())?;
            let v = part(c, &q, 2, of_q.clone() + of_k.clone(), of_k)?;
            (part(c, &q, 2, Dim::zero(), of_q)?, k, v)
        }
        _ => {
            return Err(OpError::invalid(
                "operand-count",
                "key and value go together",
            ));
        }
    };
    Ok([
        attend::split_heads(c, &q, heads, "num_heads")?,
        attend::split_heads(c, &k, kv_heads, "kv_num_heads")?,
        attend::split_heads(c, &v, kv_heads, "kv_num_heads")?,
    ])
}

/// Queries and keys rotated by their positions: given, or those behind the keys of each sequence.
fn rotated(c: &mut Call<'_, '_>, q: &Value, k: &Value, before: &Value) -> OpResult<(Value, Value)> {
    let (cos, sin) = (c.input(7)?, c.input(8)?);
    let (batch, new) = (c.shape(q)[0].clone(), c.shape(q)[2].clone());
    let positions = match c.optional(9) {
        Some(positions) => positions,
        None => {
            let count = Op::Iota {
                shape: vec![Dim::one(), new],
                axis: 1,
                start: Dim::zero(),
                step: Dim::one(),
            };
            let count = c.apply(count, &[])?;
            let first = c.reshape(before, vec![batch, Dim::one()])?;
            c.binary(BinaryOp::Add, &first, &count)?
        }
    };
    let pairs = c.shape(&cos).last().cloned().unwrap_or_else(Dim::zero);
    let angles = rotary::Angles {
        cos: c.apply(Op::Gather { axis: 0 }, &[&cos, &positions])?,
        sin: c.apply(Op::Gather { axis: 0 }, &[&sin, &positions])?,
        interleaved: c.attrs.flag("rotary_interleaved", false)?,
        rotated: Some(pairs * Dim::from(2)),
    };
    Ok((
        rotary::rotate(c, q, 1, &angles)?,
        rotary::rotate(c, k, 1, &angles)?,
    ))
}

/// The cache of operand `n`, long enough for all keys, with the new ones written behind the old.
fn cached(c: &mut Call<'_, '_>, new: &Value, n: usize, before: &Value) -> OpResult<Value> {
    let total = c.input(6)?;
    let total = c.dim(&total, "total_sequence_length")?;
    let none = Extents::none();
    let shape = c.shape(new);
    let old = match c.optional(n) {
        Some(old) => {
            let found = c.shape(&old);
            let fits = found.len() == 4
                && [0, 1, 3].iter().all(|&n| found[n] == shape[n])
                && c.dtype(&old) == c.dtype(new);
            if !fits {
                let expected = format!("{} with another length of axis 2", c.ty(new));
                return Err(mismatch("a past", &c.ty(&old), &expected));
            }
            old
        }
        // Without a past, all keys are new ones.
        None => {
            c.cx.require(total.clone(), shape[2].clone(), || {
                "total_sequence_length without a past".to_owned()
            });
            return Ok(new.clone());
        }
    };
    let past = c.shape(&old)[2].clone();
    let len = c.cx.known.simplify(past.maximum(&total, &none));
    let mut after = vec![Dim::zero(); 4];
    after[2] = len - past;
    let room = Op::Pad {
        before: vec![Dim::zero(); 4],
        after,
        mode: PadMode::Constant(0.0),
    };
    let room = c.apply(room, &[&old])?;
    cache_write::write_from(c, &room, new, 2, before, false)
}
