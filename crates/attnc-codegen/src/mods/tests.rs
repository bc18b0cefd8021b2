//! Values as text. Each is also linked into `pointwise` and validated.

use super::{Function, IndexSpace, Mods, Printed, Returns};
use crate::Stored;
use crate::link::Linker;
use crate::validate::validate;
use attnc_ir::scalar::{ExprId, ScalarBuilder};
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Extents, Graph, TensorType, UnaryOp, ValueId};
use attnc_plan::DeviceProfile;

fn shape() -> Vec<Dim> {
    vec!["S".into(), 8.into()]
}

/// A graph with inputs of each type, all `[S, 8]`: f32, f32, i32, bool.
fn graph() -> (Graph, Vec<ValueId>) {
    let mut g = Graph::new("g");
    let types = [DType::F32, DType::F32, DType::I32, DType::Bool];
    let inputs = types.map(|dtype| {
        let ty = TensorType {
            dtype,
            shape: shape(),
        };
        g.add_input("t", ty)
    });
    (g, inputs.to_vec())
}

/// Prints `element` of the expression that `build` makes of the four inputs' elements.
fn print(build: impl FnOnce(&mut ScalarBuilder, [ExprId; 4]) -> ExprId) -> Printed {
    let (graph, operands) = graph();
    let mut e = ScalarBuilder::new(Extents::new(shape()));
    let index = e.indices();
    let loads = [0, 1, 2, 3].map(|n| {
        let dtype = graph.ty(operands[n]).dtype;
        e.load(n, dtype, index.clone())
    });
    let root = build(&mut e, loads);
    let expr = e.finish(root);
    let mut space = IndexSpace {
        logical: shape(),
        ..IndexSpace::default()
    };
    space.cover("i", &[0, 1]);
    let names = |n, _, _: &[Dim]| ["x", "y", "n", "m"][n];
    let stored = |v| Stored::of(graph.ty(v).dtype, &DeviceProfile::webgpu());
    let mut mods = Mods::new(&graph, &stored, "pointwise", names);
    mods.function(&Function {
        name: "element",
        arg: None,
        space: &space,
        result: Returns::Value(expr.result()),
        expr: &expr,
        operands: &operands,
    })
    .unwrap_or_else(|e| panic!("{e}"));
    let printed = mods.finish();
    let out = super::wgsl_type(expr.result());
    if printed.fields.is_empty() {
        let linked = Linker::new("pointwise")
            .module(
                "params",
                &format!(
                    "{}const ITEMS_PER_INVOCATION: u32 = 1u;\n",
                    crate::params::print(&[("out_item", out)], 8)
                ),
            )
            .module("mods", &printed.text)
            .link()
            .unwrap_or_else(|e| panic!("{e}"));
        validate(&linked).unwrap_or_else(|e| panic!("{e}\n{}", printed.text));
    }
    printed
}

#[track_caller]
fn check(build: impl FnOnce(&mut ScalarBuilder, [ExprId; 4]) -> ExprId, expected: &str) -> Printed {
    let printed = print(build);
    let found = printed
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("    return "))
        .next_back();
    assert_eq!(
        found,
        Some(format!("{expected};").as_str()),
        "{}",
        printed.text
    );
    printed
}

#[test]
fn operators_keep_their_operands_together() {
    use BinaryOp::{Add, Div, Mul, Sub};
    check(
        |e, [x, y, ..]| {
            let inner = e.binary(Sub, x, y);
            let product = e.binary(Mul, y, inner);
            e.binary(Sub, product, inner)
        },
        "v0 * v1 - v1",
    );
    check(
        |e, [x, y, ..]| {
            let two = e.float(-2.0);
            let sum = e.binary(Add, x, two);
            let quotient = e.binary(Div, y, sum);
            let negated = e.unary(UnaryOp::Neg, quotient);
            e.binary(Mul, negated, two)
        },
        "(-(y[i] / (x[i] + (-2.0)))) * (-2.0)",
    );
    check(
        |e, [x, y, ..]| {
            let product = e.binary(Mul, x, y);
            let half = e.float(0.5);
            e.binary(Add, half, product)
        },
        "0.5 + x[i] * y[i]",
    );
}

#[test]
fn bools_are_joined_without_branches() {
    check(
        |e, [x, y, _, m]| {
            let below = e.compare(CompareOp::Lt, x, y);
            let above = e.compare(CompareOp::Gt, x, y);
            let either = e.binary(BinaryOp::Or, below, m);
            let not = e.unary(UnaryOp::Not, above);
            let both = e.binary(BinaryOp::And, either, not);
            e.binary(BinaryOp::Xor, both, m)
        },
        "select(0u, 1u, (((v0 < v1) | is0) & !(v0 > v1)) != is0)",
    );
}

