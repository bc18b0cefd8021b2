//! The executor as a whole: run-time lengths, memory, errors, element types.

mod common;

use attnc_cpu::{Dims, ExecError, Executor, InputProblem, LengthError, Tensor, TensorBuf, interp};
use attnc_ir::scalar::ScalarBuilder;
use attnc_ir::{
    BinaryOp, DType, Dim, Extents, Graph, Op, SharedBytes, TensorData, TensorType, UnaryOp,
};
use common::assert_close;

fn named(name: &str, value: Tensor) -> (String, Tensor) {
    (name.to_owned(), value)
}

/// softmax(x w) over `[B, S, 8]`, with a bias and GELU as an epilogue of the product.
fn model() -> Graph {
    let mut g = Graph::new("model");
    let (b, s) = (Dim::sym("B"), Dim::sym("S"));
    let x = g.add_input(
        "x",
        TensorType::new(DType::F32, [b.clone(), s.clone(), 8.into()]),
    );
    let weights: Vec<f32> = (0..40u8).map(|n| f32::from(n % 7) - 3.0).collect();
    let w = g.add_constant(TensorData::f32(vec![8, 5], &weights));
    let bias = g.add_constant(TensorData::f32(vec![5], &[0.5, -0.5, 0.0, 1.0, 2.0]));
    let product = g.apply(Op::MatMul, &[x, w]).unwrap();
    g.set_operands(product, &[x, w, bias]);
    let mut e = ScalarBuilder::new(Extents::new(vec![b, s, 5.into()]));
    let (acc, column) = (e.arg(), e.index(2));
    let bias = e.load(2, DType::F32, vec![column]);
    let sum = e.binary(BinaryOp::Add, acc, bias);
    let root = e.unary(UnaryOp::Gelu, sum);
    g.node_mut(product).epilogue = Some(e.finish(root));
    let p = g.apply(Op::Softmax { axis: 1 }, &[product]).unwrap();
    let rows = g.apply(Op::Transpose(vec![2, 0, 1]), &[p]).unwrap();
    g.add_output("p", p);
    g.add_output("rows", rows);
    g.add_output("x", x);
    g
}

fn ramp(shape: [usize; 3]) -> Tensor {
    let n: usize = shape.iter().product();
    let data = (0..n)
        .map(|i| ((i * 37 % 101) as f32 - 50.0) / 40.0)
        .collect();
    Tensor::f32(shape.to_vec(), data)
}

#[test]
fn one_executor_serves_every_length() {
    let mut executor = Executor::new(model()).unwrap();
    for [b, s] in [[3, 21], [1, 7], [1, 7], [2, 128], [1, 1], [3, 21], [0, 4]] {
        let inputs = [named("x", ramp([b, s, 8]))];
        let found = executor.run(&inputs).unwrap();
        let expected = interp::run(&model(), &Dims::new(), &inputs).unwrap();
        assert_eq!(found.len(), 3);
        for ((name, f), (other, e)) in found.iter().zip(&expected) {
            assert_eq!(name, other);
            assert_close(f, e, 1e-5);
        }
        assert_eq!(found[1].1.shape(), [5, b, s]);
        assert_eq!(found[2].1, inputs[0].1, "an input that is an output");
    }
}

#[test]
fn buffers_are_used_again() {
    let mut g = Graph::new("chain");
    let mut x = g.add_input("x", TensorType::new(DType::F32, ["S"]));
    for _ in 0..20 {
        x = g.apply(Op::Unary(UnaryOp::Tanh), &[x]).unwrap();
    }
    g.add_output("y", x);
    let mut executor = Executor::new(g).unwrap();
    executor
        .run(&[named("x", Tensor::f32(vec![1000], vec![1.0; 1000]))])
        .unwrap();
    // One that is read and one that is written.
    assert_eq!(executor.arena_bytes(), 2 * 4000);
    executor
        .run(&[named("x", Tensor::f32(vec![10], vec![1.0; 10]))])
        .unwrap();
    assert_eq!(executor.arena_bytes(), 2 * 40);
}

