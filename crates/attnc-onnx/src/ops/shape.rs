//! Shapes, views and copies.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::eval::Elems;
use crate::value::Value;
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Extents, Op, PadMode, Shape};

/// Bounds at least this far out mean "as far as possible", whatever the length.
const FAR: i64 = i32::MAX as i64;

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

pub(super) fn concat(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let all = c.all()?;
    let first = c.input(0)?;
    // Before opset 11 there is a default.
    let default = if c.opset < 4 { 1 } else { 0 };
    let axis = c.axis(default, c.rank(&first))?;
    let args: Vec<&Value> = all.iter().collect();
    Ok(vec![c.apply(Op::Concat { axis }, &args)?])
}

/// Lengths of the parts: given, or as equal as can be.
pub(super) fn split(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let axis = c.axis(0, c.rank(&x))?;
    let size = c.shape(&x)[axis].clone();
    let given = match (c.attrs.ints("split")?, c.optional(1)) {
        (Some(sizes), _) => Some(sizes.into_iter().map(Dim::from).collect()),
        (None, Some(sizes)) => Some(c.dims(&sizes, "the lengths")?),
        (None, None) => None,
    };
    let parts = c.wanted.len();
    let sizes = match given {
        Some(sizes) => sizes,
        None => equal_parts(c, &size, parts)?,
    };
    let sum: Dim = sizes.iter().cloned().sum();
    if sizes.len() != parts || sum != size {
        c.cx.learn_equal(&[(sum, size)]);
        let text: Vec<_> = sizes.iter().map(Dim::to_string).collect();
        return Err(OpError::invalid(
            "shape-mismatch",
            format!(
                "lengths {} for {parts} parts of axis {axis} of {}",
                text.join(", "),
                c.ty(&x)
            ),
        ));
    }
    let mut start = Dim::zero();
    let mut out = Vec::new();
    for len in sizes {
        let next = start.clone() + len.clone();
        out.push(c.apply(
            Op::Slice {
                axis,
                start,
                len,
                step: 1,
            },
            &[&x],
        )?);
        start = next;
    }
    Ok(out)
}

fn equal_parts(c: &Call<'_, '_>, size: &Dim, parts: usize) -> OpResult<Vec<Dim>> {
    if let Some(n) = c.attrs.int("num_outputs")?
        && usize::try_from(n).ok() != Some(parts)
    {
        return Err(OpError::invalid(
            "bad-attribute",
            format!("attribute `num_outputs` is {n}, the node has {parts} results"),
        ));
    }
    let count = Dim::from(parts);
    if let Some(each) = size.exact_div(&count) {
        return Ok(vec![each; parts]);
    }
    // From opset 18 the last part may be shorter.
    let each = size.ceil_div(&count, &Extents::none());
    let last = size.clone() - each.clone() * Dim::from(parts.saturating_sub(1));
    if c.opset < 18 || last.as_const().is_none_or(|n| n < 0) {
        return Err(OpError::invalid(
            "shape-mismatch",
            format!("a length of {size} in {parts} equal parts"),
        ));
    }
    let mut sizes = vec![each; parts];
    sizes[parts - 1] = last;
    Ok(sizes)
}

/// Bounds are attributes before opset 10.
pub(super) fn slice(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let mut x = c.input(0)?;
    let rank = c.rank(&x);
    let list = |c: &mut Call<'_, '_>, name: &str, n: usize| -> OpResult<Option<Vec<Dim>>> {
        match (c.attrs.ints(name)?, c.optional(n)) {
            (Some(ints), _) => Ok(Some(ints.into_iter().map(Dim::from).collect())),
            (None, Some(value)) => c.dims(&value, name).map(Some),
            (None, None) => Ok(None),
        }
    };
    let missing = || OpError::invalid("operand-count", "starts or ends are missing");
    let starts = list(c, "starts", 1)?.ok_or_else(missing)?;
    let ends = list(c, "ends", 2)?.ok_or_else(missing)?;
    let axes: Vec<usize> = match c.ints_by("axes", 3)? {
        Some(axes) => axes
            .iter()
            .map(|&a| c.axis_of(a, rank))
            .collect::<OpResult<_>>()?,
        None => (0..starts.len()).collect(),
    };
    let steps = match c.optional(4) {
        Some(steps) => c.ints(&steps, "steps")?,
        None => vec![1; starts.len()],
    };
    let lengths = [ends.len(), axes.len(), steps.len()];
    if lengths.iter().any(|&n| n != starts.len()) || starts.len() > rank {
        return Err(OpError::invalid(
            "shape-mismatch",
            format!(
                "{} starts, {lengths:?} ends, axes and steps for {}",
                starts.len(),
                c.ty(&x)
            ),
        ));
    }
    for (n, &axis) in axes.iter().enumerate() {
        let size = c.shape(&x)[axis].clone();
        let (start, len) = range(c, &starts[n], &ends[n], steps[n], &size)?;
        let op = Op::Slice {
            axis,
            start,
            len,
            step: steps[n],
        };
        x = c.apply(op, &[&x])?;
    }
    Ok(vec![x])
}

