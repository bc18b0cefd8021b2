//! Operators on single elements. Compound ones become primitive operations, which fusion joins again.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::proto::data_type;
use crate::tensor;
use crate::value::Value;
use attnc_ir::{BinaryOp, CompareOp, DType, Op, UnaryOp};

pub(super) fn unary(c: &mut Call<'_, '_>, op: UnaryOp) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    // The graph rounds integers by doing nothing.
    let rounding = matches!(op, UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round);
    if rounding && c.dtype(&x).is_int() {
        return Ok(vec![x]);
    }
    Ok(vec![c.unary(op, &x)?])
}

pub(super) fn binary(c: &mut Call<'_, '_>, op: BinaryOp) -> OpResult<Vec<Value>> {
    let (a, b) = (c.input(0)?, c.input(1)?);
    Ok(vec![c.binary(op, &a, &b)?])
}

pub(super) fn compare(c: &mut Call<'_, '_>, op: CompareOp) -> OpResult<Vec<Value>> {
    let (a, b) = (c.input(0)?, c.input(1)?);
    Ok(vec![c.compare(op, &a, &b)?])
}

/// Any number of operands, joined pairwise.
pub(super) fn variadic(c: &mut Call<'_, '_>, op: BinaryOp) -> OpResult<Vec<Value>> {
    let mut all = c.all()?.into_iter();
    let mut out = match all.next() {
        Some(first) => first,
        None => c.input(0)?,
    };
    for next in all {
        out = c.binary(op, &out, &next)?;
    }
    Ok(vec![out])
}

pub(super) fn mean(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let count = c.inputs.len();
    let sum = variadic(c, BinaryOp::Add)?.remove(0);
    #[expect(clippy::cast_precision_loss, reason = "operands are few")]
    Ok(vec![c.with(BinaryOp::Div, &sum, count as f64)?])
}

pub(super) fn select(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (condition, a, b) = (c.input(0)?, c.input(1)?, c.input(2)?);
    Ok(vec![c.apply(Op::Where, &[&condition, &a, &b])?])
}

pub(super) fn cast(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let to = c
        .attrs
        .int("to")?
        .ok_or_else(|| OpError::invalid("bad-attribute", "attribute `to` is missing"))?;
    let (elem, dtype) = tensor::dtype_of(i32::try_from(to).unwrap_or(-1))?;
    let x = c.input(0)?;
    match elem.code {
        data_type::DOUBLE => {
            c.cx.notes.insert("double is computed as f32".to_owned());
        }
        data_type::UINT8 | data_type::INT8 | data_type::UINT16 | data_type::INT16
            if c.dtype(&x) != DType::Bool =>
        {
            return Err(OpError::unsupported(
                format!("a cast to {}, which wraps", elem.name),
                "a cast to int32 or int64",
            ));
        }
        _ => {}
    }
    Ok(vec![c.cast(dtype, &x)?])
}

pub(super) fn cast_like(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, like) = (c.input(0)?, c.input(1)?);
    let dtype = c.dtype(&like);
    Ok(vec![c.cast(dtype, &x)?])
}

/// At inference, the identity and a mask that is true everywhere.
pub(super) fn dropout(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    if let Some(training) = c.optional(2)
        && c.number(&training, "training_mode")? != 0.0
    {
        return Err(OpError::unsupported(
            "training_mode is true",
            "a model exported for inference",
        ));
    }
    let mut out = vec![x.clone()];
    if c.wants(1) {
        let shape = c.shape(&x);
        out.push(c.splat(DType::Bool, &shape, 1.0)?);
    }
    Ok(out)
}

pub(super) fn modulo(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let fmod = c.attrs.flag("fmod", false)?;
    let (a, b) = (c.input(0)?, c.input(1)?);
    if !fmod && c.dtype(&a).is_float() {
        if c.opset < 28 {
            return Err(OpError::invalid(
                "bad-attribute",
                "Mod of floats needs `fmod` = 1 before opset 28",
            ));
        }
        return Ok(vec![floor_mod(c, &a, &b)?]);
    }
    let op = if fmod { BinaryOp::Rem } else { BinaryOp::Mod };
    Ok(vec![c.binary(op, &a, &b)?])
}

/// `a - floor(a / b) * b` of floats: the remainder, moved to the sign of `b`.
fn floor_mod(c: &mut Call<'_, '_>, a: &Value, b: &Value) -> OpResult<Value> {
    let rest = c.binary(BinaryOp::Rem, a, b)?;
    let zero = c.scalar_like(a, 0.0);
    let below = c.compare(CompareOp::Lt, &rest, &zero)?;
    let negative = c.compare(CompareOp::Lt, b, &zero)?;
    let differ = c.binary(BinaryOp::Xor, &below, &negative)?;
    let some = c.compare(CompareOp::Ne, &rest, &zero)?;
    let moves = c.binary(BinaryOp::And, &differ, &some)?;
    let moved = c.binary(BinaryOp::Add, &rest, b)?;
    c.apply(Op::Where, &[&moves, &moved, &rest])
}

