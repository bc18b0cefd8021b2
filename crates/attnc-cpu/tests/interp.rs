//! The oracle against numbers worked out by hand.

use attnc_cpu::{Dims, ExecError, InputProblem, Tensor, interp};
use attnc_ir::scalar::ScalarBuilder;
use attnc_ir::{
    Attention, BinaryOp, CompareOp, Conv, DType, Dim, Extents, Graph, Op, PadMode, ReduceOp,
    TensorData, TensorType, ValueId,
};

fn input(g: &mut Graph, name: &str, dtype: DType, shape: &[usize]) -> ValueId {
    g.add_input(name, TensorType::new(dtype, shape.iter().copied()))
}

fn run(g: &mut Graph, out: ValueId, inputs: &[(&str, Tensor)]) -> Result<Vec<f64>, ExecError> {
    g.add_output("out", out);
    let inputs: Vec<_> = inputs
        .iter()
        .map(|(n, t)| ((*n).to_owned(), t.clone()))
        .collect();
    interp::run(g, &Dims::new(), &inputs).map(|out| out[0].1.to_f64())
}

/// `op` of one f32 operand.
fn one(op: Op, shape: &[usize], data: &[f32]) -> Vec<f64> {
    let mut g = Graph::new("t");
    let x = input(&mut g, "x", DType::F32, shape);
    let y = g.apply(op, &[x]).unwrap();
    run(
        &mut g,
        y,
        &[("x", Tensor::f32(shape.to_vec(), data.to_vec()))],
    )
    .unwrap()
}

#[test]
fn views() {
    let x: Vec<f32> = (0..6u8).map(f32::from).collect();
    assert_eq!(
        one(Op::Transpose(vec![1, 0]), &[2, 3], &x),
        [0., 3., 1., 4., 2., 5.]
    );
    let back = Op::Slice {
        axis: 1,
        start: 2.into(),
        len: 2.into(),
        step: -2,
    };
    assert_eq!(one(back, &[2, 3], &x), [2., 0., 5., 3.]);
    let wide = Op::Broadcast(vec![2.into(), 2.into(), 1.into()]);
    assert_eq!(one(wide, &[2, 1], &x[1..3]), [1., 2., 1., 2.]);
}

#[test]
fn pads_fill_repeat_mirror_and_cut() {
    let pad = |mode, before: i64, after: i64| {
        let op = Op::Pad {
            before: vec![before.into()],
            after: vec![after.into()],
            mode,
        };
        one(op, &[3], &[1., 2., 3.])
    };
    assert_eq!(pad(PadMode::Constant(9.), 1, 2), [9., 1., 2., 3., 9., 9.]);
    assert_eq!(pad(PadMode::Edge, 2, 1), [1., 1., 1., 2., 3., 3.]);
    assert_eq!(pad(PadMode::Reflect, 2, 1), [3., 2., 1., 2., 3., 2.]);
    assert_eq!(pad(PadMode::Constant(9.), -1, 1), [2., 3., 9.]);
}

