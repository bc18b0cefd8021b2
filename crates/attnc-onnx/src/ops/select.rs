//! Choosing elements by their rank, by their size and by their index.
//!
//! Nothing is sorted. The rank of an element is the number of elements that come before it, a sum over the
//! comparisons of all pairs; an element that an index names is found by comparing the index with all
//! positions. Both are a reduction of a pointwise expression: no table of pairs is ever a buffer.

use super::scatter;
use crate::DerivedKind;
use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::eval::Elems;
use crate::value::{MAX_INTS, Value};
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Op, ReduceOp};

/// More elements than this are not compared pair by pair.
const MAX_RANKED: i64 = 8192;
/// Elements of a known value that are looked at.
const MAX_KNOWN: usize = 64 * 1024;

pub(super) fn length(dim: &Dim) -> Value {
    Value::ints(Elems::scalar(DType::I32, dim.clone()))
}

/// `0, 1, 2, ..` along one axis of `rank` axes.
pub(super) fn count(c: &mut Call<'_, '_>, rank: usize, axis: usize, len: &Dim) -> OpResult<Value> {
    let mut shape = vec![Dim::one(); rank];
    shape[axis] = len.clone();
    let (start, step) = (Dim::zero(), Dim::one());
    c.apply(
        Op::Iota {
            shape,
            axis,
            start,
            step,
        },
        &[],
    )
}

/// `0, 1, 2, ..` as one row.
pub(super) fn count_along(c: &mut Call<'_, '_>, len: &Dim) -> OpResult<Value> {
    count(c, 2, 1, len)
}

pub(super) fn with_axis(c: &mut Call<'_, '_>, x: &Value, axis: usize) -> OpResult<Value> {
    let mut shape = c.shape(x);
    shape.insert(axis, Dim::one());
    c.reshape(x, shape)
}

pub(super) fn reduce(
    c: &mut Call<'_, '_>,
    op: ReduceOp,
    x: &Value,
    axis: usize,
) -> OpResult<Value> {
    let (axes, keep_dims) = (vec![axis], false);
    c.apply(
        Op::Reduce {
            op,
            axes,
            keep_dims,
        },
        &[x],
    )
}

pub(super) fn choose(c: &mut Call<'_, '_>, which: &Value, yes: &Value, no: f64) -> OpResult<Value> {
    let no = c.scalar_like(yes, no);
    c.apply(Op::Where, &[which, yes, &no])
}

/// The `k` largest (or smallest) elements along an axis and their positions; equal ones in their order.
pub(super) fn top_k(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let shape = c.shape(&x);
    let axis = c.axis(-1, shape.len())?;
    let size = shape[axis].clone();
    let k = match c.attrs.int("k")? {
        Some(k) => Dim::from(k),
        None => {
            let k = c.input(1)?;
            let k = c.reshape(&k, Vec::new())?;
            c.dim(&k, "the number of elements")?
        }
    };
    let beyond = |n: &Dim, most: i64| n.as_const().is_some_and(|n| !(0..=most).contains(&n));
    if beyond(&k, size.as_const().unwrap_or(i64::MAX)) {
        let message = format!("{k} elements of axis {axis} of {}", c.ty(&x));
        return Err(OpError::invalid("shape-mismatch", message));
    }
    if beyond(&size, MAX_RANKED) {
        return Err(OpError::unsupported(
            format!("the order of {size} elements"),
            format!("at most {MAX_RANKED}"),
        ));
    }
    c.cx.require(k.clone(), size.clone(), || {
        "the number of elements of a TopK".to_owned()
    });
    // `sorted = 0` leaves the order open.
    let before = match c.attrs.flag("largest", true)? {
        true => CompareOp::Gt,
        false => CompareOp::Lt,
    };
    let rank = rank_of(c, &x, axis, before)?;
    let places = count(c, shape.len() + 1, axis + 1, &k)?;
    let here = c.compare(CompareOp::Eq, &rank, &places)?;
    let position = count(c, shape.len() + 1, axis, &size)?;
    let position = choose(c, &here, &position, 0.0)?;
    let positions = reduce(c, ReduceOp::Sum, &position, axis)?;
    let values = c.apply(Op::GatherElements { axis }, &[&x, &positions])?;
    Ok(vec![values, positions])
}

