//! Attention: offsets, masks and scores in text, decoding.

use super::{attend, dims, f32s, heads, kernel, mods, names, plan, uniform_values};
use crate::choice::KernelShape;
use crate::lower::{lower, storage_bindings_needed};
use attnc_ir::scalar::ScalarBuilder;
use attnc_ir::{Attention, BinaryOp, CompareOp, DType, Dim, Extents, Graph, Op};
use attnc_plan::{DeviceProfile, DimValues, SubgroupSizes};

#[test]
fn packed_projections_are_offsets_into_one_buffer() {
    let mut g = Graph::new("g");
    let packed = g.add_input("qkv", f32s(&["B", "S", "144"]));
    let [q, k, v] = [0i64, 48, 96].map(|start| {
        let part = Op::Slice {
            axis: 2,
            start: start.into(),
            len: 48.into(),
            step: 1,
        };
        let part = g.apply(part, &[packed]).unwrap();
        heads(&mut g, part, 3)
    });
    let o = attend(&mut g, q, k, v, None);
    let o = g.apply(Op::Transpose(vec![0, 2, 1, 3]), &[o]).unwrap();
    g.add_output("o", o);
    let lowered = plan(&g);
    assert_eq!(
        kernel(&lowered).name,
        "flash_attention_fwd_tiled.f32.m64n64d16"
    );
    assert!(kernel(&lowered).wgsl.contains("alias k_item = vec4<f32>;"));
    let step = &lowered.plan.steps[0];
    let x = lowered.plan.inputs[0].buffer;
    // The storage order makes the transposed result the output's own buffer.
    assert_eq!(step.bindings, [x, x, x, lowered.plan.outputs[0].buffer]);
    let words = uniform_values(&lowered, 0, &DimValues::from([("B", 2), ("S", 5)]));
    let sizes = [2, 3, 1, 5, 5, 0.25f32.to_bits()];
    let expected = [
        sizes.as_slice(),
        &[0, 720, 16, 144, 1],
        &[48, 720, 16, 144, 1],
        &[96, 720, 16, 144, 1],
        &[0, 240, 16, 48, 1],
    ];
    assert_eq!(words[..26], expected.concat());
    assert_eq!(
        lowered.plan.steps[0].grid[0].to_string(),
        "3 * B * floordiv(S + 63, 64)"
    );
}

