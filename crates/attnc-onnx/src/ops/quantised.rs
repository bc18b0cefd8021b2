//! Operators of 8-bit quantised models, computed exactly in f32.
//!
//! Eight bits less a zero point are at most 255 in size, a product of two of them less than 2¹⁶, and a sum
//! of 256 such products less than 2²⁴, which f32 holds exactly. So an integer product is one of floats for
//! every 256 columns, and the sums are added as integers. Jacob et al. 2018, arXiv:1712.05877, §2.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Op, ReduceOp, UnaryOp};

/// Columns whose products f32 adds up exactly.
const EXACT_COLUMNS: i64 = 256;

/// Along which axis of a matrix scales and zero points vary.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

/// `(a - a_zero_point) (b - b_zero_point)` in int32.
pub(super) fn matmul_integer(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let a = difference(c, 0, 2, Side::Left)?;
    let b = difference(c, 1, 3, Side::Right)?;
    Ok(vec![product(c, &a, &b)?])
}

/// The product with its scales, rounded to 8 bits again.
pub(super) fn qlinear_matmul(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let a = difference(c, 0, 2, Side::Left)?;
    let b = difference(c, 3, 5, Side::Right)?;
    let sums = product(c, &a, &b)?;
    let sums = c.cast(DType::F32, &sums)?;
    let (a_scale, b_scale) = (c.input(1)?, c.input(4)?);
    let a_scale = along(c, &a_scale, Side::Left)?;
    let b_scale = along(c, &b_scale, Side::Right)?;
    let y_scale = float(c, 6)?;
    let scale = c.binary(BinaryOp::Mul, &a_scale, &b_scale)?;
    let scale = c.binary(BinaryOp::Div, &scale, &y_scale)?;
    let scaled = c.binary(BinaryOp::Mul, &sums, &scale)?;
    let zero_point = c.input(7)?;
    let y = saturated(c, &scaled, &zero_point)?;
    same_shape(c, &y, &sums)?;
    Ok(vec![y])
}

/// The product with its scales and a bias, in floats: `a, b, a_scale, b_scale`, zero points of `a` and `b`, bias.
pub(super) fn matmul_integer_to_float(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let a = difference(c, 0, 4, Side::Left)?;
    let b = difference(c, 1, 5, Side::Right)?;
    let (a_scale, b_scale) = (c.input(2)?, c.input(3)?);
    let dtype = c.dtype(&a_scale);
    let sums = product(c, &a, &b)?;
    let mut out = c.cast(DType::F32, &sums)?;
    for (scale, side) in [(a_scale, Side::Left), (b_scale, Side::Right)] {
        let scale = along(c, &scale, side)?;
        out = c.binary(BinaryOp::Mul, &out, &scale)?;
    }
    if c.optional(6).is_some() {
        let bias = float(c, 6)?;
        out = c.binary(BinaryOp::Add, &out, &bias)?;
    }
    same_shape(c, &out, &sums)?;
    Ok(vec![c.cast(dtype, &out)?])
}

/// The same of an `a` that is quantised here: `a, b, b_scale, b_zero_point, bias`.
pub(super) fn dynamic_quantize_matmul(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let given = std::mem::take(&mut c.inputs);
    let operand = |n: usize| given.get(n).cloned().flatten();
    c.inputs = vec![operand(0)];
    let [a, scale, zero_point] = quantised(c)?.map(Some);
    c.inputs = vec![
        a,
        operand(1),
        scale,
        operand(2),
        zero_point,
        operand(3),
        operand(4),
    ];
    matmul_integer_to_float(c)
}

/// `round(x / scale) + zero_point`, per tensor or along an axis.
pub(super) fn quantize(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    whole_blocks(c)?;
    if c.opset >= 21 {
        return Err(OpError::unsupported(
            "quantisation to a type that the zero point decides",
            "QuantizeLinear of operator set 20 or older, which is of 8 bits",
        ));
    }
    let x = float(c, 0)?;
    let scale = float(c, 1)?;
    let zero_point = match c.optional(2) {
        Some(zero_point) => zero_point,
        None => c.cx.scalar(DType::U32, 0.0),
    };
    let scale = along_axis(c, &scale, &x)?;
    let zero_point = along_axis(c, &zero_point, &x)?;
    let scaled = c.binary(BinaryOp::Div, &x, &scale)?;
    let y = saturated(c, &scaled, &zero_point)?;
    same_shape(c, &y, &x)?;
    Ok(vec![y])
}

