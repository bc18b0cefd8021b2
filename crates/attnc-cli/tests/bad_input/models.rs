//! Models: files, weights, graphs, shapes, numbers, text.

use crate::bench::{Bench, bert};
use crate::onnx::{attribute, external, graph, node, sum, weight};
use attnc::onnx::proto::{AttributeProto, TensorProto, attribute_kind, data_type};

#[test]
fn files_that_are_no_models() {
    let whole = std::fs::read(bert()).unwrap();
    let bench = Bench::new();
    for end in [0, 1, 100, whole.len() / 2, whole.len() - 1] {
        bench.write("cut.onnx", &whole[..end]);
        bench.refuses(&["explain", "cut.onnx"], 2, &["cut.onnx", "truncated"]);
    }
    let mut state = 1u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(5000)
    .collect();
    bench
        .write("noise.onnx", &noise)
        .write("noise.attn", &noise);
    bench.refuses(
        &["explain", "noise.onnx"],
        2,
        &["noise.onnx", "not an ONNX model"],
    );
    bench.refuses(&["explain", "noise.attn"], 2, &["noise.attn"]);
    bench.refuses(
        &["explain", "nowhere.onnx"],
        2,
        &["nowhere.onnx", "No such file"],
    );
    bench.refuses(&["explain", "."], 2, &["plan.json"]);
}

#[test]
fn weights_that_are_too_short_or_too_long() {
    let bench = Bench::new();
    bench.model(
        "m.onnx",
        sum(vec![
            weight("short", &[4], vec![0; 12]),
            weight("long", &[4], vec![0; 20]),
        ]),
    );
    let parts = ["short: 12 bytes", "long: 20 bytes", "4 elements"];
    bench.refuses(&["explain", "m.onnx"], 2, &parts);
}

#[test]
fn external_data_that_is_not_there() {
    let bench = Bench::new();
    bench.write("weights.bin", [0; 32]).model(
        "m.onnx",
        sum(vec![
            external("lost", "lost.bin", "0"),
            external("behind", "weights.bin", "24"),
            external("far", "weights.bin", "18446744073709551600"),
            external("outside", "../weights.bin", "0"),
        ]),
    );
    let parts = ["lost", "lost.bin", "behind", "24", "32", "far", "outside"];
    bench.refuses(&["explain", "m.onnx"], 2, &parts);
}

#[test]
fn graphs_that_are_none() {
    let bench = Bench::new();
    let x: (&str, &[i64]) = ("x", &[2]);
    let cyclic = vec![
        node("Add", &["x", "b"], "a"),
        node("Tanh", &["a"], "b"),
        node("Neg", &["b"], "y"),
    ];
    bench.model("m.onnx", graph(&[x], vec![], cyclic));
    bench.refuses(
        &["explain", "m.onnx"],
        2,
        &["cycl", "the Add of a", "the Tanh of b"],
    );
    let dangling = vec![
        node("Add", &["x", "nobody"], "a"),
        node("Mul", &["a", "no_one"], "y"),
    ];
    bench.model("m.onnx", graph(&[x], vec![], dangling));
    bench.refuses(&["explain", "m.onnx"], 2, &["nobody", "no_one"]);
}

#[test]
fn everything_unsupported_is_listed_and_is_no_bad_input() {
    let bench = Bench::new();
    let mut tilted = node("Softmax", &["a"], "b");
    tilted.attribute = vec![attribute("axis", 0), attribute("tilt", 3)];
    let nodes = vec![
        node("Mystery", &["x"], "a"),
        tilted,
        node("Enigma", &["b"], "y"),
    ];
    bench.model("m.onnx", graph(&[("x", &[2])], vec![], nodes));
    let parts = ["3 unsupported", "Mystery", "Enigma", "tilt", "needed"];
    bench.refuses(&["explain", "m.onnx"], 3, &parts);
    bench.refuses(&["run", "m.onnx", "--backend", "cpu"], 3, &parts);
    let arguments = ["compile", "m.onnx", "-o", "out"];
    bench.refuses(&arguments, 3, &parts);
    assert!(!bench.path("out").exists(), "nothing is written");
}

