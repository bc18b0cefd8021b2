//! Arithmetic on shapes vanishes, and operators mean what their operator set says.

mod support;

use attnc_onnx::proto::{AttributeProto, FunctionProto, NodeProto, OperatorSetIdProto, data_type};
use support::{With, body, floats, import, longs, model, node, port};

fn ids() -> attnc_onnx::proto::ValueInfoProto {
    port("ids", data_type::INT64, &["batch", "seq"])
}

fn x(dims: &[&str]) -> attnc_onnx::proto::ValueInfoProto {
    port("x", data_type::FLOAT, dims)
}

#[test]
fn a_reshape_to_heads_leaves_a_reshape() {
    let nodes = [
        node("Shape", &["x"], &["shape"]),
        node("Gather", &["shape", "zero"], &["b"]).int("axis", 0),
        node("Gather", &["shape", "one"], &["s"]).int("axis", 0),
        node("Unsqueeze", &["b", "axes"], &["b1"]),
        node("Unsqueeze", &["s", "axes"], &["s1"]),
        node("Concat", &["b1", "s1", "heads"], &["to"]).int("axis", 0),
        node("Reshape", &["x", "to"], &["y"]),
    ];
    let constants = [
        longs("zero", &[], &[0]),
        longs("one", &[], &[1]),
        longs("axes", &[1], &[0]),
        longs("heads", &[2], &[-1, 8]),
    ];
    let text = body(&model(
        17,
        &[x(&["batch", "seq", "32"])],
        &constants,
        &nodes,
    ));
    assert_eq!(
        text,
        "%y = reshape %x, shape = [batch, seq, 4, 8]\nreturn %y\n"
    );
}

#[test]
fn torchscripts_expand_is_a_broadcast() {
    // Where(shape == ones * -1, ones, shape): the -1 of torch's expand, compared at run time.
    let nodes = [
        node("Shape", &["ids"], &["shape"]),
        node("Shape", &["shape"], &["rank"]),
        node("ConstantOfShape", &["rank"], &["ones"]).tensor("value", longs("", &[1], &[1])),
        node("Mul", &["ones", "minus"], &["open"]),
        node("Equal", &["shape", "open"], &["keeps"]),
        node("Where", &["keeps", "ones", "shape"], &["to"]),
        node("Slice", &["table", "zero", "end", "axis"], &["cut"]),
        node("Gather", &["shape", "axis"], &["end"]),
        node("Expand", &["cut", "to"], &["e"]),
        node("Cast", &["e"], &["y"]).int("to", 1),
    ];
    let constants = [
        longs("minus", &[], &[-1]),
        longs("zero", &[1], &[0]),
        longs("axis", &[1], &[1]),
        longs("table", &[1, 64], &[0; 64]),
    ];
    let model = model(17, &[ids()], &constants, &nodes);
    let text = body(&model);
    assert_eq!(
        text.lines().skip(1).collect::<Vec<_>>(),
        [
            "%cut = slice %table, axis = 1, start = 0, len = seq",
            "%e = broadcast %cut, shape = [batch, seq]",
            "%y = cast %e, to = f32",
            "return %y",
        ]
    );
    let constraints = import(&model).unwrap().constraints;
    let [only] = constraints.as_slice() else {
        panic!("{constraints:?}");
    };
    assert_eq!(
        (only.smaller.to_string(), only.larger.to_string()),
        ("seq".into(), "64".into())
    );
}

#[test]
fn a_scale_from_a_shape_is_a_number() {
    let nodes = [
        node("Shape", &["x"], &["shape"]),
        node("Slice", &["shape", "last", "far"], &["d"]),
        node("Cast", &["d"], &["f"]).int("to", 1),
        node("Sqrt", &["f"], &["root"]),
        node("Div", &["one", "root"], &["scale"]),
        node("Mul", &["x", "scale"], &["y"]),
    ];
    let constants = [
        longs("last", &[1], &[-1]),
        longs("far", &[1], &[i64::MAX]),
        floats("one", &[1], &[1.0]),
    ];
    let text = body(&model(17, &[x(&["batch", "16"])], &constants, &nodes));
    assert_eq!(
        text,
        "%scale = constant f32[1] [0.25]\n%y = mul %x, %scale\nreturn %y\n"
    );
}