#[test]
fn what_wgsl_may_assume_away_is_asked_of_the_bits() {
    let printed = check(
        |e, [x, ..]| {
            let nan = e.unary(UnaryOp::IsNan, x);
            let (inf, zero) = (e.float(f32::INFINITY), e.float(0.0));
            e.select(nan, inf, zero)
        },
        "select(0.0, float_bits(0x7f800000u), (bitcast<u32>(x[i]) & 0x7fffffffu) > 0x7f800000u)",
    );
    assert!(
        printed
            .text
            .contains("import package::lib::float_bits::{float_bits};")
    );
}

#[test]
fn conversions_name_both_types() {
    check(|e, [.., n, _]| e.cast(DType::F32, n), "f32(n[i])");
    check(
        |e, [.., m]| e.cast(DType::F32, m),
        "select(0.0, 1.0, m[i] != 0u)",
    );
    check(
        |e, [x, ..]| e.cast(DType::Bool, x),
        "select(0u, 1u, x[i] != 0.0)",
    );
    check(
        |e, _| {
            let column = e.index(1);
            e.cast(DType::F32, column)
        },
        "f32(remainder0)",
    );
}

#[test]
fn every_float_function_has_a_form() {
    for &op in UnaryOp::ALL {
        if op != UnaryOp::Not {
            print(|e, [x, ..]| e.unary(op, x));
        }
    }
    for &op in BinaryOp::ALL {
        let bools = matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor);
        print(|e, [x, y, _, m]| {
            let (x, y) = if bools {
                (m, e.unary(UnaryOp::Not, m))
            } else {
                (x, y)
            };
            e.binary(op, x, y)
        });
        // Integers have no power yet.
        if op != BinaryOp::Pow {
            print(|e, [.., n, _]| {
                let three = e.int(3);
                e.binary(op, n, three)
            });
        }
    }
}

#[test]
fn lengths_are_fields_with_a_sign_where_they_may_have_one() {
    let printed = print(|e, _| {
        let places: Dim = "d0 - 2 * S + max(S, 4)".parse().unwrap();
        e.int(places)
    });
    let fields: Vec<_> = printed
        .fields
        .iter()
        .map(|f| (f.name.as_str(), f.dim.to_string(), f.signed))
        .collect();
    assert_eq!(
        fields,
        [(
            "dim_minus_2_S_plus_max_4_S",
            "-2 * S + max(4, S)".to_owned(),
            true
        )]
    );
    assert!(
        printed
            .text
            .starts_with("import package::kernels::pointwise::{shape};\n")
    );
    assert!(
        printed
            .text
            .contains("i32(quotient0) + shape.dim_minus_2_S_plus_max_4_S")
    );
}

#[test]
fn equal_expressions_give_equal_text() {
    let build = |e: &mut ScalarBuilder, [x, y, ..]: [ExprId; 4]| {
        let sum = e.binary(BinaryOp::Add, x, y);
        e.unary(UnaryOp::Silu, sum)
    };
    assert_eq!(print(build).text, print(build).text);
}

/// Prints four elements of what `build` makes of the four inputs' elements and those of its own index.
fn print_four(
    shape: &[Dim],
    build: impl FnOnce(&mut ScalarBuilder, [ExprId; 4]) -> ExprId,
) -> Result<Printed, String> {
    let mut graph = Graph::new("g");
    let types = [DType::F32, DType::F16, DType::I32, DType::Bool];
    let operands = types.map(|dtype| {
        let shape = shape.to_vec();
        graph.add_input("t", TensorType { dtype, shape })
    });
    let mut e = ScalarBuilder::new(Extents::new(shape.to_vec()));
    let index = e.indices();
    let loads = [0, 1, 2, 3].map(|n| e.load(n, types[n], index.clone()));
    let root = build(&mut e, loads);
    let expr = e.finish(root);
    let mut space = IndexSpace {
        logical: shape.to_vec(),
        ..IndexSpace::default()
    };
    space.cover_vectors("i", &(0..shape.len()).collect::<Vec<_>>());
    let names = |n, _, _: &[Dim]| ["x", "h", "n", "m"][n];
    let stored = |v| Stored::of(graph.ty(v).dtype, &DeviceProfile::webgpu());
    let mut mods = Mods::new(&graph, &stored, "pointwise", names);
    let function = Function {
        name: "element",
        arg: None,
        space: &space,
        result: Returns::Value(DType::F32),
        expr: &expr,
        operands: &operands,
    };
    mods.function(&function).map_err(|e| e.to_string())?;
    let printed = mods.finish();
    if printed.fields.is_empty() {
        let params = crate::params::print(&[("out_item", "vec4<f32>")], 8);
        let linked = Linker::new("pointwise")
            .module(
                "params",
                &format!("{params}const ITEMS_PER_INVOCATION: u32 = 1u;\n"),
            )
            .module("mods", &printed.text)
            .link()
            .unwrap_or_else(|e| panic!("{e}"));
        validate(&linked).unwrap_or_else(|e| panic!("{e}\n{}", printed.text));
    }
    Ok(printed)
}

