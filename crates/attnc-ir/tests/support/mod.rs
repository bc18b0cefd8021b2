//! Random graphs: every op, every attribute, epilogues, storage orders, odd names.

mod expressions;

use attnc_ir::{
    Attention, BinaryOp, CompareOp, Conv, DType, Dim, Extents, Graph, Op, PadMode, ReduceOp,
    TensorData, TensorType, UnaryOp, ValueId,
};
pub(crate) use expressions::expression;

/// A source of decisions that proptest can shrink.
pub(crate) struct Choices {
    left: std::vec::IntoIter<u32>,
}

impl Choices {
    pub(crate) fn new(numbers: Vec<u32>) -> Self {
        Self {
            left: numbers.into_iter(),
        }
    }

    /// A number below `n`; 0 when the decisions run out.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.left.next().unwrap_or(0) as usize % n.max(1)
    }

    pub(crate) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == one_in - 1
    }

    pub(crate) fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.len() == 0
    }
}

pub(crate) fn dim(text: &str) -> Dim {
    text.parse().unwrap()
}

const NAMES: [&str; 12] = [
    "x",
    "q",
    "/encoder/layer.0/MatMul_output_0",
    "input:0",
    "a name",
    "x",
    "%",
    "tail:",
    "7",
    "quote\"d",
    "é",
    "c0",
];
const DIMS: [&str; 9] = [
    "1",
    "2",
    "3",
    "B",
    "S",
    "P + S",
    "2 * S + 1",
    "floordiv(S, 2)",
    "max(1, S)",
];
const FLOATS: [f32; 8] = [
    0.125,
    1.0,
    -0.0,
    -0.5,
    f32::NEG_INFINITY,
    f32::NAN,
    3.4e38,
    1e-7,
];

/// A graph that the verifier accepts.
pub(crate) fn graph(choices: &mut Choices) -> Graph {
    let mut g = Graph::new(choices.pick(&["g", "two words", ""]));
    // The lengths must occur alone in some input.
    g.add_input("lengths", TensorType::new(DType::F32, ["B", "S", "P", "b"]));
    for _ in 0..1 + choices.below(3) {
        let ty = TensorType::new(choices.pick(&DType::ALL), shape(choices));
        g.add_input(choices.pick(&NAMES), ty);
    }
    let mut rounds = 0;
    while !choices.is_empty() && rounds < 60 {
        rounds += 1;
        step(&mut g, choices);
    }
    let values: Vec<_> = g.values().collect();
    for n in 0..1 + choices.below(2) {
        let value = choices.pick(&values);
        let name = if choices.chance(2) {
            g.node(value).name().to_owned()
        } else {
            format!("out {n}")
        };
        if !g.outputs().iter().any(|(other, _)| *other == name) {
            g.add_output(&name, value);
        }
    }
    g
}

fn shape(choices: &mut Choices) -> Vec<Dim> {
    (0..choices.below(4))
        .map(|_| dim(choices.pick(&DIMS)))
        .collect()
}

fn step(g: &mut Graph, choices: &mut Choices) {
    let values: Vec<_> = g.values().collect();
    let x = choices.pick(&values);
    let made = match choices.below(8) {
        0 => Some(constant(g, choices)),
        1 | 2 => pointwise(g, x, choices),
        3 => view(g, x, choices),
        4 => data(g, x, choices),
        5 => rows(g, x, choices),
        6 => contraction(g, x, choices),
        _ => map(g, choices),
    };
    let Some(id) = made else { return };
    if choices.chance(3) && g.node(id).op != Op::Input {
        let name = choices.pick(&NAMES);
        g.rename(id, name);
    }
    if g.node(id).op.takes_epilogue() && choices.chance(2) {
        epilogue(g, id, choices);
    }
    let rank = g.ty(id).rank();
    if rank > 1 && choices.chance(4) && g.node(id).op != Op::Input {
        g.node_mut(id).storage = Some((0..rank).rev().collect());
    }
}

