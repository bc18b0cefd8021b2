//! Scattering, as a choice between old and new elements by their position.
//!
//! Exporters write `x[:, :, a:b] = u` as `ScatterND` with a grid of indices, one `Range` an axis. Such a grid
//! is read back as the block it is, whatever lengths it has, and constant indices become a table that says
//! which update an element gets. Indices that are data are compared with all positions (`select`).
//!
//! ```text
//! x[:, s:s+n] = u    is    where(s <= d1 and d1 < s + n, pad(u, before = [0, s]), x)
//! ```

use super::scatter_elements;
use crate::call::Call;
use crate::context::check_shape;
use crate::error::{OpError, OpResult};
use crate::eval::{Elems, is_tame};
use crate::value::{Value, as_iota};
use attnc_ir::scalar::load_indices;
use attnc_ir::{Atom, BinaryOp, CompareOp, DType, Dim, Extents, Op, PadMode, Shape, ValueId};

/// Positions in a table of constant indices.
const MAX_TABLE: usize = 64 * 1024;
/// Nodes looked at on the way back from indices to what they count.
const MAX_STEPS: usize = 256;

/// Where one axis of the updates goes.
struct Span {
    /// The axis of the grid of indices that counts this one; `None` where all indices are the same.
    axis: Option<usize>,
    start: Dim,
    len: Dim,
}

pub(super) fn scatter_nd(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, indices, updates) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let join = reduction(c)?;
    let grid = c.shape(&indices);
    let shape = c.shape(&x);
    let (count, grid) = match grid.split_last() {
        Some((last, grid)) => (last.as_const(), grid.to_vec()),
        None => (None, Vec::new()),
    };
    let count = count
        .and_then(|n| usize::try_from(n).ok())
        .filter(|n| (1..=shape.len()).contains(n) && c.dtype(&indices).is_int())
        .ok_or_else(|| {
            let (indices, x) = (c.ty(&indices), c.ty(&x));
            OpError::invalid("shape-mismatch", format!("indices {indices} into {x}"))
        })?;
    let mut wanted = grid.clone();
    wanted.extend(shape[count..].iter().cloned());
    if c.shape(&updates) != wanted || c.dtype(&updates) != c.dtype(&x) {
        let wanted: Vec<_> = wanted.iter().map(Dim::to_string).collect();
        let message = format!(
            "updates are {}, expected {}[{}]",
            c.ty(&updates),
            c.dtype(&x),
            wanted.join(", ")
        );
        return Err(OpError::invalid("shape-mismatch", message));
    }
    if let Some(spans) = block(c, &indices, &grid, &shape[..count]) {
        let updates = arrange(c, &updates, &spans, grid.len())?;
        return Ok(vec![write_block(c, &x, &updates, &spans, join)?]);
    }
    match indices.as_numbers(MAX_TABLE) {
        Some(indices) => Ok(vec![by_table(c, &x, &indices, &updates, join)?]),
        None if join.is_none() => Ok(vec![scatter_elements::scatter_slices(
            c, &x, &indices, &updates,
        )?]),
        None => Err(OpError::unsupported(
            "a reduction over indices that depend on data, or that skip elements",
            "no reduction, or indices that are constant or count along an axis one by one",
        )),
    }
}

/// How an update is joined with the element it meets; `None` replaces it.
fn reduction(c: &Call<'_, '_>) -> OpResult<Option<BinaryOp>> {
    Ok(match c.attrs.string("reduction")?.unwrap_or("none") {
        "none" => None,
        "add" => Some(BinaryOp::Add),
        "mul" => Some(BinaryOp::Mul),
        "max" => Some(BinaryOp::Max),
        "min" => Some(BinaryOp::Min),
        other => {
            return Err(OpError::invalid(
                "bad-attribute",
                format!("attribute `reduction` is `{other}`"),
            ));
        }
    })
}

