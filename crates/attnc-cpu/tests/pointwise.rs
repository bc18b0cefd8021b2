//! Scalar expressions: the tape held to the literal evaluation, over random graphs and their fused forms.

mod common;

use attnc_cpu::{ExecError, Executor, Tensor};
use attnc_ir::scalar::{ExprId, ScalarBuilder, of_node};
use attnc_ir::{
    BinaryOp, CompareOp, DType, Dim, Extents, Graph, Op, PadMode, TensorType, UnaryOp, ValueId,
};
use common::{Case, dims};
use proptest::prelude::*;

const SMOOTH: [UnaryOp; 14] = [
    UnaryOp::Neg,
    UnaryOp::Abs,
    UnaryOp::Exp,
    UnaryOp::Tanh,
    UnaryOp::Sin,
    UnaryOp::Cos,
    UnaryOp::Sigmoid,
    UnaryOp::Erf,
    UnaryOp::Relu,
    UnaryOp::Softplus,
    UnaryOp::Gelu,
    UnaryOp::GeluTanh,
    UnaryOp::Silu,
    UnaryOp::Round,
];

/// A shape that broadcasts with `[a, b, c]`.
fn broadcastable(case: &mut Case, full: [usize; 3]) -> Vec<usize> {
    let drop = case.below(3);
    let mut shape = full.to_vec();
    for size in &mut shape {
        if case.below(3) == 0 {
            *size = 1;
        }
    }
    shape.split_off(drop)
}

/// A random graph of pointwise ops, views and data ops over floats that stay small, with a few integers.
fn random_graph(case: &mut Case, full: [usize; 3], nodes: usize) -> ValueId {
    let mut floats = Vec::new();
    for n in 0..3 {
        let shape = if n == 0 {
            full.to_vec()
        } else {
            broadcastable(case, full)
        };
        floats.push(case.floats(&format!("x{n}"), &shape, 1.5));
    }
    let flags_shape = broadcastable(case, full);
    let mut flags = vec![case.bools("flags", &flags_shape)];
    let mut last = floats[0];
    for _ in 0..nodes {
        let a = floats[case.below(floats.len())];
        let new = match case.below(8) {
            0 | 1 => {
                // Round only what came in, so that f32 and f64 round alike.
                let op = SMOOTH[case.below(SMOOTH.len() - 1)];
                let bounded = case.apply(Op::Unary(UnaryOp::Tanh), &[a]);
                case.apply(Op::Unary(op), &[bounded])
            }
            2 | 3 => {
                let ops = [
                    BinaryOp::Add,
                    BinaryOp::Sub,
                    BinaryOp::Mul,
                    BinaryOp::Min,
                    BinaryOp::Max,
                ];
                let op = ops[case.below(ops.len())];
                case.apply(Op::Binary(op), &[last, a])
            }
            4 => {
                let flag = flags[case.below(flags.len())];
                let not = case.apply(Op::Unary(UnaryOp::Not), &[flag]);
                flags.push(not);
                case.apply(Op::Where, &[flag, last, a])
            }
            5 => {
                // Only of inputs, which are the same in f32 and f64.
                let (x, y) = (floats[case.below(3)], floats[case.below(3)]);
                let less = case.apply(Op::Compare(CompareOp::Lt), &[x, y]);
                flags.push(less);
                case.apply(Op::Cast(DType::F32), &[less])
            }
            6 => {
                let shape = case.shape(last);
                let axis = shape.len() - 1;
                let back = Op::Slice {
                    axis,
                    start: (shape[axis] - 1).into(),
                    len: shape[axis].into(),
                    step: -1,
                };
                case.apply(back, &[last])
            }
            _ => {
                let shape = case.shape(last);
                let mut before = vec![Dim::zero(); shape.len()];
                let mut after = before.clone();
                let axis = case.below(shape.len());
                before[axis] = 1.into();
                after[axis] = (-1).into();
                case.apply(
                    Op::Pad {
                        before,
                        after,
                        mode: PadMode::Constant(0.5),
                    },
                    &[last],
                )
            }
        };
        floats.push(new);
        if case.shape(new) == full {
            last = new;
        }
    }
    last
}

