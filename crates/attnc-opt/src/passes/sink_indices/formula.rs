//! The formula behind a table, checked against every element.

use crate::passes::fold_constants::advance;
use attnc_ir::scalar::{ExprId, ScalarBuilder, ScalarExpr};
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Extents, TensorData, UnaryOp};

/// The formula of a table over its index, if it has one.
pub(super) fn formula(data: &TensorData) -> Option<ScalarExpr> {
    // A repeated value is a literal already; tiny tables are not worth a formula.
    if data.len() < 2 || data.splat_f64().is_some() {
        return None;
    }
    match data.dtype {
        DType::I32 => affine(data).or_else(|| clamped_diagonal(data)),
        DType::Bool => {
            let (mut e, inside) = band(data, &|v| v != 0.0)?;
            let root = choose(&mut e, inside, (1.0, 0.0), DType::Bool);
            Some(e.finish(root))
        }
        DType::F32 => two_values(data),
        _ => None,
    }
}

fn builder(data: &TensorData) -> ScalarBuilder {
    ScalarBuilder::new(Extents::new(
        data.shape.iter().map(|&d| Dim::from(d)).collect(),
    ))
}

/// Affine in the index; or, along one short axis, affine for each position (an index pair, say).
fn affine(data: &TensorData) -> Option<ScalarExpr> {
    let mut e = builder(data);
    if let Some(poly) = affine_where(data, None) {
        let root = e.int(poly);
        return Some(e.finish(root));
    }
    let axis = (0..data.shape.len())
        .rev()
        .find(|&n| (2..=MAX_PARTS).contains(&data.shape[n]) && data.len() > data.shape[n])?;
    let mut root = None;
    for at in (0..data.shape[axis]).rev() {
        let part = affine_where(data, Some((axis, at)))?;
        let part = e.int(part);
        root = Some(match root {
            None => part,
            Some(later) => {
                let (here, end) = (e.index(u32::try_from(axis).ok()?), e.int(at + 1));
                let before = e.compare(CompareOp::Lt, here, end);
                e.select(before, part, later)
            }
        });
    }
    Some(e.finish(root?))
}

/// Longest axis along which each position may have a formula of its own.
const MAX_PARTS: usize = 4;

/// The polynomial of the elements, or of those at one position of one axis.
#[expect(clippy::cast_possible_truncation, reason = "elements are i32")]
fn affine_where(data: &TensorData, fixed: Option<(usize, usize)>) -> Option<Dim> {
    let at = |i: usize| data.get_f64(i).map(|v| v as i64);
    let strides: Vec<usize> = (0..data.shape.len())
        .map(|n| data.shape[n + 1..].iter().product())
        .collect();
    let origin = fixed.map_or(0, |(axis, position)| position * strides[axis]);
    let first = at(origin)?;
    let step = |n: usize| match fixed {
        Some((axis, _)) if axis == n => Some(0),
        _ if data.shape[n] > 1 => Some(at(origin + strides[n])? - first),
        _ => Some(0),
    };
    let steps: Vec<i64> = (0..data.shape.len()).map(step).collect::<Option<_>>()?;
    let mut index = vec![0i64; data.shape.len()];
    for i in 0..data.len() {
        let concerned = fixed.is_none_or(|(axis, position)| index[axis] == position as i64);
        let expected = first + index.iter().zip(&steps).map(|(i, s)| i * s).sum::<i64>();
        if concerned && at(i)? != expected {
            return None;
        }
        advance(&mut index, &data.shape);
    }
    Some(
        steps
            .iter()
            .enumerate()
            .fold(Dim::from(first), |acc, (n, &s)| {
                acc + Dim::index(u32::try_from(n).expect("few axes")) * Dim::from(s)
            }),
    )
}

fn two_values(data: &TensorData) -> Option<ScalarExpr> {
    let first = data.get_f64(0)?;
    let mut other = None;
    for i in 1..data.len() {
        let v = data.get_f64(i)?;
        if v.to_bits() != first.to_bits() && *other.get_or_insert(v) != v {
            return None;
        }
    }
    let (mut e, inside) = band(data, &|v| v.to_bits() == first.to_bits())?;
    let root = choose(&mut e, inside, (first, other?), DType::F32);
    Some(e.finish(root))
}

fn choose(e: &mut ScalarBuilder, inside: ExprId, (yes, no): (f64, f64), dtype: DType) -> ExprId {
    let (yes, no) = (e.literal(dtype, yes), e.literal(dtype, no));
    e.select(inside, yes, no)
}

/// Whether `holds` is true exactly in a band of diagonals, or exactly outside one, as an expression.
fn band(data: &TensorData, holds: &dyn Fn(f64) -> bool) -> Option<(ScalarBuilder, ExprId)> {
    let long: Vec<usize> = (0..data.shape.len()).filter(|&n| varies(data, n)).collect();
    let (row, column) = match long.as_slice() {
        [column] => (None, *column),
        [row, column] => (Some(*row), *column),
        _ => return None,
    };
    for wanted in [true, false] {
        let Some((low, high)) = band_limits(data, row, column, &|v| holds(v) == wanted) else {
            continue;
        };
        let mut e = builder(data);
        let diagonal = axis(column) - row.map_or_else(Dim::zero, axis);
        let inside = between(&mut e, &diagonal, low, high);
        let inside = if wanted {
            inside
        } else {
            e.unary(UnaryOp::Not, inside)
        };
        return Some((e, inside));
    }
    None
}