#[test]
fn masks_and_scores_print_as_their_models_do() {
    let extents = dims(&["B", "H", "M", "N"]);
    let mut e = ScalarBuilder::new(Extents::new(extents.clone()));
    let (q, k) = (e.int("d2 + N - M".parse::<Dim>().unwrap()), e.index(3));
    let causal = e.compare(CompareOp::Le, k, q);
    let causal = e.finish(causal);

    let mut e = ScalarBuilder::new(Extents::new(extents));
    let (h, distance) = (e.index(1), e.int("d3 - d2".parse::<Dim>().unwrap()));
    let slope = e.load(3, DType::F32, vec![h]);
    let distance = e.cast(DType::F32, distance);
    let bias = e.binary(BinaryOp::Mul, slope, distance);
    let score = e.arg();
    let sum = e.binary(BinaryOp::Add, score, bias);
    let (hundred, minus_inf) = (e.float(100.0), e.float(f32::NEG_INFINITY));
    let far = e.compare(CompareOp::Gt, sum, hundred);
    let sum = e.select(far, minus_inf, sum);
    let alibi = e.finish(sum);

    let mut g = Graph::new("g");
    let q = g.add_input("q", f32s(&["B", "H", "M", "16"]));
    let k = g.add_input("k", f32s(&["B", "H", "N", "16"]));
    let v = g.add_input("v", f32s(&["B", "H", "N", "10"]));
    let slopes = g.add_input("slopes", f32s(&["H"]));
    let op = Op::Attention(Attention {
        score_mod: Some(alibi),
        mask_mod: Some(causal),
        ..Attention::new(1.0)
    });
    let o = g.apply(op, &[q, k, v, slopes]).unwrap();
    g.add_output("o", o);
    let lowered = plan(&g);
    let [_, kernel] = lowered.plan.kernels.as_slice() else {
        panic!("one for a single query, one for more");
    };
    assert_eq!(
        kernel.name,
        "flash_attention_fwd_tiled.f32.m64n64d16v10vsos.alibi.causal"
    );
    let text = mods(kernel);
    for line in [
        "// mask_mod: kv_idx <= -M + N + q_idx",
        "return kv_idx + shape.dim_M <= q_idx + shape.dim_N;",
        "score + slope[h] * f32(i32(kv_idx) - i32(q_idx));",
        "return select(v0, float_bits(0xff800000u), v0 > 100.0);",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert_eq!(storage_bindings_needed(&g, o), 5);
}

#[test]
fn an_epilogue_of_attention_is_a_step_of_its_own() {
    let mut g = Graph::new("g");
    let [q, k, v] = ["q", "k", "v"].map(|n| g.add_input(n, f32s(&["B", "3", "S", "16"])));
    let gate = g.add_input("gate", f32s(&["B", "3", "S", "1"]));
    let o = attend(&mut g, q, k, v, None);
    let shape = g.ty(o).shape.clone();
    let mut e = ScalarBuilder::new(Extents::new(shape));
    let (arg, [b, h, m]) = (e.arg(), [0, 1, 2].map(|n| e.index(n)));
    let zero = e.int(0);
    let x = e.load(3, DType::F32, vec![b, h, m, zero]);
    let x = e.binary(BinaryOp::Mul, arg, x);
    g.set_operands(o, &[q, k, v, gate]);
    g.node_mut(o).epilogue = Some(e.finish(x));
    g.add_output("o", o);
    let lowered = plan(&g);
    let steps: Vec<_> = lowered.plan.steps.iter().map(|s| s.op.as_str()).collect();
    // The result is stored in another order than the output's, so it is copied there.
    assert_eq!(steps, ["attention", "epilogue", "copy"]);
    let text = mods(&lowered.plan.kernels[1]);
    assert!(text.contains("return x[i] * x2["), "{text}");
    assert_eq!(lowered.plan.temps().count(), 2);
}

#[test]
fn one_query_beside_a_cache_has_a_step_of_its_own_that_is_empty_for_more() {
    let mut g = Graph::new("decode");
    let q = g.add_input("q", f32s(&["B", "4", "S", "64"]));
    let k = g.add_input("k", f32s(&["B", "2", "P + S", "64"]));
    let v = g.add_input("v", f32s(&["B", "2", "P + S", "64"]));
    let o = attend(&mut g, q, k, v, None);
    g.add_output("o", o);
    let mut profile = DeviceProfile::webgpu();
    profile.features.subgroups = Some(SubgroupSizes { min: 8, max: 8 });
    profile.busy_workgroups = 2;
    let lowered = lower(&g, &profile).unwrap();
    lowered.plan.check().unwrap();
    let steps = lowered.plan.steps.iter();
    assert_eq!(steps.filter(|s| s.op == "attention").count(), 2);
    let groups = |step: usize, s: i64| {
        let lengths = DimValues::from([("B", 2), ("S", s), ("P", 100)]);
        let launch = lowered.plan.steps[step].launch(&lengths, 65535).unwrap();
        launch.workgroups.iter().product::<u32>()
    };
    assert!(groups(0, 1) > 0 && groups(1, 1) == 0);
    assert!(groups(0, 2) == 0 && groups(1, 2) > 0);
    assert!(groups(0, 77) == 0 && groups(1, 77) >= 8);
    assert_eq!((groups(0, 0), groups(1, 0)), (0, 0), "no query, no work");
    let rows: Vec<_> = names(&lowered);
    assert_ne!(rows[0], rows[1], "a tile of one row, and one of several");
}

#[test]
fn one_query_is_split_over_keys_where_there_are_fewer_heads_than_cores() {
    let mut g = Graph::new("decode");
    let q = g.add_input("q", f32s(&["B", "4", "S", "64"]));
    let k = g.add_input("k", f32s(&["B", "2", "P + S", "64"]));
    let v = g.add_input("v", f32s(&["B", "2", "P + S", "64"]));
    let o = attend(&mut g, q, k, v, None);
    g.add_output("o", o);
    let lowered = plan(&g);
    lowered.plan.check().unwrap();
    let ops: Vec<_> = lowered.plan.steps.iter().map(|s| s.op.as_str()).collect();
    assert_eq!(ops[..3], ["attention", "attention_combine", "attention"]);
    let [single, more] = lowered.decisions.as_slice() else {
        panic!("{:?}", lowered.decisions);
    };
    assert_eq!(single.candidates[single.chosen].shape, KernelShape::Split);
    assert_eq!((&single.steps, &single.joins), (&vec![0], &vec![1]));
    assert_eq!((&more.steps, &more.joins), (&vec![2], &vec![]));
    let parts = lowered
        .plan
        .temps()
        .find(|(_, b)| b.name.ends_with(".parts"));
    let parts = parts.unwrap().1;
    // As many parts as the keys of the run need, and none in a run of more queries.
    let rows = |s: i64, p: i64| {
        let lengths = DimValues::from([("B", 3), ("S", s), ("P", p)]);
        parts
            .shape
            .iter()
            .map(|d| lengths.eval(d).unwrap())
            .product::<i64>()
            / (3 * 4 * 68)
    };
    assert_eq!((rows(1, 63), rows(1, 64), rows(1, 1000)), (1, 2, 16));
    assert_eq!(rows(2, 1000), 0);
}

#[test]
fn keys_and_values_that_many_queries_share_are_read_through_images() {
    let of = |queries: &str, profile: &DeviceProfile| {
        let mut g = Graph::new("g");
        let q = g.add_input("q", f32s(&["B", "4", queries, "64"]));
        let k = g.add_input("k", f32s(&["B", "4", "N", "64"]));
        let v = g.add_input("v", f32s(&["B", "4", "N", "64"]));
        let o = attend(&mut g, q, k, v, None);
        g.add_output("o", o);
        let lowered = lower(&g, profile).unwrap();
        lowered.plan.check().unwrap();
        let mut steps = lowered.plan.steps.iter().rev();
        let many = steps.find(|step| step.op == "attention").unwrap();
        let bound = lowered.plan.step_bindings(many);
        let images = bound.filter(|(b, _)| b.access == attnc_plan::Access::Image);
        images.map(|(b, _)| b.name.clone()).collect::<Vec<_>>()
    };
    let mut cpu = DeviceProfile::webgpu();
    cpu.features.subgroups = Some(SubgroupSizes { min: 8, max: 8 });
    cpu.busy_workgroups = 2;
    assert_eq!(of("M", &cpu), ["k", "v"]);
    assert_eq!(of("64", &cpu), ["k", "v"]);
    assert_eq!(of("32", &cpu), [""; 0]);
    assert_eq!(of("M", &DeviceProfile::desktop()), [""; 0]);
}
