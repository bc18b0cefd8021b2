//! Pieces that the dynamo exporter writes alike in every model: linear, norm, GELU, and PyTorch's
//! `scaled_dot_product_attention` taken apart.

use super::weights::Weights;
use super::writer::Attribute::{Float, Int, Ints};
use super::writer::Writer;
use super::{HEAD_DIM, HIDDEN};

/// Spread of the query and key weights. Their inputs are normalised, so a score is a sum of
/// products with standard deviation HIDDEN · spread² ≈ 3, and the softmax of it is peaked.
pub(super) const QK_SPREAD: f64 = 0.3;
/// Spread of every other weight matrix.
pub(super) const SPREAD: f64 = 0.2;
/// Spread of biases.
pub(super) const BIAS_SPREAD: f64 = 0.1;

/// The spread for a projection by its name.
pub(super) fn spread(name: &str) -> f64 {
    let is_query_or_key = ["q_lin", "k_lin", "q_proj", "k_proj", "query", "key"]
        .iter()
        .any(|word| name.ends_with(word));
    if is_query_or_key { QK_SPREAD } else { SPREAD }
}

/// Gain and bias of a norm over the last axis.
pub(super) fn layer_norm(
    g: &mut Writer,
    w: &mut Weights,
    x: &str,
    name: &str,
    epsilon: f32,
) -> String {
    let gain = g.weight(
        &format!("{name}.weight"),
        &[HIDDEN],
        &w.around(1.0, 0.1, HIDDEN),
    );
    let bias = g.weight(
        &format!("{name}.bias"),
        &[HIDDEN],
        &w.normal(BIAS_SPREAD, HIDDEN),
    );
    let attributes = [
        ("stash_type", Int(1)),
        ("epsilon", Float(epsilon)),
        ("axis", Int(-1)),
    ];
    g.op("LayerNormalization", &[x, &gain, &bias], &attributes)
}

/// `x · W + b`, the weight stored transposed and folded by the exporter.
pub(super) fn linear(
    g: &mut Writer,
    w: &mut Weights,
    x: &str,
    name: &str,
    (rows, columns): (i64, i64),
) -> String {
    let matrix = w.normal(spread(name), rows * columns);
    let matrix = g.weight(&format!("{name}.weight_t"), &[rows, columns], &matrix);
    let bias = w.normal(BIAS_SPREAD, columns);
    let bias = g.weight(&format!("{name}.bias"), &[columns], &bias);
    let product = g.op("MatMul", &[x, &matrix], &[]);
    g.op("Add", &[&product, &bias], &[])
}

/// `0.5 · x · (1 + erf(x / √2))`, in the order of dynamo.
pub(super) fn gelu_erf(g: &mut Writer, x: &str) -> String {
    let root = g.float(std::f32::consts::SQRT_2);
    let scaled = g.op("Div", &[x, &root], &[]);
    let erf = g.op("Erf", &[&scaled], &[]);
    let one = g.float(1.0);
    let shifted = g.op("Add", &[&erf, &one], &[]);
    let half = g.float(0.5);
    let gate = g.op("Mul", &[&half, &shifted], &[]);
    g.op("Mul", &[x, &gate], &[])
}

/// `[B, S, HIDDEN]` to `[B, HEADS, S, HEAD_DIM]`; `shape` is the one in between.
pub(super) fn split_heads(g: &mut Writer, x: &str, shape: &str) -> String {
    let view = g.op("Reshape", &[x, shape], &[("allowzero", Int(1))]);
    g.op("Transpose", &[&view], &[("perm", Ints(&[0, 2, 1, 3]))])
}

/// The boolean mask as something to add: 0 where true, `fill` where false.
pub(super) fn additive(g: &mut Writer, mask: &str, fill: f32) -> String {
    let zero = g.float(0.0);
    let fill = g.float(fill);
    g.op("Where", &[mask, &zero, &fill], &[])
}

