//! Each rule of the verifier refuses a graph that breaks it, and only that rule speaks.

use attnc_ir::scalar::{ScalarBuilder, ScalarExpr};
use attnc_ir::{
    Attention, BinaryOp, CompareOp, DType, Dim, Extents, Graph, Op, TensorData, TensorType,
    UnaryOp, ValueId, render_graph_diagnostics, verify,
};
use std::collections::BTreeSet;

/// A graph of one input `%x: f32[B, 4]`, changed by `f`, whose value becomes the output.
fn graph(f: impl FnOnce(&mut Graph, ValueId) -> ValueId) -> Graph {
    let mut g = Graph::new("g");
    let x = g.add_input("x", TensorType::new(DType::F32, [Dim::sym("B"), 4.into()]));
    let out = f(&mut g, x);
    g.add_output("out", out);
    g
}

fn f32_type(dims: &[i64]) -> TensorType {
    TensorType::new(DType::F32, dims.iter().copied())
}

fn insert(op: Op, ty: Option<TensorType>) -> Graph {
    graph(|g, x| {
        let ty = ty.unwrap_or_else(|| g.ty(x).clone());
        g.insert(op, &[x], ty, Some("y"))
    })
}

fn weight(g: &mut Graph, ty: TensorType, bytes: usize) -> ValueId {
    let shape = ty
        .shape
        .iter()
        .map(|d| usize::try_from(d.as_const().unwrap()).unwrap())
        .collect();
    let data = TensorData {
        dtype: ty.dtype,
        shape,
        name: None,
        bytes: Some(vec![0; bytes].into()),
    };
    g.insert(Op::Constant(data), &[], ty, Some("y"))
}

fn expression(f: impl FnOnce(&mut ScalarBuilder) -> attnc_ir::scalar::ExprId) -> ScalarExpr {
    let mut e = ScalarBuilder::new(Extents::new(vec!["B".into(), 4.into()]));
    let root = f(&mut e);
    e.finish(root)
}

fn map(expr: ScalarExpr) -> Graph {
    let shape = vec![Dim::sym("B"), 4.into()];
    let dtype = expr.result();
    insert(Op::Map { expr, shape, dtype }, None)
}

fn attention(attention: Attention) -> Graph {
    graph(|g, _| {
        let q = g.add_input(
            "q",
            TensorType::new(DType::F32, ["B".into(), 2.into(), Dim::sym("S"), 8.into()]),
        );
        let ty = g.ty(q).clone();
        g.insert(Op::Attention(attention), &[q, q, q], ty, Some("y"))
    })
}

fn nested(depth: usize) -> Dim {
    (0..depth).fold(Dim::sym("B"), |d, _| {
        (d + Dim::one()).floor_div(&3.into(), &Extents::none()) + Dim::sym("B")
    })
}

fn cyclic() -> Graph {
    graph(|g, x| {
        let y = g.apply(Op::Unary(UnaryOp::Exp), &[x]).unwrap();
        let z = g.apply(Op::Unary(UnaryOp::Log), &[y]).unwrap();
        g.set_operands(y, &[z]);
        z
    })
}

fn two_outputs() -> Graph {
    let mut g = graph(|_, x| x);
    let x = g.inputs()[0];
    g.add_output("out", x);
    g
}

fn removed_output() -> Graph {
    let mut g = graph(|_, x| x);
    let dead = g.apply(Op::Unary(UnaryOp::Exp), &[g.inputs()[0]]).unwrap();
    g.remove(dead);
    g.add_output("gone", dead);
    g
}

fn epilogue(op: Op, epilogue: ScalarExpr) -> Graph {
    let mut g = insert(op, None);
    let y = g.by_name("y").unwrap();
    g.node_mut(y).epilogue = Some(epilogue);
    g
}

fn storage(of: &str, order: &[usize]) -> Graph {
    let mut g = insert(Op::Unary(UnaryOp::Exp), None);
    let id = g.by_name(of).unwrap();
    g.node_mut(id).storage = Some(order.to_vec());
    g
}