#[test]
fn ranges_over_lengths_count() {
    let nodes = [
        node("Shape", &["ids"], &["s"]).int("start", 1),
        node("Squeeze", &["s"], &["n"]),
        node("Range", &["zero", "n", "one"], &["r"]),
        node("Add", &["r", "two"], &["m"]),
        node("Cast", &["m"], &["y"]).int("to", 1),
    ];
    let constants = [
        longs("zero", &[], &[0]),
        longs("one", &[], &[1]),
        longs("two", &[], &[2]),
    ];
    let text = body(&model(17, &[ids()], &constants, &nodes));
    assert!(
        text.contains("%r = iota i32[seq], axis = 0, start = 0, step = 1\n"),
        "{text}"
    );
}

#[test]
fn a_table_of_positions_counts_too() {
    let positions: Vec<i64> = (0..512).collect();
    let nodes = [node("Gather", &["x", "p"], &["y"])];
    let constants = [longs("p", &[1, 512], &positions)];
    let text = body(&model(17, &[x(&["512", "8"])], &constants, &nodes));
    assert!(text.contains("iota i32[1, 512], axis = 1"), "{text}");
    assert!(!text.contains("constant"), "{text}");
}

#[test]
fn slices_take_what_they_say() {
    let cut = |size: &str, start: i64, end: i64, step: i64| {
        let nodes = [node("Slice", &["x", "s", "e", "a", "t"], &["y"])];
        let constants = [
            longs("s", &[1], &[start]),
            longs("e", &[1], &[end]),
            longs("a", &[1], &[0]),
            longs("t", &[1], &[step]),
        ];
        let text = body(&model(17, &[x(&[size])], &constants, &nodes));
        let line = text.lines().next().unwrap();
        match line.split_once("start = ") {
            Some((_, rest)) => rest.to_owned(),
            None => line.to_owned(),
        }
    };
    let far = i64::MAX;
    assert_eq!(cut("10", 2, 5, 1), "2, len = 3");
    assert_eq!(cut("10", -3, far, 1), "7, len = 3");
    assert_eq!(cut("10", 0, far, 1), "return %x as \"y\"");
    assert_eq!(cut("10", 8, 2, 1), "8, len = 0");
    assert_eq!(cut("10", 1, 100, 3), "1, len = 3, step = 3");
    assert_eq!(cut("10", -1, i64::MIN, -1), "9, len = 10, step = -1");
    assert_eq!(cut("10", 100, 0, -4), "9, len = 3, step = -4");
    assert_eq!(cut("n", -1, far, 1), "n - 1, len = 1");
    assert_eq!(cut("n", 0, -1, 1), "0, len = n - 1");
    assert_eq!(cut("n", 1, far, 1), "1, len = n - 1");
    assert_eq!(cut("n", 0, 512, 1), "0, len = min(512, n)");
    assert_eq!(cut("n", -1, i64::MIN, -1), "n - 1, len = n, step = -1");
}

#[test]
fn softmax_before_opset_13_joins_the_axes() {
    let one = |opset, node: NodeProto| body(&model(opset, &[x(&["2", "3", "4"])], &[], &[node]));
    let softmax = || node("Softmax", &["x"], &["y"]);
    assert_eq!(one(13, softmax()), "%y = softmax %x, axis = 2\nreturn %y\n");
    let old = one(11, softmax());
    assert!(old.contains("reshape %x, shape = [2, 12]"), "{old}");
    assert!(old.contains(", axis = 1\n"), "{old}");
    assert!(old.contains("shape = [2, 3, 4]"), "{old}");
    assert_eq!(
        one(11, softmax().int("axis", 2)),
        "%y = softmax %x, axis = 2\nreturn %y\n"
    );
}

