//! Scattering by indices that are data: each place asks which update is for it.
//!
//! An index is compared with all positions, as in [`super::select`]: a reduction of a pointwise expression, and no table of
//! pairs is ever a buffer.

use super::select::{choose, count, count_along, from_front, length, reduce, with_axis};
use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Op, PadMode, ReduceOp, Shape};

/// `x` with elements replaced, where all is known and of one axis: changed shapes are written so.
fn known_scatter(x: &Value, indices: &Value, updates: &Value) -> Option<Value> {
    let (mut x, indices, updates) = (x.as_ints()?, indices.as_ints()?, updates.as_ints()?);
    for (index, update) in indices.data.iter().zip(updates.data) {
        let size = i64::try_from(x.data.len()).ok()?;
        let index = index.as_const()?;
        let index = if index < 0 { index + size } else { index };
        *x.data.get_mut(usize::try_from(index).ok()?)? = update;
    }
    (x.shape.len() == 1).then(|| Value::ints(x))
}

/// How updates join what is there: the reduction, its neutral element, and how its result is put in.
fn reduction(name: &str) -> OpResult<Option<(ReduceOp, f64, BinaryOp)>> {
    Ok(Some(match name {
        "none" => return Ok(None),
        "add" => (ReduceOp::Sum, 0.0, BinaryOp::Add),
        "mul" => (ReduceOp::Prod, 1.0, BinaryOp::Mul),
        "max" => (ReduceOp::Max, f64::NEG_INFINITY, BinaryOp::Max),
        "min" => (ReduceOp::Min, f64::INFINITY, BinaryOp::Min),
        other => {
            let message = format!("attribute `reduction` is `{other}`");
            return Err(OpError::invalid("bad-attribute", message));
        }
    }))
}

/// Each element gets the last update whose index along the axis is its own, or all of them joined.
pub(super) fn scatter_elements(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, indices, updates) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let (shape, block): (Shape, Shape) = (c.shape(&x), c.shape(&indices));
    let axis = c.axis(0, shape.len())?;
    if block.len() != shape.len() || c.shape(&updates) != block {
        let message = format!(
            "indices {} and updates {} of {}",
            c.ty(&indices),
            c.ty(&updates),
            c.ty(&x)
        );
        return Err(OpError::invalid("shape-mismatch", message));
    }
    if (0..shape.len()).any(|n| n != axis && block[n] != shape[n]) {
        return Err(OpError::unsupported(
            format!("indices {} of a part of {}", c.ty(&indices), c.ty(&x)),
            format!("indices for all of it but axis {axis}"),
        ));
    }
    let join = reduction(c.attrs.string("reduction")?.unwrap_or("none"))?;
    if join.is_some_and(|(_, neutral, _)| neutral.is_infinite()) && !c.dtype(&x).is_float() {
        return Err(OpError::unsupported(
            "the reduction of integers by size",
            "a sum, a product, or floats",
        ));
    }
    if join.is_none()
        && let Some(known) = known_scatter(&x, &indices, &updates)
    {
        return Ok(vec![known]);
    }
    let indices = from_front(c, &indices, &shape[axis])?;
    let indices = with_axis(c, &indices, axis + 1)?;
    let places = count(c, shape.len() + 1, axis + 1, &shape[axis])?;
    let hit = c.compare(CompareOp::Eq, &indices, &places)?;
    let Some((op, neutral, join)) = join else {
        let numbers = count(c, shape.len() + 1, axis, &block[axis])?;
        let number = choose(c, &hit, &numbers, -1.0)?;
        let number = reduce(c, ReduceOp::Max, &number, axis)?;
        let zero = c.cx.scalar(DType::I32, 0.0);
        let written = c.compare(CompareOp::Ge, &number, &zero)?;
        let number = c.binary(BinaryOp::Max, &number, &zero)?;
        let fresh = c.apply(Op::GatherElements { axis }, &[&updates, &number])?;
        return Ok(vec![c.apply(Op::Where, &[&written, &fresh, &x])?]);
    };
    let updates = with_axis(c, &updates, axis + 1)?;
    let update = choose(c, &hit, &updates, neutral)?;
    let all = reduce(c, op, &update, axis)?;
    Ok(vec![c.binary(join, &x, &all)?])
}

