//! Parts of tensors along an axis: concatenation, splits and slices.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{Dim, Extents, Op};

/// Bounds at least this far out mean "as far as possible", whatever the length.
pub(super) const FAR: i64 = i32::MAX as i64;

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
