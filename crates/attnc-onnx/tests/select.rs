//! Choosing by rank and index, and pooling, become reductions of what is pointwise.

mod support;

use attnc_onnx::proto::{NodeProto, TensorProto, data_type};
use support::{With, body, codes, floats, import, longs, model, node, port};

/// The graph of one node over `x`, an index `i` and constants.
fn one(node: NodeProto, x: &[&str], i: &[&str], constants: &[TensorProto]) -> String {
    let mut inputs = vec![port("x", data_type::FLOAT, x)];
    if !i.is_empty() {
        inputs.push(port("i", data_type::INT64, i));
    }
    body(&model(18, &inputs, constants, &[node]))
}

#[track_caller]
fn holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "expected `{part}` in\n{text}");
    }
}

#[test]
fn the_largest_are_found_by_their_rank() {
    let top = node("TopK", &["x", "k"], &["y", "at"]);
    let text = one(top, &["B", "9"], &[], &[longs("k", &[1], &[4])]);
    // Ahead is what is larger, or equal and earlier.
    holds(
        &text,
        &["gt ", "eq ", "lt ", "reduce_sum", "gather_elements %x"],
    );
    let least = node("TopK", &["x", "k"], &["y", "at"]).int("largest", 0);
    let text = one(least, &["B", "9"], &[], &[longs("k", &[1], &[4])]);
    assert!(!text.contains("gt "), "{text}");
}

#[test]
fn too_many_or_too_few_elements_to_rank_are_refused() {
    let top = [node("TopK", &["x", "k"], &["y", "at"])];
    let of = |size: &str, k: i64| {
        let x = [port("x", data_type::FLOAT, &["B", size])];
        model(18, &x, &[longs("k", &[1], &[k])], &top)
    };
    assert_eq!(codes(&of("9", 10)), ["shape-mismatch"]);
    assert_eq!(codes(&of("9", -1)), ["shape-mismatch"]);
    let error = import(&of("50000", 5)).unwrap_err().to_string();
    assert!(error.contains("at most 8192"), "{error}");
}

#[test]
fn the_position_of_the_largest_is_the_first_or_the_last() {
    let arg = node("ArgMax", &["x"], &["i"]).int("axis", 1);
    let of = |arg: NodeProto| {
        let nodes = [arg, node("Cast", &["i"], &["y"]).int("to", 1)];
        let x = [port("x", data_type::FLOAT, &["B", "9"])];
        body(&model(18, &x, &[], &nodes))
    };
    holds(&of(arg.clone()), &["reduce_max", "reduce_min", " 8"]);
    let last = of(arg.int("select_last_index", 1).int("keepdims", 0));
    assert!(!last.contains("reduce_min"), "{last}");
}

#[test]
fn scattered_elements_are_found_by_comparing_positions() {
    let scatter = node("ScatterElements", &["x", "i", "x"], &["y"]).int("axis", 1);
    let text = one(scatter.clone(), &["B", "9"], &["B", "9"], &[]);
    holds(&text, &["reduce_max", "gather_elements", "where "]);
    let sum = scatter.attr("reduction", 3, |a| a.s = Some(b"add".to_vec().into()));
    holds(&one(sum, &["B", "9"], &["B", "9"], &[]), &["reduce_sum"]);
    let part = node("ScatterElements", &["x", "i", "u"], &["y"]).int("axis", 1);
    let inputs = [
        port("x", data_type::FLOAT, &["4", "9"]),
        port("i", data_type::INT64, &["2", "9"]),
        port("u", data_type::FLOAT, &["2", "9"]),
    ];
    let error = import(&model(18, &inputs, &[], &[part])).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
}

#[test]
fn windows_are_gathered_and_reduced() {
    let pool = |op: &str| {
        node(op, &["x"], &["y"])
            .ints("kernel_shape", &[3])
            .ints("strides", &[2])
    };
    let text = one(
        pool("MaxPool").ints("pads", &[1, 1]),
        &["B", "4", "9"],
        &[],
        &[],
    );
    holds(
        &text,
        &[
            "pad %x",
            "i32[5, 1], axis = 0, start = 0, step = 2",
            "reduce_max",
        ],
    );
    let text = one(pool("AveragePool"), &["B", "4", "L"], &[], &[]);
    holds(&text, &["reduce_mean"]);
    // The last window needs one element that is not there and not counted.
    let text = one(
        pool("AveragePool").int("ceil_mode", 1),
        &["B", "4", "10"],
        &[],
        &[],
    );
    holds(&text, &["reduce_sum", "div "]);
}

