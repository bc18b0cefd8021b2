//! 8-bit operators: exact integer products out of float ones.

mod support;

use attnc_ir::Op;
use attnc_onnx::proto::{ModelProto, OperatorSetIdProto, TensorProto, ValueInfoProto, data_type};
use support::{With, body, codes, floats, import, model, node, port};

fn x(name: &str, elem_type: i32, dims: &[&str]) -> ValueInfoProto {
    port(name, elem_type, dims)
}

fn inputs(columns: &str) -> [ValueInfoProto; 5] {
    [
        x("a", data_type::UINT8, &["3", columns]),
        x("b", data_type::INT8, &[columns, "7"]),
        x("az", data_type::UINT8, &[]),
        x("bz", data_type::INT8, &["7"]),
        x("f", data_type::FLOAT, &["B", "3"]),
    ]
}

/// The model with the element type of its output stated.
fn giving(elem_type: i32, mut model: ModelProto) -> ModelProto {
    model.graph.as_mut().unwrap().output = vec![x("y", elem_type, &[])];
    model
}

#[test]
fn long_products_are_summed_as_integers() {
    let nodes = [node("MatMulInteger", &["a", "b", "az", "bz"], &["y"])];
    let text = body(&giving(
        data_type::INT32,
        model(13, &inputs("600"), &[], &nodes),
    ));
    // 256 columns are exact in f32: three products, two sums of i32.
    assert_eq!(text.matches(" = matmul ").count(), 3, "{text}");
    assert!(text.contains("start = 512, len = 88"), "{text}");
    assert_eq!(text.matches("to = i32").count(), 3, "{text}");
    let text = body(&giving(
        data_type::INT32,
        model(13, &inputs("256"), &[], &nodes),
    ));
    assert_eq!(text.matches(" = matmul ").count(), 1, "{text}");
}

#[test]
fn what_is_wrong_with_a_quantised_operator() {
    let of = |opset, node| model(opset, &inputs("4"), &[floats("s", &[], &[0.5])], &[node]);
    let product = node("MatMulInteger", &["a", "b", "bz"], &["y"]);
    assert_eq!(codes(&of(13, product)), ["shape-mismatch"]);
    let wide = node("QuantizeLinear", &["f", "s", "bz"], &["y"]);
    assert_eq!(codes(&of(13, wide)), ["shape-mismatch"]);
    let float = node("QuantizeLinear", &["f", "s", "s"], &["y"]);
    assert_eq!(codes(&of(13, float)), ["dtype-mismatch"]);
    for (node, why) in [
        (
            node("QuantizeLinear", &["f", "s"], &["y"]),
            "a type that the zero point decides",
        ),
        (
            node("DequantizeLinear", &["a", "s"], &["y"]).int("block_size", 16),
            "block_size 16",
        ),
    ] {
        let error = import(&of(21, node)).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    let varying = inputs("K");
    let product = node("MatMulInteger", &["a", "b"], &["y"]);
    let error = import(&model(13, &varying, &[], &[product])).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("an integer product over K columns"),
        "{error}"
    );
}

#[test]
fn weights_of_four_bits_in_blocks() {
    let bytes = TensorProto {
        name: "w".to_owned(),
        dims: vec![2, 2, 8],
        data_type: data_type::UINT8,
        raw_data: Some(vec![0x70; 32].into()),
        ..Default::default()
    };
    let constants = [bytes, floats("s", &[4], &[1.0, 2.0, 0.5, 0.25])];
    let of = |columns: i64, bits: i64| {
        let mut node = node("MatMulNBits", &["x", "w", "s"], &["y"])
            .int("K", columns)
            .int("N", 2)
            .int("bits", bits)
            .int("block_size", 16);
        node.domain = "com.microsoft".to_owned();
        let inputs = [x("x", data_type::FLOAT, &["B", "30"])];
        let mut model = model(17, &inputs, &constants, &[node]);
        model.opset_import.push(OperatorSetIdProto {
            domain: "com.microsoft".to_owned(),
            version: 1,
        });
        model
    };
    let import = import(&of(30, 4)).unwrap();
    let weights = import
        .graph
        .values()
        .find_map(|v| match &import.graph.node(v).op {
            Op::Constant(data) if data.shape == [30, 2] => data.to_f64(),
            _ => None,
        });
    // Low halves are 0 and high ones 7, less 8, times the scale of their block.
    let weights = weights.expect("small weights are known at import");
    assert_eq!(weights[..4], [-8.0, -4.0, -1.0, -0.5]);
    assert_eq!(weights[2 * 16..2 * 16 + 4], [-16.0, -2.0, -2.0, -0.25]);
    assert_eq!(codes(&of(0, 4)), ["bad-attribute"]);
    let error = support::import(&of(30, 2)).unwrap_err();
    assert!(error.to_string().contains("weights of 2 bits"), "{error}");
}