/// `scaled_dot_product_attention` as dynamo takes it apart below opset 23: K is transposed through
/// three dims, Q and K each carry √scale, and rows that came out NaN become zeros.
///
/// `q`, `k`, `v` are `[B, HEADS, S, HEAD_DIM]`, `bias` broadcasts to the scores.
pub(super) fn sdpa(g: &mut Writer, (q, k, v): (&str, &str, &str), bias: &str) -> String {
    let transposed = transpose_last_two(g, k);
    // √(1/√d) in f32, as PyTorch computes it.
    let root_scale = g.float((1.0 / (HEAD_DIM as f64).sqrt()).sqrt() as f32);
    let q = g.op("Mul", &[q, &root_scale], &[]);
    let k = g.op("Mul", &[&transposed, &root_scale], &[]);
    let scores = g.op("MatMul", &[&q, &k], &[]);
    let biased = g.op("Add", &[&scores, bias], &[]);
    let weights = g.op("Softmax", &[&biased], &[("axis", Int(-1))]);
    let dead = g.op("IsNaN", &[&weights], &[]);
    let zero = g.float(0.0);
    let weights = g.op("Where", &[&dead, &zero, &weights], &[]);
    g.op("MatMul", &[&weights, v], &[])
}

/// Swaps the last two axes by way of `[-1, rows, columns]`, with shapes sliced at run time.
fn transpose_last_two(g: &mut Writer, x: &str) -> String {
    let shape = g.op("Shape", &[x], &[("start", Int(0))]);
    let (minus_one, minus_two) = (g.ints(&[-1]), g.ints(&[-2]));
    let (first, last) = (g.ints(&[i64::MIN]), g.ints(&[i64::MAX]));
    let columns = g.op("Slice", &[&shape, &minus_one, &last], &[]);
    let rows = g.op("Slice", &[&shape, &minus_two, &minus_one], &[]);
    let batch = g.op("Slice", &[&shape, &first, &minus_two], &[]);
    let flat = g.op(
        "Concat",
        &[&minus_one, &rows, &columns],
        &[("axis", Int(0))],
    );
    let x = g.op("Reshape", &[x, &flat], &[("allowzero", Int(0))]);
    let x = g.op("Transpose", &[&x], &[("perm", Ints(&[0, 2, 1]))]);
    let full = g.op("Concat", &[&batch, &columns, &rows], &[("axis", Int(0))]);
    g.op("Reshape", &[&x, &full], &[("allowzero", Int(0))])
}

/// What `mask[b, kv_idx]` becomes: indices made by broadcasting, then GatherND.
///
/// `batch` is `[B, 1, 1, 1]` and `keys` is `[1, 1, 1, N]`; the result is boolean `[B, 1, 1, N]`.
pub(super) fn look_up_padding(g: &mut Writer, mask: &str, batch: &str, keys: &str) -> String {
    let together = g.op("Max", &[batch, keys], &[]);
    let shape = g.op("Shape", &[&together], &[("start", Int(0))]);
    let minus_one = g.ints(&[-1]);
    let batch = g.op("Expand", &[batch, &shape], &[]);
    let batch = g.op("Unsqueeze", &[&batch, &minus_one], &[]);
    let keys = g.op("Expand", &[keys, &shape], &[]);
    let keys = g.op("Unsqueeze", &[&keys, &minus_one], &[]);
    let indices = g.op("Concat", &[&batch, &keys], &[("axis", Int(-1))]);
    g.op("GatherND", &[mask, &indices], &[("batch_dims", Int(0))])
}

/// `Range(0, end)` viewed as four dims, of which `axis` is the long one.
pub(super) fn arange_4d(g: &mut Writer, range: &str, axis: i64) -> String {
    // Two Unsqueezes: the exporter folds some of the four, and leaves the last.
    let rest: [&[i64]; 2] = match axis {
        0 => [&[1, 2], &[3]],
        2 => [&[0, 1], &[3]],
        _ => [&[0, 1], &[2]],
    };
    let axes = g.ints(rest[0]);
    let x = g.op("Unsqueeze", &[range, &axes], &[]);
    let axes = g.ints(rest[1]);
    g.op("Unsqueeze", &[&x, &axes], &[])
}

/// A dim of a value as a one-element vector.
pub(super) fn dim(g: &mut Writer, x: &str, axis: i64) -> String {
    let attributes = [("end", Int(axis + 1)), ("start", Int(axis))];
    g.op("Shape", &[x], &attributes)
}