#[test]
fn axes_are_attributes_in_old_operator_sets() {
    let old = [node("ReduceMean", &["x"], &["y"])
        .ints("axes", &[-1])
        .int("keepdims", 0)];
    let new = [node("ReduceMean", &["x", "a"], &["y"]).int("keepdims", 0)];
    let constants = [longs("a", &[1], &[-1])];
    let expected = "%y = reduce_mean %x, axes = [2]\nreturn %y\n";
    assert_eq!(
        body(&model(13, &[x(&["2", "3", "4"])], &[], &old)),
        expected
    );
    assert_eq!(
        body(&model(18, &[x(&["2", "3", "4"])], &constants, &new)),
        expected
    );
    let old = [node("Unsqueeze", &["x"], &["y"]).ints("axes", &[0, -1])];
    let text = body(&model(11, &[x(&["2"])], &[], &old));
    assert!(
        text.starts_with("%y = reshape %x, shape = [1, 2, 1]"),
        "{text}"
    );
    let old = [node("Slice", &["x"], &["y"])
        .ints("starts", &[1])
        .ints("ends", &[3])
        .ints("axes", &[-1])];
    let text = body(&model(9, &[x(&["2", "4"])], &[], &old));
    assert!(
        text.starts_with("%y = slice %x, axis = 1, start = 1, len = 2"),
        "{text}"
    );
}

#[test]
fn splits_are_equal_unless_told() {
    let split = |opset, node: NodeProto, constants: &[_]| {
        let nodes = [node, node_concat()];
        body(&model(opset, &[x(&["7"])], constants, &nodes))
    };
    fn node_concat() -> NodeProto {
        node("Concat", &["b", "a"], &["y"]).int("axis", 0)
    }
    let rest = split(
        18,
        node("Split", &["x"], &["a", "b"]).int("num_outputs", 2),
        &[],
    );
    assert!(rest.contains("start = 4, len = 3"), "{rest}");
    let told = split(
        13,
        node("Split", &["x", "n"], &["a", "b"]),
        &[longs("n", &[2], &[5, 2])],
    );
    assert!(told.contains("start = 5, len = 2"), "{told}");
    let old = split(
        11,
        node("Split", &["x"], &["a", "b"]).ints("split", &[1, 6]),
        &[],
    );
    assert!(old.contains("start = 1, len = 6"), "{old}");
}

#[test]
fn reshape_copies_lengths_at_zero_unless_it_may_be_empty() {
    let reshape = node("Reshape", &["x", "s"], &["y"]);
    let shape = [longs("s", &[2], &[0, -1])];
    let text = body(&model(
        17,
        &[x(&["batch", "3", "4"])],
        &shape,
        std::slice::from_ref(&reshape),
    ));
    assert!(
        text.starts_with("%y = reshape %x, shape = [batch, 12]"),
        "{text}"
    );
    let empty = [longs("s", &[2], &[0, 5])];
    let text = body(&model(
        17,
        &[x(&["0", "3"])],
        &empty,
        &[reshape.int("allowzero", 1)],
    ));
    assert!(
        text.starts_with("%y = reshape %x, shape = [0, 5]"),
        "{text}"
    );
}

#[test]
fn the_same_name_is_the_same_length_and_no_name_is_a_new_one() {
    let inputs = [
        port("a.b", data_type::FLOAT, &["?", "past + seq"]),
        port("c", data_type::FLOAT, &["batch size", "past + seq"]),
    ];
    let nodes = [node("Concat", &["a.b", "c"], &["y"]).int("axis", 0)];
    let import = import(&model(17, &inputs, &[], &nodes)).unwrap();
    let ty = import.graph.ty(import.graph.outputs()[0].1).to_string();
    assert_eq!(ty, "f32[a_b_d0 + batch_size, past + seq]");
    assert_eq!(import.inputs[0].shape[0].to_string(), "a_b_d0");
}

