//! Plans as a whole: kernels that layers share, buffers, outputs, refusals.

use super::{add_map, attend, dims, f32s, layer, mods, names, plan, ty};
use crate::lower::{Lowered, lower, storage_bindings_needed};
use attnc_ir::scalar::ScalarBuilder;
use attnc_ir::{BinaryOp, DType, Extents, Graph, Op, UnaryOp};
use attnc_plan::{DeviceProfile, DimValues, MemoryPlan};

#[test]
fn equal_layers_share_their_kernels() {
    let mut g = Graph::new("bert");
    let x = g.add_input("x", f32s(&["B", "S", "48"]));
    let mask = g.add_input("mask", ty(DType::Bool, &["B", "S"]));
    let y = layer(&mut g, "layer.0", x, mask);
    let y = layer(&mut g, "layer.1", y, mask);
    g.add_output("y", y);
    let lowered = plan(&g);
    assert_eq!(
        names(&lowered),
        [
            "matmul_tiled.f32.32x32k16r4c1.bias",
            "flash_attention_fwd_tiled.f32.m64n64d16.padding",
            "matmul_tiled.f32.32x32k16r4c1.bias_residual",
            "layer_norm_rows.f32",
            "matmul_tiled.f32.32x32k16r4c1.bias_gelu",
        ]
    );
    assert_eq!(lowered.plan.steps.len(), 18);
    assert_eq!(lowered.weights.len(), 2 * 16);
    // The last norm writes the output itself: no copy, no buffer in between.
    let last = lowered.plan.steps.last().unwrap();
    assert!(last.bindings.contains(&lowered.plan.outputs[0].buffer));
    let memory = MemoryPlan::new(&lowered.plan, &DimValues::from([("B", 2), ("S", 7)]));
    assert!(memory.unwrap().peak_bytes > 0);
}

#[test]
fn outputs_that_are_views_inputs_or_doubles_are_copied_once_each() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&["S", "8"]));
    let y = g.apply(Op::Unary(UnaryOp::Exp), &[x]).unwrap();
    let flat = g.apply(Op::Reshape(dims(&["8 * S"])), &[y]).unwrap();
    let half = Op::Slice {
        axis: 1,
        start: 4.into(),
        len: 4.into(),
        step: 1,
    };
    let half = g.apply(half, &[y]).unwrap();
    for (name, value) in [("flat", flat), ("y", y), ("half", half), ("same", x)] {
        g.add_output(name, value);
    }
    let lowered = plan(&g);
    let plan = &lowered.plan;
    assert_eq!(plan.temps().count(), 0);
    let written: Vec<_> = plan.steps.iter().map(|s| s.bindings[0]).collect();
    assert_eq!(
        written,
        plan.outputs.iter().map(|o| o.buffer).collect::<Vec<_>>()
    );
    // `exp` writes the flattened output itself; the three copies follow.
    assert_eq!(
        plan.kernel(plan.steps[0].kernel).name,
        "pointwise.f32x4.exp"
    );
    let copies = plan.steps[1..]
        .iter()
        .map(|s| plan.kernel(s.kernel).family());
    assert!(copies.eq(["pointwise"; 3]));
    let half = plan.kernel(plan.steps[2].kernel);
    assert!(mods(half).contains("+ 1u]"), "{}", mods(half));
}

#[test]
fn probabilities_are_written_over_their_scores() {
    let mut g = Graph::new("attention_map");
    let q = g.add_input("q", f32s(&["B", "H", "M", "8"]));
    let kt = g.add_input("kt", f32s(&["B", "H", "8", "N"]));
    let s = g.apply(Op::MatMul, &[q, kt]).unwrap();
    let p = g.apply(Op::Softmax { axis: 3 }, &[s]).unwrap();
    g.add_output("p", p);
    let lowered = plan(&g);
    let tables = |lowered: &Lowered| {
        let buffers = lowered.plan.buffers.iter();
        let tables = buffers.filter(|b| b.shape == dims(&["B", "H", "M", "N"]));
        tables.count()
    };
    assert_eq!(tables(&lowered), 1);
    let softmax = &lowered.plan.kernels[1];
    assert!(mods(softmax).contains("return out["), "{}", mods(softmax));

    // Scores that are wanted too stay.
    g.add_output("s", s);
    assert_eq!(tables(&plan(&g)), 2);
}

#[test]
fn an_output_called_as_an_input_is_bound_by_another_name() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&["S"]));
    g.add_output("x", x);
    let plan = plan(&g).plan;
    assert_eq!(plan.outputs[0].name, "x.out1");
    assert!(plan.notes[0].contains("`x` is bound as `x.out1`"));
}

fn error(graph: &Graph) -> String {
    lower(graph, &DeviceProfile::webgpu())
        .expect_err("lowering should be refused")
        .to_string()
}

#[test]
fn everything_unsupported_is_reported_at_once() {
    let mut g = Graph::new("g");
    for name in ["D", "E"] {
        let [q, k] = ["q", "k"].map(|n| {
            let input = f32s(&["B", "3", "S", name]);
            g.add_input(&format!("{n}{name}"), input)
        });
        let o = attend(&mut g, q, k, k, None);
        g.rename(o, &format!("of_{name}"));
        g.add_output(&format!("o{name}"), o);
    }
    let text = error(&g);
    for part in [
        "error[symbolic-head-dim] at %of_D: attention needs a constant number of columns of V, found D",
        "error[symbolic-head-dim] at %of_E: attention needs a constant number of columns of V, found E",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn too_many_buffers_name_the_kernel_and_the_limit() {
    let mut g = Graph::new("g");
    let inputs: Vec<_> = (0..9)
        .map(|n| g.add_input(&format!("x{n}"), f32s(&["S"])))
        .collect();
    let mut e = ScalarBuilder::new(Extents::new(dims(&["S"])));
    let index = e.indices();
    let mut sum = e.float(1.5);
    for n in 0..9 {
        let x = e.load(n, DType::F32, index.clone());
        sum = e.binary(BinaryOp::Add, sum, x);
    }
    let y = add_map(&mut g, e.finish(sum), &["S"], &inputs);
    g.add_output("y", y);
    assert_eq!(storage_bindings_needed(&g, y), 10);
    let text = error(&g);
    assert!(
        text.contains("does not fit: 10 storage buffers; `webgpu` has at most 8"),
        "{text}"
    );
}

#[test]
fn two_compiles_give_the_same_plan() {
    let build = || {
        let mut g = Graph::new("bert");
        let x = g.add_input("x", f32s(&["B", "S", "48"]));
        let mask = g.add_input("mask", ty(DType::Bool, &["B", "S"]));
        let y = layer(&mut g, "layer.0", x, mask);
        g.add_output("y", y);
        lower(&g, &DeviceProfile::webgpu()).unwrap().plan
    };
    assert_eq!(build(), build());
}
