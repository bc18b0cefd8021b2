//! The value of a scalar expression: the plain meaning, in f64.
//!
//! Integers wrap at 32 bits. A `select` looks at the chosen branch only. Used where speed does not matter:
//! folding constants, recognising what an expression computes, checking rewrites.

use super::fold::compare_f64;
use super::{ExprId, Scalar, ScalarExpr};
use crate::{Atom, BinaryOp, DType, DimError, UnaryOp};

/// What an expression reads while it is evaluated.
pub struct Env<'a> {
    /// Values of `d0, d1, …`.
    pub index: &'a [i64],
    /// Value of the argument.
    pub arg: f64,
    /// Value of a run-time length.
    pub length: &'a dyn Fn(&str) -> Option<i64>,
    /// Element of an operand; `None` where there is none at that index.
    pub load: &'a dyn Fn(usize, &[i64]) -> Option<f64>,
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A length is missing or too large.
    #[error(transparent)]
    Length(#[from] DimError),
    /// A load outside its operand.
    #[error("operand {operand} has no element at {index:?}")]
    Load {
        /// Number of the operand.
        operand: usize,
        /// The index asked for.
        index: Vec<i64>,
    },
    /// An integer division by zero.
    #[error("integer division by zero")]
    DivisionByZero,
}

impl ScalarExpr {
    /// The value; booleans are 0 or 1.
    ///
    /// # Errors
    /// Where a length or an element is missing, or an integer is divided by zero.
    pub fn eval(&self, env: &Env<'_>) -> Result<f64, EvalError> {
        let mut memo = vec![None; self.nodes().len()];
        self.eval_node(self.root(), env, &mut memo)
    }

    fn eval_node(
        &self,
        id: ExprId,
        env: &Env<'_>,
        memo: &mut Vec<Option<f64>>,
    ) -> Result<f64, EvalError> {
        if let Some(value) = memo[id.index()] {
            return Ok(value);
        }
        let value = match self.node(id) {
            #[expect(
                clippy::cast_precision_loss,
                reason = "indices and lengths are below 2^31"
            )]
            Scalar::Int(dim) => dim.eval_with(&|atom| match atom {
                Atom::Index(n) => env
                    .index
                    .get(*n as usize)
                    .copied()
                    .ok_or(DimError::Index(*n)),
                Atom::Sym(name) => {
                    (env.length)(name).ok_or_else(|| DimError::Unbound(name.to_string()))
                }
                _ => unreachable!("eval_with asks for leaves"),
            })? as f64,
            Scalar::Float(bits) => f64::from(f32::from_bits(*bits)),
            Scalar::Bool(b) => f64::from(u8::from(*b)),
            Scalar::Arg => env.arg,
            Scalar::Load { operand, index } => self.eval_load(*operand, index, env, memo)?,
            Scalar::Unary(op, a) => unary_f64(*op, self.eval_node(*a, env, memo)?),
            Scalar::Binary(op, a, b) => {
                let (x, y) = (
                    self.eval_node(*a, env, memo)?,
                    self.eval_node(*b, env, memo)?,
                );
                if self.dtype(*a).is_int() {
                    binary_int(*op, x, y)?
                } else {
                    binary_f64(*op, x, y)
                }
            }
            Scalar::Compare(op, a, b) => {
                let (x, y) = (
                    self.eval_node(*a, env, memo)?,
                    self.eval_node(*b, env, memo)?,
                );
                f64::from(u8::from(compare_f64(*op, x, y)))
            }
            Scalar::Select(c, a, b) => {
                let chosen = if self.eval_node(*c, env, memo)? == 0.0 {
                    b
                } else {
                    a
                };
                self.eval_node(*chosen, env, memo)?
            }
            Scalar::Cast(to, a) => cast_f64(*to, self.eval_node(*a, env, memo)?),
        };
        memo[id.index()] = Some(value);
        Ok(value)
    }

    fn eval_load(
        &self,
        operand: usize,
        index: &[ExprId],
        env: &Env<'_>,
        memo: &mut Vec<Option<f64>>,
    ) -> Result<f64, EvalError> {
        let mut at = Vec::with_capacity(index.len());
        for &i in index {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "indices are integers of 32 bits"
            )]
            at.push(self.eval_node(i, env, memo)? as i64);
        }
        (env.load)(operand, &at).ok_or(EvalError::Load { operand, index: at })
    }
}