#[test]
fn int64_ports_keep_their_declared_type() {
    let nodes = [node("Cast", &["ids"], &["y"]).int("to", 1)];
    let import = import(&model(17, &[ids()], &[], &nodes)).unwrap();
    assert_eq!(import.inputs[0].elem_type, "int64");
    assert_eq!(
        import.graph.ty(import.graph.inputs()[0]).to_string(),
        "i32[batch, seq]"
    );
    assert_eq!(import.outputs[0].elem_type, "float");
}

#[test]
fn constants_among_the_inputs_are_constants() {
    let inputs = [x(&["2"]), port("w", data_type::FLOAT, &["2"])];
    let nodes = [node("Add", &["x", "w"], &["y"])];
    let import = import(&model(
        11,
        &inputs,
        &[floats("w", &[2], &[1.0, 2.0])],
        &nodes,
    ))
    .unwrap();
    assert_eq!(import.inputs.len(), 1);
}

#[test]
fn functions_are_inlined_with_their_attributes() {
    let mut call = node("Scaled", &["x"], &["y"]).float("by", 3.0);
    call.domain = "own".to_owned();
    call.name = "call".to_owned();
    let mut inner = node("Constant", &[], &["k"]);
    inner.attribute.push(AttributeProto {
        name: "value_float".to_owned(),
        ref_attr_name: "by".to_owned(),
        kind: 1,
        ..Default::default()
    });
    let mut model = model(17, &[x(&["2"])], &[], &[call]);
    model.functions = vec![FunctionProto {
        name: "Scaled".to_owned(),
        domain: "own".to_owned(),
        input: vec!["p".to_owned(), "unused".to_owned()],
        output: vec!["q".to_owned()],
        attribute: vec!["by".to_owned()],
        node: vec![
            inner,
            node("Tanh", &["p"], &["t"]),
            node("Mul", &["t", "k"], &["q"]),
        ],
        opset_import: vec![OperatorSetIdProto {
            domain: String::new(),
            version: 17,
        }],
        ..Default::default()
    }];
    let text = body(&model);
    assert!(text.contains("tanh %x"), "{text}");
    assert!(text.contains("%y = mul %call/t, 3.0"), "{text}");
    let import = import(&model).unwrap();
    let tanh = import
        .graph
        .values()
        .find(|&v| import.graph.node(v).op.name() == "tanh")
        .unwrap();
    assert_eq!(import.graph.node(tanh).origin, ["call/t"]);
}

