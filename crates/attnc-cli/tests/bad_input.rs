//! The command on files that are damaged, lie, or ask for what is not there.
//!
//! Each case is a real process with its memory limited. It must end with the right exit code and a message
//! that names everything that is wrong, and must never panic. What is only a matter of wording stands in the
//! transcripts of `tests/cases/cli`; here files are made that nobody wants to keep in a repository.

use attnc::onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto,
    ValueInfoProto, attribute_kind, data_type,
};
use attnc::{HostTensor, Tensors, npz};
use prost::Message as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Address space of a process, in KiB; a model of a few hundred bytes needs a small part of it.
const MEMORY: &str = "1500000";

/// What the process said.
struct Said {
    code: Option<i32>,
    text: String,
}

/// A folder of its own, and the command run on files in it.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.path(name), bytes).expect("the folder can be written");
        self
    }

    fn model(&self, name: &str, graph: GraphProto) -> &Self {
        self.write(name, model(graph))
    }

    /// `attnc arguments…` in the folder; a number in `MEMORY` bounds what it may allocate.
    fn attnc(&self, arguments: &[&str]) -> Said {
        let attnc = env!("CARGO_BIN_EXE_attnc");
        let mut command = if cfg!(target_os = "linux") {
            let mut shell = Command::new("sh");
            let script = format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\"");
            shell.args(["-c", &script, attnc]);
            shell
        } else {
            Command::new(attnc)
        };
        command.args(arguments).current_dir(self.folder.path());
        // A backtrace is no part of a message.
        let output = command.env("RUST_BACKTRACE", "0").output();
        let output = output.expect("attnc starts");
        let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
        Said {
            code: output.status.code(),
            text: text.concat(),
        }
    }

    #[track_caller]
    fn refuses(&self, arguments: &[&str], code: i32, parts: &[&str]) {
        self.attnc(arguments).expect(code, parts);
    }
}

impl Said {
    #[track_caller]
    fn expect(&self, code: i32, parts: &[&str]) {
        let text = &self.text;
        assert!(!text.contains("panicked"), "{text}");
        assert!(!text.contains("memory allocation"), "{text}");
        assert_eq!(self.code, Some(code), "{text}");
        for part in parts {
            assert!(text.contains(part), "`{part}` is missing in\n{text}");
        }
    }
}

fn model(graph: GraphProto) -> Vec<u8> {
    let model = ModelProto {
        ir_version: 8,
        opset_import: vec![OperatorSetIdProto {
            domain: String::new(),
            version: 17,
        }],
        graph: Some(graph),
        ..ModelProto::default()
    };
    model.encode_to_vec()
}

fn graph(
    inputs: &[(&str, &[i64])],
    weights: Vec<TensorProto>,
    nodes: Vec<NodeProto>,
) -> GraphProto {
    GraphProto {
        name: "g".to_owned(),
        input: inputs.iter().map(|(name, dims)| port(name, dims)).collect(),
        output: vec![port("y", &[])],
        initializer: weights,
        node: nodes,
        ..GraphProto::default()
    }
}

/// An f32 input or output; without dims, of unknown shape.
fn port(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = |&n: &i64| DimensionProto {
        dim_value: Some(n),
        dim_param: None,
    };
    let shape = TensorShapeProto {
        dim: dims.iter().map(dim).collect(),
    };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto {
            tensor_type: Some(TensorTypeProto {
                elem_type: data_type::FLOAT,
                shape: (!dims.is_empty()).then_some(shape),
            }),
            ..TypeProto::default()
        }),
    }
}

fn node(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: op.to_owned(),
        name: format!("the {op} of {output}"),
        input: inputs.iter().map(|&i| i.to_owned()).collect(),
        output: vec![output.to_owned()],
        ..NodeProto::default()
    }
}

fn attribute(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        kind: attribute_kind::INT,
        i: Some(value),
        ..AttributeProto::default()
    }
}

fn weight(name: &str, dims: &[i64], bytes: Vec<u8>) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: data_type::FLOAT,
        raw_data: Some(bytes.into()),
        ..TensorProto::default()
    }
}