/// `x * tanh(softplus(x))`. Misra 2019, arXiv:1908.08681.
pub(super) fn mish(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let soft = c.unary(UnaryOp::Softplus, &x)?;
    let gate = c.unary(UnaryOp::Tanh, &soft)?;
    Ok(vec![c.binary(BinaryOp::Mul, &x, &gate)?])
}

/// `x^n` for the exponents that models use are products and roots; others stay.
pub(super) fn pow(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, y) = (c.input(0)?, c.input(1)?);
    let scalar = c.rank(&y) == 0 || c.ty(&y).elements().is(1) && c.rank(&y) <= c.rank(&x);
    if let Some(exponent) = y.as_splat().filter(|_| scalar) {
        if exponent == 1.0 {
            return Ok(vec![x]);
        }
        if exponent == 2.0 || exponent == 3.0 {
            let square = c.binary(BinaryOp::Mul, &x, &x)?;
            return Ok(vec![if exponent == 2.0 {
                square
            } else {
                c.binary(BinaryOp::Mul, &square, &x)?
            }]);
        }
        if exponent == 0.5 && c.dtype(&x).is_float() {
            return Ok(vec![c.unary(UnaryOp::Sqrt, &x)?]);
        }
    }
    // The exponent may have another type than the base, which is the result's.
    let (from, to) = (c.dtype(&y), c.dtype(&x));
    if from.is_float() && to.is_int() {
        return Err(OpError::unsupported(
            "an integer to the power of a float",
            "operands of one type",
        ));
    }
    let y = c.cast(to, &y)?;
    Ok(vec![c.binary(BinaryOp::Pow, &x, &y)?])
}

/// Limits are operands from opset 11, attributes before.
pub(super) fn clip(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let mut x = c.input(0)?;
    for (n, name, op) in [(1, "min", BinaryOp::Max), (2, "max", BinaryOp::Min)] {
        if let Some(limit) = c.optional(n) {
            x = c.binary(op, &x, &limit)?;
        } else if let Some(limit) = c.attrs.float(name)? {
            x = c.with(op, &x, f64::from(limit))?;
        }
    }
    Ok(vec![x])
}

/// Exact, or the tanh approximation. Hendrycks and Gimpel 2016, arXiv:1606.08415.
pub(super) fn gelu(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    match c.attrs.string("approximate")?.unwrap_or("none") {
        "none" => unary(c, UnaryOp::Gelu),
        "tanh" => unary(c, UnaryOp::GeluTanh),
        other => Err(OpError::invalid(
            "bad-attribute",
            format!("attribute `approximate` is `{other}`, expected `none` or `tanh`"),
        )),
    }
}

/// `x * sigmoid(alpha * x)`.
pub(super) fn swish(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let alpha = f64::from(c.attrs.float("alpha")?.unwrap_or(1.0));
    swish_of(c, alpha)
}

pub(super) fn swish_of(c: &mut Call<'_, '_>, alpha: f64) -> OpResult<Vec<Value>> {
    if alpha == 1.0 {
        return unary(c, UnaryOp::Silu);
    }
    let x = c.input(0)?;
    let scaled = c.with(BinaryOp::Mul, &x, alpha)?;
    let gate = c.unary(UnaryOp::Sigmoid, &scaled)?;
    Ok(vec![c.binary(BinaryOp::Mul, &x, &gate)?])
}

/// `x` where it is at least 0, else what `negative` gives.
fn rectified(
    c: &mut Call<'_, '_>,
    x: &Value,
    negative: impl FnOnce(&mut Call<'_, '_>, &Value) -> OpResult<Value>,
) -> OpResult<Value> {
    let zero = c.scalar_like(x, 0.0);
    let below = c.compare(CompareOp::Lt, x, &zero)?;
    let negative = negative(c, x)?;
    c.apply(Op::Where, &[&below, &negative, x])
}

pub(super) fn leaky_relu(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let alpha = f64::from(c.attrs.float("alpha")?.unwrap_or(0.01));
    let x = c.input(0)?;
    Ok(vec![leaky(c, &x, alpha)?])
}

/// `alpha * x` below 0.
pub(super) fn leaky(c: &mut Call<'_, '_>, x: &Value, alpha: f64) -> OpResult<Value> {
    rectified(c, x, |c, x| c.with(BinaryOp::Mul, x, alpha))
}