/// The block that a grid of indices covers, if every axis of it is counted by an axis of its own.
fn block(c: &Call<'_, '_>, indices: &Value, grid: &[Dim], sizes: &[Dim]) -> Option<Vec<Span>> {
    let mut spans: Vec<Span> = Vec::new();
    let mut steps = MAX_STEPS;
    for (k, size) in sizes.iter().enumerate() {
        let mut at: Vec<Dim> = (0..grid.len())
            .map(|n| match u32::try_from(n) {
                Ok(_) if grid[n].is(1) => Some(Dim::zero()),
                Ok(index) => Some(Dim::index(index)),
                Err(_) => None,
            })
            .collect::<Option<_>>()?;
        at.push(Dim::from(k));
        let position = element(c, indices, &at, grid, &mut steps)?;
        let mut counted = position.indices().into_iter();
        let span = match (counted.next(), counted.next()) {
            (None, _) => Span {
                axis: None,
                start: position,
                len: Dim::one(),
            },
            (Some(n), None) => {
                let (step, start) = position.split_index(n)?;
                let axis = usize::try_from(n).ok()?;
                if !step.is(1) || spans.iter().any(|s| s.axis == Some(axis)) {
                    return None;
                }
                Span {
                    axis: Some(axis),
                    start,
                    len: grid[axis].clone(),
                }
            }
            _ => return None,
        };
        let from_end = span.start.as_const().is_some_and(|n| n < 0);
        let start = if from_end {
            span.start + size.clone()
        } else {
            span.start
        };
        spans.push(Span { start, ..span });
    }
    // An axis that no index counts writes every element once more.
    let counted = |n: usize| grid[n].is(1) || spans.iter().any(|s| s.axis == Some(n));
    (0..grid.len()).all(counted).then_some(spans)
}

/// One element of a value of integers as a polynomial over the index variables in `at`.
fn element(
    c: &Call<'_, '_>,
    value: &Value,
    at: &[Dim],
    grid: &[Dim],
    steps: &mut usize,
) -> Option<Dim> {
    match value {
        Value::Graph(id) => {
            *steps = steps.checked_sub(1)?;
            of_node(c, *id, at, grid, steps)
        }
        Value::Ints(ints) => of_known(&ints.known, at),
        Value::Const(data) if data.known.len() <= MAX_TABLE => {
            let ints = Elems::of(&data.known)?;
            let dims = ints.data.iter().map(|&v| {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "elements of an i32 constant"
                )]
                Dim::from(v as i64)
            });
            let known = Elems {
                dtype: ints.dtype,
                shape: ints.shape.clone(),
                data: dims.collect(),
            };
            of_known(&known, at)
        }
        Value::Const(_) => None,
    }
}

fn of_known(ints: &Elems<Dim>, at: &[Dim]) -> Option<Dim> {
    let (first, rest) = ints.data.split_first()?;
    if rest.iter().all(|d| d == first) {
        return Some(first.clone());
    }
    if let Some((axis, start, step)) = as_iota(ints) {
        return Some(start + step * at[axis].clone());
    }
    // All but constant positions have length 1.
    let mut linear = 0usize;
    for (index, &len) in at.iter().zip(&ints.shape) {
        let index = if len == 1 { 0 } else { index.as_const()? };
        linear = linear.checked_mul(len)? + usize::try_from(index).ok()?;
    }
    ints.data.get(linear).cloned()
}

fn of_node(
    c: &Call<'_, '_>,
    id: ValueId,
    at: &[Dim],
    grid: &[Dim],
    steps: &mut usize,
) -> Option<Dim> {
    let graph = &c.cx.graph;
    let node = graph.node(id);
    let operand = |n: usize| Value::Graph(node.operands()[n]);
    let shape = |n: usize| &graph.ty(node.operands()[n]).shape;
    let mut next = |n: usize, at: &[Dim]| element(c, &operand(n), at, grid, steps);
    match &node.op {
        Op::Iota {
            axis, start, step, ..
        } => Some(start.clone() + step.clone() * at[*axis].clone()),
        Op::Length(dim) => Some(dim.clone()),
        Op::Constant(data) => element(c, &Value::constant(data.clone()), at, grid, steps),
        Op::Cast(to) if to.is_int() && graph.ty(node.operands()[0]).dtype.is_int() => next(0, at),
        Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul)) => {
            let mut side = |n: usize| {
                let skip = at.len() - shape(n).len();
                let own = shape(n).iter().zip(&at[skip..]);
                let own = own.map(|(d, i)| if d.is(1) { Dim::zero() } else { i.clone() });
                next(n, &own.collect::<Vec<_>>())
            };
            let (a, b) = (side(0)?, side(1)?);
            crate::eval::Element::binary(*op, &a, &b, DType::I32)
        }
        Op::Concat { axis } => {
            let mut position = at[*axis].as_const()?;
            for n in 0..node.operands().len() {
                let len = shape(n)[*axis].as_const()?;
                if position < len {
                    let mut at = at.to_vec();
                    at[*axis] = Dim::from(position);
                    return next(n, &at);
                }
                position -= len;
            }
            None
        }
        op if op.is_view() => {
            let indices = load_indices(op, shape(0), &graph.ty(id).shape)?;
            let extents = Extents::new(grid.to_vec());
            let put_in = |atom: &Atom| match atom {
                Atom::Index(n) => at.get(usize::try_from(*n).ok()?).cloned(),
                _ => None,
            };
            let at: Vec<_> = indices
                .iter()
                .map(|d| d.substitute(&extents, &put_in))
                .collect();
            // Whatever is more complicated than a grid is none.
            at.iter().all(is_tame).then(|| next(0, &at))?
        }
        _ => None,
    }
}