/// The operation on one value in f64.
#[must_use]
pub fn unary_f64(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Reciprocal => 1.0 / x,
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Sigmoid => sigmoid(x),
        UnaryOp::Erf => libm::erf(x),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round_ties_even(),
        UnaryOp::Sign if x == 0.0 || x.is_nan() => x,
        UnaryOp::Sign => x.signum(),
        UnaryOp::Relu if x < 0.0 => 0.0,
        UnaryOp::Relu => x,
        UnaryOp::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        UnaryOp::Gelu => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        UnaryOp::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        UnaryOp::Silu => x * sigmoid(x),
        UnaryOp::Not => f64::from(u8::from(x == 0.0)),
        UnaryOp::IsNan => f64::from(u8::from(x.is_nan())),
        UnaryOp::IsInf => f64::from(u8::from(x.is_infinite())),
    }
}

fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        x.exp() / (1.0 + x.exp())
    }
}

/// The operation on two floats or truth values in f64. NaN in either side of `min` and `max` gives NaN.
#[must_use]
pub fn binary_f64(op: BinaryOp, x: f64, y: f64) -> f64 {
    let flag = |b: bool| f64::from(u8::from(b));
    match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::Div => x / y,
        BinaryOp::Mod => x - y * (x / y).floor(),
        BinaryOp::Rem => x % y,
        BinaryOp::Pow => x.powf(y),
        BinaryOp::Min | BinaryOp::Max if x.is_nan() || y.is_nan() => f64::NAN,
        BinaryOp::Min => x.min(y),
        BinaryOp::Max => x.max(y),
        BinaryOp::And => flag(x != 0.0 && y != 0.0),
        BinaryOp::Or => flag(x != 0.0 || y != 0.0),
        BinaryOp::Xor => flag((x != 0.0) != (y != 0.0)),
    }
}

/// The operation on two integers of 32 bits, wrapping.
///
/// # Errors
/// A division by zero.
pub fn binary_int(op: BinaryOp, x: f64, y: f64) -> Result<f64, EvalError> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "both are integers of 32 bits"
    )]
    let (a, b) = (x as i64, y as i64);
    let value = match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div | BinaryOp::Mod | BinaryOp::Rem if b == 0 => {
            return Err(EvalError::DivisionByZero);
        }
        BinaryOp::Div => a / b,
        BinaryOp::Mod => a - b * crate::dim::floor_div_i64(a, b),
        BinaryOp::Rem => a % b,
        #[expect(clippy::cast_possible_truncation, reason = "wrapped below")]
        BinaryOp::Pow => x.powf(y) as i64,
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
    };
    // Unsigned values stay in range by themselves; signed ones wrap.
    #[expect(clippy::cast_possible_truncation, reason = "wrapping is the meaning")]
    let wrapped = if (0..1i64 << 32).contains(&value)
        && (a > i64::from(i32::MAX) || b > i64::from(i32::MAX))
    {
        value
    } else {
        i64::from(value as i32)
    };
    #[expect(clippy::cast_precision_loss, reason = "32 bits are exact")]
    Ok(wrapped as f64)
}

/// The value converted to a type: towards zero for integers, `!= 0` for bool.
#[must_use]
pub fn cast_f64(to: DType, x: f64) -> f64 {
    match to {
        DType::Bool => f64::from(u8::from(x != 0.0)),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "saturating is what every backend does"
        )]
        DType::I32 => f64::from(x as i32),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturating is what every backend does"
        )]
        DType::U32 => f64::from(x as u32),
        DType::F32 | DType::F16 | DType::BF16 => x,
    }
}
