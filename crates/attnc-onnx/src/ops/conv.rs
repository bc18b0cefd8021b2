//! Convolution.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{Conv, Dim, Op};

/// Strides, paddings and dilations beyond this make no sense, and their products would not fit.
const MAX_PARAMETER: i64 = 1 << 20;

fn list(c: &Call<'_, '_>, name: &str, len: usize, default: usize) -> OpResult<Vec<usize>> {
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
    let groups = c.attrs.int("group")?.unwrap_or(1);
    let groups = usize::try_from(groups)
        .ok()
        .filter(|&n| n > 0)
        .ok_or_else(|| {
            OpError::invalid("bad-attribute", format!("attribute `group` is {groups}"))
        })?;
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

/// Zeros before and after each spatial axis.
fn pads(
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
