//! The executor held to the oracle, one family of operations after the other, over ragged shapes.

mod common;

use attnc_ir::{Conv, DType, Op, PadMode, ReduceOp};
use common::{Case, dims};
use proptest::prelude::*;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 48,
        ..ProptestConfig::default()
    }
}

/// A view of `x` that a kernel must not take for packed: axes 0 and 1 changed over, every second element
/// of the last axis from the end.
fn strided(case: &mut Case, name: &str, shape: &[usize]) -> attnc_ir::ValueId {
    let mut from = shape.to_vec();
    from.swap(0, 1);
    let last = from.len() - 1;
    from[last] *= 2;
    let x = case.floats(name, &from, 2.0);
    let mut perm: Vec<usize> = (0..from.len()).collect();
    perm.swap(0, 1);
    let t = case.apply(Op::Transpose(perm), &[x]);
    let len = case.shape(t)[last] / 2;
    let slice = Op::Slice {
        axis: last,
        start: (2 * len).saturating_sub(1).into(),
        len: len.into(),
        step: -2,
    };
    case.apply(slice, &[t])
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn chains_of_views(seed: u64, a in 1usize..6, b in 1usize..6, c in 1usize..600) {
        let mut case = Case::new(seed);
        let x = strided(&mut case, "x", &[a, b, 2 * c]);
        let split = case.apply(Op::Reshape(dims(&[a, b, 2, c])), &[x]);
        let back = case.apply(Op::Transpose(vec![2, 0, 3, 1]), &[split]);
        let wide = case.apply(Op::Broadcast(dims(&[2, 2, a, c, b])), &[back]);
        let flat = case.apply(Op::Reshape(dims(&[4 * a, c * b])), &[wide]);
        case.check(flat, 0.0);
    }

    #[test]
    fn concat_and_pad(seed: u64, a in 1usize..5, b in 1usize..40, c in 1usize..5, axis in 0usize..3) {
        let mut case = Case::new(seed);
        let x = strided(&mut case, "x", &[a, b, c]);
        let mut other = [a, b, c];
        other[axis] = 2 * other[axis] + 1;
        let y = case.floats("y", &other, 1.0);
        let joined = case.apply(Op::Concat { axis }, &[x, y, x]);
        case.check(joined, 0.0);
        let size = case.shape(joined)[axis];
        for mode in [PadMode::Constant(-7.0), PadMode::Edge, PadMode::Reflect] {
            let (mut before, mut after) = (vec![0i64; 3], vec![0i64; 3]);
            before[axis] = i64::try_from(size).unwrap() - 1;
            after[axis] = 1 - before[axis].min(1) * 2;
            after[(axis + 1) % 3] = if mode == PadMode::Reflect { 0 } else { 2 };
            let lengths = |v: &[i64]| v.iter().map(|&d| d.into()).collect();
            let op = Op::Pad { before: lengths(&before), after: lengths(&after), mode };
            let padded = case.apply(op, &[joined]);
            case.check(padded, 0.0);
        }
    }

    #[test]
    fn gathers(seed: u64, a in 1usize..5, b in 1usize..5, c in 1usize..300, axis in 0usize..3) {
        let mut case = Case::new(seed);
        let x = strided(&mut case, "x", &[a, b, c]);
        let size = i32::try_from([a, b, c][axis]).unwrap();
        let indices = case.ints("i", &[2, 3], -size, size - 1);
        let looked_up = case.apply(Op::Gather { axis }, &[x, indices]);
        case.check(looked_up, 0.0);
        let mut shape = [a, b, c];
        shape[axis] = 4;
        let each = case.ints("each", &shape, -size, size - 1);
        let elements = case.apply(Op::GatherElements { axis }, &[x, each]);
        case.check(elements, 0.0);
        let b = i32::try_from(b).unwrap();
        let pairs = case.ints("pairs", &[a, 3, 1], -b, b - 1);
        let nd = case.apply(Op::GatherNd { batch_dims: 1 }, &[x, pairs]);
        case.check(nd, 0.0);
    }

    #[test]
    fn reductions(seed: u64, a in 1usize..5, b in 1usize..5, c in 1usize..300, mask in 1usize..8) {
        let mut case = Case::new(seed);
        let x = strided(&mut case, "x", &[a, b, c]);
        let n = case.ints("n", &[a, b, c], -3, 3);
        let flags = case.bools("flags", &[a, b, c]);
        let axes: Vec<usize> = (0..3).filter(|n| mask >> n & 1 == 1).collect();
        let reduce = |op, keep_dims| Op::Reduce { op, axes: axes.clone(), keep_dims };
        for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod] {
            let f = case.apply(reduce(op, true), &[x]);
            case.check(f, 1e-5);
            let i = case.apply(reduce(op, false), &[n]);
            case.check(i, 0.0);
        }
        for op in [ReduceOp::Any, ReduceOp::All] {
            let f = case.apply(reduce(op, false), &[flags]);
            case.check(f, 0.0);
        }
    }

    #[test]
    fn rows(seed: u64, a in 1usize..5, b in 1usize..5, c in 1usize..300, axis in 0usize..3) {
        let mut case = Case::new(seed);
        let x = strided(&mut case, "x", &[a, b, c]);
        let n = case.ints("n", &[a, b, c], i32::MAX - 5, i32::MAX);
        let gain = case.floats("gain", &[c], 1.0);
        let bias = case.floats("bias", &[b, 1], 1.0);
        let softmax = case.apply(Op::Softmax { axis }, &[x]);
        case.check(softmax, 1e-6);
        for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
            let op = Op::CumSum { axis, exclusive, reverse };
            let f = case.apply(op.clone(), &[x]);
            case.check(f, 1e-5);
            let i = case.apply(op, &[n]);
            case.check(i, 0.0);
        }
        let norm = case.apply(Op::LayerNorm { axis: 1, eps: 0.1 }, &[x, gain, bias]);
        case.check(norm, 1e-5);
        let norm = case.apply(Op::RmsNorm { axis: 2, eps: 0.1 }, &[x, gain]);
        case.check(norm, 1e-5);
    }

    #[test]
    fn matmuls(seed: u64, a in 1usize..4, b in 1usize..4, m in 1usize..40, k in 0usize..40, n in 1usize..40) {
        let mut case = Case::new(seed);
        let left = strided(&mut case, "left", &[a, b, m, k]);
        let packed = case.floats("packed", &[a, b, m, k], 1.0);
        let right = strided(&mut case, "right", &[1, b, k, n]);
        let shared = case.floats("shared", &[n, k], 1.0);
        let shared = case.apply(Op::Transpose(vec![1, 0]), &[shared]);
        let row = case.floats("row", &[a, 1, 1, k], 1.0);
        for (x, y) in [(left, right), (left, shared), (packed, shared), (packed, right), (row, right)] {
            let product = case.apply(Op::MatMul, &[x, y]);
            case.check(product, 1e-5);
        }
    }

    #[test]
    fn convolutions(
        seed: u64,
        groups in 1usize..4,
        stride in 1usize..4,
        dilation in 1usize..3,
        pad in 0usize..3,
        kernel in 1usize..4,
        size in 6usize..20,
    ) {
        let mut case = Case::new(seed);
        let x = strided(&mut case, "x", &[2, 2 * groups, size, size]);
        let w = case.floats("w", &[3 * groups, 2, kernel, 2], 1.0);
        let bias = case.floats("bias", &[3 * groups], 1.0);
        let conv = Conv {
            strides: vec![stride, 1],
            dilations: vec![dilation, 2],
            pads_before: vec![pad, 0],
            pads_after: vec![0, pad],
            groups,
        };
        let y = case.apply(Op::Conv(conv.clone()), &[x, w, bias]);
        case.check(y, 1e-5);
        let y = case.apply(Op::Conv(conv), &[x, w]);
        case.check(y, 1e-5);
    }
}

