//! What surrounds attention: epilogues, embeddings, convolutions, parts.

use super::check;
use attnc_ir::Op;

#[test]
fn gelu_layer_norm_and_residual_ride_on_the_matmul() {
    let result = check(
        "graph @g(%x: f32[B, S, 8], %w: f32[8, 16], %b: f32[16], %w2: f32[16, 8]) {
  %h = matmul %x, %w
  %h1 = add %h, %b
  %d = div %h1, 1.4142135
  %e = erf %d
  %f = add %e, 1.0
  %g0 = mul %h1, %f
  %g1 = mul %g0, 0.5
  %y = matmul %g1, %w2
  %r = add %x, %y
  %m = reduce_mean %r, axes = [2], keep_dims = true
  %c = sub %r, %m
  %c2 = mul %c, %c
  %v = reduce_mean %c2, axes = [2], keep_dims = true
  %ve = add %v, 0.00001
  %sd = sqrt %ve
  %n = div %c, %sd
  return %n
}",
    );
    let names: Vec<_> = result
        .graph
        .topo_order()
        .into_iter()
        .filter(|&v| !result.graph.node(v).op.is_view() && result.graph.node(v).op != Op::Input)
        .map(|v| result.graph.node(v).op.name())
        .filter(|n| *n != "constant")
        .collect();
    assert_eq!(
        names,
        ["matmul", "matmul", "layer_norm"],
        "{}",
        result.graph
    );
}

#[test]
fn embeddings_are_one_map() {
    let result = check(
        "graph @g(%ids: i32[B, S], %table: f32[2, 8], %positions: f32[64, 8]) {
  %a = gather %table, %ids, axis = 0
  %i = iota i32[S], axis = 0, start = 0, step = 1
  %b = gather %positions, %i, axis = 0
  %c = add %a, %b
  return %c
}",
    );
    let maps = result
        .graph
        .values()
        .filter(|&v| matches!(result.graph.node(v).op, Op::Map { .. }))
        .count();
    assert_eq!((maps, result.graph.len()), (1, 4), "{}", result.graph);
}

#[test]
fn convolutions_become_products_of_patches() {
    for (kernel, attributes) in [
        (
            "4, 2, 2, 2",
            "strides = [2, 2], dilations = [1, 1], pads_before = [0, 0], pads_after = [0, 0], groups = 1",
        ),
        (
            "4, 2, 3, 3",
            "strides = [2, 1], dilations = [1, 2], pads_before = [1, 0], pads_after = [2, 3], groups = 1",
        ),
        (
            "4, 1, 2, 3",
            "strides = [1, 1], dilations = [1, 1], pads_before = [0, 1], pads_after = [0, 1], groups = 2",
        ),
    ] {
        let result = check(&format!(
            "graph @g(%x: f32[B, 2, 6, 8], %w: f32[{kernel}], %b: f32[4]) {{
  %y = conv %x, %w, %b, {attributes}
  %r = relu %y
  return %r
}}"
        ));
        assert!(
            result
                .graph
                .values()
                .all(|v| !matches!(result.graph.node(v).op, Op::Conv(_)))
        );
    }
}

#[test]
fn many_parts_are_joined_by_kernels_that_can_bind_them() {
    let names: Vec<String> = (0..40).map(|i| format!("%x{i}")).collect();
    let parameters: Vec<String> = names.iter().map(|n| format!("{n}: f32[B, 2]")).collect();
    let result = check(&format!(
        "graph @g({}) {{\n  %c = concat {}, axis = 1\n  %y = relu %c\n  return %y\n}}",
        parameters.join(", "),
        names.join(", ")
    ));
    for value in result.graph.values() {
        assert!(
            result.graph.node(value).operands().len() < 8,
            "{}",
            result.graph
        );
    }
}

#[test]
fn slices_of_slices_are_one() {
    let result = check(
        "graph @g(%x: f32[B, 24]) {
  %a = slice %x, axis = 1, start = 2, len = 20, step = 1
  %b = slice %a, axis = 1, start = 19, len = 10, step = -2
  %c = slice %b, axis = 1, start = 1, len = 4, step = 2
  return %c
}",
    );
    let slices = result
        .graph
        .values()
        .filter(|&v| matches!(result.graph.node(v).op, Op::Slice { .. }));
    assert_eq!(slices.count(), 1, "{}", result.graph);
}
