//! What does not fuse, and why; passes that are stopped half-way.

use super::{HEAD, assert_close, check, inputs, run};
use attnc_ir::text;
use attnc_opt::{Options, optimise};

#[test]
fn refusals_name_the_node_and_the_rule() {
    let cases = [
        (
            "softmax over another axis",
            "%p = softmax %s, axis = 2\n  %o = matmul %p, %v",
            "the softmax runs over another axis than the product with V sums over",
        ),
        (
            "two softmaxes",
            "%p0 = softmax %s, axis = 3\n  %t = mul %s, %g\n  %p1 = softmax %t, axis = 3\n  \
             %p = sub %p0, %p1\n  %o = matmul %p, %v",
            "the probabilities are changed before the product with V",
        ),
        (
            "divided by the largest",
            "%p0 = softmax %s, axis = 3\n  %m = reduce_max %p0, axes = [3], keep_dims = true\n  \
             %p = div %p0, %m\n  %o = matmul %p, %v",
            "the probabilities are changed by what is computed from them",
        ),
    ];
    for (name, body, reason) in cases {
        let result = check(&format!(
            "graph @g({HEAD}, %g: f32[M, N]) {{
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  {body}
  return %o
}}"
        ));
        assert_eq!(result.attention.fused, 0, "{name}");
        let declined = &result.attention.declined[0];
        assert!(declined.reason.starts_with(reason), "{name}: {declined:?}");
        assert!(declined.at.is_some(), "{name}");
    }
}

#[test]
fn scores_cut_off_or_added_before_the_softmax_are_declined() {
    for (name, between, sum, reason) in [
        (
            "probabilities cut off",
            "%p1 = softmax %s, axis = 3\n  %p = slice %p1, axis = 3, start = 0, len = 4, step = 1",
            "%v4",
            "the softmax has N keys, and only 4 have a value",
        ),
        (
            "fewer keys",
            "%c = slice %s, axis = 3, start = 0, len = 4, step = 1\n  %p = softmax %c, axis = 3",
            "%v4",
            "there are M queries and 4 keys, in the product M and N: scores are cut off or added",
        ),
    ] {
        let result = check(&format!(
            "graph @g({HEAD}, %v4: f32[B, H, 4, 8]) {{
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  {between}
  %o = matmul %p, {sum}
  return %o
}}"
        ));
        assert_eq!(
            (result.attention.found, result.attention.fused),
            (1, 0),
            "{name}"
        );
        assert_eq!(result.attention.declined[0].reason, reason, "{name}");
    }
}

#[test]
fn stopping_after_n_rewrites_leaves_a_right_graph() {
    let graph = text::parse(&format!(
        "graph @g({HEAD}, %mask: bool[B, 1, 1, N]) {{
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  %d = div %s, 2.0
  %m = where %mask, %d, -inf
  %p = softmax %m, axis = 3
  %o = matmul %p, %v
  %g = gelu %o
  return %g
}}"
    ))
    .unwrap();
    let inputs = inputs(&graph, 7);
    let want = run(&graph, &inputs);
    let total = optimise(graph.clone(), &Options::default())
        .unwrap()
        .rewrites;
    assert!(total > 1);
    for n in 0..=total {
        let options = Options {
            stop_after: Some(n),
            ..Options::default()
        };
        let result = optimise(graph.clone(), &options).unwrap();
        assert_eq!(result.rewrites, n);
        assert_close(
            &format!("after {n}"),
            &want,
            &run(&result.graph, &inputs),
            &result.graph,
        );
    }
}