/// `x` with slices replaced where indices name them, one compared with all: for indices that are data.
pub(super) fn scatter_slices(
    c: &mut Call<'_, '_>,
    x: &Value,
    indices: &Value,
    updates: &Value,
) -> OpResult<Value> {
    let (shape, mut grid) = (c.shape(x), c.shape(indices));
    let depth = grid.pop().and_then(|d| d.as_const()).unwrap_or(0);
    let depth = usize::try_from(depth).unwrap_or(0).min(shape.len());
    let (sizes, rest) = shape.split_at(depth);
    let mut many: Dim = grid.iter().cloned().product();
    let places: Dim = sizes.iter().cloned().product();
    let mut position = linear_position(c, indices, sizes, &many)?;
    let rows = |first: &Dim| [std::slice::from_ref(first), rest].concat();
    let mut updates = c.reshape(updates, rows(&many))?;
    if many.as_const().is_none_or(|n| n < 1) {
        // One more that is written nowhere, since there may be none to choose from.
        many = many + Dim::one();
        position = one_more(c, &position, -1.0)?;
        updates = one_more(c, &updates, 0.0)?;
    }
    let position = with_axis(c, &position, 1)?;
    let every = count_along(c, &places)?;
    let hit = c.compare(CompareOp::Eq, &position, &every)?;
    let numbers = count(c, 2, 0, &many)?;
    let number = choose(c, &hit, &numbers, -1.0)?;
    let number = reduce(c, ReduceOp::Max, &number, 0)?;
    let zero = c.cx.scalar(DType::I32, 0.0);
    let written = c.compare(CompareOp::Ge, &number, &zero)?;
    let number = c.binary(BinaryOp::Max, &number, &zero)?;
    let fresh = c.apply(Op::Gather { axis: 0 }, &[&updates, &number])?;
    let mut wide = vec![Dim::one(); rest.len() + 1];
    wide[0] = places.clone();
    let written = c.reshape(&written, wide)?;
    let old = c.reshape(x, rows(&places))?;
    let new = c.apply(Op::Where, &[&written, &fresh, &old])?;
    c.reshape(&new, shape)
}

/// `x` with one more slice behind its first axis.
fn one_more(c: &mut Call<'_, '_>, x: &Value, fill: f64) -> OpResult<Value> {
    let before = vec![Dim::zero(); c.rank(x)];
    let mut after = before.clone();
    after[0] = Dim::one();
    let mode = PadMode::Constant(fill);
    c.apply(
        Op::Pad {
            before,
            after,
            mode,
        },
        &[x],
    )
}

/// The row-major position that each of `many` indices names.
fn linear_position(
    c: &mut Call<'_, '_>,
    indices: &Value,
    sizes: &[Dim],
    many: &Dim,
) -> OpResult<Value> {
    let indices = c.reshape(indices, vec![many.clone(), Dim::from(sizes.len())])?;
    let mut position = c.cx.scalar(DType::I32, 0.0);
    for (k, size) in sizes.iter().enumerate() {
        let (start, len) = (Dim::from(k), Dim::one());
        let column = Op::Slice {
            axis: 1,
            start,
            len,
            step: 1,
        };
        let index = c.apply(column, &[&indices])?;
        let index = c.reshape(&index, vec![many.clone()])?;
        let index = from_front(c, &index, size)?;
        position = c.binary(BinaryOp::Mul, &position, &length(size))?;
        position = c.binary(BinaryOp::Add, &position, &index)?;
    }
    Ok(position)
}
