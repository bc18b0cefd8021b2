//! Spellings of attention: scales, heads, softmax.

use super::{HEAD, attention, check, fuses};
use attnc_ir::Op;

#[test]
fn scale_on_either_side_is_one_factor() {
    let result = fuses(&format!(
        "graph @g({HEAD}) {{
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %ks = mul %kt, 0.5
  %qs = div %q, 4.0
  %s = matmul %qs, %ks
  %s2 = mul %s, 2.0
  %p = softmax %s2, axis = 3
  %o = matmul %p, %v
  return %o
}}"
    ));
    assert_eq!(attention(&result).scale, 0.25);
    assert_eq!(attention(&result).score_mod, None);
}

#[test]
fn packed_projection_heads_and_merge() {
    let result = fuses(
        "graph @g(%x: f32[B, S, 24], %w: f32[24, 72], %wo: f32[24, 24]) {
  %qkv = matmul %x, %w
  %q0 = slice %qkv, axis = 2, start = 0, len = 24, step = 1
  %k0 = slice %qkv, axis = 2, start = 24, len = 24, step = 1
  %v0 = slice %qkv, axis = 2, start = 48, len = 24, step = 1
  %q1 = reshape %q0, shape = [B, S, 3, 8]
  %q = transpose %q1, perm = [0, 2, 1, 3]
  %k1 = reshape %k0, shape = [B, S, 3, 8]
  %kt = transpose %k1, perm = [0, 2, 3, 1]
  %v1 = reshape %v0, shape = [B, S, 3, 8]
  %v = transpose %v1, perm = [0, 2, 1, 3]
  %s = matmul %q, %kt
  %d = div %s, 2.5
  %p = softmax %d, axis = 3
  %o = matmul %p, %v
  %o1 = transpose %o, perm = [0, 2, 1, 3]
  %o2 = reshape %o1, shape = [B, S, 24]
  %y = matmul %o2, %wo
  %r = add %y, %x
  return %r
}",
    );
    // Three kernels: the projection, the attention, the output projection with the residual.
    let kernels: Vec<_> = result
        .graph
        .topo_order()
        .into_iter()
        .filter(|&v| !result.graph.node(v).op.is_view() && result.graph.node(v).op != Op::Input)
        .map(|v| result.graph.node(v).op.name())
        .collect();
    assert_eq!(
        kernels,
        ["matmul", "attention", "matmul"],
        "{}",
        result.graph
    );
}

#[test]
fn heads_folded_into_the_batch() {
    fuses(
        "graph @g(%x: f32[B, S, 24], %y: f32[B, S, 24]) {
  %q1 = reshape %x, shape = [B, S, 3, 8]
  %q2 = transpose %q1, perm = [0, 2, 1, 3]
  %q = reshape %q2, shape = [3 * B, S, 8]
  %k1 = reshape %y, shape = [B, S, 3, 8]
  %k2 = transpose %k1, perm = [0, 2, 1, 3]
  %k = reshape %k2, shape = [3 * B, S, 8]
  %kt = transpose %k, perm = [0, 2, 1]
  %s = matmul %q, %kt
  %p = softmax %s, axis = 2
  %o = matmul %p, %k
  %o4 = reshape %o, shape = [B, 3, S, 8]
  return %o4
}",
    );
}

#[test]
fn repeated_heads_are_grouped() {
    let result = fuses(
        "graph @g(%q: f32[B, 6, M, 8], %k: f32[B, 2, N, 8], %v: f32[B, 2, N, 8]) {
  %k5 = reshape %k, shape = [B, 2, 1, N, 8]
  %kr = broadcast %k5, shape = [B, 2, 3, N, 8]
  %kk = reshape %kr, shape = [B, 6, N, 8]
  %v5 = reshape %v, shape = [B, 2, 1, N, 8]
  %vr = broadcast %v5, shape = [B, 2, 3, N, 8]
  %vv = reshape %vr, shape = [B, 6, N, 8]
  %kt = transpose %kk, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  %p = softmax %s, axis = 3
  %o = matmul %p, %vv
  return %o
}",
    );
    let graph = &result.graph;
    let fused = graph
        .values()
        .find(|&v| matches!(graph.node(v).op, Op::Attention(_)))
        .unwrap();
    assert_eq!(
        graph.ty(graph.node(fused).operands()[1]).shape[1],
        2.into(),
        "{graph}"
    );
}

#[test]
fn key_major_scores_are_the_same_attention() {
    fuses(&format!(
        "graph @g({HEAD}) {{
  %qt = transpose %q, perm = [0, 1, 3, 2]
  %st = matmul %k, %qt
  %p = softmax %st, axis = 2
  %vt = transpose %v, perm = [0, 1, 3, 2]
  %o = matmul %vt, %p
  return %o
}}"
    ));
}

#[test]
fn softmax_written_out_is_softmax() {
    for probabilities in [
        "%m = reduce_max %s, axes = [3], keep_dims = true\n  %d = sub %s, %m\n  %e = exp %d\n  \
         %z = reduce_sum %e, axes = [3], keep_dims = true\n  %p = div %e, %z",
        "%e = exp %s\n  %z = reduce_sum %e, axes = [3], keep_dims = true\n  %r = reciprocal %z\n  %p = mul %r, %e",
        "%m = reduce_max %s, axes = [3], keep_dims = true\n  %d = sub %s, %m\n  %e = exp %d\n  \
         %z = reduce_sum %e, axes = [3], keep_dims = true\n  %l = log %z\n  %lse = add %m, %l\n  \
         %ls = sub %s, %lse\n  %p = exp %ls",
        "%m = reduce_max %s, axes = [3], keep_dims = true\n  %d = sub %s, %m\n  %p = softmax %d, axis = 3",
    ] {
        fuses(&format!(
            "graph @g({HEAD}) {{
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  {probabilities}
  %o = matmul %p, %v
  return %o
}}"
        ));
    }
}

#[test]
fn a_term_in_the_sum_is_a_sink() {
    let shifted =
        "%m = reduce_max %s, axes = [3], keep_dims = true\n  %d = sub %s, %m\n  %e = exp %d";
    for (exponential, term, sink) in [
        ("%e = exp %s", "0.5", "-0.6931472"),
        ("%e = exp %s", "1.0", "0.0"),
        (shifted, "1.0", "row_max"),
        (shifted, "0.5", "row_max + -0.6931472"),
    ] {
        let result = fuses(&format!(
            "graph @g({HEAD}) {{
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  {exponential}
  %z = reduce_sum %e, axes = [3], keep_dims = true
  %g = add %z, {term}
  %p = div %e, %g
  %o = matmul %p, %v
  return %o
}}"
        ));
        let text = result.graph.to_string();
        assert!(text.contains(&format!("sink = {{ {sink} }}")), "{text}");
    }
}

#[test]
fn head_dims_are_constants_of_any_size() {
    let of = |columns: &str| {
        check(&format!(
            "graph @g(%q: f32[B, M, {columns}], %k: f32[B, {columns}, P], %v: f32[B, P, 300]) {{
  %s = matmul %q, %k
  %p = softmax %s, axis = 2
  %o = matmul %p, %v
  return %o
}}"
        ))
        .attention
    };
    assert_eq!(of("576").fused, 1);
    let reason = "the head dim of Q and K is N; attention needs a constant one, above 0";
    assert_eq!(of("N").declined[0].reason, reason);
}