#[test]
fn every_element_type_goes_in_and_out() {
    let mut g = Graph::new("types");
    let values = [
        (DType::F16, TensorBuf::F32(vec![1.5, -2.0])),
        (DType::BF16, TensorBuf::F32(vec![0.5, 3.0])),
        (DType::F32, TensorBuf::F64(vec![0.1, 3.0])),
        (DType::I32, TensorBuf::I32(vec![-7, i32::MAX])),
        (DType::U32, TensorBuf::U32(vec![7, u32::MAX])),
        (DType::Bool, TensorBuf::Bool(vec![true, false])),
    ];
    let mut inputs = Vec::new();
    for (dtype, data) in values {
        let x = g.add_input(dtype.name(), TensorType::new(dtype, [2]));
        let twice = g.apply(Op::Concat { axis: 0 }, &[x, x]).unwrap();
        g.add_output(dtype.name(), twice);
        inputs.push(named(
            dtype.name(),
            Tensor::new(dtype, vec![2], data).unwrap(),
        ));
    }
    let half = half_bytes(&[1.0, 65504.0]);
    let w = g.add_constant(TensorData::new(DType::F16, vec![2], half));
    g.add_output("w", w);
    let found = Executor::new(g.clone()).unwrap().run(&inputs).unwrap();
    let expected = interp::run(&g, &Dims::new(), &inputs).unwrap();
    for ((_, f), (_, e)) in found.iter().zip(&expected) {
        assert_close(f, e, 1e-7);
    }
    assert_eq!(
        found[3].1.to_f64(),
        [-7.0, 2147483647.0, -7.0, 2147483647.0]
    );
    assert_eq!(found[6].1.to_f64(), [1.0, 65504.0]);
}

fn half_bytes(values: &[f32]) -> SharedBytes {
    let bytes = values
        .iter()
        .flat_map(|&v| half::f16::from_f32(v).to_le_bytes());
    bytes.collect::<Vec<u8>>().into()
}

#[test]
fn weights_need_not_be_aligned() {
    let mut bytes = vec![0u8; 3];
    for v in [1.0f32, 2.0, 3.0] {
        bytes.extend(v.to_le_bytes());
    }
    let bytes = SharedBytes::from(bytes).slice(3..15).unwrap();
    let mut g = Graph::new("unaligned");
    let w = g.add_constant(TensorData::new(DType::F32, vec![3], bytes));
    let y = g.apply(Op::Unary(UnaryOp::Neg), &[w]).unwrap();
    g.add_output("y", y);
    let out = Executor::new(g).unwrap().run(&[]).unwrap();
    assert_eq!(out[0].1.to_f64(), [-1.0, -2.0, -3.0]);
}

#[test]
fn wrong_inputs_are_all_reported_and_the_executor_lives_on() {
    let mut executor = Executor::new(model()).unwrap();
    let wrong = [named("x", ramp([1, 2, 3])), named("y", ramp([1, 1, 1]))];
    let Err(ExecError::Inputs(problems)) = executor.run(&wrong) else {
        panic!("the inputs are wrong");
    };
    assert!(matches!(&problems[0], InputProblem::Unknown { name, .. } if name == "y"));
    let InputProblem::Type {
        expected, found, ..
    } = &problems[1]
    else {
        panic!("{problems:?}");
    };
    assert_eq!(
        (expected.as_str(), found.as_str()),
        ("f32[B, S, 8]", "f32[1, 2, 3]")
    );
    let twice = [named("x", ramp([1, 2, 8])), named("x", ramp([1, 2, 8]))];
    assert!(
        executor
            .run(&twice)
            .unwrap_err()
            .to_string()
            .contains("more than once")
    );
    assert!(executor.run(&[named("x", ramp([1, 2, 8]))]).is_ok());
}

#[test]
fn lengths_that_do_not_follow_are_asked_for() {
    let mut g = Graph::new("cache");
    let (p, s) = (Dim::sym("P"), Dim::sym("S"));
    let keys = g.add_input("keys", TensorType::new(DType::F32, [p + s]));
    g.add_output("keys", keys);
    let inputs = [named("keys", Tensor::f32(vec![5], vec![0.0; 5]))];
    let mut executor = Executor::new(g).unwrap();
    let error = executor.run(&inputs).unwrap_err();
    assert!(
        error.to_string().contains("state the value of P, S"),
        "{error}"
    );
    let known = |n| Dims::from([("P".to_owned(), n)]);
    assert!(executor.run_with(&known(2), &inputs).is_ok());
    // S would be below zero.
    let error = executor.run_with(&known(7), &inputs).unwrap_err();
    assert!(matches!(error, ExecError::Inputs(_)), "{error}");
}