#[test]
fn batch_statistics_become_a_factor_and_an_offset() {
    let names = ["x", "a", "b", "c", "d"];
    let constants: Vec<_> = names[1..]
        .iter()
        .map(|n| floats(n, &[4], &[0.5; 4]))
        .collect();
    let text = one(
        node("BatchNormalization", &names, &["y"]),
        &["B", "4", "H"],
        &[],
        &constants,
    );
    assert_eq!(text.matches("mul ").count(), 1, "{text}");
    assert_eq!(text.matches("add ").count(), 1, "{text}");
}

#[test]
fn a_transposed_convolution_is_one_over_spread_elements() {
    let transposed = node("ConvTranspose", &["x", "w"], &["y"]).ints("strides", &[2]);
    let w = [floats("w", &[4, 3, 2], &[0.1; 24])];
    let text = one(transposed, &["B", "4", "L"], &[], &w);
    holds(&text, &["pad ", "conv "]);
}

#[test]
fn numbers_of_the_traced_example_fix_lengths() {
    // A bias of 11 keys against scores of `S`: only 11 fits what was traced.
    let inputs = [
        port("x", data_type::FLOAT, &["B", "S"]),
        port("i", data_type::FLOAT, &["B", "11"]),
    ];
    let add = [node("Add", &["x", "i"], &["y"])];
    let import = import(&model(18, &inputs, &[], &add)).unwrap();
    assert_eq!(import.inputs[0].shape[1], 11.into());
    assert_eq!(
        import.notes,
        ["length `S` is always 11: the model fits no other"]
    );
}

#[test]
fn slices_named_by_data_are_searched_for() {
    let scatter = node("ScatterND", &["x", "i", "u"], &["y"]);
    let inputs = [
        port("x", data_type::FLOAT, &["B", "9", "D"]),
        port("i", data_type::INT64, &["N", "2"]),
        port("u", data_type::FLOAT, &["N", "D"]),
    ];
    let text = body(&model(18, &inputs, &[], std::slice::from_ref(&scatter)));
    holds(&text, &["reduce_max", "pad %u", "gather ", "where "]);
    let sum = scatter.attr("reduction", 3, |a| a.s = Some(b"add".to_vec().into()));
    let error = import(&model(18, &inputs, &[], &[sum])).unwrap_err();
    assert!(error.to_string().contains("a reduction"), "{error}");
}

#[test]
fn positions_in_known_values_are_known() {
    let nodes = [
        node("Shape", &["x"], &["s"]),
        node("ConstantOfShape", &["s"], &["ones"]).tensor("value", longs("", &[1], &[1])),
        node("NonZero", &["ones"], &["at"]),
        node("Cast", &["at"], &["y"]).int("to", 1),
    ];
    let x = [port("x", data_type::FLOAT, &["B", "9"])];
    let text = body(&model(18, &x, &[], &nodes));
    holds(&text, &["iota i32[1, 9 * B]", "concat "]);
    let mask = [floats("mask", &[2, 3], &[0.0, 1.0, 0.0, 1.0, 0.0, 1.0])];
    let nodes = [node("NonZero", &["mask"], &["at"]), nodes[3].clone()];
    let text = body(&model(18, &[], &mask, &nodes));
    holds(&text, &["constant"]);
}

#[test]
fn positions_in_data_are_an_input_that_is_computed() {
    // Rows of the elements that are set, and a buffer as long as the largest number of them.
    let nodes = [
        node("NonZero", &["i"], &["at"]),
        node("ReduceMax", &["i"], &["most"]).int("keepdims", 0),
        node("Add", &["most", "one"], &["more"]),
        node("Unsqueeze", &["more", "axis"], &["shape"]),
        node("ConstantOfShape", &["shape"], &["buffer"]),
        node("Cast", &["at"], &["positions"]).int("to", 1),
        node("ReduceSum", &["positions"], &["sum"]).int("keepdims", 0),
        node("Add", &["buffer", "sum"], &["y"]),
    ];
    let constants = [longs("one", &[], &[1]), longs("axis", &[1], &[0])];
    let i = [port("i", data_type::INT64, &["B", "S"])];
    let import = import(&model(18, &i, &constants, &nodes)).unwrap();
    attnc_ir::verify(&import.graph).unwrap();
    assert_eq!(import.inputs.len(), 1);
    let shapes: Vec<_> = import
        .derived
        .iter()
        .map(|d| {
            format!(
                "{:?} {:?}",
                d.kind,
                d.shape.iter().map(ToString::to_string).collect::<Vec<_>>()
            )
        })
        .collect();
    assert_eq!(
        shapes,
        [
            r#"Positions ["2", "data_length_0"]"#,
            r#"Count ["data_length_1"]"#
        ]
    );
    for derived in &import.derived {
        attnc_ir::verify(&derived.graph).unwrap();
        assert_eq!(derived.graph.outputs().len(), 1);
    }
    let y = import.graph.outputs()[0].1;
    assert_eq!(import.graph.ty(y).shape[0].to_string(), "data_length_1 + 1");
}