/// A scalar of a type, as a constant.
pub(crate) fn scalar(g: &mut Graph, dtype: DType, choices: &mut Choices) -> ValueId {
    let bytes = element(dtype, choices);
    g.add_constant(TensorData::new(dtype, vec![], bytes.into()))
}

fn element(dtype: DType, choices: &mut Choices) -> Vec<u8> {
    let float = choices.pick(&FLOATS);
    match dtype {
        DType::F32 => float.to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f32(float).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f32(float).to_le_bytes().to_vec(),
        DType::Bool => u32::from(choices.chance(2)).to_le_bytes().to_vec(),
        DType::I32 => choices
            .pick(&[0i32, 1, -7, i32::MIN])
            .to_le_bytes()
            .to_vec(),
        DType::U32 => choices.pick(&[0u32, 1, u32::MAX]).to_le_bytes().to_vec(),
    }
}

fn constant(g: &mut Graph, choices: &mut Choices) -> ValueId {
    let dtype = choices.pick(&DType::ALL);
    let shape: Vec<usize> = choices
        .pick(&[
            vec![],
            vec![1],
            vec![2, 3],
            vec![0, 2],
            vec![64],
            vec![5, 13],
        ])
        .clone();
    let len: usize = shape.iter().product();
    let mut bytes: Vec<u8> = match choices.below(3) {
        0 => element(dtype, choices).repeat(len),
        1 => (0..len).flat_map(|_| element(dtype, choices)).collect(),
        // Bits that no literal has: odd NaNs, bools of 7.
        _ => [0x07, 0xfe, 0xff, 0x7f]
            .iter()
            .copied()
            .cycle()
            .take(len * dtype.bytes())
            .collect(),
    };
    bytes.truncate(len * dtype.bytes());
    let mut data = TensorData::new(dtype, shape, bytes.into());
    if choices.chance(3) {
        data = data.named(choices.pick(&NAMES));
        if len > 64 {
            data.bytes = None;
        }
    }
    g.add_constant(data)
}

fn pointwise(g: &mut Graph, x: ValueId, choices: &mut Choices) -> Option<ValueId> {
    let dtype = g.ty(x).dtype;
    let y = if choices.chance(2) {
        scalar(g, dtype, choices)
    } else {
        x
    };
    let (a, b) = if choices.chance(2) { (x, y) } else { (y, x) };
    match choices.below(5) {
        0 => g.apply(Op::Unary(choices.pick(UnaryOp::ALL)), &[a]).ok(),
        1 => g
            .apply(Op::Binary(choices.pick(BinaryOp::ALL)), &[a, b])
            .ok(),
        2 => g
            .apply(Op::Compare(choices.pick(CompareOp::ALL)), &[a, b])
            .ok(),
        3 => g.apply(Op::Cast(choices.pick(&DType::ALL)), &[a]).ok(),
        _ => {
            let condition = scalar(g, DType::Bool, choices);
            g.apply(Op::Where, &[condition, a, b]).ok()
        }
    }
}

fn view(g: &mut Graph, x: ValueId, choices: &mut Choices) -> Option<ValueId> {
    let shape = g.ty(x).shape.clone();
    let op = match choices.below(4) {
        0 => Op::Reshape(vec![g.ty(x).elements()]),
        1 => Op::Transpose((0..shape.len()).rev().collect()),
        2 => Op::Broadcast(
            [dim("2 * B"), Dim::from(4)]
                .into_iter()
                .chain(shape)
                .collect(),
        ),
        _ => {
            let axis = choices.below(shape.len());
            let len = shape.get(axis)?.clone();
            let (start, step) = if choices.chance(2) {
                (Dim::zero(), 1)
            } else {
                (len.clone() - Dim::one(), -1)
            };
            Op::Slice {
                axis,
                start,
                len,
                step,
            }
        }
    };
    g.apply(op, &[x]).ok()
}