#[test]
fn counting_and_lengths() {
    let mut case = Case::new(1);
    let count = Op::Iota {
        shape: dims(&[2, 700, 3]),
        axis: 1,
        start: 5.into(),
        step: (-2).into(),
    };
    let count = case.apply(count, &[]);
    case.check(count, 0.0);
    let length = case.apply(Op::Length(7.into()), &[]);
    case.check(length, 0.0);
}

#[test]
fn rows_without_elements_and_without_keys() {
    let mut case = Case::new(2);
    let inf = f32::NEG_INFINITY;
    let rows = vec![
        inf,
        inf,
        inf,
        0.0,
        inf,
        inf,
        f32::MIN,
        f32::MIN,
        f32::MIN,
        f32::NAN,
        1.0,
        inf,
    ];
    let x = case.given("x", attnc_cpu::Tensor::f32(vec![4, 3], rows));
    for axis in [0, 1] {
        let y = case.apply(Op::Softmax { axis }, &[x]);
        case.check(y, 1e-6);
    }
    let empty = case.floats("empty", &[3, 0], 1.0);
    for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Prod] {
        let reduce = Op::Reduce {
            op,
            axes: vec![1],
            keep_dims: false,
        };
        let y = case.apply(reduce, &[empty]);
        case.check(y, 0.0);
    }
    let y = case.apply(Op::Softmax { axis: 1 }, &[empty]);
    case.check(y, 0.0);
}

#[test]
fn large_tensors_go_to_threads() {
    let mut case = Case::new(3);
    let x = strided(&mut case, "x", &[70, 90, 31]);
    let t = case.apply(Op::Transpose(vec![1, 2, 0]), &[x]);
    let flat = case.apply(Op::Reshape(dims(&[90 * 31, 70])), &[t]);
    case.check(flat, 0.0);
    let half = case.apply(Op::Cast(DType::F16), &[flat]);
    let joined = case.apply(Op::Concat { axis: 0 }, &[half, half]);
    case.check(joined, 0.0);
    let wide = case.apply(Op::Concat { axis: 1 }, &[half, half]);
    case.check(wide, 0.0);
}