/// How many elements come before each along `axis`; the result has an axis of length 1 behind it.
fn rank_of(c: &mut Call<'_, '_>, x: &Value, axis: usize, before: CompareOp) -> OpResult<Value> {
    let (rank, size) = (c.rank(x) + 1, c.shape(x)[axis].clone());
    let one = with_axis(c, x, axis + 1)?;
    let other = with_axis(c, x, axis)?;
    let ahead = c.compare(before, &other, &one)?;
    let equal = c.compare(CompareOp::Eq, &other, &one)?;
    let here = count(c, rank, axis, &size)?;
    let there = count(c, rank, axis + 1, &size)?;
    let earlier = c.compare(CompareOp::Lt, &there, &here)?;
    let tied = c.binary(BinaryOp::And, &equal, &earlier)?;
    let ahead = c.binary(BinaryOp::Or, &ahead, &tied)?;
    let ahead = c.cast(DType::I32, &ahead)?;
    let sum = reduce(c, ReduceOp::Sum, &ahead, axis + 1)?;
    with_axis(c, &sum, axis + 1)
}

/// The position of the largest (or smallest) element along an axis: the first, or the last.
pub(super) fn arg(c: &mut Call<'_, '_>, best: ReduceOp) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let shape = c.shape(&x);
    let axis = c.axis(0, shape.len())?;
    let last = c.attrs.flag("select_last_index", false)?;
    let most = reduce(c, best, &x, axis)?;
    let most = with_axis(c, &most, axis)?;
    let best = c.compare(CompareOp::Eq, &x, &most)?;
    let position = count(c, shape.len(), axis, &shape[axis])?;
    let (pick, elsewhere) = match last {
        true => (ReduceOp::Max, Dim::zero()),
        false => (ReduceOp::Min, shape[axis].clone() - Dim::one()),
    };
    let position = c.apply(Op::Where, &[&best, &position, &length(&elsewhere)])?;
    let out = reduce(c, pick, &position, axis)?;
    Ok(vec![match c.attrs.flag("keepdims", true)? {
        true => with_axis(c, &out, axis)?,
        false => out,
    }])
}

/// Indices counted from the front.
pub(super) fn from_front(c: &mut Call<'_, '_>, indices: &Value, size: &Dim) -> OpResult<Value> {
    let indices = c.cast(DType::I32, indices)?;
    let zero = c.cx.scalar(DType::I32, 0.0);
    let negative = c.compare(CompareOp::Lt, &indices, &zero)?;
    let wrapped = c.binary(BinaryOp::Add, &indices, &length(size))?;
    c.apply(Op::Where, &[&negative, &wrapped, &indices])
}

/// A new axis that is `on` at the index and `off` elsewhere.
pub(super) fn one_hot(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (indices, depth, values) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let depth = c.reshape(&depth, Vec::new())?;
    let depth = c.dim(&depth, "the depth")?;
    let rank = c.rank(&indices) + 1;
    let axis = c.axis(-1, rank)?;
    let mut value = |n: usize| {
        let (start, len) = (Dim::from(n), Dim::one());
        let part = Op::Slice {
            axis: 0,
            start,
            len,
            step: 1,
        };
        let part = c.apply(part, &[&values])?;
        c.reshape(&part, Vec::new())
    };
    let (off, on) = (value(0)?, value(1)?);
    if let Some(known) = known_one_hot(&indices, axis, &depth, &off, &on) {
        return Ok(vec![known]);
    }
    let indices = from_front(c, &indices, &depth)?;
    let indices = with_axis(c, &indices, axis)?;
    let places = count(c, rank, axis, &depth)?;
    let hit = c.compare(CompareOp::Eq, &indices, &places)?;
    Ok(vec![c.apply(Op::Where, &[&hit, &on, &off])?])
}

