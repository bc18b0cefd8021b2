//! `FlexAttention`: its subgraphs stand where scores and probabilities are.

mod support;

use attnc_onnx::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, attribute_kind, data_type,
};
use support::{With, body, codes, import, model, node, port};

fn modifier(node: NodeProto, name: &str, nodes: &[NodeProto]) -> NodeProto {
    let graph = GraphProto {
        node: nodes.to_vec(),
        input: vec![port("in", data_type::FLOAT, &["B", "H", "L", "S"])],
        output: vec![port("out", data_type::FLOAT, &["B", "H", "L", "S"])],
        ..Default::default()
    };
    node.attr(name, attribute_kind::GRAPH, |a| a.g = Some(Box::new(graph)))
}

fn flex(with: impl Fn(NodeProto) -> NodeProto) -> ModelProto {
    let mut flex = with(node("FlexAttention", &["q", "k", "v"], &["y"]));
    flex.domain = "ai.onnx.preview".to_owned();
    let inputs = [
        port("q", data_type::FLOAT, &["B", "4", "M", "16"]),
        port("k", data_type::FLOAT, &["B", "2", "N", "16"]),
        port("v", data_type::FLOAT, &["B", "2", "N", "8"]),
        port("w", data_type::FLOAT, &["N"]),
    ];
    // Computed behind its use in the file: what a subgraph sees counts as an operand.
    let mut model = model(26, &inputs, &[], &[flex, node("Neg", &["w"], &["outer"])]);
    model.opset_import.push(OperatorSetIdProto {
        domain: "ai.onnx.preview".to_owned(),
        version: 1,
    });
    model
}

#[test]
fn modifiers_stand_around_the_softmax() {
    let text = body(&flex(|n| {
        let n = modifier(n, "score_mod", &[node("Add", &["in", "outer"], &["out"])]);
        modifier(n, "prob_mod", &[node("Mul", &["in", "in"], &["out"])])
    }));
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}\n{text}"));
    assert!(at(" = matmul ") < at(" = add "), "{text}");
    assert!(at(" = add ") < at(" = softmax "), "{text}");
    let squares = text[at(" = softmax ")..].matches(" = mul ").count();
    assert_eq!(squares, 1, "{text}");
    assert_eq!(text.matches(" = neg ").count(), 1, "{text}");
}

#[test]
fn the_scale_is_the_standard_one_or_the_one_given() {
    assert!(body(&flex(|n| n)).contains(", 0.25\n"));
    assert!(body(&flex(|n| n.float("scale", 0.5))).contains(", 0.5\n"));
}

#[test]
fn modifiers_keep_the_type() {
    let sum = node("ReduceMax", &["in"], &["out"]).int("keepdims", 1);
    let wrong = flex(|n| modifier(n, "score_mod", std::slice::from_ref(&sum)));
    assert_eq!(codes(&wrong), ["shape-mismatch"]);
    let error = import(&wrong).unwrap_err().to_string();
    assert!(error.contains("score_mod gives f32[1, 1, 1, 1]"), "{error}");
    let unknown = import(&flex(|n| n.int("block_size", 64))).unwrap_err();
    assert!(unknown.to_string().contains("block_size"), "{unknown}");
}