/// Code, what is broken, the graph.
fn broken() -> Vec<(&'static str, &'static str, Graph)> {
    let plain = Attention::new(0.5);
    let double = |e: &mut ScalarBuilder| {
        let (acc, two) = (e.arg(), e.float(2.0));
        e.binary(BinaryOp::Mul, acc, two)
    };
    let load = |operand, dtype, rank: usize| {
        map(expression(|e| {
            let index = e.indices()[..rank].to_vec();
            let value = e.load(operand, dtype, index);
            e.cast(DType::F32, value)
        }))
    };
    vec![
        (
            "missing-value",
            "an output that was removed",
            removed_output(),
        ),
        ("cycle", "two values that need each other", cyclic()),
        ("no-outputs", "nothing at all", Graph::new("empty")),
        ("duplicate-output", "two outputs of one name", two_outputs()),
        (
            "unlisted-input",
            "an input made by hand",
            graph(|g, _| g.insert(Op::Input, &[], f32_type(&[1]), Some("y"))),
        ),
        (
            "operand-count",
            "a sum of one",
            insert(Op::Binary(BinaryOp::Add), None),
        ),
        (
            "operand-count",
            "operands for an epilogue that is not there",
            graph(|g, x| g.insert(Op::Softmax { axis: 1 }, &[x, x], g.ty(x).clone(), Some("y"))),
        ),
        (
            "dtype-mismatch",
            "not of a float",
            insert(Op::Unary(UnaryOp::Not), None),
        ),
        (
            "shape-mismatch",
            "a reshape to more elements",
            insert(Op::Reshape(vec![5.into()]), Some(f32_type(&[5]))),
        ),
        (
            "bad-axis",
            "an axis beyond the rank",
            insert(Op::Softmax { axis: 2 }, None),
        ),
        (
            "bad-axis",
            "an axis twice",
            insert(Op::Transpose(vec![0, 0]), None),
        ),
        (
            "type-mismatch",
            "a shape that is not the result's",
            insert(Op::Unary(UnaryOp::Exp), Some(f32_type(&[7]))),
        ),
        (
            "type-mismatch",
            "an element type that is not the result's",
            insert(
                Op::Unary(UnaryOp::Exp),
                Some(TensorType::new(DType::F16, [Dim::sym("B"), 4.into()])),
            ),
        ),
        (
            "bad-expression",
            "a load beyond the operands",
            load(3, DType::F32, 2),
        ),
        (
            "bad-expression",
            "a load with too few indices",
            load(0, DType::F32, 1),
        ),
        (
            "bad-expression",
            "a load of another type",
            load(0, DType::I32, 2),
        ),
        (
            "bad-expression",
            "an index variable too many",
            map(expression(|e| {
                let n = e.index(2);
                e.cast(DType::F32, n)
            })),
        ),
        (
            "bad-expression",
            "an argument in a map",
            map(expression(double)),
        ),
        (
            "bad-expression",
            "an epilogue of another type",
            epilogue(Op::Softmax { axis: 1 }, expression(|e| e.bool(true))),
        ),
        (
            "bad-expression",
            "a mask that depends on the score",
            attention(Attention {
                mask_mod: Some(expression(|e| {
                    let (score, zero) = (e.arg(), e.float(0.0));
                    e.compare(CompareOp::Gt, score, zero)
                })),
                ..plain.clone()
            }),
        ),
        (
            "stray-epilogue",
            "on a pointwise op",
            epilogue(Op::Unary(UnaryOp::Exp), expression(double)),
        ),
        ("bad-storage", "too few axes", storage("y", &[0])),
        ("bad-storage", "of an input", storage("x", &[1, 0])),
        (
            "bad-parameter",
            "a negative eps",
            graph(|g, x| {
                let gain = g.add_constant(TensorData::f32(vec![4], &[1.0; 4]));
                g.insert(
                    Op::RmsNorm { axis: 1, eps: -1.0 },
                    &[x, gain],
                    g.ty(x).clone(),
                    Some("y"),
                )
            }),
        ),
        (
            "bad-parameter",
            "an infinite scale",
            attention(Attention {
                scale: f64::INFINITY,
                ..plain
            }),
        ),
        (
            "constant-data",
            "too few bytes",
            graph(|g, _| weight(g, f32_type(&[4]), 12)),
        ),
        (
            "constant-data",
            "no bytes and no name",
            graph(|g, _| {
                let data = TensorData {
                    dtype: DType::F32,
                    shape: vec![4],
                    name: None,
                    bytes: None,
                };
                g.insert(Op::Constant(data), &[], f32_type(&[4]), Some("y"))
            }),
        ),
        (
            "negative-size",
            "an axis of size -1",
            graph(|g, _| g.add_input("y", f32_type(&[-1]))),
        ),
        (
            "too-large",
            "2^40 elements",
            graph(|g, _| g.add_input("y", f32_type(&[1 << 20, 1 << 20]))),
        ),
        (
            "too-large",
            "a product beyond 64 bits",
            graph(|g, _| g.add_input("y", f32_type(&[1 << 40, 0, 1 << 40]))),
        ),
        (
            "too-complex",
            "17 axes",
            graph(|g, _| g.add_input("y", f32_type(&[1; 17]))),
        ),
        (
            "too-complex",
            "17 nested quotients",
            graph(|g, _| g.add_input("y", TensorType::new(DType::F32, [nested(17)]))),
        ),
        (
            "unbound-length",
            "a length no input has",
            insert(
                Op::Broadcast(vec!["S".into(), "B".into(), 4.into()]),
                Some(TensorType::new(
                    DType::F32,
                    ["S".into(), Dim::sym("B"), 4.into()],
                )),
            ),
        ),
        (
            "bad-length-name",
            "the name of an index variable",
            graph(|g, _| g.add_input("y", TensorType::new(DType::F32, [Dim::sym("d0")]))),
        ),
        (
            "stray-index",
            "an index variable in a type",
            graph(|g, _| g.add_input("y", TensorType::new(DType::F32, [Dim::index(0)]))),
        ),
    ]
}

