//! Masks of every spelling: fills, index arithmetic, tables.

use super::{HEAD, assert_close, attention, fuses, inputs, run};
use attnc_cpu::Tensor;
use attnc_ir::{Graph, Op};
use attnc_opt::Session;

#[test]
fn infinite_fills_are_masks() {
    for masked in [
        "%m = where %mask, %s, -inf",
        "%f = where %mask, f32 0.0, f32 -inf\n  %m = add %s, %f",
        "%n = not %mask\n  %f = where %n, f32 -inf, f32 0.0\n  %m = add %f, %s",
    ] {
        let result = fuses(&format!(
            "graph @g({HEAD}, %mask: bool[B, 1, 1, N]) {{
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  {masked}
  %p = softmax %m, axis = 3
  %n0 = is_nan %p
  %c = where %n0, 0.0, %p
  %o = matmul %c, %v
  return %o
}}"
        ));
        let attention = attention(&result);
        assert_eq!(attention.score_mod, None);
        assert_eq!(attention.mask_mod.unwrap().to_string(), "t3[d0, 0, 0, d3]");
    }
}

#[test]
fn finite_fills_are_numbers() {
    let result = fuses(&format!(
        "graph @g({HEAD}, %mask: i32[B, N]) {{
  %mf = cast %mask, to = f32
  %inv = sub 1.0, %mf
  %fill = mul %inv, -1000.0
  %f4 = reshape %fill, shape = [B, 1, 1, N]
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  %m = add %s, %f4
  %p = softmax %m, axis = 3
  %o = matmul %p, %v
  return %o
}}"
    ));
    assert_eq!(attention(&result).mask_mod, None);
    let text = attention(&result).score_mod.unwrap().to_string();
    assert_eq!(text, "arg + (1.0 - f32(t3[d0, d3])) * -1000.0");
}

#[test]
fn minus_infinity_in_an_additive_mask_is_no_key_even_for_nan() {
    let result = fuses(&format!(
        "graph @g({HEAD}, %bias: f32[B, 1, M, N]) {{
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  %m = add %bias, %s
  %p = softmax %m, axis = 3
  %o = matmul %p, %v
  return %o
}}"
    ));
    let attention = attention(&result);
    assert_eq!(
        attention.score_mod.unwrap().to_string(),
        "arg + t3[d0, 0, d2, d3]"
    );
    assert_eq!(
        attention.mask_mod.unwrap().to_string(),
        "e0 = t3[d0, 0, d2, d3]; not(is_inf(e0) & e0 < 0.0)"
    );
    let mut inputs = inputs(&result.graph, 1);
    // Key 2 is NaN, and masked for every query; every other key of batch 1 is masked as well.
    let poison =
        |name: &str, at: &dyn Fn(usize) -> Option<f32>, inputs: &mut Vec<(String, Tensor)>| {
            let (_, tensor) = inputs.iter_mut().find(|(n, _)| n == name).unwrap();
            let values = tensor
                .to_f64()
                .iter()
                .enumerate()
                .map(|(i, &v)| at(i).unwrap_or(v as f32))
                .collect();
            *tensor = Tensor::f32(tensor.shape().to_vec(), values);
        };
    poison("k", &|i| (i / 8 % 7 == 2).then_some(f32::NAN), &mut inputs);
    poison("v", &|i| (i / 8 % 7 == 2).then_some(f32::NAN), &mut inputs);
    poison(
        "bias",
        &|i| (i % 7 == 2 || i >= 35).then_some(f32::NEG_INFINITY),
        &mut inputs,
    );
    let out = &run(&result.graph, &inputs)[0];
    assert!(out.iter().all(|v| v.is_finite()));
    assert!(out[out.len() / 2..].iter().all(|&v| v == 0.0));
    assert!(out[..out.len() / 2].iter().any(|&v| v != 0.0));
}

#[test]
fn causal_from_index_arithmetic() {
    let result = fuses(
        "graph @g(%q: f32[B, H, S, 8], %k: f32[B, H, P + S, 8], %v: f32[B, H, P + S, 8]) {
  %rows = iota i32[S, 1], axis = 0, start = P, step = 1
  %cols = iota i32[1, P + S], axis = 1, start = 0, step = 1
  %causal = le %cols, %rows
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  %m = where %causal, %s, -inf
  %p = softmax %m, axis = 3
  %o = matmul %p, %v
  return %o
}",
    );
    assert_eq!(
        attention(&result).mask_mod.unwrap().to_string(),
        "d3 <= P + d2"
    );
}

