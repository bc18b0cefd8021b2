//! Matrix products: axes, tiles, elements of 16 bits, few rows.

use super::{
    attend, cpu, dims, f32s, heads, kernel, linear, mods, names, plan, ty, uniform_values, weight,
};
use crate::choice::{Choices, KernelShape};
use crate::lower::{lower, lower_with};
use attnc_ir::{DType, Graph, Op, UnaryOp};
use attnc_plan::{DeviceProfile, DimValues, Feature, KernelArtifact, Panels};

#[test]
fn scores_of_unfused_attention_read_keys_along_k() {
    let mut g = Graph::new("g");
    let q = g.add_input("q", f32s(&["B", "S", "48"]));
    let k = g.add_input("k", f32s(&["B", "S", "48"]));
    let (q, k) = (heads(&mut g, q, 3), heads(&mut g, k, 3));
    let kt = g.apply(Op::Transpose(vec![0, 1, 3, 2]), &[k]).unwrap();
    let s = g.apply(Op::MatMul, &[q, kt]).unwrap();
    g.add_output("s", s);
    let lowered = plan(&g);
    assert_eq!(kernel(&lowered).name, "matmul_tiled.f32.64x32k16r8c1bkcs");
    let words = uniform_values(&lowered, 0, &DimValues::from([("B", 2), ("S", 5)]));
    let expected = [
        [2, 3, 5, 5, 16].as_slice(),
        &[0, 240, 16, 48, 1],
        &[0, 240, 16, 1, 48],
        &[0, 75, 25, 5, 1],
    ];
    assert_eq!(words[..20], expected.concat());
}

#[test]
fn batches_of_one_weight_are_rows_and_neighbours_merge() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&["A", "B", "S", "7"]));
    let w = weight(&mut g, "w", &[7, 3]);
    let y = g.apply(Op::MatMul, &[x, w]).unwrap();
    let v = g.add_input("v", f32s(&["A", "B", "3", "4"]));
    let z = g.apply(Op::MatMul, &[y, v]).unwrap();
    g.add_output("z", z);
    let lowered = plan(&g);
    assert_eq!(
        names(&lowered),
        ["matmul_rows.f32.r4c1asbscs", "matmul_rows.f32.r4c1as"]
    );
    let lengths = DimValues::from([("A", 2), ("B", 3), ("S", 5)]);
    assert_eq!(uniform_values(&lowered, 0, &lengths)[..5], [1, 1, 30, 3, 7]);
    assert_eq!(uniform_values(&lowered, 1, &lengths)[..5], [1, 6, 5, 4, 3]);
}

#[test]
fn an_operand_that_is_no_window_is_read_by_elements() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&["B", "4", "S", "6"]));
    // Batch and heads of a transposed value merge into no stride.
    let turned = g.apply(Op::Transpose(vec![0, 2, 1, 3]), &[x]).unwrap();
    let odd = g
        .apply(Op::Reshape(dims(&["2 * B * S", "2", "6"])), &[turned])
        .unwrap();
    let odd = g.apply(Op::Transpose(vec![1, 0, 2]), &[odd]).unwrap();
    let w = weight(&mut g, "w", &[6, 8]);
    let y = g.apply(Op::MatMul, &[odd, w]).unwrap();
    g.add_output("y", y);
    let lowered = plan(&g);
    assert_eq!(kernel(&lowered).name, "matmul_rows.f32.r4c2ae");
    let text = mods(kernel(&lowered));
    assert!(
        text.contains("fn a_element(b0: u32, b1: u32, m: u32, k: u32) -> f32"),
        "{text}"
    );
    assert!(text.contains("a_source["), "{text}");
}

#[test]
fn one_row_takes_a_tile_of_one_row() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&["1", "48"]));
    let y = linear(&mut g, "fc", x, 2, Some(UnaryOp::Tanh), None);
    g.add_output("y", y);
    assert_eq!(kernel(&plan(&g)).name, "matmul_rows.f32.r1c1bscs.bias_tanh");
}

