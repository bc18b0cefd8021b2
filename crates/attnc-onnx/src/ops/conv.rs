//! Convolution, and its transpose.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{Conv, Dim, Op, PadMode};

/// Strides, paddings and dilations beyond this make no sense, and their products would not fit.
const MAX_PARAMETER: i64 = 1 << 20;

/// A list of one number a spatial axis.
pub(super) fn list(
    c: &Call<'_, '_>,
    name: &str,
    len: usize,
    default: usize,
) -> OpResult<Vec<usize>> {
    let Some(found) = c.attrs.ints(name)? else {
        return Ok(vec![default; len]);
    };
    let low = i64::from(default != 0);
    if found.len() != len || found.iter().any(|n| !(low..=MAX_PARAMETER).contains(n)) {
        return Err(OpError::invalid(
            "bad-attribute",
            format!("attribute `{name}` is {found:?}, expected {len} numbers from {low}"),
        ));
    }
    Ok(found
        .iter()
        .map(|&n| usize::try_from(n).unwrap_or(0))
        .collect())
}

pub(super) fn conv(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, w) = (c.input(0)?, c.input(1)?);
    let spatial = c.rank(&x).saturating_sub(2);
    let shape = c.shape(&w);
    if let Some(kernel) = c.attrs.ints("kernel_shape")? {
        let fits = shape.len() == kernel.len() + 2
            && kernel.iter().zip(&shape[2..]).all(|(&k, d)| d.is(k));
        if !fits {
            return Err(OpError::invalid(
                "shape-mismatch",
                format!("kernel_shape is {kernel:?}, the kernel is {}", c.ty(&w)),
            ));
        }
    }
    let strides = list(c, "strides", spatial, 1)?;
    let dilations = list(c, "dilations", spatial, 1)?;
    let (pads_before, pads_after) = pads(c, &x, &shape, &strides, &dilations)?;
    let groups = groups(c)?;
    let op = Op::Conv(Conv {
        strides,
        dilations,
        pads_before,
        pads_after,
        groups,
    });
    let mut args = vec![&x, &w];
    let bias = c.optional(2);
    args.extend(&bias);
    Ok(vec![c.apply(op, &args)?])
}

fn groups(c: &Call<'_, '_>) -> OpResult<usize> {
    let groups = c.attrs.int("group")?.unwrap_or(1);
    usize::try_from(groups)
        .ok()
        .filter(|&n| n > 0)
        .ok_or_else(|| OpError::invalid("bad-attribute", format!("attribute `group` is {groups}")))
}

/// Padding before and after each spatial axis.
pub(super) fn pads(
    c: &Call<'_, '_>,
    x: &Value,
    kernel: &[Dim],
    strides: &[usize],
    dilations: &[usize],
) -> OpResult<(Vec<usize>, Vec<usize>)> {
    let spatial = strides.len();
    let auto = c.attrs.string("auto_pad")?.unwrap_or("NOTSET");
    let upper = match auto {
        "NOTSET" => {
            let mut pads = list(c, "pads", 2 * spatial, 0)?;
            let after = pads.split_off(spatial);
            return Ok((pads, after));
        }
        "VALID" => return Ok((vec![0; spatial], vec![0; spatial])),
        "SAME_UPPER" => true,
        "SAME_LOWER" => false,
        other => {
            return Err(OpError::invalid(
                "bad-attribute",
                format!("attribute `auto_pad` is `{other}`"),
            ));
        }
    };
    let size = |d: Option<&Dim>| {
        d.and_then(Dim::as_const)
            .and_then(|n| usize::try_from(n).ok())
    };
    let shape = c.shape(x);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for n in 0..spatial {
        let (Some(input), Some(window)) = (size(shape.get(n + 2)), size(kernel.get(n + 2))) else {
            return Err(OpError::unsupported(
                format!("auto_pad {auto} of varying lengths"),
                "pads",
            ));
        };
        let steps = input.div_ceil(strides[n]).saturating_sub(1);
        let covered = steps
            .saturating_mul(strides[n])
            .saturating_add(window.saturating_sub(1).saturating_mul(dilations[n]) + 1);
        let total = covered.saturating_sub(input);
        let (less, more) = (total / 2, total - total / 2);
        before.push(if upper { less } else { more });
        after.push(if upper { more } else { less });
    }
    Ok((before, after))
}

