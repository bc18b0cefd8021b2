//! Normalisation over trailing axes.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::proto::data_type;
use crate::value::Value;
use attnc_ir::{BinaryOp, DType, Dim, Op, ReduceOp, UnaryOp};

/// The axis and epsilon, once the statistics are known to be computed as the graph computes them: in f32.
fn parameters(c: &Call<'_, '_>, x: &Value) -> OpResult<(usize, f64)> {
    let stash = c.attrs.int("stash_type")?.unwrap_or(1);
    if stash != i64::from(data_type::FLOAT) {
        return Err(OpError::unsupported(
            format!("stash_type {stash}"),
            "1, float",
        ));
    }
    let epsilon = f64::from(c.attrs.float("epsilon")?.unwrap_or(1e-5));
    if epsilon < 0.0 {
        return Err(OpError::invalid(
            "bad-attribute",
            format!("epsilon is {epsilon}"),
        ));
    }
    Ok((c.axis(-1, c.rank(x))?, epsilon))
}

/// Results that only training reads, which the graph's norms do not give.
fn one_result(c: &Call<'_, '_>) -> OpResult<()> {
    if c.wants(1) || c.wants(2) {
        return Err(OpError::unsupported(
            "the mean and deviation as results",
            "the first result only",
        ));
    }
    Ok(())
}

fn mean(c: &mut Call<'_, '_>, x: &Value, axes: Vec<usize>) -> OpResult<Value> {
    let op = Op::Reduce {
        op: ReduceOp::Mean,
        axes,
        keep_dims: true,
    };
    c.apply(op, &[x])
}

/// Mean and `1 / sqrt(variance + eps)` over the axes from `axis` on, in f32.
fn statistics(c: &mut Call<'_, '_>, x: &Value, axis: usize, eps: f64) -> OpResult<[Value; 2]> {
    let axes: Vec<usize> = (axis..c.rank(x)).collect();
    let x = c.cast(DType::F32, x)?;
    let average = mean(c, &x, axes.clone())?;
    let off = c.binary(BinaryOp::Sub, &x, &average)?;
    let square = c.binary(BinaryOp::Mul, &off, &off)?;
    let variance = mean(c, &square, axes)?;
    let variance = c.with(BinaryOp::Add, &variance, eps)?;
    Ok([average, c.unary(UnaryOp::Rsqrt, &variance)?])
}

/// A bias of zeros for a gain.
pub(super) fn no_bias(c: &mut Call<'_, '_>, gain: &Value) -> Value {
    let last = c.shape(gain).last().and_then(Dim::as_const).unwrap_or(1);
    let dtype = c.dtype(gain);
    match usize::try_from(last) {
        Ok(len) if len <= 1 << 20 => c.vector(dtype, len, 0.0),
        _ => c.cx.scalar(dtype, 0.0),
    }
}

pub(super) fn layer_norm(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, gain) = (c.input(0)?, c.input(1)?);
    let (axis, eps) = parameters(c, &x)?;
    let bias = match c.optional(2) {
        Some(bias) => bias,
        None => no_bias(c, &gain),
    };
    let mut out = vec![c.apply(Op::LayerNorm { axis, eps }, &[&x, &gain, &bias])?];
    if c.wants(1) || c.wants(2) {
        out.extend(statistics(c, &x, axis, eps)?);
    }
    Ok(out)
}

pub(super) fn rms_norm(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, gain) = (c.input(0)?, c.input(1)?);
    one_result(c)?;
    let (axis, eps) = parameters(c, &x)?;
    Ok(vec![c.apply(Op::RmsNorm { axis, eps }, &[&x, &gain])?])
}

/// Channels in groups: a layer norm without gain over each group, then gain and bias of each channel.
/// Wu and He 2018, arXiv:1803.08494.
pub(super) fn group_norm(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let groups = c
        .attrs
        .int("num_groups")?
        .ok_or_else(|| OpError::invalid("bad-attribute", "attribute `num_groups` is missing"))?;
    grouped(c, Some(groups))
}

/// Each channel by itself. Ulyanov et al. 2016, arXiv:1607.08022.
pub(super) fn instance_norm(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    grouped(c, None)
}

