//! Writing new entries into a cache, from an index of each sequence on.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::eval::Elems;
use crate::value::Value;
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Op};

/// A cache with new entries written from an index of each sequence on; they may wrap around.
pub(super) fn tensor_scatter(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (cache, update) = (c.input(0)?, c.input(1)?);
    let shape = c.shape(&cache);
    let axis = c.axis(-2, shape.len())?;
    let circular = match c.attrs.string("mode")?.unwrap_or("linear") {
        "linear" => false,
        "circular" => true,
        other => {
            return Err(OpError::invalid(
                "bad-attribute",
                format!("attribute `mode` is `{other}`, expected `linear` or `circular`"),
            ));
        }
    };
    let new = c.shape(&update);
    let fits = new.len() == shape.len()
        && axis > 0
        && (0..shape.len()).all(|n| n == axis || new[n] == shape[n])
        && c.dtype(&update) == c.dtype(&cache);
    if !fits {
        let (update, cache) = (c.ty(&update), c.ty(&cache));
        let message = format!("an update {update} along axis {axis} of a cache {cache}");
        return Err(OpError::invalid("shape-mismatch", message));
    }
    let start = match c.optional(2) {
        Some(start) if c.shape(&start) == shape[..1] && c.dtype(&start).is_int() => {
            c.cast(DType::I32, &start)?
        }
        Some(start) => {
            let message = format!(
                "write_indices is {}, expected i32[{}]",
                c.ty(&start),
                shape[0]
            );
            return Err(OpError::invalid("shape-mismatch", message));
        }
        None => c.splat(DType::I32, &shape[..1], 0.0)?,
    };
    Ok(vec![write_from(
        c, &cache, &update, axis, &start, circular,
    )?])
}

/// `cache` with `update` from `start` (one a sequence, the first axis) along an axis.
pub(super) fn write_from(
    c: &mut Call<'_, '_>,
    cache: &Value,
    update: &Value,
    axis: usize,
    start: &Value,
    circular: bool,
) -> OpResult<Value> {
    let shape = c.shape(cache);
    let len = c.shape(update)[axis].clone();
    let mut along = vec![Dim::one(); shape.len()];
    along[axis] = shape[axis].clone();
    let count = Op::Iota {
        shape: along.clone(),
        axis,
        start: Dim::zero(),
        step: Dim::one(),
    };
    let count = c.apply(count, &[])?;
    along[axis] = Dim::one();
    along[0] = shape[0].clone();
    let start = c.reshape(start, along)?;
    let mut from = c.binary(BinaryOp::Sub, &count, &start)?;
    if circular {
        let size = Value::ints(Elems::scalar(DType::I32, shape[axis].clone()));
        from = c.binary(BinaryOp::Mod, &from, &size)?;
    }
    let zero = c.cx.scalar(DType::I32, 0.0);
    let end = Value::ints(Elems::scalar(DType::I32, len.clone()));
    let last = Value::ints(Elems::scalar(DType::I32, len - Dim::one()));
    let above = c.compare(CompareOp::Ge, &from, &zero)?;
    let below = c.compare(CompareOp::Lt, &from, &end)?;
    let inside = c.binary(BinaryOp::And, &above, &below)?;
    let from = c.binary(BinaryOp::Max, &from, &zero)?;
    let from = c.binary(BinaryOp::Min, &from, &last)?;
    let from = c.broadcast(&from, &shape)?;
    let fresh = c.apply(Op::GatherElements { axis }, &[update, &from])?;
    c.apply(Op::Where, &[&inside, &fresh, cache])
}
