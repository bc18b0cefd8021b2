//! Pooling: a reduction over gathered windows.
//!
//! An axis of length L becomes two, (windows, positions in the window), by a gather whose index is
//! `stride * window + dilation * position`; index arithmetic sinks into the reduction, nothing is copied.

use super::conv::{list, pads};
use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{BinaryOp, Dim, Extents, Op, PadMode, ReduceOp};

/// Where the windows of one axis lie.
struct Window {
    kernel: usize,
    stride: usize,
    dilation: usize,
    before: usize,
    /// Padding behind: what is asked for, and what the last window needs besides.
    after: usize,
    extra: usize,
    count: Dim,
}

fn windows(c: &Call<'_, '_>, x: &Value) -> OpResult<Vec<Window>> {
    let shape = c.shape(x);
    let spatial = shape.len().saturating_sub(2);
    let kernel = list(c, "kernel_shape", spatial, 1)?;
    let strides = list(c, "strides", spatial, 1)?;
    let dilations = list(c, "dilations", spatial, 1)?;
    let mut sizes = vec![Dim::one(); 2];
    sizes.extend(kernel.iter().map(|&k| Dim::from(k)));
    let (before, after) = pads(c, x, &sizes, &strides, &dilations)?;
    let ceil = c.attrs.flag("ceil_mode", false)?;
    let none = Extents::none();
    let mut out = Vec::new();
    for n in 0..spatial {
        let (stride, reach) = (strides[n], dilations[n] * (kernel[n] - 1) + 1);
        let padded = shape[n + 2].clone() + Dim::from(before[n] + after[n]);
        let room = padded.clone() - Dim::from(reach);
        let steps = Dim::from(stride);
        let mut count = room.floor_div(&steps, &none) + Dim::one();
        let mut extra = 0;
        if ceil && stride > 1 {
            let Some(room) = room.as_const() else {
                return Err(OpError::unsupported(
                    "ceil_mode over a varying length",
                    "a constant length, or pads",
                ));
            };
            let (stride, start) = (stride as i64, room + reach as i64 - after[n] as i64);
            let mut windows = room.div_euclid(stride) + i64::from(room.rem_euclid(stride) > 0) + 1;
            // A window that would start behind the input and its front padding is none.
            if (windows - 1) * stride >= start {
                windows -= 1;
            }
            extra = usize::try_from((windows - 1) * stride - room).unwrap_or(0);
            count = Dim::from(windows);
        }
        if count.as_const().is_some_and(|n| n < 1) {
            return Err(OpError::invalid(
                "shape-mismatch",
                format!("a window of {reach} over axis {} of {}", n + 2, c.ty(x)),
            ));
        }
        out.push(Window {
            kernel: kernel[n],
            stride,
            dilation: dilations[n],
            before: before[n],
            after: after[n],
            extra,
            count,
        });
    }
    Ok(out)
}

/// `x` with every spatial axis as (windows, positions), padded by `fill`.
fn gathered(c: &mut Call<'_, '_>, x: &Value, at: &[Window], fill: f64) -> OpResult<Value> {
    let width = |f: fn(&Window) -> usize| {
        let mut widths = vec![Dim::zero(); 2];
        widths.extend(at.iter().map(|w| Dim::from(f(w))));
        widths
    };
    let (before, after) = (width(|w| w.before), width(|w| w.after + w.extra));
    let mut x = x.clone();
    if before.iter().chain(&after).any(|d| !d.is(0)) {
        let mode = PadMode::Constant(fill);
        let pad = Op::Pad {
            before,
            after,
            mode,
        };
        x = c.apply(pad, &[&x])?;
    }
    for (n, window) in at.iter().enumerate() {
        let kernel = Dim::from(window.kernel);
        let mut count = |shape: Vec<Dim>, axis: usize, step: usize| {
            let (start, step) = (Dim::zero(), Dim::from(step));
            let op = Op::Iota {
                shape,
                axis,
                start,
                step,
            };
            c.apply(op, &[])
        };
        let first = count(vec![window.count.clone(), Dim::one()], 0, window.stride)?;
        let inside = count(vec![Dim::one(), kernel], 1, window.dilation)?;
        let index = c.binary(BinaryOp::Add, &first, &inside)?;
        let axis = 2 + 2 * n;
        x = c.apply(Op::Gather { axis }, &[&x, &index])?;
    }
    Ok(x)
}

fn reduced(c: &mut Call<'_, '_>, op: ReduceOp, x: &Value, spatial: usize) -> OpResult<Value> {
    let axes = (0..spatial).map(|n| 3 + 2 * n).collect();
    let keep_dims = false;
    c.apply(
        Op::Reduce {
            op,
            axes,
            keep_dims,
        },
        &[x],
    )
}

pub(super) fn max(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    if c.wants(1) {
        return Err(OpError::unsupported(
            "the positions of the largest elements",
            "the first result only",
        ));
    }
    let at = windows(c, &x)?;
    let x = gathered(c, &x, &at, f64::NEG_INFINITY)?;
    Ok(vec![reduced(c, ReduceOp::Max, &x, at.len())?])
}

/// The mean over what a window holds of the input, or over all of it where padding counts.
pub(super) fn average(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let at = windows(c, &x)?;
    let with_pads = c.attrs.flag("count_include_pad", false)?;
    let padded = at.iter().any(|w| w.extra > 0 || (w.before + w.after) > 0);
    let wide = gathered(c, &x, &at, 0.0)?;
    if !padded || (with_pads && at.iter().all(|w| w.extra == 0)) {
        return Ok(vec![reduced(c, ReduceOp::Mean, &wide, at.len())?]);
    }
    if with_pads {
        return Err(OpError::unsupported(
            "count_include_pad together with ceil_mode",
            "one of the two",
        ));
    }
    let sum = reduced(c, ReduceOp::Sum, &wide, at.len())?;
    let dtype = c.dtype(&x);
    let mut ones = vec![Dim::one(); 2];
    ones.extend(c.shape(&x).into_iter().skip(2));
    let ones = c.splat(dtype, &ones, 1.0)?;
    let ones = gathered(c, &ones, &at, 0.0)?;
    let held = reduced(c, ReduceOp::Sum, &ones, at.len())?;
    Ok(vec![c.binary(BinaryOp::Div, &sum, &held)?])
}

/// One number a channel.
pub(super) fn global(c: &mut Call<'_, '_>, op: ReduceOp) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let (axes, keep_dims) = ((2..c.rank(&x)).collect(), true);
    let op = Op::Reduce {
        op,
        axes,
        keep_dims,
    };
    Ok(vec![c.apply(op, &[&x])?])
}
