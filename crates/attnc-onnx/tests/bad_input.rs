//! Whatever is wrong with a model is said, all of a kind at once, without a panic.

mod support;

use attnc_onnx::ImportError;
use attnc_onnx::proto::{FunctionProto, NodeProto, OperatorSetIdProto, data_type};
use prost::Message;
use std::path::{Path, PathBuf};
use support::{With, codes, external, floats, import, import_in, longs, model, node, port};

fn x(dims: &[&str]) -> attnc_onnx::proto::ValueInfoProto {
    port("x", data_type::FLOAT, dims)
}

fn malformed(bytes: &[u8]) -> String {
    match attnc_onnx::import_bytes(bytes.to_vec().into(), None) {
        Err(e @ ImportError::Malformed { .. }) => {
            assert!(!e.is_unsupported());
            e.to_string()
        }
        other => panic!("expected no model, found {other:?}"),
    }
}

#[test]
fn what_is_no_model() {
    assert!(malformed(b"").contains("0 bytes"));
    assert!(malformed(b"\x89PNG\r\n\x1a\n0123456789").contains("18 bytes"));
    let whole = model(17, &[x(&["2"])], &[], &[node("Tanh", &["x"], &["y"])]).encode_to_vec();
    for end in 0..whole.len() - 1 {
        let cut = attnc_onnx::import_bytes(whole[..end].to_vec().into(), None);
        assert!(cut.is_err(), "cut at {end}");
    }
}

#[test]
fn files_of_empty_messages_are_refused_before_they_unfold() {
    // A graph of nodes with one empty attribute each: 4 bytes that are more than a kilobyte in memory.
    let count = 1_000_000usize;
    let mut bytes = vec![0x3a];
    let mut len = 4 * count;
    while len >= 0x80 {
        bytes.push(u8::try_from(len & 0x7f).unwrap() | 0x80);
        len >>= 7;
    }
    bytes.push(u8::try_from(len).unwrap());
    bytes.extend([0x0a, 0x02, 0x2a, 0x00].repeat(count));
    assert!(malformed(&bytes).contains("times the file"));
}

#[test]
fn a_missing_file_is_named() {
    let error = attnc_onnx::import(Path::new("no/such/model.onnx")).unwrap_err();
    assert!(matches!(error, ImportError::Unreadable { .. }));
    assert!(error.to_string().contains("no/such/model.onnx"));
}

