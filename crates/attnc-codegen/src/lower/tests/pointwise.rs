//! Kernels over elements: index arithmetic, gathers, concatenation, types.

use super::{add_map, dims, f32s, kernel, mods, names, plan, ty, uniform_values, weight};
use attnc_ir::scalar::ScalarBuilder;
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Extents, Graph, Op, TensorData, UnaryOp};
use attnc_plan::DimValues;

#[test]
fn a_contiguous_pointwise_run_has_no_index_arithmetic() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&["B", "S", "48"]));
    let y = g.add_input("y", f32s(&["B * S", "48"]));
    let y = g.apply(Op::Reshape(dims(&["B", "S", "48"])), &[y]).unwrap();
    let sum = g.apply(Op::Binary(BinaryOp::Add), &[x, y]).unwrap();
    g.add_output("sum", sum);
    let lowered = plan(&g);
    assert_eq!(kernel(&lowered).name, "pointwise.f32x4.add");
    assert!(
        mods(kernel(&lowered)).contains("return x[i] + x2[i];"),
        "{}",
        mods(kernel(&lowered))
    );
    let lengths = DimValues::from([("B", 2), ("S", 5)]);
    // Items are vectors of four.
    assert_eq!(uniform_values(&lowered, 0, &lengths), [120, 0, 0, 0]);
}

#[test]
fn broadcasts_and_transposes_are_quotients_and_remainders() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&["B", "S", "48"]));
    let bias = g.add_input("bias", f32s(&["48"]));
    let sum = g.apply(Op::Binary(BinaryOp::Add), &[x, bias]).unwrap();
    let turned = g.apply(Op::Transpose(vec![0, 2, 1]), &[sum]).unwrap();
    g.add_output("turned", turned);
    let lowered = plan(&g);
    let [sum, copy] = lowered.plan.kernels.as_slice() else {
        panic!("{:?}", names(&lowered));
    };
    assert!(mods(sum).contains("let remainder0 = i % 12u;\n    return x[i] + x2[remainder0];"));
    assert_eq!(copy.name, "pointwise.f32.copy");
    let text = mods(copy);
    for line in [
        "let quotient0 = i / shape.dim_S;",
        "let quotient1 = i / shape.dim_48_S;",
        "let remainder0 = i % shape.dim_S;",
        "quotient0 + u32(shape.dim_48_S_minus_48) * quotient1 + 48u * remainder0;",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn gathers_clamp_what_comes_from_data() {
    let mut g = Graph::new("g");
    let table = weight(&mut g, "table", &[100, 48]);
    let ids = g.add_input("ids", ty(DType::I32, &["B", "S"]));
    let rows = g.apply(Op::Gather { axis: 0 }, &[table, ids]).unwrap();
    g.add_output("rows", rows);
    let lowered = plan(&g);
    assert_eq!(kernel(&lowered).name, "pointwise.f32x4.select_gather");
    let text = mods(kernel(&lowered));
    for line in [
        "let quotient0 = i / 12u;",
        "= ids[quotient0];",
        "u32(select(n0, n0 + 100i, n0 < 0i)), 99u);",
        "return x[",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    // `rows < table`: the index is clamped, the column is proved.
    assert_eq!(text.matches("min(").count(), 1, "{text}");
}

#[test]
fn concatenation_never_reads_past_an_empty_part() {
    let mut g = Graph::new("g");
    let past = g.add_input("past", f32s(&["B", "P", "16"]));
    let now = g.add_input("now", f32s(&["B", "S", "16"]));
    let all = g.apply(Op::Concat { axis: 1 }, &[past, now]).unwrap();
    g.add_output("all", all);
    let lowered = plan(&g);
    let text = mods(kernel(&lowered));
    // P may be 0, and then `past` has no valid index but the one that every buffer has.
    assert!(text.contains("min(d1, u32(shape.dim_P_minus_1))"), "{text}");
    assert!(
        text.contains("min(d1 - shape.dim_P, u32(shape.dim_S_minus_1))"),
        "{text}"
    );
    assert!(text.contains("shape.dim_max_0_16_B_P_minus_1)"), "{text}");
    assert!(text.contains("d1 < shape.dim_P)"), "{text}");
    let empty = DimValues::from([("B", 1), ("P", 0), ("S", 3)]);
    assert!(uniform_values(&lowered, 0, &empty).contains(&48));
}

#[test]
fn bools_are_stored_as_words() {
    let mut g = Graph::new("g");
    let ids = g.add_input("ids", ty(DType::I32, &["B", "S"]));
    let pad = g.add_constant(TensorData::i32(vec![], &[7]));
    let keep = g.apply(Op::Compare(CompareOp::Ne), &[ids, pad]).unwrap();
    g.add_output("keep", keep);
    let not = g.apply(Op::Unary(UnaryOp::Not), &[keep]).unwrap();
    g.add_output("not", not);
    let lowered = plan(&g);
    let [keep, not] = lowered.plan.kernels.as_slice() else {
        panic!("{:?}", names(&lowered));
    };
    assert!(keep.wgsl.contains("alias out_item = u32;"));
    assert!(
        mods(keep).contains("return select(0u, 1u, ids[i] != 7i);"),
        "{}",
        mods(keep)
    );
    assert!(
        mods(not).contains("return select(0u, 1u, !(mask[i] != 0u));"),
        "{}",
        mods(not)
    );
    // The literal needs no buffer; the second step reads what the first wrote into an output.
    assert!(lowered.weights.is_empty());
    assert!(
        lowered.plan.steps[1]
            .bindings
            .contains(&lowered.plan.outputs[0].buffer)
    );
}

#[test]
fn text_grows_with_the_expression_not_with_its_paths() {
    let mut e = ScalarBuilder::new(Extents::new(dims(&["S"])));
    let index = e.indices();
    let mut value = e.load(0, DType::F32, index);
    for _ in 0..60 {
        value = e.unary(UnaryOp::Neg, value);
    }
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&["S"]));
    let y = add_map(&mut g, e.finish(value), &["S"], &[x]);
    g.add_output("y", y);
    // Each sign is printed once; printed again at every level, there would be 2^60.
    let signs = mods(kernel(&plan(&g))).matches('-').count();
    assert!((60..120).contains(&signs), "{signs}");
}

#[test]
fn integers_are_signed_where_they_may_be_negative() {
    let shape = ["B", "S"];
    let mut e = ScalarBuilder::new(Extents::new(dims(&shape)));
    let (half, odd) = (
        e.int("floordiv(d1 - S, 2)".parse::<Dim>().unwrap()),
        e.int("d1 - 2 * floordiv(d1, 2)".parse::<Dim>().unwrap()),
    );
    let ids = e.indices();
    let id = e.load(0, DType::I32, ids);
    let least = e.int(i64::from(i32::MIN));
    let x = e.binary(BinaryOp::Max, id, least);
    let x = e.binary(BinaryOp::Mod, x, half);
    let x = e.binary(BinaryOp::Sub, x, odd);
    let expr = e.finish(x);
    let mut g = Graph::new("g");
    let ids = g.add_input("ids", ty(DType::I32, &shape));
    let y = add_map(&mut g, expr, &shape, &[ids]);
    g.add_output("y", y);
    let lowered = plan(&g);
    let text = mods(kernel(&lowered));
    for line in [
        "fn floor_div(x: i32, y: i32) -> i32",
        "mod_int(max(ids[i], (-2147483647i - 1i)), floor_div(",
        "remainder1 = remainder0 % 2u;",
        "- i32(remainder1)",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