fn data(g: &mut Graph, x: ValueId, choices: &mut Choices) -> Option<ValueId> {
    let ty = g.ty(x).clone();
    let axis = choices.below(ty.rank());
    match choices.below(8) {
        0 => g.apply(Op::Concat { axis }, &[x, x, x]).ok(),
        1 => {
            let mode = choices.pick(&[
                PadMode::Constant(-0.5),
                PadMode::Constant(f64::NEG_INFINITY),
                PadMode::Edge,
                PadMode::Reflect,
            ]);
            let after = vec![dim(choices.pick(&DIMS)); ty.rank()];
            g.apply(
                Op::Pad {
                    before: vec![Dim::one(); ty.rank()],
                    after,
                    mode,
                },
                &[x],
            )
            .ok()
        }
        2 => {
            let index = scalar(g, DType::I32, choices);
            g.apply(Op::Gather { axis }, &[x, index]).ok()
        }
        3 => {
            let index = g.apply(iota(ty.shape.clone(), axis), &[]).ok()?;
            g.apply(Op::GatherElements { axis }, &[x, index]).ok()
        }
        4 => {
            let index = g.apply(iota(vec![dim("B"), Dim::one()], 0), &[]).ok()?;
            g.apply(Op::GatherNd { batch_dims: 0 }, &[x, index]).ok()
        }
        5 => {
            let op = Op::Iota {
                shape: shape(choices),
                axis: 0,
                start: dim("-S + 2"),
                step: dim("P"),
            };
            g.apply(op, &[]).ok()
        }
        6 => g.apply(Op::Length(dim(choices.pick(&DIMS))), &[]).ok(),
        _ => g
            .apply(
                Op::CumSum {
                    axis,
                    exclusive: choices.chance(2),
                    reverse: choices.chance(2),
                },
                &[x],
            )
            .ok(),
    }
}

fn iota(shape: Vec<Dim>, axis: usize) -> Op {
    Op::Iota {
        shape,
        axis,
        start: Dim::zero(),
        step: Dim::one(),
    }
}

fn rows(g: &mut Graph, x: ValueId, choices: &mut Choices) -> Option<ValueId> {
    let rank = g.ty(x).rank();
    let axis = choices.below(rank);
    match choices.below(4) {
        0 => {
            let axes = (axis..rank).collect();
            let op = Op::Reduce {
                op: choices.pick(ReduceOp::ALL),
                axes,
                keep_dims: choices.chance(2),
            };
            g.apply(op, &[x]).ok()
        }
        1 => g.apply(Op::Softmax { axis }, &[x]).ok(),
        2 => {
            let (gain, bias) = (
                scalar(g, DType::F16, choices),
                scalar(g, DType::F32, choices),
            );
            g.apply(Op::LayerNorm { axis, eps: 1e-5 }, &[x, gain, bias])
                .ok()
        }
        _ => {
            let gain = scalar(g, DType::F32, choices);
            g.apply(Op::RmsNorm { axis, eps: 0.0 }, &[x, gain]).ok()
        }
    }
}

fn contraction(g: &mut Graph, x: ValueId, choices: &mut Choices) -> Option<ValueId> {
    let dtype = choices.pick(&[DType::F32, DType::F16]);
    match choices.below(3) {
        0 => {
            let rank = g.ty(x).rank();
            let mut perm: Vec<_> = (0..rank).collect();
            perm.swap(rank.checked_sub(2)?, rank - 1);
            let y = g.apply(Op::Transpose(perm), &[x]).ok()?;
            g.apply(Op::MatMul, &[x, y]).ok()
        }
        1 => {
            let image = g.add_input(
                "image",
                TensorType::new(dtype, [dim("B"), dim("4"), dim("S")]),
            );
            let kernel = g.add_input("kernel", TensorType::new(dtype, [6, 2, 3]));
            let conv = Conv {
                strides: vec![2],
                dilations: vec![1],
                pads_before: vec![1],
                pads_after: vec![0],
                groups: 2,
            };
            let bias = g.add_input("bias", TensorType::new(dtype, [6]));
            let operands = [image, kernel, bias];
            g.apply(Op::Conv(conv), &operands[..2 + choices.below(2)])
                .ok()
        }
        _ => attention(g, dtype, choices),
    }
}