/// Whether elements differ along an axis.
fn varies(data: &TensorData, axis: usize) -> bool {
    let inner: usize = data.shape[axis + 1..].iter().product();
    let block = inner * data.shape[axis];
    (0..data.len()).any(|i| {
        let first = i - i % block + i % inner;
        data.get_f64(i).map(f64::to_bits) != data.get_f64(first).map(f64::to_bits)
    })
}

/// The least and greatest diagonal on which `holds`, if it holds on all between and on no other.
fn band_limits(
    data: &TensorData,
    row: Option<usize>,
    column: usize,
    holds: &dyn Fn(f64) -> bool,
) -> Option<(i64, i64)> {
    let diagonal = |index: &[i64]| index[column] - row.map_or(0, |r| index[r]);
    let walk = |f: &mut dyn FnMut(i64, bool) -> bool| -> Option<()> {
        let mut index = vec![0i64; data.shape.len()];
        for i in 0..data.len() {
            if !f(diagonal(&index), holds(data.get_f64(i)?)) {
                return None;
            }
            advance(&mut index, &data.shape);
        }
        Some(())
    };
    let (mut low, mut high) = (i64::MAX, i64::MIN);
    walk(&mut |d, yes| {
        if yes {
            (low, high) = (low.min(d), high.max(d));
        }
        true
    })?;
    walk(&mut |d, yes| yes == (low..=high).contains(&d))?;
    Some((low, high))
}

/// `low <= diagonal <= high`, written as comparisons of two indices; sides that always hold fold away.
fn between(e: &mut ScalarBuilder, diagonal: &Dim, low: i64, high: i64) -> ExprId {
    let column: Dim = diagonal
        .terms()
        .filter(|(c, m)| *c > 0 && !m.is_empty())
        .fold(Dim::zero(), |acc, (_, m)| acc + term(m));
    let row = column.clone() - diagonal.clone();
    let at = e.int(column);
    let (first, last) = (
        e.int(row.clone() + Dim::from(low)),
        e.int(row + Dim::from(high)),
    );
    let (above, below) = (
        e.compare(CompareOp::Ge, at, first),
        e.compare(CompareOp::Le, at, last),
    );
    e.binary(BinaryOp::And, above, below)
}

fn term(factors: &[(attnc_ir::Atom, u32)]) -> Dim {
    match factors {
        [(attnc_ir::Atom::Index(n), 1)] => Dim::index(*n),
        _ => unreachable!("diagonals are differences of index variables"),
    }
}

/// `min(max(step * (column - row) + offset, least), greatest)`: relative positions cut off at both ends.
fn clamped_diagonal(data: &TensorData) -> Option<ScalarExpr> {
    let (row, column, table) = diagonals(data)?;
    #[expect(clippy::cast_possible_truncation, reason = "elements are i32")]
    let values: Vec<i64> = table.values.iter().map(|v| *v as i64).collect();
    let (least, greatest) = (*values.iter().min()?, *values.iter().max()?);
    let turn = values.windows(2).position(|w| w[0] != w[1])?;
    let step = values[turn + 1] - values[turn];
    // Between the ends the values lie on one line; take it through the last point before a step that is full.
    let full = values
        .windows(2)
        .position(|w| w[1] - w[0] == step && w[0] != least && w[0] != greatest);
    let at = full.unwrap_or(turn);
    let offset = values[at] - step * (table.first + i64::try_from(at).ok()?);
    let fits = (table.first..)
        .zip(&values)
        .all(|(d, v)| *v == (step * d + offset).clamp(least, greatest));
    if !fits {
        return None;
    }
    let mut e = builder(data);
    let diagonal = axis(column) - axis(row);
    let line = e.int(diagonal * Dim::from(step) + Dim::from(offset));
    let (least, greatest) = (e.int(least), e.int(greatest));
    let above = e.binary(BinaryOp::Max, line, least);
    let root = e.binary(BinaryOp::Min, above, greatest);
    Some(e.finish(root))
}

/// A table whose elements depend on `column - row` alone, as that one row of diagonals.
pub(super) struct Diagonals {
    /// The least diagonal.
    pub(super) first: i64,
    /// Its values, from the least diagonal to the greatest.
    pub(super) values: Vec<f64>,
}

/// The two axes along which the table varies and its diagonals, if it is constant along each.
pub(super) fn diagonals(data: &TensorData) -> Option<(usize, usize, Diagonals)> {
    let long: Vec<usize> = (0..data.shape.len()).filter(|&n| varies(data, n)).collect();
    let [row, column] = long[..] else { return None };
    let first = 1 - i64::try_from(data.shape[row]).ok()?;
    let mut values: Vec<Option<f64>> = vec![None; data.shape[row] + data.shape[column] - 1];
    let mut index = vec![0i64; data.shape.len()];
    for i in 0..data.len() {
        let at = usize::try_from(index[column] - index[row] - first).ok()?;
        let value = data.get_f64(i)?;
        if values[at].get_or_insert(value).to_bits() != value.to_bits() {
            return None;
        }
        advance(&mut index, &data.shape);
    }
    let values = values.into_iter().collect::<Option<_>>()?;
    Some((row, column, Diagonals { first, values }))
}

fn axis(n: usize) -> Dim {
    Dim::index(u32::try_from(n).expect("few axes"))
}