/// The list that one known index makes of known numbers: exporters write lengths of repeats so.
fn known_one_hot(
    indices: &Value,
    axis: usize,
    depth: &Dim,
    off: &Value,
    on: &Value,
) -> Option<Value> {
    let (indices, off, on) = (indices.as_ints()?, off.as_ints()?, on.as_ints()?);
    let [index] = indices.data.as_slice() else {
        return None;
    };
    let size = usize::try_from(depth.as_const()?).ok()?;
    let index = index.as_const()?;
    let index = if index < 0 {
        index + depth.as_const()?
    } else {
        index
    };
    let hit = usize::try_from(index).ok();
    let mut shape = indices.shape.clone();
    shape.insert(axis, size);
    let pick = |n| if Some(n) == hit { &on } else { &off };
    Some(Value::ints(Elems {
        dtype: on.dtype,
        shape,
        data: (0..size.min(MAX_INTS + 1))
            .map(|n| pick(n).data[0].clone())
            .collect(),
    }))
    .filter(|_| size <= MAX_INTS)
}

/// Where a value is not zero: all of it, constant positions, or as many as data says.
pub(super) fn non_zero(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let shape = c.shape(&x);
    if let Some(number) = scatter::scalar_of(c, &x).and_then(|s| s.as_splat()) {
        return Ok(vec![match number {
            0.0 => c.splat(DType::I32, &[Dim::from(shape.len()), Dim::zero()], 0.0)?,
            _ => all_positions(c, &shape)?,
        }]);
    }
    let Some(known) = x.as_numbers(MAX_KNOWN) else {
        let id = c.cx.place(&x)?;
        return Ok(vec![Value::Graph(c.cx.derive(id, DerivedKind::Positions))]);
    };
    let found: Vec<usize> = (0..known.data.len())
        .filter(|&n| known.data[n] != 0.0)
        .collect();
    let mut stride = known.data.len();
    let mut data = Vec::new();
    for &size in &known.shape {
        stride = stride.checked_div(size).unwrap_or(0);
        data.extend(found.iter().map(|n| Dim::from(n / stride % size)));
    }
    let positions = Elems {
        dtype: DType::I32,
        shape: vec![known.shape.len(), found.len()],
        data,
    };
    Ok(vec![match positions.numbers() {
        Some(numbers) if positions.data.len() > MAX_INTS => Value::constant(numbers.to_constant()),
        _ => Value::ints(positions),
    }])
}

/// The indices of every element, `[axes, elements]`.
fn all_positions(c: &mut Call<'_, '_>, shape: &[Dim]) -> OpResult<Value> {
    let many: Dim = shape.iter().cloned().product();
    if shape.is_empty() {
        // As ONNX says of a scalar, unlike NumPy: positions of no axes.
        return c.splat(DType::I32, &[Dim::zero(), many], 0.0);
    }
    let linear = count_along(c, &many)?;
    let mut stride = many;
    let mut rows = Vec::new();
    for (n, size) in shape.iter().enumerate() {
        let Some(next) = stride.exact_div(size) else {
            return Err(OpError::unsupported(
                "positions in a value without elements",
                "some",
            ));
        };
        stride = next;
        let mut row = linear.clone();
        if !stride.is(1) {
            row = c.binary(BinaryOp::Div, &row, &length(&stride))?;
        }
        if n > 0 {
            row = c.binary(BinaryOp::Mod, &row, &length(size))?;
        }
        rows.push(row);
    }
    let rows: Vec<&Value> = rows.iter().collect();
    c.apply(Op::Concat { axis: 0 }, &rows)
}
