//! The `RotaryEmbedding` operator of opset 23, in primitive operations. Su et al. 2021, arXiv:2104.09864.
//!
//! A head's first `rotary_embedding_dim` elements are pairs `(a, b)`, either neighbours or half a head
//! apart; each becomes `(a cos - b sin, a sin + b cos)`, with the angle of its position.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{BinaryOp, Dim, Op};

/// Cosines and sines of positions, and how they are applied.
pub(super) struct Angles {
    /// `[B or 1, N, pairs]`.
    pub(super) cos: Value,
    /// As the cosines.
    pub(super) sin: Value,
    /// Whether a pair is two neighbours.
    pub(super) interleaved: bool,
    /// Elements of a head that are rotated; `None` is all.
    pub(super) rotated: Option<Dim>,
}

pub(super) fn rotary_embedding(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let original = c.shape(&x);
    let (x, heads) = apart(c, &x)?;
    let rotated = c.attrs.int("rotary_embedding_dim")?.unwrap_or(0);
    let angles = Angles {
        cos: positioned(c, 1)?,
        sin: positioned(c, 2)?,
        interleaved: c.attrs.flag("interleaved", false)?,
        rotated: (rotated > 0).then(|| Dim::from(rotated)),
    };
    let out = rotate(c, &x, heads, &angles)?;
    Ok(vec![c.reshape(&out, original)?])
}

/// Operand `n`, looked up at the positions if they are given.
fn positioned(c: &mut Call<'_, '_>, n: usize) -> OpResult<Value> {
    let table = c.input(n)?;
    match c.optional(3) {
        Some(positions) => c.apply(Op::Gather { axis: 0 }, &[&table, &positions]),
        None => Ok(table),
    }
}

/// Rotates an operand with 4 axes, of which `heads` is the heads'.
pub(super) fn rotate(
    c: &mut Call<'_, '_>,
    x: &Value,
    heads: usize,
    angles: &Angles,
) -> OpResult<Value> {
    let shape = c.shape(x);
    let rotated = angles.rotated.clone().unwrap_or_else(|| shape[3].clone());
    let Some(half) = rotated.exact_div(&Dim::from(2)) else {
        return Err(OpError::invalid(
            "bad-attribute",
            format!("{rotated} elements of a head are to be rotated in pairs"),
        ));
    };
    let cos = with_heads(c, &angles.cos, heads, &half)?;
    let sin = with_heads(c, &angles.sin, heads, &half)?;
    let (start, step) = if angles.interleaved {
        (Dim::one(), 2)
    } else {
        (half.clone(), 1)
    };
    let a = cut(c, x, Dim::zero(), half.clone(), step)?;
    let b = cut(c, x, start, half, step)?;
    let real = combine(c, BinaryOp::Sub, (&a, &cos), (&b, &sin))?;
    let imaginary = combine(c, BinaryOp::Add, (&a, &sin), (&b, &cos))?;
    let out = if angles.interleaved {
        let mut pair = c.shape(&real);
        pair.push(Dim::one());
        let real = c.reshape(&real, pair.clone())?;
        let imaginary = c.reshape(&imaginary, pair)?;
        let pairs = c.apply(Op::Concat { axis: 4 }, &[&real, &imaginary])?;
        let mut joined = shape.clone();
        joined[3] = rotated.clone();
        c.reshape(&pairs, joined)?
    } else {
        c.apply(Op::Concat { axis: 3 }, &[&real, &imaginary])?
    };
    if rotated == shape[3] {
        return Ok(out);
    }
    let rest = cut(c, x, rotated.clone(), shape[3].clone() - rotated, 1)?;
    c.apply(Op::Concat { axis: 3 }, &[&out, &rest])
}

/// The operand with 4 axes, and which of them is the heads'.
fn apart(c: &mut Call<'_, '_>, x: &Value) -> OpResult<(Value, usize)> {
    let shape = c.shape(x);
    let heads = c.attrs.int("num_heads")?.unwrap_or(0);
    match shape.len() {
        4 => Ok((x.clone(), 1)),
        3 if heads > 0 => {
            let count = Dim::from(heads);
            let dim = shape[2].exact_div(&count).ok_or_else(|| {
                OpError::invalid("shape-mismatch", format!("{} in {heads} heads", c.ty(x)))
            })?;
            let shape = vec![shape[0].clone(), shape[1].clone(), count, dim];
            Ok((c.reshape(x, shape)?, 2))
        }
        _ => Err(OpError::invalid(
            "shape-mismatch",
            format!("the operand is {}, num_heads is {heads}", c.ty(x)),
        )),
    }
}

/// Cosines or sines of each position, with an axis of length 1 for the heads.
fn with_heads(c: &mut Call<'_, '_>, table: &Value, heads: usize, half: &Dim) -> OpResult<Value> {
    let mut shape = c.shape(table);
    if shape.len() != 3 || shape[2] != *half {
        return Err(OpError::invalid(
            "shape-mismatch",
            format!(
                "angles are {}, expected 3 axes and {half} of a position",
                c.ty(table)
            ),
        ));
    }
    shape.insert(heads, Dim::one());
    c.reshape(table, shape)
}

fn cut(c: &mut Call<'_, '_>, x: &Value, start: Dim, len: Dim, step: i64) -> OpResult<Value> {
    c.apply(
        Op::Slice {
            axis: 3,
            start,
            len,
            step,
        },
        &[x],
    )
}

/// `p.0 * p.1 op q.0 * q.1`.
fn combine(
    c: &mut Call<'_, '_>,
    op: BinaryOp,
    p: (&Value, &Value),
    q: (&Value, &Value),
) -> OpResult<Value> {
    let p = c.binary(BinaryOp::Mul, p.0, p.1)?;
    let q = c.binary(BinaryOp::Mul, q.0, q.1)?;
    c.binary(op, &p, &q)
}