/// `value` as one map over the inputs: every producer inlined.
fn fused(case: &Case, value: ValueId) -> (Op, Vec<ValueId>) {
    let graph = &case.graph;
    let mut e = ScalarBuilder::new(Extents::new(graph.ty(value).shape.clone()));
    let index = e.indices();
    let mut inputs = Vec::new();
    let root = inline(graph, value, &mut e, index, &mut inputs);
    let op = Op::Map {
        expr: e.finish(root),
        shape: graph.ty(value).shape.clone(),
        dtype: graph.ty(value).dtype,
    };
    (op, inputs)
}

fn inline(
    graph: &Graph,
    value: ValueId,
    e: &mut ScalarBuilder,
    index: Vec<ExprId>,
    inputs: &mut Vec<ValueId>,
) -> ExprId {
    let Some(form) = of_node(graph, value) else {
        let found = inputs.iter().position(|&i| i == value);
        let operand = found.unwrap_or_else(|| {
            inputs.push(value);
            inputs.len() - 1
        });
        return e.load(operand, graph.ty(value).dtype, index);
    };
    let operands = graph.node(value).operands().to_vec();
    e.inline(&form, &index, None, &mut |e, operand, _, index| {
        inline(graph, operands[operand], e, index, inputs)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_and_their_fused_form(
        seed: u64,
        a in 1usize..5,
        b in 1usize..5,
        c in prop_oneof![1usize..9, 500usize..1100],
        nodes in 1usize..14,
    ) {
        let mut case = Case::new(seed);
        let y = random_graph(&mut case, [a, b, c], nodes);
        case.check(y, 1e-5);
        let (map, inputs) = fused(&case, y);
        let expected = case.oracle(y);
        let y = case.apply(map, &inputs);
        common::assert_close(&case.oracle(y), &expected, 1e-12);
        case.check(y, 1e-5);
    }

    /// Reshapes, gathers and concats inlined: indices with quotients and indices from data.
    #[test]
    fn fused_views_and_look_ups(seed: u64, a in 1usize..5, b in 1usize..7, c in 1usize..5, wide in 1usize..300) {
        let mut case = Case::new(seed);
        let x = case.floats("x", &[a, b, c * wide], 1.0);
        let split = case.apply(Op::Reshape(dims(&[a, b, c, wide])), &[x]);
        let heads = case.apply(Op::Transpose(vec![0, 2, 1, 3]), &[split]);
        let flat = case.apply(Op::Reshape(dims(&[a * c * b, wide])), &[heads]);
        let rows = i32::try_from(a * b * c).unwrap();
        let ids = case.ints("ids", &[3, 5], -rows, rows - 1);
        let found = case.apply(Op::Gather { axis: 0 }, &[flat, ids]);
        let joined = case.apply(Op::Concat { axis: 2 }, &[found, found]);
        let relu = case.apply(Op::Unary(UnaryOp::Relu), &[joined]);
        for y in [flat, found, joined, relu] {
            let expected = case.oracle(y);
            let (map, inputs) = fused(&case, y);
            let y = case.apply(map, &inputs);
            common::assert_close(&case.oracle(y), &expected, 0.0);
            case.check(y, 0.0);
        }
    }

    #[test]
    fn integers(seed: u64, n in 1usize..700) {
        let mut case = Case::new(seed);
        let x = case.ints("x", &[n], -9, 9);
        let y = case.ints("y", &[n], -4, 4);
        let big = case.ints("big", &[n], i32::MAX - 9, i32::MAX);
        let least = case.given("least", Tensor::i32(vec![1], vec![i32::MIN]));
        let all = [
            BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Mod, BinaryOp::Rem,
            BinaryOp::Pow, BinaryOp::Min, BinaryOp::Max,
        ];
        for op in all {
            for (a, b) in [(x, y), (big, x), (least, y), (big, big)] {
                let signed = case.apply(Op::Binary(op), &[a, b]);
                case.check(signed, 0.0);
                let [a, b] = [a, b].map(|v| case.apply(Op::Cast(DType::U32), &[v]));
                let unsigned = case.apply(Op::Binary(op), &[a, b]);
                case.check(unsigned, 0.0);
            }
        }
        for op in [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sign, UnaryOp::Relu] {
            for a in [x, big, least] {
                let signed = case.apply(Op::Unary(op), &[a]);
                case.check(signed, 0.0);
            }
        }
        for &op in CompareOp::ALL {
            let compared = case.apply(Op::Compare(op), &[x, y]);
            case.check(compared, 0.0);
        }
    }
}

/// Awkward floats through every operation, and through casts.
#[test]
fn special_values() {
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        1e-30,
        -1e-30,
        3e38,
        -3e38,
        88.0,
        -88.0,
        -104.0,
        9.0,
        -9.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let n = values.len();
    let mut case = Case::new(1);
    let x = case.given("x", Tensor::f32(vec![n, 1], values.to_vec()));
    let y = case.given("y", Tensor::f32(vec![1, n], values.to_vec()));
    for &op in UnaryOp::ALL {
        if op == UnaryOp::Not {
            continue;
        }
        let out = case.apply(Op::Unary(op), &[x]);
        special(&case, out, op.name());
    }
    for &op in BinaryOp::ALL {
        if matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor) {
            continue;
        }
        let out = case.apply(Op::Binary(op), &[x, y]);
        special(&case, out, op.name());
    }
    for &op in CompareOp::ALL {
        let out = case.apply(Op::Compare(op), &[x, y]);
        case.check(out, 0.0);
    }
    for to in [DType::I32, DType::U32, DType::Bool] {
        let out = case.apply(Op::Cast(to), &[x]);
        case.check(out, 0.0);
        let back = case.apply(Op::Cast(DType::F32), &[out]);
        case.check(back, 1e-7);
    }
}

/// Each element close to its own f64 value, which may overflow f32 or vanish in it.
fn special(case: &Case, out: ValueId, name: &str) {
    let (found, expected) = (case.run(out).to_f64(), case.oracle(out).to_f64());
    for (n, (f, e)) in found.iter().zip(&expected).enumerate() {
        let e32 = *e as f32;
        let close = (f - e).abs() <= 3e-7 + 3e-6 * e.abs();
        // Angles that large are not reduced alike after rounding to f32.
        let wild = matches!(name, "sin" | "cos" | "mod" | "rem") && e.is_finite();
        assert!(
            close || wild || f == &f64::from(e32) || (f.is_nan() && e.is_nan()),
            "{name} of element {n}: found {f}, expected {e}"
        );
    }
}

#[test]
fn a_wrong_index_in_a_fused_look_up_is_named_if_it_is_chosen() {
    // table[ids[d0]] and a form that looks up only where the id is not negative.
    let build = |guarded: bool| {
        let mut g = Graph::new("t");
        let table = g.add_input("table", TensorType::new(DType::F32, [3, 600]));
        let ids = g.add_input("ids", TensorType::new(DType::I32, ["N"]));
        let shape = vec![Dim::sym("N"), 600.into()];
        let mut e = ScalarBuilder::new(Extents::new(shape.clone()));
        let (row, column, zero) = (e.index(0), e.index(1), e.int(0));
        let id = e.load(1, DType::I32, vec![row]);
        let found = e.load(0, DType::F32, vec![id, column]);
        let root = if guarded {
            let (there, fill) = (e.compare(CompareOp::Ge, id, zero), e.float(-1.0));
            e.select(there, found, fill)
        } else {
            found
        };
        let expr = e.finish(root);
        let dtype = DType::F32;
        let map = Op::Map { expr, shape, dtype };
        let y = g.apply(map, &[table, ids]).unwrap();
        g.node_mut(y).origin = vec!["/embeddings/Gather".to_owned()];
        g.add_output("y", y);
        Executor::new(g).unwrap()
    };
    let table = Tensor::f32(vec![3, 600], (0..1800u16).map(f32::from).collect());
    let run = |mut executor: Executor, ids: &[i32]| {
        let ids = Tensor::i32(vec![ids.len()], ids.to_vec());
        executor.run(&[("table".to_owned(), table.clone()), ("ids".to_owned(), ids)])
    };
    let error = run(build(false), &[0, 2, 3]).unwrap_err();
    assert!(
        matches!(
            error,
            ExecError::IndexOutOfRange {
                index: 3,
                size: 3,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("/embeddings/Gather"), "{error}");
    let out = run(build(true), &[2, -5]).unwrap();
    let out = out[0].1.to_f64();
    assert_eq!((out[0], out[599], out[600]), (1200.0, 1799.0, -1.0));
    assert!(run(build(true), &[2, 7]).is_err());
}