fn band(rows: usize, columns: usize, inside: impl Fn(i64, i64) -> bool) -> Vec<bool> {
    (0..rows * columns)
        .map(|i| inside((i / columns) as i64, (i % columns) as i64))
        .collect()
}

#[test]
fn tables_that_are_formulas_become_them() {
    use attnc_ir::TensorData;
    let formula = |data: TensorData| {
        let mut graph = Graph::new("g");
        let c = graph.add_constant(data);
        graph.add_output("c", c);
        let want = run(&graph, &[]);
        let mut session = Session::new(None);
        session
            .run(&mut graph, &[Box::new(attnc_opt::passes::SinkIndices)])
            .unwrap();
        assert_close("sink-indices", &want, &run(&graph, &[]), &graph);
        match &graph.node(graph.outputs()[0].1).op {
            Op::Map { expr, .. } => Some(expr.to_string()),
            _ => None,
        }
    };
    let causal =
        |offset: i64| TensorData::bool(vec![1, 1, 5, 7], &band(5, 7, |r, c| c <= r + offset));
    assert_eq!(formula(causal(0)).unwrap(), "d3 <= d2");
    assert_eq!(formula(causal(2)).unwrap(), "d3 <= d2 + 2");
    let window = TensorData::bool(vec![6, 6], &band(6, 6, |r, c| c <= r && c > r - 3));
    assert_eq!(formula(window).unwrap(), "d1 >= d0 - 2 & d1 <= d0");
    let forbidden = TensorData::bool(vec![4, 4], &band(4, 4, |r, c| c > r));
    assert_eq!(formula(forbidden).unwrap(), "d1 >= d0 + 1");
    let fill: Vec<f32> = band(4, 4, |r, c| c <= r)
        .iter()
        .map(|&b| if b { 0.0 } else { -1e9 })
        .collect();
    assert_eq!(
        formula(TensorData::f32(vec![4, 4], &fill)).unwrap(),
        "select(d1 <= d0, 0.0, -1000000000.0)"
    );
    assert_eq!(
        formula(TensorData::i32(vec![1, 4], &[3, 5, 7, 9])).unwrap(),
        "2 * d1 + 3"
    );
    // Relative positions, cut off at both ends; and any other table of diagonals.
    let relative: Vec<i32> = (0..7 * 9)
        .map(|i| (i % 9 - i / 9 + 4).clamp(1, 6))
        .collect();
    assert_eq!(
        formula(TensorData::i32(vec![1, 7, 9], &relative)).unwrap(),
        "min(6, max(1, -d1 + d2 + 4))"
    );
    let bias: Vec<f32> = (0..7 * 9)
        .map(|i| ((i % 9 - i / 9) as f32 * 0.7).sin())
        .collect();
    assert_eq!(
        formula(TensorData::f32(vec![7, 9], &bias)).unwrap(),
        "t0[-d0 + d1 + 6]"
    );
    // A batch of equal triangles, and pairs of indices as the last axis.
    let batch: Vec<bool> = [band(3, 3, |r, c| c <= r), band(3, 3, |r, c| c <= r)].concat();
    assert_eq!(
        formula(TensorData::bool(vec![2, 1, 3, 3], &batch)).unwrap(),
        "d3 <= d2"
    );
    let pairs: Vec<i32> = (0..2)
        .flat_map(|b| (0..5).flat_map(move |k| [b, k]))
        .collect();
    assert_eq!(
        formula(TensorData::i32(vec![2, 5, 2], &pairs)).unwrap(),
        "select(d2 < 1, d0, d1)"
    );
    // One element off, and it is a table.
    assert_eq!(formula(TensorData::i32(vec![4], &[3, 5, 7, 8])), None);
    let mut almost = band(5, 5, |r, c| c <= r);
    almost[24] = false;
    assert_eq!(formula(TensorData::bool(vec![5, 5], &almost)), None);
}