#[test]
fn all_unsupported_things_are_listed() {
    let mut foreign = node("Mystery", &["a"], &["b"]);
    foreign.name = "layer/mystery".to_owned();
    foreign.domain = "com.example".to_owned();
    let nodes = [
        node("SequenceMap", &["x"], &["a"]),
        foreign,
        node("Softmax", &["b"], &["c"])
            .int("axes", 1)
            .int("tilt", 1),
        node("Add", &["c", "w"], &["y"]),
    ];
    let strings = attnc_onnx::proto::TensorProto {
        name: "w".to_owned(),
        data_type: data_type::STRING,
        string_data: vec!["a".into()],
        dims: vec![1],
        ..Default::default()
    };
    let error = import(&model(17, &[x(&["2"])], &[strings], &nodes)).unwrap_err();
    assert!(error.is_unsupported());
    let text = error.to_string();
    for part in [
        "3 unsupported",
        "a (SequenceMap, opset 17)",
        "layer/mystery (com.example.Mystery, opset 0)",
        "attribute `axes`, `tilt`",
        "needed: only `axis`",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn element_types_that_no_backend_has() {
    let complex = port("x", data_type::COMPLEX64, &["2"]);
    let text_like = port("z", data_type::STRING, &["2"]);
    let nodes = [node("Add", &["x", "z"], &["y"])];
    let text = import(&model(17, &[complex, text_like], &[], &nodes))
        .unwrap_err()
        .to_string();
    assert!(text.contains("x: element type complex64"), "{text}");
    assert!(text.contains("z: element type string"), "{text}");
}

#[test]
fn structure() {
    let cyclic = [
        node("Add", &["x", "b"], &["a"]),
        node("Tanh", &["a"], &["b"]),
        node("Neg", &["b"], &["y"]),
    ];
    assert_eq!(
        codes(&model(17, &[x(&["2"])], &[], &cyclic)),
        ["cyclic-graph"]
    );
    let dangling = [
        node("Add", &["x", "p"], &["a"]),
        node("Mul", &["a", "q"], &["y"]),
    ];
    assert_eq!(
        codes(&model(17, &[x(&["2"])], &[], &dangling)),
        ["dangling-input", "dangling-input"]
    );
    let twice = [node("Tanh", &["x"], &["y"]), node("Neg", &["x"], &["y"])];
    assert_eq!(
        codes(&model(17, &[x(&["2"])], &[], &twice)),
        ["duplicate-name"]
    );
    let none = [node("Tanh", &["x"], &["a"])];
    assert_eq!(
        codes(&model(17, &[x(&["2"])], &[], &none)),
        ["dangling-output"]
    );
    let two = [longs("c", &[1], &[1]), longs("c", &[1], &[1])];
    let nodes = [node("Tanh", &["x"], &["y"])];
    assert_eq!(
        codes(&model(17, &[x(&["2"])], &two, &nodes)),
        ["duplicate-name"]
    );
    let inputs = [x(&["2"]), x(&["2"])];
    assert_eq!(codes(&model(17, &inputs, &[], &nodes)), ["duplicate-name"]);
}

#[test]
fn what_is_declared_of_an_output() {
    let declared = |code: i32, dims: &[&str]| {
        let mut file = model(17, &[x(&["2"])], &[], &[node("Neg", &["x"], &["y"])]);
        file.graph.as_mut().unwrap().output = vec![port("y", code, dims)];
        file
    };
    assert_eq!(codes(&declared(data_type::INT64, &["2"])), ["output-type"]);
    let import = import(&declared(data_type::FLOAT, &["7", "1"])).unwrap();
    assert_eq!(import.outputs[0].shape, [2.into()]);
    assert!(import.notes[0].contains("another shape than the computed f32[2]"));
}

#[test]
fn nodes_out_of_order_are_sorted() {
    let nodes = [node("Neg", &["a"], &["y"]), node("Tanh", &["x"], &["a"])];
    assert!(import(&model(17, &[x(&["2"])], &[], &nodes)).is_ok());
}

#[test]
fn shapes_that_do_not_fit_are_all_reported() {
    let inputs = [x(&["2", "3"]), port("z", data_type::FLOAT, &["4", "5"])];
    let nodes = [
        node("Add", &["x", "z"], &["a"]),
        node("MatMul", &["x", "z"], &["b"]),
        node("Transpose", &["x"], &["c"]).ints("perm", &[0, 2]),
        node("Concat", &["a", "b", "c"], &["y"]).int("axis", 0),
    ];
    let found = codes(&model(17, &inputs, &[], &nodes));
    assert_eq!(found, ["shape-mismatch", "shape-mismatch", "bad-axis"]);
    let reshape = [node("Reshape", &["x", "s"], &["y"])];
    for shape in [&[4i64, -1][..], &[-1, -1], &[7], &[-2], &[1, 1, 1, 0]] {
        let constants = [longs("s", &[i64::try_from(shape.len()).unwrap()], shape)];
        let found = codes(&model(17, &inputs[..1], &constants, &reshape));
        assert_eq!(found.len(), 1, "{shape:?}");
    }
}

#[test]
fn constants_with_the_wrong_number_of_elements() {
    let nodes = [
        node("Add", &["x", "w"], &["a"]),
        node("Add", &["a", "v"], &["b"]),
        node("Add", &["b", "u"], &["y"]),
    ];
    let mut listed = floats("v", &[2], &[]);
    (listed.raw_data, listed.float_data) = (None, vec![1.0; 3]);
    let constants = [
        floats("w", &[2], &[1.0]),
        listed,
        floats("u", &[-1], &[1.0]),
    ];
    let found = codes(&model(17, &[x(&["2"])], &constants, &nodes));
    assert_eq!(found, ["tensor-length"; 3]);
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_allocated() {
    let nodes = [node("Tanh", &["x"], &["y"])];
    let big = "1099511627776";
    assert_eq!(codes(&model(17, &[x(&[big])], &[], &nodes)), ["bad-shape"]);
    assert_eq!(
        codes(&model(
            17,
            &[x(&["1048576", "1048576", "batch"])],
            &[],
            &nodes
        )),
        ["bad-shape"]
    );
    let shape = longs("s", &[2], &[1 << 20, 1 << 20]);
    for op in ["ConstantOfShape", "Expand", "Tile"] {
        let inputs: &[&str] = if op == "ConstantOfShape" {
            &["s"]
        } else {
            &["w", "s"]
        };
        let nodes = [node(op, inputs, &["a"]), node("Add", &["x", "a"], &["y"])];
        let constants = [shape.clone(), floats("w", &[1, 1], &[1.0])];
        assert_eq!(
            codes(&model(17, &[x(&["2"])], &constants, &nodes)),
            ["bad-shape"],
            "{op}"
        );
    }
    let range = [
        node("Range", &["a", "b", "c"], &["d"]),
        node("Cast", &["d"], &["y"]).int("to", 1),
    ];
    let ends = [
        longs("a", &[], &[0]),
        longs("b", &[], &[1 << 40]),
        longs("c", &[], &[1]),
    ];
    assert_eq!(codes(&model(17, &[], &ends, &range)), ["bad-shape"]);
    let huge = floats("w", &[1 << 40, 1 << 40], &[1.0]);
    let nodes = [node("Add", &["x", "w"], &["y"])];
    assert_eq!(
        codes(&model(17, &[x(&["2"])], &[huge], &nodes)),
        ["tensor-length"]
    );
}

#[test]
fn int64_beyond_i32_is_allowed_only_as_a_bound() {
    let nodes = [
        node("Cast", &["x"], &["i"]).int("to", 7),
        node("Add", &["i", "c"], &["j"]),
        node("Cast", &["j"], &["y"]).int("to", 1),
    ];
    let one = model(17, &[x(&["2"])], &[longs("c", &[1], &[1 << 40])], &nodes);
    assert_eq!(codes(&one), ["int64-out-of-range"]);
    assert!(import(&one).unwrap_err().to_string().contains('c'));
    let many = longs("c", &[100], &[1 << 40; 100]);
    assert_eq!(
        codes(&model(17, &[x(&["100"])], &[many], &nodes)),
        ["int64-out-of-range"]
    );
    let slice = [node("Slice", &["x", "s", "e", "a"], &["y"])];
    let bounds = [
        longs("s", &[1], &[i64::MIN]),
        longs("e", &[1], &[i64::MAX]),
        longs("a", &[1], &[0]),
    ];
    let import = import(&model(17, &[x(&["9"])], &bounds, &slice)).unwrap();
    assert_eq!(
        import.graph.ty(import.graph.outputs()[0].1).to_string(),
        "f32[9]"
    );
}

#[test]
fn attributes_of_the_wrong_kind_or_value() {
    let bad: [NodeProto; 5] = [
        node("Softmax", &["x"], &["y"]).float("axis", 1.0),
        node("Softmax", &["x"], &["y"]).int("axis", 5),
        node("LeakyRelu", &["x"], &["y"]).float("alpha", f32::NAN),
        node("Gemm", &["x", "x"], &["y"]).int("transA", 2),
        node("Cast", &["x"], &["y"]).int("to", 99),
    ];
    for node in bad {
        let text = format!("{node:?}");
        assert_eq!(
            codes(&model(17, &[x(&["2", "2"])], &[], &[node])).len(),
            1,
            "{text}"
        );
    }
}

fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(dir.join("model")).unwrap();
    std::fs::write(dir.join("secret.bin"), [0u8; 64]).unwrap();
    std::fs::write(dir.join("model/weights.bin"), (0..64).collect::<Vec<u8>>()).unwrap();
    dir.join("model")
}

#[test]
fn external_data_lies_in_the_models_folder() {
    let dir = folder("external");
    let nodes = [node("Add", &["x", "w"], &["y"])];
    let fails = |entries: &[(&str, &str)]| {
        let model = model(17, &[x(&["4"])], &[external("w", &[4], entries)], &nodes);
        match import_in(&model, Some(&dir)) {
            Err(ImportError::Invalid(found)) => found.to_string(),
            other => panic!("{entries:?}: {other:?}"),
        }
    };
    let absolute = dir.join("weights.bin").display().to_string();
    for location in ["../secret.bin", "a/../../secret.bin", &absolute, ""] {
        let text = fails(&[("location", location), ("length", "16")]);
        assert!(text.contains("leads out of the model's folder"), "{text}");
    }
    assert!(fails(&[("location", "missing.bin")]).contains("cannot read `missing.bin`"));
    std::fs::create_dir_all(dir.join("folder")).unwrap();
    assert!(fails(&[("location", "folder")]).contains("it is not a regular file"));
    assert!(fails(&[]).contains("without a location"));
    let beyond = fails(&[
        ("location", "weights.bin"),
        ("offset", "56"),
        ("length", "16"),
    ]);
    assert!(
        beyond.contains("64 bytes, expected 16 from byte 56"),
        "{beyond}"
    );
    assert!(fails(&[("location", "weights.bin"), ("offset", "99")]).contains("from byte 99"));
    assert!(fails(&[("location", "weights.bin"), ("offset", "-1")]).contains("expected a number"));
    // Without a length everything behind the offset is meant, which is too much here.
    assert!(fails(&[("location", "weights.bin")]).contains("64 bytes, expected 4 elements"));
}

#[test]
fn external_data_is_read_at_its_offset_aligned_or_not() {
    let dir = folder("offsets");
    let nodes = [node("Add", &["x", "w"], &["y"])];
    let entries = [
        ("location", "weights.bin"),
        ("offset", "45"),
        ("length", "16"),
    ];
    let model = model(17, &[x(&["4"])], &[external("w", &[4], &entries)], &nodes);
    std::fs::write(dir.join("model.onnx"), model.encode_to_vec()).unwrap();
    let import = attnc_onnx::import(&dir.join("model.onnx")).unwrap();
    let w = import.graph.by_name("w").unwrap();
    let attnc_ir::Op::Constant(data) = &import.graph.node(w).op else {
        panic!("a weight is a constant");
    };
    assert_eq!(data.name.as_deref(), Some("w"));
    assert_eq!(
        data.bytes.as_deref().unwrap(),
        (45..61).collect::<Vec<u8>>()
    );
}

#[test]
fn functions_that_call_each_other_end() {
    let call = |name: &str, from: &str, to: &str| {
        let mut call = node(name, &[from], &[to]);
        call.domain = "own".to_owned();
        call
    };
    let function = |name: &str, nodes: Vec<NodeProto>| FunctionProto {
        name: name.to_owned(),
        domain: "own".to_owned(),
        input: vec!["p".to_owned()],
        output: vec!["q".to_owned()],
        node: nodes,
        opset_import: vec![OperatorSetIdProto {
            domain: String::new(),
            version: 17,
        }],
        ..Default::default()
    };
    let mut endless = model(17, &[x(&["2"])], &[], &[call("F", "x", "y")]);
    endless.functions = vec![function("F", vec![call("F", "p", "q")])];
    assert_eq!(codes(&endless), ["recursive-function"]);
}

#[test]
fn lengths_that_grow_without_end_are_refused() {
    // Squares of squares of a length: degree 2^40.
    let mut nodes = vec![node("Shape", &["x"], &["n0"])];
    for n in 0..40 {
        let (from, to) = (format!("n{n}"), format!("n{}", n + 1));
        nodes.push(node("Mul", &[&from, &from], &[&to]));
    }
    nodes.push(node("ConstantOfShape", &["n40"], &["y"]));
    let error = import(&model(17, &[x(&["a + b + 1"])], &[], &nodes)).unwrap_err();
    assert!(
        error.to_string().contains("the shape depends on data"),
        "{error}"
    );
}

#[test]
fn refusals_say_what_would_be_needed() {
    for (op, needed) in [
        ("Unique", "selects with a mask"),
        ("SequenceMap", "traced"),
        ("QLinearConv", "the model in floats"),
        ("NonMaxSuppression", "masks instead"),
    ] {
        let nodes = [node(op, &["x"], &["y"])];
        let error = import(&model(17, &[x(&["2"])], &[], &nodes)).unwrap_err();
        assert!(error.is_unsupported());
        assert!(error.to_string().contains(needed), "{error}");
    }
}