/// Four floats in `location`, from `offset` on.
fn external(name: &str, location: &str, offset: &str) -> TensorProto {
    let entries = [("location", location), ("offset", offset), ("length", "16")];
    let entry = |(key, value): (&str, &str)| StringStringEntryProto {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    TensorProto {
        name: name.to_owned(),
        dims: vec![4],
        data_type: data_type::FLOAT,
        data_location: 1,
        external_data: entries.map(entry).into(),
        ..TensorProto::default()
    }
}

/// `y = x + weights…`
fn sum(weights: Vec<TensorProto>) -> GraphProto {
    let mut nodes = Vec::new();
    let mut last = "x".to_owned();
    for (n, weight) in weights.iter().enumerate() {
        let out = if n + 1 == weights.len() {
            "y".to_owned()
        } else {
            format!("sum{n}")
        };
        nodes.push(node("Add", &[&last, &weight.name], &out));
        last = out;
    }
    graph(&[("x", &[4])], weights, nodes)
}

fn bert() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models/bert_tiny.onnx")
}

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

/// A model of `x [B, 3] f32` and `ids [B] i32`, and good inputs for it.
fn two_inputs(bench: &Bench) -> Tensors {
    let text = "graph @g(%x: f32[B, 3], %ids: i32[B]) {
  %f = cast %ids, to = f32
  %c = reshape %f, shape = [B, 1]
  %y = add %x, %c
  return %y
}";
    bench.write("m.attn", text);
    Tensors::from([
        (
            "x".to_owned(),
            HostTensor::new(vec![2, 3], &[0.5f32; 6]).unwrap(),
        ),
        (
            "ids".to_owned(),
            HostTensor::new(vec![2], &[1i64, 2]).unwrap(),
        ),
    ])
}

const RUN: [&str; 6] = ["run", "m.attn", "--backend", "cpu", "-i", "given.npz"];

#[test]
fn inputs_that_do_not_fit() {
    let bench = Bench::new();
    let good = two_inputs(&bench);
    let give = |tensors: &Tensors| {
        bench.write("given.npz", npz::to_bytes(tensors).unwrap());
    };
    give(&good);
    bench.attnc(&RUN).expect(0, &[]);
    let mut wrong = good.clone();
    wrong.insert(
        "x".to_owned(),
        HostTensor::new(vec![2, 4], &[0f32; 8]).unwrap(),
    );
    wrong.swap_remove("ids");
    wrong.insert("stranger".to_owned(), good["ids"].clone());
    give(&wrong);
    let parts = [
        "`ids` is missing",
        "`stranger`",
        "axis 1",
        "expected 3",
        "found 4",
    ];
    bench.refuses(&RUN, 2, &parts);
    let mut wrong = good.clone();
    wrong.insert(
        "x".to_owned(),
        HostTensor::new(vec![2, 3], &[0i64; 6]).unwrap(),
    );
    wrong.insert(
        "ids".to_owned(),
        HostTensor::new(vec![3], &[0i64, 1, 1 << 40]).unwrap(),
    );
    give(&wrong);
    let parts = [
        "expected float32[B, 3], found int64[2, 3]",
        "1099511627776",
        "ids",
    ];
    bench.refuses(&RUN, 2, &parts);
}

#[test]
fn array_files_that_are_damaged() {
    let bench = Bench::new();
    let good = two_inputs(&bench);
    let whole = npz::to_bytes(&good).unwrap();
    for end in [0, 10, whole.len() / 2, whole.len() - 1] {
        bench.write("given.npz", &whole[..end]);
        bench.refuses(&RUN, 2, &["given.npz", "truncated"]);
    }
    for at in (0..whole.len()).step_by(37) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x55;
        bench.write("given.npz", &flipped);
        let said = bench.attnc(&RUN);
        // A changed element is still an element.
        said.expect(said.code.filter(|c| *c == 0).unwrap_or(2), &[]);
    }
}