pub(super) fn p_relu(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, slope) = (c.input(0)?, c.input(1)?);
    let out = rectified(c, &x, |c, x| c.binary(BinaryOp::Mul, x, &slope))?;
    Ok(vec![out])
}

/// `alpha * (e^x - 1)` below 0.
pub(super) fn elu(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let alpha = f64::from(c.attrs.float("alpha")?.unwrap_or(1.0));
    Ok(vec![exponential(c, alpha, 1.0)?])
}

/// `alpha * (e^(x / alpha) - 1)` below 0. Barron 2017, arXiv:1704.07483.
pub(super) fn celu(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let alpha = f64::from(c.attrs.float("alpha")?.unwrap_or(1.0));
    Ok(vec![exponential(c, alpha, alpha)?])
}

/// `gamma` times [`elu`]. Klambauer et al. 2017, arXiv:1706.02515.
pub(super) fn selu(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let alpha = f64::from(c.attrs.float("alpha")?.unwrap_or(1.673_263_2));
    let gamma = f64::from(c.attrs.float("gamma")?.unwrap_or(1.050_701));
    let out = exponential(c, alpha, 1.0)?;
    Ok(vec![c.with(BinaryOp::Mul, &out, gamma)?])
}

/// `alpha * (e^(x / width) - 1)` below 0.
fn exponential(c: &mut Call<'_, '_>, alpha: f64, width: f64) -> OpResult<Value> {
    let x = c.input(0)?;
    rectified(c, &x, |c, x| {
        let x = if width == 1.0 {
            x.clone()
        } else {
            c.with(BinaryOp::Div, x, width)?
        };
        let power = c.unary(UnaryOp::Exp, &x)?;
        let less = c.with(BinaryOp::Sub, &power, 1.0)?;
        c.with(BinaryOp::Mul, &less, alpha)
    })
}

/// `x` where it is more than alpha, else 0.
pub(super) fn thresholded_relu(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let alpha = f64::from(c.attrs.float("alpha")?.unwrap_or(1.0));
    let (limit, zero) = (c.scalar_like(&x, alpha), c.scalar_like(&x, 0.0));
    let above = c.compare(CompareOp::Gt, &x, &limit)?;
    Ok(vec![c.apply(Op::Where, &[&above, &x, &zero])?])
}

/// `x / (1 + |x|)`.
pub(super) fn softsign(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let size = c.unary(UnaryOp::Abs, &x)?;
    let size = c.with(BinaryOp::Add, &size, 1.0)?;
    Ok(vec![c.binary(BinaryOp::Div, &x, &size)?])
}

/// `sin(x) / cos(x)`.
pub(super) fn tan(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let (sin, cos) = (c.unary(UnaryOp::Sin, &x)?, c.unary(UnaryOp::Cos, &x)?);
    Ok(vec![c.binary(BinaryOp::Div, &sin, &cos)?])
}

/// `max(0, min(1, alpha * x + beta))`.
pub(super) fn hard(c: &mut Call<'_, '_>, x: &Value, alpha: f64, beta: f64) -> OpResult<Value> {
    let scaled = c.with(BinaryOp::Mul, x, alpha)?;
    let moved = c.with(BinaryOp::Add, &scaled, beta)?;
    let low = c.with(BinaryOp::Max, &moved, 0.0)?;
    c.with(BinaryOp::Min, &low, 1.0)
}

/// `max(0, min(1, alpha * x + beta))`.
pub(super) fn hard_sigmoid(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let alpha = f64::from(c.attrs.float("alpha")?.unwrap_or(0.2));
    let beta = f64::from(c.attrs.float("beta")?.unwrap_or(0.5));
    let x = c.input(0)?;
    Ok(vec![hard(c, &x, alpha, beta)?])
}

/// `x * max(0, min(1, x / 6 + 1 / 2))`.
pub(super) fn hard_swish(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let gate = hard(c, &x, 1.0 / 6.0, 0.5)?;
    Ok(vec![c.binary(BinaryOp::Mul, &x, &gate)?])
}

pub(super) fn is_inf(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let negative = c.attrs.flag("detect_negative", true)?;
    let positive = c.attrs.flag("detect_positive", true)?;
    let infinite = |v: f64, c: &mut Call<'_, '_>| {
        let limit = c.scalar_like(&x, v);
        c.compare(CompareOp::Eq, &x, &limit)
    };
    Ok(vec![match (negative, positive) {
        (true, true) => c.unary(UnaryOp::IsInf, &x)?,
        (true, false) => infinite(f64::NEG_INFINITY, c)?,
        (false, true) => infinite(f64::INFINITY, c)?,
        (false, false) => {
            let shape = c.shape(&x);
            c.splat(DType::Bool, &shape, 0.0)?
        }
    }])
}