#[test]
fn gathers_count_from_the_end_and_name_a_wrong_index() {
    let mut g = Graph::new("t");
    let x = input(&mut g, "x", DType::F32, &[3, 2]);
    let i = input(&mut g, "i", DType::I32, &[2]);
    let y = g.apply(Op::Gather { axis: 0 }, &[x, i]).unwrap();
    g.node_mut(y).origin = vec!["Embedding_7".to_owned()];
    let table = Tensor::f32(vec![3, 2], vec![0., 1., 10., 11., 20., 21.]);
    let at = |g: &mut Graph, ids: [i32; 2]| {
        run(
            g,
            y,
            &[
                ("x", table.clone()),
                ("i", Tensor::i32(vec![2], ids.to_vec())),
            ],
        )
    };
    assert_eq!(at(&mut g, [-1, 1]).unwrap(), [20., 21., 10., 11.]);
    let error = at(&mut g, [0, -4]).unwrap_err();
    assert!(
        matches!(
            &error,
            ExecError::IndexOutOfRange {
                index: -4,
                size: 3,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("Embedding_7"), "{error}");
}

#[test]
fn reductions_and_running_sums() {
    let x = [1., 2., 3., 4., 5., 6.];
    let reduce = |op, axes: &[usize]| {
        one(
            Op::Reduce {
                op,
                axes: axes.to_vec(),
                keep_dims: false,
            },
            &[2, 3],
            &x,
        )
    };
    assert_eq!(reduce(ReduceOp::Sum, &[0]), [5., 7., 9.]);
    assert_eq!(reduce(ReduceOp::Mean, &[1]), [2., 5.]);
    assert_eq!(reduce(ReduceOp::Prod, &[0, 1]), [720.]);
    assert_eq!(reduce(ReduceOp::Max, &[1]), [3., 6.]);
    let cumsum = |exclusive, reverse| {
        one(
            Op::CumSum {
                axis: 1,
                exclusive,
                reverse,
            },
            &[2, 3],
            &x,
        )
    };
    assert_eq!(cumsum(false, false), [1., 3., 6., 4., 9., 15.]);
    assert_eq!(cumsum(true, true), [5., 3., 0., 11., 6., 0.]);
}

#[test]
fn softmax_of_a_dead_row_is_zero_and_of_equal_fills_is_even() {
    let inf = f32::NEG_INFINITY;
    let y = one(
        Op::Softmax { axis: 1 },
        &[2, 2],
        &[inf, inf, f32::MIN, f32::MIN],
    );
    assert_eq!(y, [0., 0., 0.5, 0.5]);
}

#[test]
fn norms() {
    let mut g = Graph::new("t");
    let x = input(&mut g, "x", DType::F32, &[1, 2]);
    let gain = g.add_constant(TensorData::f32(vec![2], &[2., 3.]));
    let bias = g.add_constant(TensorData::f32(vec![1], &[1.]));
    let y = g
        .apply(Op::LayerNorm { axis: 1, eps: 3. }, &[x, gain, bias])
        .unwrap();
    let z = g
        .apply(Op::RmsNorm { axis: 1, eps: 4. }, &[x, gain])
        .unwrap();
    let data = [("x", Tensor::f32(vec![1, 2], vec![1., 3.]))];
    // Mean 2, variance 1, so the factor is 1 / 2.
    assert_eq!(run(&mut g.clone(), y, &data).unwrap(), [0., 2.5]);
    // Mean square 5, so the factor is 1 / 3.
    let z = run(&mut g, z, &data).unwrap();
    assert!((z[0] - 2. / 3.).abs() < 1e-15 && (z[1] - 3.).abs() < 1e-15);
}

#[test]
fn matmul_broadcasts_and_conv_slides() {
    let mut g = Graph::new("t");
    let a = input(&mut g, "a", DType::F32, &[2, 1, 2]);
    let b = g.add_constant(TensorData::f32(vec![2, 2], &[1., 2., 3., 4.]));
    let y = g.apply(Op::MatMul, &[a, b]).unwrap();
    let data = Tensor::f32(vec![2, 1, 2], vec![1., 0., 1., 1.]);
    assert_eq!(run(&mut g, y, &[("a", data)]).unwrap(), [1., 2., 4., 6.]);

    let mut g = Graph::new("t");
    let x = input(&mut g, "x", DType::F32, &[1, 1, 4]);
    let w = g.add_constant(TensorData::f32(vec![1, 1, 2], &[1., 10.]));
    let bias = g.add_constant(TensorData::f32(vec![1], &[100.]));
    let conv = Conv {
        strides: vec![2],
        dilations: vec![2],
        pads_before: vec![1],
        pads_after: vec![1],
        groups: 1,
    };
    let y = g.apply(Op::Conv(conv), &[x, w, bias]).unwrap();
    let data = Tensor::f32(vec![1, 1, 4], vec![1., 2., 3., 4.]);
    // Padded: 0 1 2 3 4 0; windows (0, 2) and (2, 4).
    assert_eq!(run(&mut g, y, &[("x", data)]).unwrap(), [120., 142.]);
}

/// Two keys for one query; the second is masked for batch 0 and holds NaN.
#[test]
fn a_masked_key_never_reaches_the_result() {
    let mut g = Graph::new("t");
    let q = input(&mut g, "q", DType::F32, &[1, 1, 2, 1]);
    let k = input(&mut g, "k", DType::F32, &[1, 1, 2, 1]);
    let v = input(&mut g, "v", DType::F32, &[1, 1, 2, 1]);
    let mut e = ScalarBuilder::new(Extents::new(vec![1.into(), 1.into(), 2.into(), 2.into()]));
    let (q_idx, kv_idx) = (e.index(2), e.index(3));
    let causal = e.compare(CompareOp::Lt, kv_idx, q_idx);
    let attention = Attention {
        mask_mod: Some(e.finish(causal)),
        ..Attention::new(0.5)
    };
    let y = g.apply(Op::Attention(attention), &[q, k, v]).unwrap();
    let one = |x: [f32; 2]| Tensor::f32(vec![1, 1, 2, 1], x.to_vec());
    let out = run(
        &mut g,
        y,
        &[
            ("q", one([1., 2.])),
            ("k", one([1., f32::NAN])),
            ("v", one([7., f32::NAN])),
        ],
    )
    .unwrap();
    // Query 0 has no key, query 1 has key 0.
    assert_eq!(out, [0., 7.]);
}

#[test]
fn maps_and_epilogues_look_at_the_chosen_branch_only() {
    let mut g = Graph::new("t");
    let x = input(&mut g, "x", DType::F32, &[2]);
    let mut e = ScalarBuilder::new(Extents::new(vec![3.into()]));
    let (i, two, fill) = (e.index(0), e.int(2), e.float(-1.));
    let inside = e.compare(CompareOp::Lt, i, two);
    let element = e.load(0, DType::F32, vec![i]);
    let root = e.select(inside, element, fill);
    let map = Op::Map {
        expr: e.finish(root),
        shape: vec![3.into()],
        dtype: DType::F32,
    };
    let padded = g.apply(map, &[x]).unwrap();
    let sum = Op::Reduce {
        op: ReduceOp::Sum,
        axes: vec![0],
        keep_dims: false,
    };
    let y = g.apply(sum, &[padded]).unwrap();
    let mut e = ScalarBuilder::new(Extents::new(vec![]));
    let (acc, two) = (e.arg(), e.float(2.));
    let root = e.binary(BinaryOp::Mul, acc, two);
    g.node_mut(y).epilogue = Some(e.finish(root));
    let out = run(&mut g, y, &[("x", Tensor::f32(vec![2], vec![1., 5.]))]).unwrap();
    assert_eq!(out, [10.]);
}

#[test]
fn every_input_problem_is_reported() {
    let mut g = Graph::new("t");
    let b = Dim::sym("B");
    let p = g.add_input("p", TensorType::new(DType::F32, [b.clone(), 2.into()]));
    g.add_input("ids", TensorType::new(DType::I32, [b.clone()]));
    g.add_input("more", TensorType::new(DType::F32, [b + 1.into()]));
    g.add_output("out", p);
    let inputs = [
        ("p".to_owned(), Tensor::f32(vec![3, 2], vec![0.; 6])),
        ("ids".to_owned(), Tensor::f32(vec![3], vec![0.; 3])),
        ("more".to_owned(), Tensor::f32(vec![3], vec![0.; 3])),
        ("what".to_owned(), Tensor::f32(vec![], vec![0.])),
    ];
    let Err(ExecError::Inputs(problems)) = interp::run(&g, &Dims::new(), &inputs) else {
        panic!("the inputs are wrong");
    };
    assert!(matches!(&problems[0], InputProblem::Unknown { name, .. } if name == "what"));
    assert!(matches!(&problems[1], InputProblem::Type { name, .. } if name == "ids"));
    assert!(
        matches!(&problems[2], InputProblem::Contradiction { name, expected: 4, found: 3, .. } if name == "more")
    );
    let Err(ExecError::Inputs(problems)) = interp::run(&g, &Dims::new(), &inputs[..1]) else {
        panic!("inputs are missing");
    };
    assert_eq!(problems.len(), 2, "{problems:?}");
}

#[test]
fn absurd_sizes_and_missing_weights_are_refused() {
    let mut g = Graph::new("t");
    let wide = Op::Iota {
        shape: vec![(1i64 << 40).into(), (1i64 << 40).into()],
        axis: 0,
        start: 0.into(),
        step: 1.into(),
    };
    let y = g.apply(wide, &[]).unwrap();
    let error = run(&mut g, y, &[]).unwrap_err();
    assert!(matches!(error, ExecError::TooLarge { .. }), "{error}");

    let mut g = Graph::new("t");
    let weight = TensorData {
        dtype: DType::F32,
        shape: vec![2],
        name: Some("encoder.weight".into()),
        bytes: None,
    };
    let w = g.add_constant(weight);
    let error = run(&mut g, w, &[]).unwrap_err();
    assert!(error.to_string().contains("encoder.weight"), "{error}");
}