/// `(x - zero_point) * scale`, per tensor or along an axis.
pub(super) fn dequantize(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    whole_blocks(c)?;
    if c.attrs.int("output_dtype")?.unwrap_or(0) != 0 {
        return Err(OpError::unsupported(
            "output_dtype",
            "the type of the scale",
        ));
    }
    let (mut x, scale) = (float(c, 0)?, c.input(1)?);
    let dtype = c.dtype(&scale);
    if c.optional(2).is_some() {
        let zero_point = float(c, 2)?;
        let zero_point = along_axis(c, &zero_point, &x)?;
        x = c.binary(BinaryOp::Sub, &x, &zero_point)?;
    }
    let scale = c.cast(DType::F32, &scale)?;
    let scale = along_axis(c, &scale, &x)?;
    let y = c.binary(BinaryOp::Mul, &x, &scale)?;
    same_shape(c, &y, &x)?;
    Ok(vec![c.cast(dtype, &y)?])
}

/// 8 bits without a sign for the range of a tensor and 0, with the scale and zero point that gives.
pub(super) fn dynamic_quantize(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    Ok(quantised(c)?.to_vec())
}

/// Operand 0 in 8 bits, its scale and zero point.
fn quantised(c: &mut Call<'_, '_>) -> OpResult<[Value; 3]> {
    let x = c.input(0)?;
    let axes: Vec<usize> = (0..c.rank(&x)).collect();
    let mut bound = |op, with: BinaryOp| {
        let all = Op::Reduce {
            op,
            axes: axes.clone(),
            keep_dims: false,
        };
        let found = c.apply(all, &[&x])?;
        c.with(with, &found, 0.0)
    };
    let most = bound(ReduceOp::Max, BinaryOp::Max)?;
    let least = bound(ReduceOp::Min, BinaryOp::Min)?;
    let range = c.binary(BinaryOp::Sub, &most, &least)?;
    let scale = c.with(BinaryOp::Div, &range, 255.0)?;
    // A tensor of zeros has no range; any scale will do.
    let (zero, one) = (c.scalar_like(&scale, 0.0), c.scalar_like(&scale, 1.0));
    let empty = c.compare(CompareOp::Eq, &scale, &zero)?;
    let scale = c.apply(Op::Where, &[&empty, &one, &scale])?;
    let below = c.binary(BinaryOp::Div, &least, &scale)?;
    let zero_point = c.unary(UnaryOp::Neg, &below)?;
    let zero_point = clamped(c, &zero_point, 0.0, 255.0)?;
    let zero_point = c.unary(UnaryOp::Round, &zero_point)?;
    let zero_point = c.cast(DType::U32, &zero_point)?;
    let scaled = c.binary(BinaryOp::Div, &x, &scale)?;
    let y = saturated(c, &scaled, &zero_point)?;
    Ok([y, scale, zero_point])
}

/// Operand `n` as f32.
fn float(c: &mut Call<'_, '_>, n: usize) -> OpResult<Value> {
    let x = c.input(n)?;
    c.cast(DType::F32, &x)
}

/// Operand `n` less its zero point, in f32.
fn difference(c: &mut Call<'_, '_>, n: usize, zero_point: usize, side: Side) -> OpResult<Value> {
    let x = float(c, n)?;
    if c.optional(zero_point).is_none() {
        return Ok(x);
    }
    let zero_point = c.input(zero_point)?;
    let zero_point = along(c, &zero_point, side)?;
    let less = c.binary(BinaryOp::Sub, &x, &zero_point)?;
    same_shape(c, &less, &x)?;
    Ok(less)
}

/// A scale or zero point in f32: of all, of each row of the left matrix, or of each column of the right one.
fn along(c: &mut Call<'_, '_>, x: &Value, side: Side) -> OpResult<Value> {
    let x = c.cast(DType::F32, x)?;
    match (c.shape(&x).as_slice(), side) {
        ([rows], Side::Left) => {
            let shape = vec![rows.clone(), Dim::one()];
            c.reshape(&x, shape)
        }
        _ => Ok(x),
    }
}