/// The transpose of a convolution: one of stride 1, with the kernel turned around, over the input with
/// `stride - 1` zeros between its elements.
pub(super) fn conv_transpose(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (mut x, w) = (c.input(0)?, c.input(1)?);
    let kernel = c.shape(&w);
    let spatial = c.rank(&x).saturating_sub(2);
    if kernel.len() != spatial + 2 || spatial == 0 {
        let message = format!("a kernel {} for {}", c.ty(&w), c.ty(&x));
        return Err(OpError::invalid("shape-mismatch", message));
    }
    if c.attrs.string("auto_pad")?.unwrap_or("NOTSET") != "NOTSET"
        || c.attrs.ints("output_shape")?.is_some()
    {
        return Err(OpError::unsupported(
            "pads that follow from the shape of the result",
            "pads",
        ));
    }
    let strides = list(c, "strides", spatial, 1)?;
    let dilations = list(c, "dilations", spatial, 1)?;
    let outside = list(c, "output_padding", spatial, 0)?;
    let pads = list(c, "pads", 2 * spatial, 0)?;
    let groups = groups(c)?;
    let (mut pads_before, mut pads_after) = (Vec::new(), Vec::new());
    for n in 0..spatial {
        let size = kernel[n + 2]
            .as_const()
            .and_then(|k| usize::try_from(k).ok());
        let reach = size.map(|k| k.saturating_sub(1).saturating_mul(dilations[n]));
        let left = |pad: usize| reach.and_then(|r| r.checked_sub(pad));
        let (Some(before), Some(after)) = (left(pads[n]), left(pads[spatial + n])) else {
            return Err(OpError::unsupported(
                format!("pads {pads:?} of a kernel {}", c.ty(&w)),
                "pads smaller than the kernel",
            ));
        };
        pads_before.push(before);
        pads_after.push(after + outside[n]);
        x = spread(c, &x, n + 2, strides[n])?;
    }
    let w = turned(c, &w, groups)?;
    let op = Op::Conv(Conv {
        strides: vec![1; spatial],
        dilations,
        pads_before,
        pads_after,
        groups,
    });
    let mut args = vec![&x, &w];
    let bias = c.optional(2);
    args.extend(&bias);
    Ok(vec![c.apply(op, &args)?])
}

/// `x` with `stride - 1` zeros between the elements of an axis.
fn spread(c: &mut Call<'_, '_>, x: &Value, axis: usize, stride: usize) -> OpResult<Value> {
    if stride == 1 {
        return Ok(x.clone());
    }
    let mut shape = c.shape(x);
    let len = shape[axis].clone() * Dim::from(stride);
    shape.insert(axis + 1, Dim::one());
    let (before, mut after) = (
        vec![Dim::zero(); shape.len()],
        vec![Dim::zero(); shape.len()],
    );
    after[axis + 1] = Dim::from(stride - 1);
    let apart = c.reshape(x, shape.clone())?;
    let mode = PadMode::Constant(0.0);
    let pad = Op::Pad {
        before,
        after,
        mode,
    };
    let apart = c.apply(pad, &[&apart])?;
    shape.remove(axis + 1);
    shape[axis] = len.clone();
    let joined = c.reshape(&apart, shape)?;
    let len = len - Dim::from(stride - 1);
    let cut = Op::Slice {
        axis,
        start: Dim::zero(),
        len,
        step: 1,
    };
    c.apply(cut, &[&joined])
}

/// A kernel `[in, out / groups, ..]` as one of a convolution, `[out, in / groups, ..]`, back to front.
fn turned(c: &mut Call<'_, '_>, w: &Value, groups: usize) -> OpResult<Value> {
    let shape = c.shape(w);
    let count = Dim::from(groups);
    let Some(inputs) = shape[0].exact_div(&count) else {
        let message = format!("{groups} groups of a kernel {}", c.ty(w));
        return Err(OpError::invalid("shape-mismatch", message));
    };
    let mut apart = vec![count, inputs.clone()];
    apart.extend_from_slice(&shape[1..]);
    let w = c.reshape(w, apart)?;
    let mut perm: Vec<usize> = (0..=shape.len()).collect();
    perm.swap(1, 2);
    let w = c.transpose(&w, perm)?;
    let mut joined = vec![shape[1].clone() * Dim::from(groups), inputs];
    joined.extend_from_slice(&shape[2..]);
    let mut w = c.reshape(&w, joined)?;
    for (axis, len) in shape.iter().enumerate().skip(2) {
        let back = Op::Slice {
            axis,
            start: len.clone() - Dim::one(),
            len: len.clone(),
            step: -1,
        };
        w = c.apply(back, &[&w])?;
    }
    Ok(w)
}
