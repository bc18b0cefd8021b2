//! 8-bit operators: exact integer products out of float ones.

mod support;

use attnc_onnx::proto::{ValueInfoProto, data_type};
use support::{With, body, codes, floats, import, model, node, port};

fn x(name: &str, elem_type: i32, dims: &[&str]) -> ValueInfoProto {
    port(name, elem_type, dims)
}

fn inputs(columns: &str) -> [ValueInfoProto; 5] {
    [
        x("a", data_type::UINT8, &["B", columns]),
        x("b", data_type::INT8, &[columns, "7"]),
        x("az", data_type::UINT8, &[]),
        x("bz", data_type::INT8, &["7"]),
        x("f", data_type::FLOAT, &["B", "3"]),
    ]
}

#[test]
fn long_products_are_summed_as_integers() {
    let nodes = [node("MatMulInteger", &["a", "b", "az", "bz"], &["y"])];
    let text = body(&model(13, &inputs("600"), &[], &nodes));
    // 256 columns are exact in f32: three products, two sums of i32.
    assert_eq!(text.matches(" = matmul ").count(), 3, "{text}");
    assert!(text.contains("start = 512, len = 88"), "{text}");
    assert_eq!(text.matches("to = i32").count(), 3, "{text}");
    let text = body(&model(13, &inputs("256"), &[], &nodes));
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