#[test]
fn shapes_that_do_not_fit() {
    let bench = Bench::new();
    let nodes = vec![
        node("Add", &["x", "z"], "a"),
        node("MatMul", &["x", "x"], "b"),
        node("Add", &["a", "b"], "y"),
    ];
    let inputs: [(&str, &[i64]); 2] = [("x", &[2, 3]), ("z", &[4, 5])];
    bench.model("m.onnx", graph(&inputs, vec![], nodes));
    let parts = ["the Add of a", "2, 3", "4, 5", "the MatMul of b"];
    bench.refuses(&["explain", "m.onnx"], 2, &parts);
    let mut transpose = node("Transpose", &["x"], "y");
    transpose.attribute = vec![AttributeProto {
        name: "perm".to_owned(),
        kind: attribute_kind::INTS,
        ints: vec![0, 1, 2],
        ..AttributeProto::default()
    }];
    bench.model("m.onnx", graph(&[("x", &[2, 3])], vec![], vec![transpose]));
    bench.refuses(
        &["explain", "m.onnx"],
        2,
        &["the Transpose of y", "axis 2", "2 axes"],
    );
}

#[test]
fn integers_beyond_32_bits() {
    let bench = Bench::new();
    let big = TensorProto {
        name: "big".to_owned(),
        dims: vec![2],
        data_type: data_type::INT64,
        int64_data: vec![1, 1 << 40],
        ..TensorProto::default()
    };
    let mut cast = node("Cast", &["sum"], "y");
    cast.attribute = vec![attribute("to", data_type::FLOAT.into())];
    let mut ids = node("Cast", &["x"], "ids");
    ids.attribute = vec![attribute("to", data_type::INT64.into())];
    let nodes = vec![ids, node("Add", &["ids", "big"], "sum"), cast];
    bench.model("m.onnx", graph(&[("x", &[2])], vec![big], nodes));
    bench.refuses(&["explain", "m.onnx"], 2, &["big", "1099511627776", "i32"]);
}

#[test]
fn sizes_beyond_any_memory() {
    let bench = Bench::new();
    let huge = 1i64 << 40;
    // A weight that claims a terabyte, a fill of one, and an input of one.
    bench.model("m.onnx", sum(vec![weight("vast", &[huge], vec![0; 16])]));
    bench.refuses(&["explain", "m.onnx"], 2, &["vast", "16"]);
    bench.model("m.onnx", sum(vec![weight("negative", &[-4], vec![])]));
    bench.refuses(&["explain", "m.onnx"], 2, &["negative", "-4"]);
    let most = i64::MAX;
    bench.model("m.onnx", sum(vec![weight("most", &[most, most], vec![])]));
    bench.refuses(&["explain", "m.onnx"], 2, &["most"]);
    let shape = TensorProto {
        name: "shape".to_owned(),
        dims: vec![1],
        data_type: data_type::INT64,
        int64_data: vec![huge],
        ..TensorProto::default()
    };
    let nodes = vec![
        node("ConstantOfShape", &["shape"], "ones"),
        node("Add", &["ones", "x"], "y"),
    ];
    bench.model("fill.onnx", graph(&[("x", &[1])], vec![shape], nodes));
    bench.model(
        "input.onnx",
        graph(&[("x", &[huge])], vec![], vec![node("Tanh", &["x"], "y")]),
    );
    for model in ["fill.onnx", "input.onnx"] {
        let run = ["run", model, "--backend", "cpu", "--random", "1"];
        let said = bench.attnc(&run);
        let code = said.code;
        said.expect(
            code.filter(|c| [2, 3].contains(c)).unwrap_or(2),
            &["1099511627776"],
        );
    }
}

#[test]
fn all_mistakes_of_a_text_are_shown_with_their_lines() {
    let bench = Bench::new();
    let text = "graph @g(%x: f32[B, 3], %y: f32[B, 4]) {
  %a = add %x, %y
  %b = sofmax %x, axis = 1
  %c = matmul %x, %nobody
  return %a, %b, %c
}";
    bench.write("m.attn", text);
    let parts = ["m.attn:2", "m.attn:3", "softmax", "m.attn:4", "nobody"];
    bench.refuses(&["explain", "m.attn"], 2, &parts);
    let deep = format!(
        "graph @g(%x: f32[{}B{}]) {{\n  return %x\n}}",
        "(".repeat(50_000),
        ")".repeat(50_000)
    );
    bench.write("deep.attn", deep);
    let said = bench.attnc(&["explain", "deep.attn"]);
    said.expect(said.code.filter(|c| *c == 0).unwrap_or(2), &[]);
}