/// First index and count of `start..end` by `step` within `size`.
///
/// Where lengths leave open whether a bound lies inside, it is taken to, and that is noted as a constraint;
/// only a constant end beyond a varying length is cut (`x[:, :512]`).
fn range(
    c: &mut Call<'_, '_>,
    start: &Dim,
    end: &Dim,
    step: i64,
    size: &Dim,
) -> OpResult<(Dim, Dim)> {
    if step == 0 || step.saturating_abs() > FAR {
        return Err(OpError::invalid(
            "bad-attribute",
            format!("a step of {step}"),
        ));
    }
    // Where counting backwards begins and stops: the last element, and before the first.
    let (low, high) = if step > 0 {
        (Dim::zero(), size.clone())
    } else {
        (Dim::from(-1), size.clone() - Dim::one())
    };
    let begin_low = Dim::zero();
    let start = bound(c, start, size, &begin_low, &high, false)?;
    let end = bound(c, end, size, &low, &high, step > 0)?;
    let span = if step > 0 {
        end - start.clone()
    } else {
        start.clone() - end
    };
    let len = span.ceil_div(&Dim::from(step.saturating_abs()), &Extents::none());
    let len = match len.as_const() {
        Some(n) => Dim::from(n.max(0)),
        None => {
            c.cx.require(Dim::zero(), len.clone(), || {
                "the length of a Slice".to_owned()
            });
            len
        }
    };
    Ok((start, len))
}

/// A bound counted from the front and kept between `low` and `high`.
fn bound(
    c: &mut Call<'_, '_>,
    at: &Dim,
    size: &Dim,
    low: &Dim,
    high: &Dim,
    cut: bool,
) -> OpResult<Dim> {
    let none = Extents::none();
    let (from_end, at) = match at.as_const() {
        Some(n) if n >= FAR => return Ok(high.clone()),
        Some(n) if n <= -FAR => return Ok(low.clone()),
        Some(n) => (n < 0, at.clone()),
        None => {
            let negative = (-at.clone()).is_nonneg(&none);
            if !negative {
                c.cx.require(Dim::zero(), at.clone(), || "a bound of a Slice".to_owned());
            }
            (negative, at.clone())
        }
    };
    let at = if from_end { size.clone() + at } else { at };
    if let (Some(n), Some(low), Some(high)) = (at.as_const(), low.as_const(), high.as_const()) {
        return Ok(Dim::from(n.clamp(low, high.max(low))));
    }
    // The first element is taken to be there.
    if cut && !from_end && at.as_const().is_some_and(|n| n > 1) {
        return Ok(c.cx.known.simplify(at.minimum(high, &none)));
    }
    c.cx.require(low.clone(), at.clone(), || "a bound of a Slice".to_owned());
    c.cx.require(at.clone(), high.clone(), || "a bound of a Slice".to_owned());
    Ok(at)
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

/// Blocks of channels become blocks of pixels.
pub(super) fn depth_to_space(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, block, [batch, depth, height, width]) = pixels(c)?;
    let Some(rest) = depth.exact_div(&(block.clone() * block.clone())) else {
        let message = format!("blocks of {block} by {block} from {depth} channels");
        return Err(OpError::invalid("shape-mismatch", message));
    };
    let (apart, perm) = match c.attrs.string("mode")?.unwrap_or("DCR") {
        "DCR" => (
            [block.clone(), block.clone(), rest.clone()],
            [0, 3, 4, 1, 5, 2],
        ),
        "CRD" => (
            [rest.clone(), block.clone(), block.clone()],
            [0, 1, 4, 2, 5, 3],
        ),
        other => {
            let message = format!("attribute `mode` is `{other}`, expected `DCR` or `CRD`");
            return Err(OpError::invalid("bad-attribute", message));
        }
    };
    let mut shape = vec![batch.clone()];
    shape.extend(apart);
    shape.extend([height.clone(), width.clone()]);
    let x = c.reshape(&x, shape)?;
    let x = c.transpose(&x, perm.to_vec())?;
    let shape = vec![batch, rest, height * block.clone(), width * block];
    Ok(vec![c.reshape(&x, shape)?])
}

/// Blocks of pixels become blocks of channels.
pub(super) fn space_to_depth(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, block, [batch, depth, height, width]) = pixels(c)?;
    let (Some(rows), Some(columns)) = (height.exact_div(&block), width.exact_div(&block)) else {
        let message = format!("blocks of {block} by {block} from {height} by {width}");
        return Err(OpError::invalid("shape-mismatch", message));
    };
    let (b, d) = (batch.clone(), depth.clone());
    let apart = vec![
        b,
        d,
        rows.clone(),
        block.clone(),
        columns.clone(),
        block.clone(),
    ];
    let x = c.reshape(&x, apart)?;
    let x = c.transpose(&x, vec![0, 3, 5, 1, 2, 4])?;
    let shape = vec![batch, depth * block.clone() * block, rows, columns];
    Ok(vec![c.reshape(&x, shape)?])
}

/// The operand, `blocksize`, and the four lengths.
fn pixels(c: &Call<'_, '_>) -> OpResult<(Value, Dim, [Dim; 4])> {
    let x = c.input(0)?;
    let block = c.attrs.int("blocksize")?.unwrap_or(0);
    match <[Dim; 4]>::try_from(c.shape(&x)) {
        Ok(dims) if (1..FAR).contains(&block) => Ok((x, Dim::from(block), dims)),
        _ => {
            let message = format!("blocks of {block} of {}", c.ty(&x));
            Err(OpError::invalid("shape-mismatch", message))
        }
    }
}