#[test]
fn more_than_two_batch_axes_are_read_by_elements() {
    let mut g = Graph::new("g");
    let a = g.add_input("a", f32s(&["A", "B", "C", "S", "4"]));
    let b = g.add_input("b", f32s(&["C", "B", "A", "4", "8"]));
    let b = g.apply(Op::Transpose(vec![2, 1, 0, 3, 4]), &[b]).unwrap();
    let y = g.apply(Op::MatMul, &[a, b]).unwrap();
    g.add_output("y", y);
    let lowered = plan(&g);
    assert_eq!(kernel(&lowered).name, "matmul_rows.f32.r4c2be");
    let lengths = DimValues::from([("A", 2), ("B", 3), ("C", 5), ("S", 7)]);
    assert_eq!(uniform_values(&lowered, 0, &lengths)[..5], [1, 30, 7, 8, 4]);
    let text = mods(kernel(&lowered));
    for line in ["b1 / shape.dim_B_C;", "b1 % shape.dim_C;", "b_source["] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn batch_axes_meet_in_the_order_of_storage() {
    let mut g = Graph::new("g");
    let a = g.add_input("a", f32s(&["A", "B", "C", "S", "4"]));
    let b = g.add_input("b", f32s(&["A", "B", "C", "4", "8"]));
    let y = g.apply(Op::MatMul, &[a, b]).unwrap();
    g.node_mut(y).storage = Some(vec![0, 2, 1, 3, 4]);
    g.add_output("y", y);
    let lowered = plan(&g);
    let matmul = &lowered.plan.kernels[0];
    assert_eq!(matmul.name, "matmul_rows.f32.r4c2aebe");
    let lengths = DimValues::from([("A", 2), ("B", 3), ("C", 5), ("S", 7)]);
    let words = uniform_values(&lowered, 0, &lengths);
    assert_eq!(words[..5], [1, 30, 7, 8, 4]);
    assert_eq!(words[15..20], [0, 0, 56, 8, 1]);
    // b1 counts A, C, B: B is the innermost.
    let text = mods(matmul);
    assert!(text.contains("b1 % shape.dim_B;"), "{text}");
}

/// The steps of `half[M, 8] x half[8, columns]`, then a softmax of its rows, on a profile.
fn half_steps(dtype: DType, columns: &str, profile: &DeviceProfile) -> Vec<String> {
    let mut g = Graph::new("g");
    let a = g.add_input("a", ty(dtype, &["M", "8"]));
    let b = g.add_input("b", ty(dtype, &["8", columns]));
    let c = g.apply(Op::MatMul, &[a, b]).unwrap();
    let p = g.apply(Op::Softmax { axis: 1 }, &[c]).unwrap();
    g.add_output("p", p);
    let lowered = lower(&g, profile).unwrap_or_else(|e| panic!("{e}"));
    lowered.plan.check().unwrap_or_else(|e| panic!("{e}"));
    let steps = lowered.plan.steps.iter();
    let kernels = steps.map(|step| lowered.plan.kernel(step.kernel));
    let native = |k: &KernelArtifact| {
        let native = k.features.contains(&Feature::F16);
        if native { " native" } else { "" }
    };
    kernels
        .map(|k| format!("{}{}", k.name, native(k)))
        .collect()
}

#[test]
fn packed_results_are_written_by_whoever_owns_words_and_else_packed_behind() {
    let (web, desktop) = (DeviceProfile::webgpu(), DeviceProfile::desktop());
    assert_eq!(
        half_steps(DType::F16, "12", &web),
        ["matmul_rows.f16.r4c2", "softmax_rows.f16"]
    );
    let odd = [
        "matmul_rows.f16_f32.r4c2bscs",
        "pointwise.f16.pack",
        "softmax_rows.f16_f32",
        "pointwise.f16.pack",
    ];
    assert_eq!(half_steps(DType::F16, "7", &web), odd);
    let mut shared = odd.map(|name| name.replace("softmax_rows", "softmax_lanes"));
    shared[0] = "matmul_tiled.f16_f32.64x64k16r8c2bscs".to_owned();
    assert_eq!(half_steps(DType::F16, "N", &web), shared);
    assert_eq!(
        half_steps(DType::F16, "7", &desktop),
        ["matmul_rows.f16.r4c2bscs native", "softmax_rows.f16 native"]
    );
    // No device knows bf16: it is packed everywhere.
    let bf16 = half_steps(DType::BF16, "7", &desktop);
    assert_eq!(bf16, odd.map(|name| name.replace("f16", "bf16")));
}

#[test]
fn few_rows_have_a_step_of_their_own_in_a_model_that_decodes() {
    let mut g = Graph::new("decode");
    let x = g.add_input("x", f32s(&["S", "512"]));
    let w = weight(&mut g, "w", &[512, 256]);
    let rows = g.apply(Op::MatMul, &[x, w]).unwrap();
    g.add_output("rows", rows);
    let kernels = |g: &Graph| -> Vec<String> {
        let lowered = plan(g);
        let families = lowered.plan.steps.iter().map(|step| {
            let kernel = &lowered.plan.kernels[step.kernel.index()];
            kernel.family().to_owned()
        });
        families.collect()
    };
    assert_eq!(kernels(&g), ["matmul_tiled"]);
    let heads = g
        .apply(Op::Reshape(dims(&["1", "S", "4", "64"])), &[rows])
        .unwrap();
    let q = g.apply(Op::Transpose(vec![0, 2, 1, 3]), &[heads]).unwrap();
    let k = g.add_input("k", f32s(&["1", "4", "P + S", "64"]));
    let v = g.add_input("v", f32s(&["1", "4", "P + S", "64"]));
    let o = attend(&mut g, q, k, v, None);
    g.add_output("o", o);
    assert_eq!(kernels(&g)[..2], ["matmul_lanes", "matmul_tiled"]);
    let forced = Choices::forced(KernelShape::Rows);
    let rows = lower_with(&g, &DeviceProfile::webgpu(), &forced).unwrap();
    let rows: Vec<_> = rows.plan.steps.iter().map(|s| s.op.as_str()).collect();
    assert_eq!(
        rows,
        ["matmul", "attention", "copy"],
        "one kernel for any length"
    );
    let lowered = plan(&g);
    let groups = |step: usize, s: i64| {
        let lengths = DimValues::from([("S", s), ("P", 100)]);
        let launch = lowered.plan.steps[step].launch(&lengths, 65535).unwrap();
        launch.workgroups.iter().product::<u32>()
    };
    assert!(groups(0, 4) > 0 && groups(1, 4) == 0);
    assert!(groups(0, 5) == 0 && groups(1, 5) > 0);
}

#[test]
fn a_product_of_few_columns_and_any_rows_has_no_kernel_for_few_rows() {
    for columns in [64, 128, 1000] {
        let of_rows = |rows: &str| {
            let mut g = Graph::new("classifier");
            let x = g.add_input("x", f32s(&[rows, "512"]));
            let w = weight(&mut g, "w", &[512, columns]);
            let y = g.apply(Op::MatMul, &[x, w]).unwrap();
            g.add_output("y", y);
            kernel(&plan(&g)).family().to_owned()
        };
        assert_eq!(of_rows("3"), "matmul_lanes", "{columns} columns");
        assert_eq!(of_rows("S"), "matmul_tiled", "{columns} columns");
    }
}

/// The panels of each weight of a graph `build` makes, on such a device.
fn panels(build: impl FnOnce(&mut Graph)) -> Vec<Option<Panels>> {
    let mut g = Graph::new("g");
    build(&mut g);
    let lowered = lower(&g, &cpu()).unwrap();
    lowered.plan.check().unwrap();
    lowered.plan.weights().map(|(.., b)| b.panels).collect()
}

#[test]
fn weights_lie_in_the_widest_panels_they_have() {
    for (n, columns) in [(192, Some(64)), (96, Some(32)), (36, Some(4)), (6, None)] {
        for k_axis in [0, 1] {
            let found = panels(|g| {
                let x = g.add_input("x", f32s(&["M", "8"]));
                let shape = if k_axis == 0 { [8, n] } else { [n, 8] };
                let mut w = weight(g, "w", &shape);
                if k_axis == 1 {
                    w = g.apply(Op::Transpose(vec![1, 0]), &[w]).unwrap();
                }
                let y = g.apply(Op::MatMul, &[x, w]).unwrap();
                g.add_output("y", y);
            });
            assert_eq!(found, [columns.map(|columns| Panels { columns, k_axis })]);
        }
    }
}

#[test]
fn a_weight_that_has_another_reader_stays_as_it_is() {
    let product = |g: &mut Graph, w| {
        let x = g.add_input("x", f32s(&["M", "8"]));
        let y = g.apply(Op::MatMul, &[x, w]).unwrap();
        g.add_output("y", y);
    };
    let twice = panels(|g| {
        let w = weight(g, "w", &[8, 8]);
        product(g, w);
        let z = g.apply(Op::Unary(UnaryOp::Neg), &[w]).unwrap();
        g.add_output("z", z);
    });
    assert_eq!(twice, [None]);
    let output = panels(|g| {
        let w = weight(g, "w", &[8, 8]);
        product(g, w);
        g.add_output("w", w);
    });
    assert_eq!(output, [None]);
    let twins = panels(|g| {
        let (w, twin) = (weight(g, "w", &[8, 8]), weight(g, "w", &[8, 8]));
        product(g, w);
        let z = g.apply(Op::Unary(UnaryOp::Neg), &[twin]).unwrap();
        g.add_output("z", z);
    });
    assert_eq!(twins, [None]);
}

#[test]
fn gpus_read_weights_as_they_are() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&["M", "8"]));
    let w = weight(&mut g, "w", &[8, 64]);
    let y = g.apply(Op::MatMul, &[x, w]).unwrap();
    g.add_output("y", y);
    for profile in [DeviceProfile::webgpu(), DeviceProfile::desktop()] {
        let lowered = lower(&g, &profile).unwrap();
        assert!(lowered.plan.weights().all(|(.., b)| b.panels.is_none()));
    }
}

