//! Kernels over rows: reductions, softmax, norms.

use super::{dims, f32s, kernel, layer_norm, mods, names, plan, ty, uniform_values};
use crate::lower::storage_bindings_needed;
use attnc_ir::scalar::ScalarBuilder;
use attnc_ir::{BinaryOp, DType, Extents, Graph, Op, ReduceOp, UnaryOp};
use attnc_plan::DimValues;

#[test]
fn reductions_run_over_any_axes() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&["B", "C", "S", "8"]));
    let mean = Op::Reduce {
        op: ReduceOp::Mean,
        axes: vec![1, 3],
        keep_dims: false,
    };
    let mean = g.apply(mean, &[x]).unwrap();
    g.add_output("mean", mean);
    let lowered = plan(&g);
    assert_eq!(kernel(&lowered).name, "reduce_rows.f32.mean");
    let words = uniform_values(
        &lowered,
        0,
        &DimValues::from([("B", 2), ("C", 3), ("S", 5)]),
    );
    assert_eq!(words[..3], [10, 24, 0]);

    let mut g = Graph::new("g");
    let x = g.add_input("x", ty(DType::Bool, &["B", "S"]));
    let any = Op::Reduce {
        op: ReduceOp::Any,
        axes: vec![1],
        keep_dims: true,
    };
    let any = g.apply(any, &[x]).unwrap();
    g.add_output("any", any);
    let lowered = plan(&g);
    let text = mods(kernel(&lowered));
    assert!(
        text.contains("return select(0u, 1u, x[shape.dim_S * row + i] != 0u);"),
        "{text}"
    );
    assert!(text.contains("fn epilogue(value: u32, row: u32, i: u32) -> u32 {\n    return value;"));
}

#[test]
fn softmax_and_running_sums_take_inner_axes() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&["B", "S", "8"]));
    let p = g.apply(Op::Softmax { axis: 1 }, &[x]).unwrap();
    let c = Op::CumSum {
        axis: 2,
        exclusive: true,
        reverse: false,
    };
    let c = g.apply(c, &[p]).unwrap();
    g.add_output("c", c);
    let lowered = plan(&g);
    assert_eq!(names(&lowered), ["softmax_rows.f32", "scan_rows.f32"]);
    let lengths = DimValues::from([("B", 2), ("S", 5)]);
    // rows, len, inner, offset, outer, inner and axis strides
    assert_eq!(
        uniform_values(&lowered, 0, &lengths)[..7],
        [16, 5, 8, 0, 40, 1, 8]
    );
    assert_eq!(
        uniform_values(&lowered, 1, &lengths)[..9],
        [10, 8, 1, 0, 8, 1, 1, 1, 0]
    );
}

#[test]
fn row_epilogues_follow_gain_and_bias() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&["B", "S", "48"]));
    let r = g.add_input("r", f32s(&["B", "S", "48"]));
    let y = layer_norm(&mut g, "ln", x);
    let mut e = ScalarBuilder::new(Extents::new(dims(&["B", "S", "48"])));
    let (index, arg) = (e.indices(), e.arg());
    let residual = e.load(3, DType::F32, index);
    let sum = e.binary(BinaryOp::Add, arg, residual);
    let sum = e.unary(UnaryOp::Silu, sum);
    let operands: Vec<_> = g.node(y).operands().iter().copied().chain([r]).collect();
    g.set_operands(y, &operands);
    g.node_mut(y).epilogue = Some(e.finish(sum));
    g.add_output("y", y);
    let lowered = plan(&g);
    assert_eq!(kernel(&lowered).name, "layer_norm_rows.f32.residual_silu");
    let text = mods(kernel(&lowered));
    let line = "return silu(value * gain[i] + bias[i] + t[48u * row + i]);";
    assert!(text.contains(line), "{text}");
    assert_eq!(storage_bindings_needed(&g, y), 5);
}