#[test]
fn headers_that_lie() {
    let bench = Bench::new();
    two_inputs(&bench);
    let npy = |shape: &str, descr: &str, data: usize| {
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(vec![0; data]);
        bytes
    };
    let run = [
        "run",
        "m.attn",
        "--backend",
        "cpu",
        "-i",
        "x=x.npy",
        "-i",
        "ids=ids.npy",
    ];
    bench.write("ids.npy", npy("(2,)", "<i4", 8));
    bench.write("x.npy", npy("(2, 3)", "<f4", 24));
    bench.attnc(&run).expect(0, &[]);
    for (shape, descr) in [
        ("(1099511627776, 3)", "<f4"),
        ("(4611686018427387904, 4611686018427387904)", "<f4"),
        ("(20000, 3)", "<f4"),
        ("(2, 3)", "<f8"),
        ("(2, -3)", "<f4"),
        ("(2, 3)", "|O"),
        ("(2, 3)", "<c16"),
        ("nonsense", "<f4"),
    ] {
        bench.write("x.npy", npy(shape, descr, 24));
        bench.refuses(&run, 2, &["x.npy"]);
    }
    bench.write("x.npy", &npy("(2, 3)", "<f4", 24)[..30]);
    bench.refuses(&run, 2, &["x.npy"]);
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

#[test]
fn a_comparison_that_fails_is_no_error() {
    let bench = Bench::new();
    let good = two_inputs(&bench);
    bench.write("given.npz", npz::to_bytes(&good).unwrap());
    let expected = |values: &[f32]| {
        let y = HostTensor::new(vec![2, 3], values).unwrap();
        let tensors = Tensors::from([("y".to_owned(), y)]);
        bench.write("expected.npz", npz::to_bytes(&tensors).unwrap());
    };
    let verify = [
        "verify",
        "m.attn",
        "--backend",
        "cpu",
        "-i",
        "given.npz",
        "--expect",
        "expected.npz",
    ];
    expected(&[1.5, 1.5, 1.5, 2.5, 2.5, 2.5]);
    bench.attnc(&verify).expect(0, &[]);
    expected(&[1.5, 1.5, 1.5, 2.5, 2.6, 2.5]);
    bench.refuses(&verify, 1, &["[1, 1]", "2.6", "2.5"]);
    bench.write("expected.npz", npz::to_bytes(&good).unwrap());
    bench.refuses(&verify, 2, &["no output is named `x`"]);
}

#[test]
fn attention_that_must_fuse_and_does_not() {
    let bench = Bench::new();
    let text = "graph @g(%q: f32[1, 1, 4, 4], %k: f32[1, 1, 4, 4], %v: f32[1, 1, 4, 4]) {
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  %p = softmax %s, axis = 2
  %o = matmul %p, %v
  return %o
}";
    bench.write("m.attn", text);
    bench.attnc(&["explain", "m.attn"]).expect(0, &["1 found"]);
    let parts = ["1 of 1 attentions did not fuse", "--require-fused"];
    bench.refuses(&["explain", "m.attn", "--require-fused"], 3, &parts);
}

#[test]
fn bundles_that_are_damaged() {
    let bench = Bench::new();
    let bert = bert();
    let bert = bert.to_string_lossy();
    let compiled = bench.attnc(&["compile", &bert, "-o", "bundle"]);
    compiled.expect(0, &[]);
    let inputs = bert.replace(".onnx", ".inputs.npz");
    let run = ["run", "bundle", "-i", &inputs];
    let plan = std::fs::read(bench.path("bundle/plan.json")).unwrap();
    let weights = std::fs::read(bench.path("bundle/weights.safetensors")).unwrap();
    for cut in [0, 10, plan.len() / 2] {
        bench.write("bundle/plan.json", &plan[..cut]);
        bench.refuses(&run, 2, &["plan.json"]);
    }
    bench.write("bundle/plan.json", &plan);
    for cut in [0, 4, 100, weights.len() / 2] {
        bench.write("bundle/weights.safetensors", &weights[..cut]);
        bench.refuses(&run, 2, &["weights"]);
    }
    std::fs::remove_file(bench.path("bundle/weights.safetensors")).unwrap();
    bench.refuses(&run, 2, &["weights.safetensors", "No such file"]);
}
