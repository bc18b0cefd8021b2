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
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Op, PadMode, ReduceOp, Shape};

/// More elements than this are not compared pair by pair.
const MAX_RANKED: i64 = 8192;
/// Elements of a known value that are looked at.
const MAX_KNOWN: usize = 64 * 1024;

fn length(dim: &Dim) -> Value {
    Value::ints(Elems::scalar(DType::I32, dim.clone()))
}

/// `0, 1, 2, ..` along one axis of `rank` axes.
fn count(c: &mut Call<'_, '_>, rank: usize, axis: usize, len: &Dim) -> OpResult<Value> {
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
fn count_along(c: &mut Call<'_, '_>, len: &Dim) -> OpResult<Value> {
    count(c, 2, 1, len)
}

fn with_axis(c: &mut Call<'_, '_>, x: &Value, axis: usize) -> OpResult<Value> {
    let mut shape = c.shape(x);
    shape.insert(axis, Dim::one());
    c.reshape(x, shape)
}

fn reduce(c: &mut Call<'_, '_>, op: ReduceOp, x: &Value, axis: usize) -> OpResult<Value> {
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

fn choose(c: &mut Call<'_, '_>, which: &Value, yes: &Value, no: f64) -> OpResult<Value> {
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
fn from_front(c: &mut Call<'_, '_>, indices: &Value, size: &Dim) -> OpResult<Value> {
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

/// A sequence of parts of one shape is their stack.
pub(super) fn split_to_sequence(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let mut shape = c.shape(&x);
    let axis = c.axis(0, shape.len())?;
    let (each, keep) = match c.optional(1) {
        None => (Dim::one(), c.attrs.flag("keepdims", true)?),
        // The standard ignores `keepdims` beside a length; exporters and ONNX Runtime do not.
        Some(split) if c.shape(&split).is_empty() => {
            let each = c.dim(&split, "the length of a part")?;
            let keep = !each.is(1) || c.attrs.flag("keepdims", true)?;
            (each, keep)
        }
        Some(split) => {
            let parts = c.dims(&split, "the lengths of the parts")?;
            let first = parts.first().cloned().unwrap_or_default();
            if parts.iter().any(|p| *p != first) {
                return Err(OpError::unsupported(
                    "a sequence of unlike parts",
                    "equal parts",
                ));
            }
            (first, true)
        }
    };
    let Some(many) = shape[axis].exact_div(&each) else {
        return Err(OpError::unsupported(
            "a sequence of unlike parts",
            "equal parts",
        ));
    };
    shape[axis] = each;
    shape.insert(axis, many);
    let apart = c.reshape(&x, shape.clone())?;
    let mut perm: Vec<usize> = (0..shape.len()).collect();
    perm[..=axis].rotate_right(1);
    let stack = c.transpose(&apart, perm)?;
    if keep {
        return Ok(vec![stack]);
    }
    let mut shape = c.shape(&stack);
    shape.remove(axis + 1);
    Ok(vec![c.reshape(&stack, shape)?])
}

/// One part of a sequence.
pub(super) fn sequence_at(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (stack, at) = (c.input(0)?, c.input(1)?);
    let at = c.reshape(&at, Vec::new())?;
    Ok(vec![c.apply(Op::Gather { axis: 0 }, &[&stack, &at])?])
}
