//! Shapes, views and copies.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::eval::Elems;
use crate::value::Value;
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Op, PadMode, Shape};

pub(super) fn shape(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let dims = c.shape(&x);
    let rank = i64::try_from(dims.len()).unwrap_or(i64::MAX);
    let bound = |name: &str, default: i64| -> OpResult<usize> {
        let at = c.attrs.int(name)?.unwrap_or(default);
        let at = if at < 0 { at + rank } else { at };
        Ok(usize::try_from(at.clamp(0, rank)).unwrap_or(0))
    };
    let (start, end) = (bound("start", 0)?, bound("end", rank)?);
    Ok(vec![Value::shape(dims[start..end.max(start)].to_vec())])
}

pub(super) fn size(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    Ok(vec![Value::ints(Elems::scalar(
        DType::I32,
        c.ty(&x).elements(),
    ))])
}

/// 0 copies a length (unless `allowzero`), one -1 is what is left.
pub(super) fn reshape(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let wanted: Vec<Dim> = match c.attrs.ints("shape")? {
        Some(shape) => shape.into_iter().map(Dim::from).collect(),
        None => {
            let shape = c.input(1)?;
            c.dims(&shape, "the shape")?
        }
    };
    let allowzero = c.attrs.flag("allowzero", false)?;
    let from = c.shape(&x);
    let mut shape: Vec<Option<Dim>> = Vec::new();
    for (n, dim) in wanted.into_iter().enumerate() {
        shape.push(match dim.as_const() {
            Some(0) if !allowzero => Some(from.get(n).cloned().ok_or_else(|| {
                OpError::invalid(
                    "shape-mismatch",
                    format!("length {n} is to be copied from {}", c.ty(&x)),
                )
            })?),
            Some(-1) => None,
            _ => Some(dim),
        });
    }
    let left = c.ty(&x).elements();
    let filled = fill_in(&shape, &left);
    if filled.is_err() {
        // Numbers in the place of lengths are those of the traced example.
        let pairs = from.iter().zip(&shape);
        let pairs: Vec<_> = pairs
            .filter_map(|(a, b)| Some((a.clone(), b.clone()?)))
            .collect();
        c.cx.learn_equal(&pairs);
    }
    let shape = filled?;
    Ok(vec![c.reshape(&x, shape)?])
}

/// Puts what is left of `total` in the place of the one length that is not given.
fn fill_in(shape: &[Option<Dim>], total: &Dim) -> OpResult<Shape> {
    let known: Dim = shape.iter().flatten().cloned().product();
    let mut open = shape.iter().filter(|d| d.is_none());
    let rest = match (open.next(), open.next()) {
        (None, _) => Dim::one(),
        (Some(_), Some(_)) => {
            return Err(OpError::invalid("bad-shape", "more than one length is -1"));
        }
        (Some(_), None) => match total.exact_div(&known) {
            Some(rest) => rest,
            None if total.as_const().is_some() && known.as_const().is_some() => {
                return Err(OpError::invalid(
                    "shape-mismatch",
                    format!("{total} elements do not divide by {known}"),
                ));
            }
            None => {
                return Err(OpError::unsupported(
                    format!("a length -1 where {total} elements need not divide by {known}"),
                    "lengths that divide whatever the lengths of the inputs are",
                ));
            }
        },
    };
    Ok(shape
        .iter()
        .map(|d| d.clone().unwrap_or_else(|| rest.clone()))
        .collect())
}

pub(super) fn flatten(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let dims = c.shape(&x);
    let axis = c.attrs.int("axis")?.unwrap_or(1);
    // One past the last axis is allowed.
    let axis = if axis == i64::try_from(dims.len()).unwrap_or(i64::MAX) {
        dims.len()
    } else {
        c.axis_of(axis, dims.len())?
    };
    let product = |part: &[Dim]| part.iter().cloned().product();
    let shape = vec![product(&dims[..axis]), product(&dims[axis..])];
    Ok(vec![c.reshape(&x, shape)?])
}

pub(super) fn squeeze(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let dims = c.shape(&x);
    let axes = match c.ints_by("axes", 1)? {
        Some(axes) => c.axes_of(&axes, dims.len())?,
        None => (0..dims.len()).filter(|&n| dims[n].is(1)).collect(),
    };
    if let Some(&n) = axes.iter().find(|&&n| !dims[n].is(1)) {
        return Err(OpError::invalid(
            "shape-mismatch",
            format!("axis {n} of {} has not length 1", c.ty(&x)),
        ));
    }
    let kept = (0..dims.len()).filter(|n| !axes.contains(n));
    let shape = kept.map(|n| dims[n].clone()).collect();
    Ok(vec![c.reshape(&x, shape)?])
}

pub(super) fn unsqueeze(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let axes = c
        .ints_by("axes", 1)?
        .ok_or_else(|| OpError::invalid("bad-attribute", "no axes are given"))?;
    let mut shape = c.shape(&x);
    for axis in c.axes_of(&axes, shape.len() + axes.len())? {
        shape.insert(axis, Dim::one());
    }
    Ok(vec![c.reshape(&x, shape)?])
}