/// The updates with one axis for each axis of the block, in the block's order.
fn arrange(c: &mut Call<'_, '_>, updates: &Value, spans: &[Span], grid: usize) -> OpResult<Value> {
    let shape = c.shape(updates);
    let mut perm: Vec<usize> = spans.iter().filter_map(|s| s.axis).collect();
    perm.extend((0..grid).filter(|n| spans.iter().all(|s| s.axis != Some(*n))));
    perm.extend(grid..shape.len());
    let moved = c.transpose(updates, perm)?;
    let mut wanted: Shape = spans.iter().map(|s| s.len.clone()).collect();
    wanted.extend(shape[grid..].iter().cloned());
    c.reshape(&moved, wanted)
}

fn write_block(
    c: &mut Call<'_, '_>,
    x: &Value,
    updates: &Value,
    spans: &[Span],
    join: Option<BinaryOp>,
) -> OpResult<Value> {
    let shape = c.shape(x);
    let rank = shape.len();
    let (mut before, mut after) = (vec![Dim::zero(); rank], vec![Dim::zero(); rank]);
    let mut inside = None;
    for (k, span) in spans.iter().enumerate() {
        let end = span.start.clone() + span.len.clone();
        c.cx.require(Dim::zero(), span.start.clone(), || {
            "an index of ScatterND".to_owned()
        });
        c.cx.require(end.clone(), shape[k].clone(), || {
            "an index of ScatterND".to_owned()
        });
        if shape[k]
            .as_const()
            .is_some_and(|n| end.as_const().is_some_and(|e| e > n))
        {
            let message = format!("index {end} is beyond axis {k} of {}", c.ty(x));
            return Err(OpError::invalid("index-out-of-range", message));
        }
        before[k] = span.start.clone();
        after[k] = shape[k].clone() - end.clone();
        if after[k].is(0) && before[k].is(0) {
            continue;
        }
        let here = within(c, rank, k, &shape[k], &span.start, &end)?;
        inside = Some(match inside {
            None => here,
            Some(all) => c.binary(BinaryOp::And, &all, &here)?,
        });
    }
    let fresh = match scalar_of(c, updates) {
        Some(scalar) => scalar,
        None if inside.is_none() => updates.clone(),
        None => {
            let mode = PadMode::Constant(0.0);
            let pad = Op::Pad {
                before,
                after,
                mode,
            };
            c.apply(pad, &[updates])?
        }
    };
    let fresh = joined(c, join, x, &fresh)?;
    let out = match inside {
        Some(inside) => c.apply(Op::Where, &[&inside, &fresh, x])?,
        None => fresh,
    };
    c.broadcast(&out, &shape)
}

/// Where the index along an axis lies in `start..end`, over axes of length 1 otherwise.
fn within(
    c: &mut Call<'_, '_>,
    rank: usize,
    axis: usize,
    size: &Dim,
    start: &Dim,
    end: &Dim,
) -> OpResult<Value> {
    let mut shape = vec![Dim::one(); rank];
    shape[axis] = size.clone();
    check_shape(&shape)?;
    let count = Op::Iota {
        shape,
        axis,
        start: Dim::zero(),
        step: Dim::one(),
    };
    let count = c.apply(count, &[])?;
    let bound = |d: &Dim| Value::ints(Elems::scalar(DType::I32, d.clone()));
    let below = if end == size {
        None
    } else {
        Some(c.compare(CompareOp::Lt, &count, &bound(end))?)
    };
    match below {
        Some(below) if start.is(0) => Ok(below),
        below => {
            let above = c.compare(CompareOp::Ge, &count, &bound(start))?;
            match below {
                Some(below) => c.binary(BinaryOp::And, &above, &below),
                None => Ok(above),
            }
        }
    }
}