/// A scale or zero point of all elements of `x`, or of each position of attribute `axis`.
fn along_axis(c: &mut Call<'_, '_>, value: &Value, x: &Value) -> OpResult<Value> {
    let shape = c.shape(value);
    let [len] = shape.as_slice() else {
        return Ok(value.clone());
    };
    if len.is(1) || c.rank(x) <= 1 {
        return Ok(value.clone());
    }
    let axis = c.axis(1, c.rank(x))?;
    let mut wide = vec![Dim::one(); c.rank(x)];
    wide[axis] = len.clone();
    c.reshape(value, wide)
}

/// Scales of blocks are refused.
fn whole_blocks(c: &Call<'_, '_>) -> OpResult<()> {
    match c.attrs.int("block_size")?.unwrap_or(0) {
        0 => Ok(()),
        n => Err(OpError::unsupported(
            format!("block_size {n}"),
            "a scale of the whole tensor or of an axis",
        )),
    }
}

/// The product of matrices of whole numbers of at most 9 bits, in int32.
fn product(c: &mut Call<'_, '_>, a: &Value, b: &Value) -> OpResult<Value> {
    let (rank_a, rank_b) = (c.rank(a), c.rank(b));
    if rank_a < 2 || rank_b < 2 {
        let message = format!("expected matrices, found {} and {}", c.ty(a), c.ty(b));
        return Err(OpError::invalid("shape-mismatch", message));
    }
    let columns = c.shape(a)[rank_a - 1].clone();
    let count = columns.as_const().ok_or_else(|| {
        OpError::unsupported(
            format!("an integer product over {columns} columns"),
            "a constant number of columns",
        )
    })?;
    if count <= EXACT_COLUMNS {
        let sums = c.apply(Op::MatMul, &[a, b])?;
        return c.cast(DType::I32, &sums);
    }
    let mut total: Option<Value> = None;
    let mut start = 0;
    while start < count {
        let len = EXACT_COLUMNS.min(count - start);
        let mut part = |x: &Value, axis: usize| {
            let cut = Op::Slice {
                axis,
                start: start.into(),
                len: len.into(),
                step: 1,
            };
            c.apply(cut, &[x])
        };
        let (left, right) = (part(a, rank_a - 1)?, part(b, rank_b - 2)?);
        let sums = c.apply(Op::MatMul, &[&left, &right])?;
        let sums = c.cast(DType::I32, &sums)?;
        total = Some(match total {
            Some(total) => c.binary(BinaryOp::Add, &total, &sums)?,
            None => sums,
        });
        start += len;
    }
    total.ok_or_else(|| OpError::invalid("shape-mismatch", "a product over no columns"))
}

/// `round(x) + zero_point` within 8 bits, in the type of the zero point: without a sign where that has none.
fn saturated(c: &mut Call<'_, '_>, x: &Value, zero_point: &Value) -> OpResult<Value> {
    let dtype = c.dtype(zero_point);
    let (low, high) = match dtype {
        DType::U32 => (0.0, 255.0),
        DType::I32 => (-128.0, 127.0),
        _ => {
            let message = format!("the zero point is {}, expected 8 bits", c.ty(zero_point));
            return Err(OpError::invalid("dtype-mismatch", message));
        }
    };
    let rounded = c.unary(UnaryOp::Round, x)?;
    let zero_point = c.cast(DType::F32, zero_point)?;
    let moved = c.binary(BinaryOp::Add, &rounded, &zero_point)?;
    let inside = clamped(c, &moved, low, high)?;
    c.cast(dtype, &inside)
}

fn clamped(c: &mut Call<'_, '_>, x: &Value, low: f64, high: f64) -> OpResult<Value> {
    let x = c.with(BinaryOp::Max, x, low)?;
    c.with(BinaryOp::Min, &x, high)
}

/// Scales and zero points must not make more of a value than it is.
fn same_shape(c: &Call<'_, '_>, found: &Value, expected: &Value) -> OpResult<()> {
    if c.shape(found) == c.shape(expected) {
        return Ok(());
    }
    let (found, expected) = (c.ty(found), c.ty(expected));
    let message = format!("with its scale or zero point the operand {expected} becomes {found}");
    Err(OpError::invalid("shape-mismatch", message))
}
