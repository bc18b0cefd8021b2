use super::{Lowered, lower, lower_with, storage_bindings_needed};
use crate::choice::{Choices, KernelShape};
use attnc_ir::scalar::{ScalarBuilder, ScalarExpr};
use attnc_ir::{
    Attention, BinaryOp, CompareOp, DType, Dim, Extents, Graph, Op, ReduceOp, Shape, TensorData,
    TensorType, UnaryOp, ValueId,
};
use attnc_plan::{DeviceProfile, DimValues, Feature, KernelArtifact, MemoryPlan, SubgroupSizes};

fn dims(text: &[&str]) -> Shape {
    text.iter().map(|t| t.parse().unwrap()).collect()
}

fn f32s(text: &[&str]) -> TensorType {
    ty(DType::F32, text)
}

fn ty(dtype: DType, text: &[&str]) -> TensorType {
    TensorType {
        dtype,
        shape: dims(text),
    }
}

/// Lowers for the `webgpu` profile and checks the plan.
fn plan(graph: &Graph) -> Lowered {
    let lowered = lower(graph, &DeviceProfile::webgpu()).unwrap_or_else(|e| panic!("{e}"));
    lowered.plan.check().unwrap_or_else(|e| panic!("{e}"));
    lowered
}

fn names(lowered: &Lowered) -> Vec<&str> {
    lowered
        .plan
        .kernels
        .iter()
        .map(|k| k.name.as_str())
        .collect()
}

/// The only kernel's text after the kernel file: micro and mods.
fn kernel(lowered: &Lowered) -> &KernelArtifact {
    assert_eq!(lowered.plan.kernels.len(), 1, "{:?}", names(lowered));
    &lowered.plan.kernels[0]
}

/// The text of the module `mods`.
#[track_caller]
fn mods(kernel: &KernelArtifact) -> &str {
    let start = kernel.wgsl.find("// ---- mods (generated)").expect("mods");
    let rest = &kernel.wgsl[start + 24..];
    let end = rest.find("// ---- ").unwrap_or(rest.len());
    rest[..end].trim()
}

fn uniform_values(lowered: &Lowered, step: usize, lengths: &DimValues) -> Vec<u32> {
    let launch = lowered.plan.steps[step].launch(lengths, 65535).unwrap();
    launch
        .uniforms
        .chunks_exact(4)
        .map(|c| u32::from_le_bytes(c.try_into().unwrap()))
        .collect()
}

fn weight(g: &mut Graph, name: &str, shape: &[usize]) -> ValueId {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|i| i as f32).collect();
    g.add_constant(TensorData::f32(shape.to_vec(), &values).named(name))
}

/// `acc (+ bias[last])`, then `then`.
fn bias_epilogue(shape: &[Dim], then: Option<UnaryOp>, residual: bool) -> ScalarExpr {
    let mut e = ScalarBuilder::new(Extents::new(shape.to_vec()));
    let index = e.indices();
    let acc = e.arg();
    let bias = e.load(2, DType::F32, vec![*index.last().unwrap()]);
    let mut x = e.binary(BinaryOp::Add, acc, bias);
    if let Some(op) = then {
        x = e.unary(op, x);
    }
    if residual {
        let r = e.load(3, DType::F32, index);
        x = e.binary(BinaryOp::Add, x, r);
    }
    e.finish(x)
}

/// `x W + b`, with an activation or a residual.
fn linear(
    g: &mut Graph,
    name: &str,
    x: ValueId,
    out: usize,
    then: Option<UnaryOp>,
    residual: Option<ValueId>,
) -> ValueId {
    let width = g.ty(x).shape.last().unwrap().as_const().unwrap() as usize;
    let w = weight(g, &format!("{name}.weight"), &[width, out]);
    let b = weight(g, &format!("{name}.bias"), &[out]);
    let y = g.apply(Op::MatMul, &[x, w]).unwrap();
    let mut operands = vec![x, w, b];
    operands.extend(residual);
    g.set_operands(y, &operands);
    let shape = g.ty(y).shape.clone();
    g.node_mut(y).epilogue = Some(bias_epilogue(&shape, then, residual.is_some()));
    y
}

fn heads(g: &mut Graph, x: ValueId, heads: i64) -> ValueId {
    let shape = g.ty(x).shape.clone();
    let dim = shape[2].as_const().unwrap() / heads;
    let split = vec![shape[0].clone(), shape[1].clone(), heads.into(), dim.into()];
    let split = g.apply(Op::Reshape(split), &[x]).unwrap();
    g.apply(Op::Transpose(vec![0, 2, 1, 3]), &[split]).unwrap()
}

/// `mask[b, kv_idx]`, operand 3.
fn padding(extents: &[Dim]) -> ScalarExpr {
    let mut e = ScalarBuilder::new(Extents::new(extents.to_vec()));
    let (b, n) = (e.index(0), e.index(3));
    let keep = e.load(3, DType::Bool, vec![b, n]);
    e.finish(keep)
}

fn attend(g: &mut Graph, q: ValueId, k: ValueId, v: ValueId, mask: Option<ValueId>) -> ValueId {
    let mut extents = g.ty(q).shape[..3].to_vec();
    extents.push(g.ty(k).shape[2].clone());
    let op = Op::Attention(Attention {
        mask_mod: mask.map(|_| padding(&extents)),
        ..Attention::new(0.25)
    });
    let operands: Vec<_> = [q, k, v].into_iter().chain(mask).collect();
    let o = g.apply(op, &operands).unwrap();
    g.node_mut(o).storage = Some(vec![0, 2, 1, 3]);
    o
}

fn layer_norm(g: &mut Graph, name: &str, x: ValueId) -> ValueId {
    let width = g.ty(x).shape[2].as_const().unwrap() as usize;
    let gain = weight(g, &format!("{name}.gain"), &[width]);
    let bias = weight(g, &format!("{name}.bias"), &[width]);
    g.apply(
        Op::LayerNorm {
            axis: 2,
            eps: 1e-12,
        },
        &[x, gain, bias],
    )
    .unwrap()
}

/// One layer of BERT, 48 wide, 3 heads.
fn layer(g: &mut Graph, name: &str, x: ValueId, mask: ValueId) -> ValueId {
    let [q, k, v] = ["q", "k", "v"].map(|n| {
        let y = linear(g, &format!("{name}.{n}"), x, 48, None, None);
        heads(g, y, 3)
    });
    let o = attend(g, q, k, v, Some(mask));
    let joined = g.apply(Op::Transpose(vec![0, 2, 1, 3]), &[o]).unwrap();
    let joined = g
        .apply(Op::Reshape(dims(&["B", "S", "48"])), &[joined])
        .unwrap();
    let y = linear(g, &format!("{name}.out"), joined, 48, None, Some(x));
    let x = layer_norm(g, &format!("{name}.ln1"), y);
    let y = linear(g, &format!("{name}.up"), x, 192, Some(UnaryOp::Gelu), None);
    let y = linear(g, &format!("{name}.down"), y, 48, None, Some(x));
    layer_norm(g, &format!("{name}.ln2"), y)
}

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

fn add_map(g: &mut Graph, expr: ScalarExpr, shape: &[&str], operands: &[ValueId]) -> ValueId {
    let op = Op::Map {
        dtype: expr.result(),
        expr,
        shape: dims(shape),
    };
    g.apply(op, operands).unwrap()
}

fn error(graph: &Graph) -> String {
    lower(graph, &DeviceProfile::webgpu())
        .expect_err("lowering should be refused")
        .to_string()
}

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