/// The one element that a value repeats, without axes.
pub(super) fn scalar_of(c: &mut Call<'_, '_>, value: &Value) -> Option<Value> {
    let dtype = c.dtype(value);
    if let Some(number) = value.as_splat() {
        return Some(c.cx.scalar(dtype, number));
    }
    let Value::Graph(mut id) = *value else {
        return None;
    };
    while let Op::Reshape(_) | Op::Broadcast(_) | Op::Transpose(_) = c.cx.graph.node(id).op {
        id = c.cx.graph.node(id).operands()[0];
    }
    let node = Value::Graph(id);
    let number = match &c.cx.graph.node(id).op {
        Op::Constant(data) => data.splat_f64(),
        _ => None,
    };
    if let Some(number) = number {
        return Some(c.cx.scalar(dtype, number));
    }
    let one = c.ty(&node).elements().is(1);
    one.then(|| c.reshape(&node, Vec::new()).ok()).flatten()
}

fn joined(
    c: &mut Call<'_, '_>,
    join: Option<BinaryOp>,
    x: &Value,
    fresh: &Value,
) -> OpResult<Value> {
    match join {
        Some(op) => c.binary(op, x, fresh),
        None => Ok(fresh.clone()),
    }
}

/// Constant indices: a table of the number of the update that an element gets, -1 for none.
fn by_table(
    c: &mut Call<'_, '_>,
    x: &Value,
    indices: &Elems<f64>,
    updates: &Value,
    join: Option<BinaryOp>,
) -> OpResult<Value> {
    let shape = c.shape(x);
    let count = *indices.shape.last().unwrap_or(&0);
    let sizes: Option<Vec<usize>> = shape[..count]
        .iter()
        .map(|d| d.as_const().and_then(|n| usize::try_from(n).ok()))
        .collect();
    let places = sizes.as_ref().map_or(usize::MAX, |s| {
        s.iter().fold(1usize, |n, &d| n.saturating_mul(d))
    });
    let Some(sizes) = sizes.filter(|_| places <= MAX_TABLE) else {
        return Err(OpError::unsupported(
            format!("constant indices into {}", c.ty(x)),
            format!("at most {MAX_TABLE} constant positions"),
        ));
    };
    let mut table = vec![-1.0; places];
    let rows = indices.data.len().checked_div(count).unwrap_or(0);
    if rows == 0 {
        return Ok(x.clone());
    }
    for row in 0..rows {
        let place = position(&indices.data[row * count..(row + 1) * count], &sizes)?;
        if table[place] >= 0.0 && join.is_some() {
            return Err(OpError::unsupported(
                "a reduction over indices that repeat",
                "each index once",
            ));
        }
        #[expect(clippy::cast_precision_loss, reason = "rows are few")]
        let number = row as f64;
        table[place] = number;
    }
    let table = Elems {
        dtype: DType::I32,
        shape: sizes,
        data: table,
    };
    let table = Value::constant(table.to_constant());
    let mut rows_of = vec![Dim::from(rows)];
    rows_of.extend(shape[count..].iter().cloned());
    let rows_of = c.reshape(updates, rows_of)?;
    let least = c.with(BinaryOp::Max, &table, 0.0)?;
    let fresh = c.apply(Op::Gather { axis: 0 }, &[&rows_of, &least])?;
    let fresh = joined(c, join, x, &fresh)?;
    let zero = c.cx.scalar(DType::I32, 0.0);
    let hit = c.compare(CompareOp::Ge, &table, &zero)?;
    let mut wide = shape[..count].to_vec();
    wide.extend(shape[count..].iter().map(|_| Dim::one()));
    let hit = c.reshape(&hit, wide)?;
    c.apply(Op::Where, &[&hit, &fresh, x])
}

/// The row-major position of an index, counted from the end where it is negative.
fn position(index: &[f64], sizes: &[usize]) -> OpResult<usize> {
    let mut place = 0;
    for (&at, &size) in index.iter().zip(sizes) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "small integers"
        )]
        let at = if at < 0.0 { at + size as f64 } else { at } as i64;
        let inside = usize::try_from(at).ok().filter(|&n| n < size);
        place = place * size
            + inside.ok_or_else(|| {
                OpError::invalid(
                    "index-out-of-range",
                    format!("index {at} of an axis of length {size}"),
                )
            })?;
    }
    Ok(place)
}
