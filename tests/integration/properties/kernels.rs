//! Everything that is no attention, at sizes that no tile divides.

use super::{Family, Fill, Lengths};

fn family(
    name: &'static str,
    text: &str,
    lengths: &[(&'static str, Lengths)],
    fills: &[(&'static str, Fill)],
) -> Family {
    Family {
        name,
        text: text.to_owned(),
        lengths: lengths.to_vec(),
        fills: fills.to_vec(),
        fused: 0,
        rtol: 2e-5,
        cases: 48,
    }
}

pub(super) fn families() -> Vec<Family> {
    use Lengths::{Edges, SmallEdges, To};
    let ragged = [("M", SmallEdges), ("K", SmallEdges), ("N", SmallEdges)];
    let rows = [("B", To(5)), ("N", Edges)];
    let mut all = matmuls(&ragged);
    all.extend([
        family(
            "softmax",
            "graph @g(%x: f32[B, N]) {\n  %y = softmax %x, axis = 1\n  return %y\n}",
            &rows,
            &[("x", Fill::Times(30.0))],
        ),
        family(
            "softmax of the first axis",
            "graph @g(%x: f32[N, B]) {\n  %y = softmax %x, axis = 0\n  return %y\n}",
            &rows,
            &[("x", Fill::Times(30.0))],
        ),
        family(
            "layer_norm",
            "graph @g(%x: f32[B, N], %gain: f32[N], %bias: f32[N]) {
  %y = layer_norm %x, %gain, %bias, axis = 1, eps = 1e-5
  return %y
}",
            &rows,
            &[],
        ),
        family(
            "rms_norm over two axes",
            "graph @g(%x: f32[B, 3, N], %gain: f32[3, N]) {
  %y = rms_norm %x, %gain, axis = 1, eps = 1e-6
  return %y
}",
            &rows,
            &[],
        ),
        family(
            "gather",
            "graph @g(%table: f32[7, N], %ids: i32[B, S]) {
  %y = gather %table, %ids, axis = 0
  return %y
}",
            &[("B", To(4)), ("S", To(9)), ("N", Edges)],
            &[("ids", Fill::Below(7))],
        ),
        family(
            "pointwise of every rank",
            "graph @g(%x: f32[B, M, N], %row: f32[N], %column: f32[M, 1], %one: f32[], %mask: bool[B, 1, N]) {
  %a = add %x, %row
  %b = mul %a, %column
  %c = gelu %b
  %d = where %mask, %c, %one
  %e = tanh %d
  return %d, %e
}",
            &[("B", To(4)), ("M", SmallEdges), ("N", SmallEdges)],
            &[("mask", Fill::Mask), ("x", Fill::Times(4.0))],
        ),
        family(
            "reductions",
            "graph @g(%x: f32[B, N]) {
  %sum = reduce_sum %x, axes = [1], keep_dims = false
  %mean = reduce_mean %x, axes = [0], keep_dims = true
  %max = reduce_max %x, axes = [0, 1], keep_dims = false
  return %sum, %mean, %max
}",
            &rows,
            &[],
        ),
        family(
            "concat and slice",
            "graph @g(%x: f32[B, N], %y: f32[B, 3]) {
  %z = concat %x, %y, axis = 1
  %tail = slice %z, axis = 1, start = N, len = 3, step = 1
  %back = slice %z, axis = 1, start = N + 2, len = N + 3, step = -1
  return %z, %tail, %back
}",
            &rows,
            &[],
        ),
    ]);
    all
}

fn matmuls(ragged: &[(&'static str, Lengths)]) -> Vec<Family> {
    let batched = [&[("B", Lengths::To(3))], ragged].concat();
    vec![
        family(
            "matmul",
            "graph @g(%a: f32[M, K], %b: f32[K, N]) {\n  %c = matmul %a, %b\n  return %c\n}",
            ragged,
            &[],
        ),
        family(
            "matmul with an epilogue",
            "graph @g(%a: f32[B, M, K], %b: f32[K, N], %bias: f32[N], %rest: f32[B, M, N]) {
  %c = matmul %a, %b
  %d = add %c, %bias
  %e = gelu %d
  %f = add %e, %rest
  return %f
}",
            &batched,
            &[],
        ),
        family(
            "matmul of broadcast batches",
            "graph @g(%a: f32[B, 1, M, K], %b: f32[2, K, N]) {\n  %c = matmul %a, %b\n  return %c\n}",
            &batched,
            &[],
        ),
        family(
            "matmul of transposed operands",
            "graph @g(%a: f32[B, K, M], %b: f32[N, K]) {
  %at = transpose %a, perm = [0, 2, 1]
  %bt = transpose %b, perm = [1, 0]
  %c = matmul %at, %bt
  return %c
}",
            &batched,
            &[],
        ),
    ]
}
