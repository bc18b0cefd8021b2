//! `Resize` by constant factors: each axis by itself, as a weighted sum of gathers with constant indices.
//!
//! ```text
//! y[i] = w0[i] * x[at0[i]] + w1[i] * x[at1[i]]       linear: two taps, cubic four, nearest one of weight 1
//! ```
//!
//! Taps beyond the border take the element at the border.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::eval::Elems;
use crate::value::Value;
use attnc_ir::{BinaryOp, DType, Dim, Op};

/// Longer axes are not resized.
const MAX_LEN: i64 = 1 << 16;

/// Where a position of the result lies in the operand.
#[derive(Clone, Copy)]
enum Place {
    HalfPixel,
    TorchHalfPixel,
    AlignCorners,
    Asymmetric,
}

/// How elements are weighed.
#[derive(Clone, Copy)]
enum Filter {
    Nearest(fn(f64) -> f64),
    Linear,
    Cubic(f64),
}

/// Elements of the operand that one of the result is made of: index and weight, of all results.
struct Tap {
    at: Vec<f64>,
    weight: Vec<f64>,
}

pub(super) fn resize(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let mut x = c.input(0)?;
    let (place, filter) = parameters(c)?;
    for (axis, scale, len) in factors(c, &x)? {
        let size = c.shape(&x)[axis].clone();
        let (Some(from), Some(to)) = (size.as_const(), len.as_const()) else {
            return Err(OpError::unsupported(
                format!("a length of {size} made {len}"),
                "constant lengths of the axes that are resized",
            ));
        };
        if from == to && scale == 1.0 {
            continue;
        }
        if !(1..=MAX_LEN).contains(&from) || !(1..=MAX_LEN).contains(&to) {
            let message = format!("a length of {from} made {to}, expected 1 to {MAX_LEN}");
            return Err(OpError::invalid("bad-shape", message));
        }
        x = weighed(c, &x, axis, &taps(place, filter, from, to, scale))?;
    }
    Ok(vec![x])
}

fn parameters(c: &Call<'_, '_>) -> OpResult<(Place, Filter)> {
    let refuse = |what: &str, found: &str, needed: &str| {
        Err(OpError::unsupported(format!("{what} `{found}`"), needed))
    };
    for (attr, plain) in [("antialias", 0), ("exclude_outside", 0)] {
        if c.attrs.int(attr)?.is_some_and(|n| n != plain) {
            return Err(OpError::unsupported(format!("{attr} = 1"), "0"));
        }
    }
    match c
        .attrs
        .string("keep_aspect_ratio_policy")?
        .unwrap_or("stretch")
    {
        "stretch" => {}
        other => return refuse("keep_aspect_ratio_policy", other, "stretch"),
    }
    // Before opset 11 there was one way.
    let default = if c.opset < 11 {
        "asymmetric"
    } else {
        "half_pixel"
    };
    let mode = c.attrs.string("coordinate_transformation_mode")?;
    let place = match mode.unwrap_or(default) {
        "half_pixel" => Place::HalfPixel,
        "pytorch_half_pixel" => Place::TorchHalfPixel,
        "align_corners" => Place::AlignCorners,
        "asymmetric" => Place::Asymmetric,
        other => {
            let needed = "half_pixel, pytorch_half_pixel, align_corners or asymmetric";
            return refuse("coordinate_transformation_mode", other, needed);
        }
    };
    let default = if c.opset < 11 {
        "floor"
    } else {
        "round_prefer_floor"
    };
    let round: fn(f64) -> f64 = match c.attrs.string("nearest_mode")?.unwrap_or(default) {
        "round_prefer_floor" => |x| (x - 0.5).ceil(),
        "round_prefer_ceil" => |x| (x + 0.5).floor(),
        "floor" => f64::floor,
        "ceil" => f64::ceil,
        other => return refuse("nearest_mode", other, "a rounding of the standard"),
    };
    let filter = match c.attrs.string("mode")?.unwrap_or("nearest") {
        "nearest" => Filter::Nearest(round),
        "linear" => Filter::Linear,
        "cubic" => {
            let a = c.attrs.float("cubic_coeff_a")?.unwrap_or(-0.75);
            Filter::Cubic(f64::from(a))
        }
        other => return refuse("mode", other, "nearest, linear or cubic"),
    };
    Ok((place, filter))
}