fn heads() -> Vec<Dim> {
    vec![6.into(), 64.into()]
}

#[test]
fn every_float_function_of_four_is_valid_or_has_no_form() {
    for &op in UnaryOp::ALL {
        let refused = matches!(op, UnaryOp::IsNan | UnaryOp::IsInf);
        if op != UnaryOp::Not {
            let printed = print_four(&heads(), |e, [x, ..]| {
                let y = e.unary(op, x);
                let y = e.cast(DType::F32, y);
                e.binary(BinaryOp::Add, y, x)
            });
            assert_eq!(printed.is_err(), refused, "{}: {printed:?}", op.name());
        }
    }
    for op in [BinaryOp::Add, BinaryOp::Div, BinaryOp::Max, BinaryOp::Rem] {
        print_four(&heads(), |e, [x, h, ..]| e.binary(op, x, h)).unwrap();
        print_four(&heads(), |e, [x, ..]| {
            let two = e.float(2.0);
            e.binary(op, two, x)
        })
        .unwrap();
    }
    print_four(&heads(), |e, [x, h, n, m]| {
        let n = e.cast(DType::F32, n);
        let less = e.compare(CompareOp::Lt, x, n);
        let both = e.binary(BinaryOp::And, less, m);
        e.select(both, h, n)
    })
    .unwrap();
}

#[test]
fn halves_of_a_rotation_are_vectors_and_known_for_all_four() {
    let printed = print_four(&heads(), |e, [x, ..]| {
        let (row, d) = (e.index(0), e.index(1));
        let half = e.int(32);
        let after = e.int("d1 + 32".parse::<Dim>().unwrap());
        let before = e.int("d1 - 32".parse::<Dim>().unwrap());
        let first = e.compare(CompareOp::Lt, d, half);
        let after = e.load(0, DType::F32, vec![row, after]);
        let before = e.load(0, DType::F32, vec![row, before]);
        let minus = e.unary(UnaryOp::Neg, after);
        let turned = e.select(first, minus, before);
        e.binary(BinaryOp::Add, x, turned)
    })
    .unwrap();
    let text = printed.text;
    assert!(
        text.contains("var<storage, read> x: array<vec4<f32>>;"),
        "{text}"
    );
    assert!(text.contains("4u * remainder0 < 32u"), "{text}");
    assert!(text.contains("min(remainder0 + 8u, 15u)"), "{text}");
}

#[test]
fn what_differs_between_the_four_has_no_form() {
    let position = print_four(&heads(), |e, [x, ..]| {
        let d = e.index(1);
        let d = e.cast(DType::F32, d);
        e.binary(BinaryOp::Mul, x, d)
    });
    assert!(position.unwrap_err().contains("no-vector-form"));
    let odd = print_four(&heads(), |e, [x, ..]| {
        let (d, three) = (e.index(1), e.int(3));
        let first = e.compare(CompareOp::Lt, d, three);
        let zero = e.float(0.0);
        e.select(first, x, zero)
    });
    assert!(odd.unwrap_err().contains("differs between elements"));
    let gathered = print_four(&heads(), |e, [_, _, n, _]| {
        let row = e.index(0);
        e.load(0, DType::F32, vec![row, n])
    });
    assert!(gathered.is_err());
}

#[test]
fn a_load_across_rows_is_four_loads() {
    let shape = vec![8.into(), 8.into()];
    let printed = print_four(&shape, |e, _| {
        let (row, column) = (e.index(0), e.index(1));
        e.load(0, DType::F32, vec![column, row])
    });
    let text = printed.unwrap().text;
    assert!(
        text.contains("vec4<f32>(x[at0], x[at0 + 8u], x[at0 + 2u * 8u], x[at0 + 3u * 8u])"),
        "{text}"
    );
}