#[test]
fn every_rule_refuses_what_breaks_it() {
    for (code, what, graph) in broken() {
        let found = verify(&graph).expect_err(what);
        for diagnostic in &found.0 {
            assert_eq!(diagnostic.code, code, "{what}: {found}");
        }
        assert!(!render_graph_diagnostics(&graph, &found).is_empty());
    }
}

#[test]
fn every_rule_has_a_case() {
    let rules: BTreeSet<_> = verify::RULES.iter().map(|(code, _)| *code).collect();
    let cases: BTreeSet<_> = broken().iter().map(|(code, ..)| *code).collect();
    assert_eq!(rules, cases);
}

#[test]
fn all_violations_are_reported_with_their_values() {
    let g = graph(|g, x| {
        let y = g.insert(Op::Softmax { axis: 2 }, &[x], g.ty(x).clone(), Some("y"));
        g.insert(Op::Unary(UnaryOp::Not), &[y], g.ty(x).clone(), Some("z"))
    });
    let found = verify(&g).unwrap_err();
    let pairs: Vec<_> = found
        .0
        .iter()
        .map(|d| (d.code, d.at.as_deref().unwrap()))
        .collect();
    assert_eq!(pairs, [("bad-axis", "%y"), ("dtype-mismatch", "%z")]);
}

#[test]
fn carets_stand_under_the_value_in_the_printed_graph() {
    let g = insert(Op::Softmax { axis: 2 }, None);
    let text = render_graph_diagnostics(&g, &verify(&g).unwrap_err());
    assert_eq!(
        text,
        "\
error[bad-axis]: softmax over axis 2, but the operand has 2 axes
  ┌─ graph @g:2:3
  │
2 │   %y = softmax %x, axis = 2
  │   ^^^^^^^^^^^^^^^^^^^^^^^^^ this value

"
    );
}