#[test]
fn slices_are_checked_when_lengths_are_known() {
    let mut g = Graph::new("slice");
    let x = g.add_input("x", TensorType::new(DType::F32, ["S"]));
    let slice = Op::Slice {
        axis: 0,
        start: 1.into(),
        len: 3.into(),
        step: 1,
    };
    let y = g.apply(slice, &[x]).unwrap();
    g.add_output("y", y);
    let mut executor = Executor::new(g.clone()).unwrap();
    let at = |n: usize| [named("x", Tensor::f32(vec![n], vec![1.0; n]))];
    assert!(executor.run(&at(4)).is_ok());
    for error in [
        executor.run(&at(3)).unwrap_err(),
        interp::run(&g, &Dims::new(), &at(3)).unwrap_err(),
    ] {
        let slice = LengthError::Slice {
            first: 1,
            last: 3,
            size: 3,
        };
        assert!(
            matches!(&error, ExecError::Length { error, .. } if *error == slice),
            "{error}"
        );
    }
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_allocated() {
    let mut g = Graph::new("outer");
    let x = g.add_input("x", TensorType::new(DType::F32, ["S"]));
    let column = g
        .apply(Op::Reshape(vec!["S".into(), 1.into()]), &[x])
        .unwrap();
    // As a view, S x S costs nothing; its sum with itself does.
    let wide = g
        .apply(
            Op::Broadcast(vec!["S".into(), 1_000_000_000_000i64.into()]),
            &[column],
        )
        .unwrap();
    let sum = g.apply(Op::Binary(BinaryOp::Add), &[wide, wide]).unwrap();
    g.add_output("sum", sum);
    let mut executor = Executor::new(g).unwrap();
    let error = executor
        .run(&[named("x", Tensor::f32(vec![8], vec![0.0; 8]))])
        .unwrap_err();
    assert!(matches!(error, ExecError::TooLarge { .. }), "{error}");
    assert_eq!(executor.arena_bytes(), 0);
    let error = executor
        .run(&[named(
            "x",
            Tensor::f32(vec![8_000_000], vec![0.0; 8_000_000]),
        )])
        .unwrap_err();
    assert!(matches!(error, ExecError::TooLarge { .. }), "{error}");
}

#[test]
fn what_does_not_verify_is_refused() {
    let mut g = Graph::new("bad");
    let x = g.add_input("x", TensorType::new(DType::F32, [2]));
    let y = g.apply(Op::Unary(UnaryOp::Neg), &[x]).unwrap();
    let mut e = ScalarBuilder::new(Extents::new(vec![2.into()]));
    let arg = e.arg();
    g.node_mut(y).epilogue = Some(e.finish(arg));
    g.add_output("y", y);
    let mut executor = Executor::new(g).unwrap();
    let error = executor
        .run(&[named("x", Tensor::f32(vec![2], vec![0.0; 2]))])
        .unwrap_err();
    assert!(matches!(error, ExecError::Malformed { .. }), "{error}");

    let mut g = Graph::new("missing");
    for name in ["a.weight", "b.weight"] {
        let w = g.add_constant(TensorData {
            dtype: DType::F32,
            shape: vec![2],
            name: Some(name.into()),
            bytes: None,
        });
        g.add_output(name, w);
    }
    let ExecError::MissingWeights(names) = Executor::new(g).unwrap_err() else {
        panic!("weights are missing");
    };
    assert_eq!(names, ["a.weight: f32[2]", "b.weight: f32[2]"]);
}

#[test]
fn tensors_hold_what_they_say() {
    let error = Tensor::new(DType::I32, vec![2], TensorBuf::F32(vec![0.0; 2])).unwrap_err();
    assert!(error.to_string().contains("2 f32 elements"), "{error}");
    assert!(Tensor::new(DType::F32, vec![usize::MAX, 2], TensorBuf::F32(vec![])).is_err());
}