fn attention(g: &mut Graph, dtype: DType, choices: &mut Choices) -> Option<ValueId> {
    let q = g.add_input(
        "q",
        TensorType::new(dtype, [dim("B"), dim("4"), dim("S"), dim("32")]),
    );
    let k = g.add_input(
        "k",
        TensorType::new(dtype, [dim("B"), dim("2"), dim("P + S"), dim("32")]),
    );
    let v = if choices.chance(2) {
        k
    } else {
        g.add_input("v", g.ty(k).clone())
    };
    let bias = g.add_input(
        "position bias",
        TensorType::new(DType::F32, [dim("4"), dim("S"), dim("P + S")]),
    );
    let lengths = g.add_input("key lengths", TensorType::new(DType::I32, ["B"]));
    // k is an operand twice: in the expressions it is the captured one, with or without its number.
    let operands = [q, k, v, bias, lengths, k];
    let types: Vec<_> = operands.iter().map(|&o| g.ty(o).clone()).collect();
    let extents = Extents::new(vec![dim("B"), dim("4"), dim("S"), dim("P + S")]);
    let captured: Vec<usize> = if choices.chance(3) {
        vec![1, 3, 4, 5]
    } else {
        vec![3, 4]
    };
    let mut make = |wanted, arg| {
        choices
            .chance(2)
            .then(|| expression(choices, &extents, &types, &captured, wanted, arg))
    };
    let (score_mod, mask_mod) = (make(DType::F32, true), make(DType::Bool, false));
    let prob_mod = make(DType::F32, true);
    let rows = Extents::new(vec![dim("B"), dim("4"), dim("S")]);
    let sink = choices
        .chance(2)
        .then(|| expression(choices, &rows, &types, &captured, DType::F32, false));
    g.apply(
        Op::Attention(Attention {
            score_mod,
            mask_mod,
            sink,
            prob_mod,
            ..Attention::new(0.17677669529663687)
        }),
        &operands,
    )
    .ok()
}

fn map(g: &mut Graph, choices: &mut Choices) -> Option<ValueId> {
    let values: Vec<_> = g.values().collect();
    let operands: Vec<ValueId> = (0..choices.below(4))
        .map(|_| choices.pick(&values))
        .collect();
    let types: Vec<_> = operands.iter().map(|&o| g.ty(o).clone()).collect();
    let shape = vec![dim("B"), dim("S"), dim("64")];
    let all: Vec<usize> = (0..operands.len()).collect();
    let wanted = choices.pick(&[DType::F32, DType::I32, DType::U32, DType::Bool]);
    let expr = expression(
        choices,
        &Extents::new(shape.clone()),
        &types,
        &all,
        wanted,
        false,
    );
    let dtype = if wanted == DType::F32 && choices.chance(2) {
        DType::BF16
    } else {
        wanted
    };
    Some(g.insert(
        Op::Map {
            expr,
            shape: shape.clone(),
            dtype,
        },
        &operands,
        TensorType::new(dtype, shape),
        None,
    ))
}

fn epilogue(g: &mut Graph, id: ValueId, choices: &mut Choices) {
    let values: Vec<_> = g.values().filter(|&v| v != id).collect();
    let mut operands = g.node(id).operands().to_vec();
    operands.extend((0..choices.below(3)).map(|_| choices.pick(&values)));
    let types: Vec<_> = operands.iter().map(|&o| g.ty(o).clone()).collect();
    let all: Vec<usize> = (0..operands.len()).collect();
    let shape = g.ty(id).shape.clone();
    let wanted = choices.pick(&[DType::F32, DType::F32, DType::I32, DType::Bool]);
    let expr = expression(choices, &Extents::new(shape), &types, &all, wanted, true);
    g.set_operands(id, &operands);
    let node = g.node_mut(id);
    node.epilogue = Some(expr);
    node.ty.dtype = match wanted {
        DType::F32 => choices.pick(&[DType::F32, DType::F16]),
        other => other,
    };
}
