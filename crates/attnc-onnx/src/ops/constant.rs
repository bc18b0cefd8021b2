//! Operators that make values from nothing but lengths.

use crate::call::Call;
use crate::context::check_shape;
use crate::error::{OpError, OpResult};
use crate::eval::Elems;
use crate::tensor;
use crate::value::Value;
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Extents, Op};

pub(super) fn constant(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    if c.attrs.0.len() != 1 {
        return Err(OpError::invalid(
            "bad-attribute",
            format!("{} values are given, expected 1", c.attrs.0.len()),
        ));
    }
    if let Some(proto) = c.attrs.tensor("value")? {
        return Ok(vec![tensor::decode(proto, c.files)?]);
    }
    let value = if let Some(v) = c.attrs.get("value_float").and_then(|a| a.f) {
        Value::constant(Elems::scalar(DType::F32, f64::from(v)).to_constant())
    } else if let Some(v) = c.attrs.floats("value_floats")? {
        Call::floats(&v)
    } else if let Some(v) = c.attrs.int("value_int")? {
        Value::ints(Elems::scalar(DType::I32, Dim::from(v)))
    } else if let Some(v) = c.attrs.ints("value_ints")? {
        Value::shape(v.into_iter().map(Dim::from).collect())
    } else {
        return Err(OpError::invalid(
            "bad-attribute",
            "the constant has no value",
        ));
    };
    Ok(vec![value])
}

pub(super) fn constant_of_shape(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let shape = c.input(0)?;
    let shape = c.dims(&shape, "the shape")?;
    let value = match c.attrs.tensor("value")? {
        None => c.cx.scalar(DType::F32, 0.0),
        Some(proto) => {
            let one = tensor::decode(proto, c.files)?;
            if !c.ty(&one).elements().is(1) {
                return Err(OpError::invalid(
                    "bad-attribute",
                    format!("attribute `value` is {}, expected one element", c.ty(&one)),
                ));
            }
            c.reshape(&one, Vec::new())?
        }
    };
    Ok(vec![c.broadcast(&value, &shape)?])
}

/// `start, start + delta, …` below `limit`. Lengths may be limits; other data may not.
pub(super) fn range(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (start, limit, delta) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let dtype = c.dtype(&start);
    // Steps are multiplied, not summed up, so nothing accumulates; in f32, as 1 asks for.
    if let Some(stash) = c.attrs.int("stash_type")?.filter(|&n| n != 1) {
        return Err(OpError::unsupported(
            format!("stash_type {stash}"),
            "1, float",
        ));
    }
    let known = |v: &Value| v.as_ints().and_then(|i| i.data.first().cloned());
    let whole = |v: &Value| {
        let number = v
            .as_splat()
            .filter(|n| n.fract() == 0.0 && n.abs() < f64::from(1 << 24))?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "checked to be a small integer"
        )]
        Some(Dim::from(number as i64))
    };
    let whole_numbers = dtype.is_int();
    let [first, end, step] = [&start, &limit, &delta].map(|v| match v {
        Value::Graph(id) if whole_numbers => c.cx.length_of(*id),
        known_value => known(known_value).or_else(|| whole(known_value)),
    });
    match (first, end, step) {
        (Some(first), Some(end), Some(step)) => {
            let ints = int_range(c, first, end, step)?;
            Ok(vec![c.cast(dtype, &ints)?])
        }
        _ => Ok(vec![float_range(c, &start, &limit, &delta)?]),
    }
}

fn int_range(c: &mut Call<'_, '_>, first: Dim, end: Dim, step: Dim) -> OpResult<Value> {
    let none = Extents::none();
    let Some(by) = step.as_const().filter(|&n| n != 0) else {
        return Err(OpError::unsupported(
            format!("a step of {step}"),
            "a constant that is not 0",
        ));
    };
    let span = if by > 0 {
        end - first.clone()
    } else {
        first.clone() - end
    };
    let len = span.ceil_div(&Dim::from(by.saturating_abs()), &none);
    let len = match len.as_const() {
        Some(n) => Dim::from(n.max(0)),
        None => {
            c.cx.require(Dim::zero(), len.clone(), || {
                "the length of a Range".to_owned()
            });
            len
        }
    };
    let shape = vec![len];
    check_shape(&shape)?;
    c.apply(
        Op::Iota {
            shape,
            axis: 0,
            start: first,
            step,
        },
        &[],
    )
}

fn float_range(
    c: &mut Call<'_, '_>,
    start: &Value,
    limit: &Value,
    delta: &Value,
) -> OpResult<Value> {
    let what = "a limit of a Range";
    let (first, end) = (c.number(start, what)?, c.number(limit, what)?);
    let step = c.number(delta, what)?;
    let len = ((end - first) / step).ceil().max(0.0);
    if len.is_nan() || len > f64::from(1 << 20) {
        return Err(OpError::invalid(
            "bad-shape",
            format!("a Range from {first} to {end} by {step}"),
        ));
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked to be small")]
    let count = c.apply(
        Op::Iota {
            shape: vec![Dim::from(len as i64)],
            axis: 0,
            start: Dim::zero(),
            step: Dim::one(),
        },
        &[],
    )?;
    let dtype = c.dtype(start);
    let count = c.cast(dtype, &count)?;
    let steps = c.with(BinaryOp::Mul, &count, step)?;
    c.with(BinaryOp::Add, &steps, first)
}

/// 1 where column = row + k, else 0.
pub(super) fn eye_like(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let dtype = match c.attrs.int("dtype")? {
        Some(code) => tensor::dtype_of(i32::try_from(code).unwrap_or(-1))?.1,
        None => c.dtype(&x),
    };
    let k = c.attrs.int("k")?.unwrap_or(0);
    let shape = c.shape(&x);
    if shape.len() != 2 {
        return Err(OpError::invalid(
            "shape-mismatch",
            format!("expected 2 axes, found {}", c.ty(&x)),
        ));
    }
    let mut count = |axis, start: i64| {
        let step = Dim::one();
        c.apply(
            Op::Iota {
                shape: shape.clone(),
                axis,
                start: start.into(),
                step,
            },
            &[],
        )
    };
    let (row, column) = (count(0, k)?, count(1, 0)?);
    let diagonal = c.compare(CompareOp::Eq, &row, &column)?;
    Ok(vec![c.cast(dtype, &diagonal)?])
}