/// The axes that are resized: by which factor, to which length.
fn factors(c: &mut Call<'_, '_>, x: &Value) -> OpResult<Vec<(usize, f64, Dim)>> {
    let shape = c.shape(x);
    let axes = match c.attrs.ints("axes")? {
        Some(axes) => axes
            .iter()
            .map(|&a| c.axis_of(a, shape.len()))
            .collect::<OpResult<Vec<_>>>()?,
        None => (0..shape.len()).collect(),
    };
    let given = |n: usize| c.optional(n).filter(|v| !c.ty(v).elements().is(0));
    let (scales, sizes) = if c.opset < 11 {
        (given(1), None)
    } else {
        (given(2), given(3))
    };
    let mut out = Vec::new();
    if let Some(sizes) = sizes {
        let sizes = c.dims(&sizes, "the lengths")?;
        if sizes.len() != axes.len() {
            let message = format!("{} lengths for {} axes", sizes.len(), axes.len());
            return Err(OpError::invalid("shape-mismatch", message));
        }
        for (&axis, len) in axes.iter().zip(sizes) {
            #[expect(clippy::cast_precision_loss, reason = "lengths are small")]
            let scale = match (len.as_const(), shape[axis].as_const()) {
                (Some(to), Some(from)) if from > 0 => to as f64 / from as f64,
                _ => 1.0,
            };
            if len != shape[axis] {
                out.push((axis, scale, len));
            }
        }
        return Ok(out);
    }
    let scales = scales
        .ok_or_else(|| OpError::invalid("operand-count", "neither scales nor sizes are given"))?;
    let Some(scales) = scales.as_numbers(crate::context::MAX_RANK) else {
        return Err(OpError::unsupported(
            "scales that depend on data",
            "constant scales",
        ));
    };
    if scales.data.len() != axes.len() {
        let message = format!("{} scales for {} axes", scales.data.len(), axes.len());
        return Err(OpError::invalid("shape-mismatch", message));
    }
    for (&axis, &scale) in axes.iter().zip(&scales.data) {
        if !(scale > 0.0 && scale < 1e6) {
            let message = format!("a scale of {scale}");
            return Err(OpError::invalid("bad-attribute", message));
        }
        if scale == 1.0 {
            continue;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "lengths are small, and checked again"
        )]
        let len = match shape[axis].as_const() {
            Some(n) => Dim::from((n as f64 * scale).floor() as i64),
            None => shape[axis].clone() * Dim::from(scale as i64),
        };
        out.push((axis, scale, len));
    }
    Ok(out)
}

#[expect(clippy::cast_precision_loss, reason = "lengths are small")]
fn taps(place: Place, filter: Filter, from: i64, to: i64, scale: f64) -> Vec<Tap> {
    let last = (from - 1) as f64;
    let position = |i: i64| {
        let i = i as f64;
        match place {
            Place::TorchHalfPixel if to == 1 => 0.0,
            Place::HalfPixel | Place::TorchHalfPixel => (i + 0.5) / scale - 0.5,
            Place::AlignCorners if to == 1 => 0.0,
            Place::AlignCorners => i * last / (to - 1) as f64,
            Place::Asymmetric => i / scale,
        }
    };
    let count = match filter {
        Filter::Nearest(_) => 1,
        Filter::Linear => 2,
        Filter::Cubic(_) => 4,
    };
    let tap = |n: usize| {
        let (mut at, mut weight) = (Vec::new(), Vec::new());
        for i in 0..to {
            let x = position(i);
            let t = x - x.floor();
            let (index, w) = match filter {
                Filter::Nearest(round) => (round(x), 1.0),
                Filter::Linear => (x.floor() + n as f64, if n == 0 { 1.0 - t } else { t }),
                Filter::Cubic(a) => (x.floor() + n as f64 - 1.0, cubic(a, t + 1.0 - n as f64)),
            };
            at.push(index.clamp(0.0, last));
            weight.push(f64::from(w as f32));
        }
        Tap { at, weight }
    };
    (0..count).map(tap).collect()
}

/// Keys 1981, "Cubic convolution interpolation for digital image processing", eq. 4 with its parameter.
fn cubic(a: f64, distance: f64) -> f64 {
    let x = distance.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}

fn weighed(c: &mut Call<'_, '_>, x: &Value, axis: usize, taps: &[Tap]) -> OpResult<Value> {
    let (rank, dtype) = (c.rank(x), c.dtype(x));
    let mut sum = None;
    for tap in taps {
        let at = Elems::list(DType::I32, tap.at.clone()).to_constant();
        let one = c.apply(Op::Gather { axis }, &[x, &Value::constant(at)])?;
        if taps.len() == 1 {
            return Ok(one);
        }
        let mut shape = vec![1; rank];
        shape[axis] = tap.weight.len();
        let weight = Elems {
            dtype,
            shape,
            data: tap.weight.clone(),
        };
        let part = c.binary(BinaryOp::Mul, &one, &Value::constant(weight.to_constant()))?;
        sum = Some(match sum {
            None => part,
            Some(sum) => c.binary(BinaryOp::Add, &sum, &part)?,
        });
    }
    Ok(sum.unwrap_or_else(|| x.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_weights() {
        let nearest = Filter::Nearest(|x| (x - 0.5).ceil());
        let taps_of = |place, filter, from, to| {
            let scale =
                f64::from(i32::try_from(to).unwrap()) / f64::from(i32::try_from(from).unwrap());
            taps(place, filter, from, to, scale)
        };
        let tap = &taps_of(Place::HalfPixel, nearest, 2, 4)[0];
        assert_eq!(tap.at, [0.0, 0.0, 1.0, 1.0]);
        let two = taps_of(Place::HalfPixel, Filter::Linear, 2, 4);
        assert_eq!(two[0].weight, [0.25, 0.75, 0.25, 0.75]);
        assert_eq!((two[0].at[0], two[1].at[0], two[1].at[3]), (0.0, 0.0, 1.0));
        let corners = taps_of(Place::AlignCorners, Filter::Linear, 3, 5);
        assert_eq!(corners[0].at, [0.0, 0.0, 1.0, 1.0, 2.0]);
        for place in [Place::HalfPixel, Place::TorchHalfPixel, Place::Asymmetric] {
            let four = taps_of(place, Filter::Cubic(-0.75), 5, 8);
            for i in 0..8 {
                let sum: f64 = four.iter().map(|t| t.weight[i]).sum();
                assert!((sum - 1.0).abs() < 1e-6, "{sum}");
            }
        }
    }
}
