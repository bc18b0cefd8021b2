//! `MatMulNBits` of `com.microsoft`: a product with weights of 4 or 8 bits in blocks of a scale each.
//!
//! The weights become `(bits - zero_point) * scale`, computed when the model runs, and an ordinary product.
//! Two weights of 4 bits share a byte, the first in the low half.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{BinaryOp, DType, Dim, Op};

/// Columns `K` of `a`, rows `N` of the weights, and how those are packed.
struct Packing {
    columns: i64,
    rows: i64,
    bits: i64,
    block: i64,
}

impl Packing {
    fn of(c: &Call<'_, '_>) -> OpResult<Self> {
        let given = |name: &str, default: Option<i64>| {
            let value = c.attrs.int(name)?.or(default);
            value.filter(|n| (1..1 << 24).contains(n)).ok_or_else(|| {
                let message = format!("attribute `{name}` is {value:?}, expected a size");
                OpError::invalid("bad-attribute", message)
            })
        };
        let packing = Self {
            columns: given("K", None)?,
            rows: given("N", None)?,
            bits: given("bits", Some(4))?,
            block: given("block_size", None)?,
        };
        if !matches!(packing.bits, 4 | 8) {
            return Err(OpError::unsupported(
                format!("weights of {} bits", packing.bits),
                "4 or 8",
            ));
        }
        Ok(packing)
    }

    fn blocks(&self) -> i64 {
        (self.columns + self.block - 1) / self.block
    }

    /// Numbers of `[N, .., bytes]` as `[N, .., numbers]`.
    fn unpack(&self, c: &mut Call<'_, '_>, bytes: &Value) -> OpResult<Value> {
        if self.bits == 8 {
            return Ok(bytes.clone());
        }
        let mut shape = c.shape(bytes);
        let low = c.with(BinaryOp::Mod, bytes, 16.0)?;
        let high = c.with(BinaryOp::Div, bytes, 16.0)?;
        shape.push(Dim::one());
        let (low, high) = (
            c.reshape(&low, shape.clone())?,
            c.reshape(&high, shape.clone())?,
        );
        let pairs = Op::Concat {
            axis: shape.len() - 1,
        };
        let pairs = c.apply(pairs, &[&low, &high])?;
        shape.pop();
        if let Some(last) = shape.last_mut() {
            *last = last.clone() * Dim::from(2);
        }
        c.reshape(&pairs, shape)
    }
}

pub(super) fn matmul_nbits(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let packing = Packing::of(c)?;
    if c.optional(4).is_some() {
        return Err(OpError::unsupported(
            "g_idx",
            "blocks of columns in their order",
        ));
    }
    let (rows, blocks) = (Dim::from(packing.rows), Dim::from(packing.blocks()));
    let a = c.input(0)?;
    let dtype = c.dtype(&a);
    let bytes = unsigned(c, 1)?;
    let expected = Dim::from(packing.block * packing.bits / 8);
    let bytes = c.reshape(&bytes, vec![rows.clone(), blocks.clone(), expected])?;
    let weights = packing.unpack(c, &bytes)?;
    let weights = c.cast(DType::F32, &weights)?;
    let zero_points = zero_points(c, &packing)?;
    let weights = c.binary(BinaryOp::Sub, &weights, &zero_points)?;
    let scales = c.input(2)?;
    let scales = c.cast(DType::F32, &scales)?;
    let scales = c.reshape(&scales, vec![rows.clone(), blocks.clone(), Dim::one()])?;
    let weights = c.binary(BinaryOp::Mul, &weights, &scales)?;
    let width = blocks * Dim::from(packing.block);
    let weights = c.reshape(&weights, vec![rows, width])?;
    let weights = leading(c, &weights, packing.columns)?;
    let weights = c.cast(dtype, &weights)?;
    let weights = c.swap_last(&weights)?;
    let mut out = c.apply(Op::MatMul, &[&a, &weights])?;
    if let Some(bias) = c.optional(5) {
        out = c.binary(BinaryOp::Add, &out, &bias)?;
    }
    Ok(vec![out])
}

/// `[N, blocks, 1]`, or one number where none are given.
fn zero_points(c: &mut Call<'_, '_>, packing: &Packing) -> OpResult<Value> {
    let Some(given) = c.optional(3) else {
        let middle = if packing.bits == 4 { 8.0 } else { 128.0 };
        return Ok(c.cx.scalar(DType::F32, middle));
    };
    let (rows, blocks) = (Dim::from(packing.rows), packing.blocks());
    let shape = vec![rows.clone(), Dim::from(blocks), Dim::one()];
    if c.dtype(&given).is_float() {
        let given = c.cast(DType::F32, &given)?;
        return c.reshape(&given, shape);
    }
    let bytes = unsigned(c, 3)?;
    let each = (blocks * packing.bits + 7) / 8;
    let bytes = c.reshape(&bytes, vec![rows, Dim::from(each)])?;
    let numbers = packing.unpack(c, &bytes)?;
    let numbers = leading(c, &numbers, blocks)?;
    let numbers = c.cast(DType::F32, &numbers)?;
    c.reshape(&numbers, shape)
}

/// The first columns of a matrix.
fn leading(c: &mut Call<'_, '_>, x: &Value, len: i64) -> OpResult<Value> {
    let cut = Op::Slice {
        axis: 1,
        start: Dim::zero(),
        len: len.into(),
        step: 1,
    };
    c.apply(cut, &[x])
}

/// Operand `n`, which holds bytes.
fn unsigned(c: &Call<'_, '_>, n: usize) -> OpResult<Value> {
    let x = c.input(n)?;
    if c.dtype(&x) == DType::U32 {
        return Ok(x);
    }
    let message = format!("operand {n} is {}, expected bytes", c.ty(&x));
    Err(OpError::invalid("dtype-mismatch", message))
}