pub(super) fn transpose(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let perm = match c.attrs.ints("perm")? {
        Some(perm) => perm
            .iter()
            .map(|&p| c.axis_of(p, c.rank(&x)))
            .collect::<OpResult<_>>()?,
        None => (0..c.rank(&x)).rev().collect(),
    };
    Ok(vec![c.transpose(&x, perm)?])
}

/// Repeats along axes of length 1. A length of 1 in the shape asks for nothing.
pub(super) fn expand(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, shape) = (c.input(0)?, c.input(1)?);
    let mut shape = c.dims(&shape, "the shape")?;
    // Not in the standard, but written by exporters: -1 keeps the length.
    for dim in shape.iter_mut().filter(|d| d.is(-1)) {
        *dim = Dim::one();
    }
    crate::context::check_shape(&shape)?;
    Ok(vec![c.broadcast(&x, &shape)?])
}

/// `x` repeated whole: each axis becomes (repeats, length), then one again.
pub(super) fn tile(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, repeats) = (c.input(0)?, c.input(1)?);
    let repeats = c.dims(&repeats, "the repeats")?;
    let dims = c.shape(&x);
    if repeats.len() != dims.len() {
        return Err(OpError::invalid(
            "shape-mismatch",
            format!("{} repeats for {}", repeats.len(), c.ty(&x)),
        ));
    }
    let (mut apart, mut wide, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for (dim, times) in dims.iter().zip(&repeats) {
        if !times.is(1) && !dim.is(1) {
            apart.push(Dim::one());
            wide.push(times.clone());
        }
        apart.push(dim.clone());
        wide.push(if dim.is(1) {
            times.clone()
        } else {
            dim.clone()
        });
        out.push(dim.clone() * times.clone());
    }
    let x = c.reshape(&x, apart)?;
    crate::context::check_shape(&wide)?;
    let x = c.apply(Op::Broadcast(wide), &[&x])?;
    Ok(vec![c.reshape(&x, out)?])
}

pub(super) fn pad(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let rank = c.rank(&x);
    let widths: Vec<Dim> = match c.attrs.ints("pads")? {
        Some(pads) => pads.into_iter().map(Dim::from).collect(),
        None => {
            let pads = c.input(1)?;
            c.dims(&pads, "the widths")?
        }
    };
    let axes = match c.optional(3) {
        Some(axes) => {
            let axes = c.ints(&axes, "the axes")?;
            axes.iter()
                .map(|&a| c.axis_of(a, rank))
                .collect::<OpResult<Vec<_>>>()?
        }
        None => (0..rank).collect(),
    };
    if widths.len() != 2 * axes.len() {
        return Err(OpError::invalid(
            "shape-mismatch",
            format!("{} widths for {} axes", widths.len(), axes.len()),
        ));
    }
    let (mut before, mut after) = (vec![Dim::zero(); rank], vec![Dim::zero(); rank]);
    for (n, &axis) in axes.iter().enumerate() {
        before[axis] = widths[n].clone();
        after[axis] = widths[axes.len() + n].clone();
    }
    if before.iter().chain(&after).all(|d| d.is(0)) {
        return Ok(vec![x]);
    }
    let mode = match c.attrs.string("mode")?.unwrap_or("constant") {
        "constant" => PadMode::Constant(match (c.optional(2), c.attrs.float("value")?) {
            (Some(value), _) => c.number(&value, "the value")?,
            (None, value) => f64::from(value.unwrap_or(0.0)),
        }),
        "edge" => PadMode::Edge,
        "reflect" => PadMode::Reflect,
        other => {
            return Err(OpError::unsupported(
                format!("mode `{other}`"),
                "constant, edge or reflect",
            ));
        }
    };
    Ok(vec![c.apply(
        Op::Pad {
            before,
            after,
            mode,
        },
        &[&x],
    )?])
}

/// Keeps what lies on and below (or above) diagonal `k`; the rest becomes 0.
pub(super) fn trilu(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let upper = c.attrs.flag("upper", true)?;
    let k = match c.optional(1) {
        Some(k) => c.dim(&k, "the diagonal")?,
        None => Dim::zero(),
    };
    let dims = c.shape(&x);
    let [.., rows, columns] = dims.as_slice() else {
        return Err(OpError::invalid(
            "shape-mismatch",
            format!("expected a matrix, found {}", c.ty(&x)),
        ));
    };
    let mut count = |shape: Shape, axis, start| {
        c.apply(
            Op::Iota {
                shape,
                axis,
                start,
                step: Dim::one(),
            },
            &[],
        )
    };
    let row = count(vec![rows.clone(), Dim::one()], 0, k)?;
    let column = count(vec![Dim::one(), columns.clone()], 1, Dim::zero())?;
    let keep = c.compare(
        if upper { CompareOp::Ge } else { CompareOp::Le },
        &column,
        &row,
    )?;
    if c.dtype(&x) == DType::Bool {
        return Ok(vec![c.binary(BinaryOp::And, &x, &keep)?]);
    }
    let zero = c.scalar_like(&x, 0.0);
    Ok(vec![c.apply(Op::Where, &[&keep, &x, &zero])?])
}