fn grouped(c: &mut Call<'_, '_>, groups: Option<i64>) -> OpResult<Vec<Value>> {
    let (x, gain, bias) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let (_, eps) = parameters(c, &x)?;
    let shape = c.shape(&x);
    let [batch, channels, rest @ ..] = shape.as_slice() else {
        let message = format!("expected a batch and channels, found {}", c.ty(&x));
        return Err(OpError::invalid("shape-mismatch", message));
    };
    let groups = groups.map_or_else(|| channels.clone(), Dim::from);
    let Some(each) = channels.exact_div(&groups) else {
        let message = format!("{channels} channels in {groups} groups");
        return Err(OpError::invalid("shape-mismatch", message));
    };
    let size: Dim = rest.iter().cloned().product::<Dim>() * each.clone();
    let apart = c.reshape(&x, vec![batch.clone(), groups.clone(), size])?;
    let [average, scale] = statistics(c, &apart, 2, eps)?;
    let wide = c.cast(DType::F32, &apart)?;
    let off = c.binary(BinaryOp::Sub, &wide, &average)?;
    let even = c.binary(BinaryOp::Mul, &off, &scale)?;
    let dtype = c.dtype(&x);
    let even = c.cast(dtype, &even)?;
    let even = c.reshape(&even, shape.clone())?;
    let gain = per_channel(c, &gain, &groups, &each, shape.len())?;
    let bias = per_channel(c, &bias, &groups, &each, shape.len())?;
    let scaled = c.binary(BinaryOp::Mul, &even, &gain)?;
    Ok(vec![c.binary(BinaryOp::Add, &scaled, &bias)?])
}

/// A parameter of each channel (of each group, before opset 21) as `[1, C, 1, ...]`.
fn per_channel(
    c: &mut Call<'_, '_>,
    value: &Value,
    groups: &Dim,
    each: &Dim,
    rank: usize,
) -> OpResult<Value> {
    let channels = groups.clone() * each.clone();
    let mut value = value.clone();
    let found = c.shape(&value);
    if found == [groups.clone()] && !each.is(1) {
        value = c.reshape(&value, vec![groups.clone(), Dim::one()])?;
        value = c.apply(Op::Broadcast(vec![groups.clone(), each.clone()]), &[&value])?;
        value = c.reshape(&value, vec![channels.clone()])?;
    }
    if c.shape(&value) != [channels.clone()] {
        let message = format!("a parameter is {}, expected {channels} of it", c.ty(&value));
        return Err(OpError::invalid("shape-mismatch", message));
    }
    let mut shape = vec![Dim::one(); rank];
    shape[1] = channels;
    c.reshape(&value, shape)
}

/// `(x - mean) / (sqrt(variance) + 1e-9)` over the given axes.
pub(super) fn mean_variance(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let axes = c.attrs.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let axes = c.axes_of(&axes, c.rank(&x))?;
    let average = mean(c, &x, axes.clone())?;
    let off = c.binary(BinaryOp::Sub, &x, &average)?;
    let square = c.binary(BinaryOp::Mul, &off, &off)?;
    let variance = mean(c, &square, axes)?;
    let root = c.unary(UnaryOp::Sqrt, &variance)?;
    let root = c.with(BinaryOp::Add, &root, 1e-9)?;
    Ok(vec![c.binary(BinaryOp::Div, &off, &root)?])
}

/// With the statistics of training: one factor and one offset a channel.
pub(super) fn batch_norm(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let (gain, bias, average, variance) = (c.input(1)?, c.input(2)?, c.input(3)?, c.input(4)?);
    if c.attrs.flag("training_mode", false)? || (1..5).any(|n| c.wants(n)) {
        return Err(OpError::unsupported(
            "the statistics of a batch",
            "a model exported for inference",
        ));
    }
    if !c.attrs.flag("spatial", true)? {
        return Err(OpError::unsupported("spatial 0", "statistics by channel"));
    }
    let eps = f64::from(c.attrs.float("epsilon")?.unwrap_or(1e-5));
    let variance = c.with(BinaryOp::Add, &variance, eps)?;
    let scale = c.unary(UnaryOp::Rsqrt, &variance)?;
    let scale = c.binary(BinaryOp::Mul, &gain, &scale)?;
    let offset = c.binary(BinaryOp::Mul, &average, &scale)?;
    let offset = c.binary(BinaryOp::Sub, &bias, &offset)?;
    let mut shape = c.shape(&scale);
    shape.extend(vec![Dim::one(); c.rank(&x).saturating_sub(2)]);
    let scale = c.reshape(&scale, shape.clone())?;
    let offset = c.reshape(&offset, shape)?;
    let scaled = c.binary(BinaryOp::Mul, &x, &scale)?;
    Ok(vec![c.binary(BinaryOp::Add, &scaled, &offset)?])
}
