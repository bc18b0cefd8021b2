//! Products and convolutions of `com.microsoft` with what follows them inside: an activation, a residual,
//! operands transposed. They become the operations they were fused from.

use super::{conv, elementwise, matmul};
use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{BinaryOp, UnaryOp};

/// `alpha * a' b'`.
pub(super) fn matmul(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    for (n, swap, batch) in [(0, "transA", "transBatchA"), (1, "transB", "transBatchB")] {
        let mut x = c.input(n)?;
        if c.attrs.flag(batch, false)? {
            x = rows_inside(c, &x)?;
        }
        if c.attrs.flag(swap, false)? {
            x = c.swap_last(&x)?;
        }
        c.inputs[n] = Some(x);
    }
    let mut out = matmul::matmul(c)?;
    let alpha = f64::from(c.attrs.float("alpha")?.unwrap_or(1.0));
    if alpha != 1.0 {
        out[0] = c.with(BinaryOp::Mul, &out[0].clone(), alpha)?;
    }
    Ok(out)
}

/// `[M, batch.., K]` as `[batch.., M, K]`.
fn rows_inside(c: &mut Call<'_, '_>, x: &Value) -> OpResult<Value> {
    let rank = c.rank(x);
    if rank < 3 {
        let message = format!("the operand is {}, expected a batch", c.ty(x));
        return Err(OpError::invalid("shape-mismatch", message));
    }
    let mut perm: Vec<usize> = (1..rank - 1).collect();
    perm.extend([0, rank - 1]);
    c.transpose(x, perm)
}

/// A product with bias, then `activation` with `activation_alpha` and so on.
pub(super) fn gemm(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let out = matmul::gemm(c)?.remove(0);
    let parameters = ["activation_alpha", "activation_beta", "activation_gamma"];
    let parameters: Vec<Option<f32>> = parameters
        .iter()
        .map(|name| c.attrs.float(name))
        .collect::<OpResult<_>>()?;
    Ok(vec![activation(c, out, &parameters)?])
}

/// A convolution, plus operand 3 where there is one, then `activation` with `activation_params`.
pub(super) fn conv(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let mut out = conv::conv(c)?.remove(0);
    if let Some(residual) = c.optional(3) {
        out = c.binary(BinaryOp::Add, &out, &residual)?;
    }
    let parameters = c.attrs.floats("activation_params")?.unwrap_or_default();
    let parameters: Vec<Option<f32>> = parameters.into_iter().map(Some).collect();
    Ok(vec![activation(c, out, &parameters)?])
}

/// The activation that attribute `activation` names; none where it is left out.
fn activation(c: &mut Call<'_, '_>, x: Value, parameters: &[Option<f32>]) -> OpResult<Value> {
    let parameter = |n: usize, default: f64| {
        let given = parameters.get(n).copied().flatten();
        given.map_or(default, f64::from)
    };
    match c.attrs.string("activation")?.unwrap_or("") {
        "" => Ok(x),
        "Relu" => c.unary(UnaryOp::Relu, &x),
        "Tanh" => c.unary(UnaryOp::Tanh, &x),
        "Sigmoid" => c.unary(UnaryOp::Sigmoid, &x),
        "Softplus" => c.unary(UnaryOp::Softplus, &x),
        "LeakyRelu" => elementwise::leaky(c, &x, parameter(0, 0.01)),
        "HardSigmoid" => elementwise::hard(c, &x, parameter(0, 0.2), parameter(1, 0.5)),
        "Clip" => {
            let (low, high) = (f64::from(f32::MIN), f64::from(f32::MAX));
            let x = c.with(BinaryOp::Max, &x, parameter(0, low))?;
            c.with(BinaryOp::Min, &x, parameter(1, high))
        }
        other => Err(OpError::unsupported(
            format!("activation `{other}`"),
            "Relu, Tanh, Sigmoid, Softplus, LeakyRelu, HardSigmoid or Clip",
        )),
    }
}