/// The variables that each step of a graph reads through images.
fn images(profile: &DeviceProfile, build: impl FnOnce(&mut Graph)) -> Vec<Vec<String>> {
    let mut g = Graph::new("g");
    build(&mut g);
    let lowered = lower(&g, profile).unwrap();
    lowered.plan.check().unwrap();
    let of_step = |step: &attnc_plan::Step| {
        let bound = lowered.plan.step_bindings(step);
        let images = bound.filter(|(b, _)| b.access == attnc_plan::Access::Image);
        images.map(|(b, _)| b.name.clone()).collect()
    };
    lowered.plan.steps.iter().map(of_step).collect()
}

#[test]
fn operands_that_many_share_are_read_through_images() {
    let of_weight = |rows: &'static str, n: usize, profile: &DeviceProfile| {
        images(profile, |g| {
            let x = g.add_input("x", f32s(&[rows, "64"]));
            let w = weight(g, "w", &[64, n]);
            let y = g.apply(Op::MatMul, &[x, w]).unwrap();
            g.add_output("y", y);
        })
    };
    // A weight needs no copy; A does, which few columns do not pay for.
    assert_eq!(of_weight("S", 256, &cpu()), [["a", "b"]]);
    assert_eq!(of_weight("S", 64, &cpu()), [["b"]]);
    assert_eq!(of_weight("3", 256, &cpu()), [["b"]]);
    assert_eq!(of_weight("S", 256, &DeviceProfile::desktop()), [[""; 0]]);
    let of_inputs = |m: &'static str, n: &'static str| {
        images(&cpu(), |g| {
            let a = g.add_input("a", f32s(&["B", m, "64"]));
            let b = g.add_input("b", f32s(&["B", "64", n]));
            let y = g.apply(Op::MatMul, &[a, b]).unwrap();
            g.add_output("y", y);
        })
    };
    assert_eq!(of_inputs("M", "128"), [["a", "b"]]);
    assert_eq!(of_inputs("32", "128"), [["a"]]);
    assert_eq!(of_inputs("M", "64"), [["b"]]);
    assert_eq!(of_inputs("32", "64"), [[""; 0]]);
}

#[test]
fn only_f32_that_fits_an_image_is_read_through_one() {
    let f16 = images(&cpu(), |g| {
        let a = g.add_input("a", ty(DType::F16, &["M", "64"]));
        let b = g.add_input("b", ty(DType::F16, &["64", "256"]));
        let y = g.apply(Op::MatMul, &[a, b]).unwrap();
        g.add_output("y", y);
    });
    assert_eq!(f16, [[""; 0]]);
    let mut small = cpu();
    small.limits.image_rows = 0;
    let weight_too_large = images(&small, |g| {
        let x = g.add_input("x", f32s(&["S", "64"]));
        let w = weight(g, "w", &[64, 64]);
        let y = g.apply(Op::MatMul, &[x, w]).unwrap();
        g.add_output("y", y);
    });
    assert_eq!(weight_too_large, [[""; 0]]);
}
