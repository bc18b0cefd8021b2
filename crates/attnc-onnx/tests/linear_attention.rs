//! `LinearAttention` and `CausalConvWithState` of opset 27.

mod support;

use attnc_onnx::proto::{NodeProto, ValueInfoProto, data_type};
use support::{With, body, codes, import, model, node, port};

fn x(name: &str, dims: &[&str]) -> ValueInfoProto {
    port(name, data_type::FLOAT, dims)
}

fn rule(node: NodeProto, name: &'static str) -> NodeProto {
    node.attr("update_rule", 3, |a| a.s = Some(name.into()))
}

fn inputs() -> [ValueInfoProto; 6] {
    [
        x("q", &["B", "S", "32"]),
        x("k", &["B", "S", "16"]),
        x("v", &["B", "S", "10"]),
        x("past", &["B", "2", "8", "5"]),
        x("decay", &["B", "S", "2"]),
        x("beta", &["B", "S", "1"]),
    ]
}

fn linear(operands: &[&str]) -> NodeProto {
    node("LinearAttention", operands, &["y", "present"])
        .int("q_num_heads", 4)
        .int("kv_num_heads", 2)
        .int("chunk_size", 16)
}

#[test]
fn grouped_heads_gates_and_a_shared_rate() {
    let node = linear(&["q", "k", "v", "past", "decay", "beta"]);
    let mut model = model(27, &inputs(), &[], &[node]);
    let present = port("present", data_type::FLOAT, &["B", "2", "8", "5"]);
    model.graph.as_mut().unwrap().output.push(present);
    let text = body(&model);
    // The standard scale, 1 / sqrt(8), and two nodes for the two results.
    let scale = "rule = gated_delta, scale = 0.35355339059327373";
    assert_eq!(text.matches(scale).count(), 2, "{text}");
    assert!(
        text.contains("result = output") && text.contains("result = state"),
        "{text}"
    );
    assert!(text.contains("shape = [B, 2, S, 1]"), "{text}");
}

#[test]
fn the_state_begins_with_zeros_and_only_what_is_asked_for_is_computed() {
    let node = rule(linear(&["q", "k", "v"]), "linear").float("scale", 0.5);
    let text = body(&model(27, &inputs(), &[], &[node]));
    assert!(
        text.contains("broadcast f32 0.0, shape = [B, 2, 8, 5]"),
        "{text}"
    );
    assert_eq!(text.matches("linear_attention").count(), 1, "{text}");
    assert!(
        text.contains("rule = linear, scale = 0.5, result = output"),
        "{text}"
    );
}

#[test]
fn what_is_wrong_with_a_recurrence() {
    let of = |node: NodeProto| codes(&model(27, &inputs(), &[], &[node]));
    assert_eq!(
        of(rule(linear(&["q", "k", "v"]), "square")),
        ["bad-attribute"]
    );
    assert_eq!(
        of(rule(linear(&["q", "k", "v"]), "gated")),
        ["operand-count"]
    );
    assert_eq!(
        of(rule(linear(&["q", "k", "v"]), "delta")),
        ["operand-count"]
    );
    assert_eq!(
        of(linear(&["q", "v", "v", "past", "decay", "beta"])),
        ["shape-mismatch"]
    );
    let no_heads = node("LinearAttention", &["q", "k", "v"], &["y"]);
    assert_eq!(of(no_heads), ["bad-attribute"]);
}

fn conv_inputs() -> [ValueInfoProto; 4] {
    [
        x("x", &["B", "6", "S"]),
        x("w", &["6", "1", "4"]),
        x("b", &["6"]),
        x("past", &["B", "6", "3"]),
    ]
}

#[test]
fn a_causal_convolution_is_one_over_the_state_and_the_input() {
    let node = node(
        "CausalConvWithState",
        &["x", "w", "b", "past"],
        &["y", "present"],
    )
    .attr("activation", 3, |a| a.s = Some("silu".into()));
    let text = body(&model(27, &conv_inputs(), &[], &[node]));
    assert!(text.contains("concat %past, %x, axis = 2"), "{text}");
    assert!(
        text.contains("groups = 6") && text.contains(" = silu "),
        "{text}"
    );
}

#[test]
fn what_is_wrong_with_a_causal_convolution() {
    let of = |operands: &[&str], activation: &'static str| {
        let node = node("CausalConvWithState", operands, &["y"]);
        let node = node.attr("activation", 3, |a| a.s = Some(activation.into()));
        model(27, &conv_inputs(), &[], &[node])
    };
    assert_eq!(
        codes(&of(&["x", "w", "b", "x"], "none")),
        ["shape-mismatch"]
    );
    assert_eq!(codes(&of(&["x", "past"], "none")), ["shape-mismatch"]);
    assert_eq!(codes(&of(&["x", "w"], "tanh")), ["bad-attribute"]);
    let varying = [x("x", &["B", "C", "S"]), x("w", &["C", "1", "4"])];
    let node = node("CausalConvWithState", &["x", "w"], &["y"]);
    let error = import(&model(27, &varying, &[], &[node])).unwrap_err();
    assert!(error.to_string().contains("C channels"), "{error}");
}