#[test]
fn attention_takes_its_masks_as_functions() {
    let heads = |name: &str, len: &str| port(name, data_type::FLOAT, &["batch", "4", len, "16"]);
    let inputs = [
        heads("q", "seq"),
        heads("k", "seq"),
        heads("v", "seq"),
        port("mask", data_type::BOOL, &["batch", "1", "1", "past + seq"]),
        heads("pk", "past"),
        heads("pv", "past"),
    ];
    let nodes = [node(
        "Attention",
        &["q", "k", "v", "mask", "pk", "pv"],
        &["y", "nk", "nv"],
    )
    .int("is_causal", 1)
    .float("softcap", 30.0)];
    let text = body(&model(23, &inputs, &[], &nodes));
    for part in [
        "concat %pk, %k, axis = 2",
        "scale = 0.25",
        "score_mod = { tanh(score / 30.0) * 30.0 }",
        "mask_mod = { %mask[b, 0, 0, kv_idx] & kv_idx <= past + q_idx }",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_length_that_can_have_one_value_only_has_it() {
    // Traced with 17, exported as dynamic: only with 17 is the second reshape one.
    let nodes = [node("Reshape", &["x", "s"], &["y"])];
    let shape = [longs("s", &[2], &[17, 4])];
    let import = import(&model(17, &[x(&["seq", "4"])], &shape, &nodes)).unwrap();
    assert_eq!(import.inputs[0].shape, [17.into(), 4.into()]);
    assert_eq!(
        import.notes,
        ["length `seq` is always 17: the model fits no other"]
    );
}

#[test]
fn a_minimum_is_decided_by_what_must_hold_later() {
    let nodes = [
        node("Shape", &["x"], &["n"]),
        node("Min", &["n", "limit"], &["m"]),
        node("Slice", &["table", "zero", "n"], &["t"]),
        node("Reshape", &["x", "m"], &["r"]),
        node("Add", &["r", "t"], &["y"]),
    ];
    let constants = [
        longs("limit", &[1], &[64]),
        longs("zero", &[1], &[0]),
        floats("table", &[64], &[1.0; 64]),
    ];
    let import = import(&model(17, &[x(&["seq"])], &constants, &nodes)).unwrap();
    assert_eq!(
        import.graph.ty(import.graph.outputs()[0].1).to_string(),
        "f32[seq]"
    );
    assert_eq!(import.constraints.len(), 1);
}

#[test]
fn a_resize_is_gathers_along_each_axis() {
    let resize = |mode: &str| {
        node("Resize", &["x", "", "", "to"], &["y"]).attr("mode", 3, |a| {
            a.s = Some(mode.to_owned().into());
        })
    };
    let sizes = [longs("to", &[4], &[1, 3, 8, 4])];
    let of = |mode: &str| {
        body(&model(
            19,
            &[x(&["1", "3", "4", "4"])],
            &sizes,
            &[resize(mode)],
        ))
    };
    assert_eq!(of("nearest").matches("gather").count(), 1);
    assert_eq!(of("linear").matches("gather").count(), 2);
    assert_eq!(of("cubic").matches("gather").count(), 4);
    let symbolic = model(19, &[x(&["1", "3", "H", "4"])], &sizes, &[resize("linear")]);
    assert!(
        import(&symbolic)
            .unwrap_err()
            .to_string()
            .contains("a length of H made 8")
    );
}

#[test]
fn padding_to_a_multiple_divides() {
    // `pad(x, (0, -S % 4))` in blocks of 4, as local attention is written.
    let nodes = [
        node("Shape", &["x"], &["s"]),
        node("Gather", &["s", "zero"], &["n"]),
        node("Neg", &["n"], &["less"]),
        node("Mod", &["less", "four"], &["more"]),
        node("Reshape", &["more", "one"], &["more1"]),
        node("Concat", &["none", "more1"], &["pads"]).int("axis", 0),
        node("Pad", &["x", "pads"], &["padded"]),
        node("Reshape", &["padded", "blocks"], &["y"]),
    ];
    let constants = [
        longs("zero", &[], &[0]),
        longs("four", &[], &[4]),
        longs("one", &[1], &[1]),
        longs("none", &[1], &[0]),
        longs("blocks", &[2], &[-1, 4]),
    ];
    let text = body(&model(17, &[x(&["S"])], &constants, &nodes));
    assert!(text.contains("pad %x"), "{text}");
    assert!(text.contains("shape = ["), "{text}");
}

#[test]
fn the_last_entries_of_a_table_are_as_many_as_are_asked_for() {
    // `table[max(0, 64 - S):]` against scores of S: S is at most 64.
    let nodes = [
        node("Shape", &["x"], &["s"]),
        node("Gather", &["s", "zero"], &["n"]),
        node("Sub", &["most", "n"], &["left"]),
        node("Max", &["left", "zero"], &["start"]),
        node("Reshape", &["start", "one"], &["start1"]),
        node("Slice", &["table", "start1", "far"], &["last"]),
        node("Add", &["x", "last"], &["y"]),
    ];
    let constants = [
        longs("zero", &[], &[0]),
        longs("most", &[], &[64]),
        longs("one", &[1], &[1]),
        longs("far", &[1], &[i64::MAX]),
        floats("table", &[64], &[0.5; 64]),
    ];
    let import = import(&model(17, &[x(&["S"])], &constants, &nodes)).unwrap();
    let held: Vec<_> = import
        .constraints
        .iter()
        .map(|c| format!("{} <= {}", c.smaller, c.larger))
        .collect();
    assert!(held.contains(&"0 <= -S + 64".to_owned()), "{held:?}");
}
