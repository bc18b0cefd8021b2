//! Attention and norms of the standard's operator sets.

mod support;

use attnc_onnx::proto::{ModelProto, NodeProto, ValueInfoProto, data_type};
use support::{With, body, codes, import, model, node, port};

fn x(name: &str, dims: &[&str]) -> ValueInfoProto {
    port(name, data_type::FLOAT, dims)
}

fn qkv() -> Vec<ValueInfoProto> {
    vec![
        x("q", &["B", "4", "S", "16"]),
        x("k", &["B", "2", "T", "16"]),
        x("v", &["B", "2", "T", "16"]),
    ]
}

fn attend(opset: i64, outputs: &[&str], with: impl Fn(NodeProto) -> NodeProto) -> ModelProto {
    let node = with(node("Attention", &["q", "k", "v"], outputs));
    model(opset, &qkv(), &[], &[node])
}

#[test]
fn windows_are_masks() {
    let text = body(&attend(25, &["y"], |n| {
        n.int("left_window_size", 7).int("right_window_size", 2)
    }));
    assert!(text.contains("kv_idx <= q_idx + 2"), "{text}");
    assert!(text.contains("kv_idx >= q_idx - 7"), "{text}");
    let text = body(&attend(25, &["y"], |n| {
        n.int("right_window_size", 2).int("is_causal", 1)
    }));
    assert!(text.contains("mask_mod = { kv_idx <= q_idx }"), "{text}");
    let wrong = attend(25, &["y"], |n| n.int("left_window_size", -2));
    assert_eq!(codes(&wrong), ["bad-attribute"]);
}

#[test]
fn scores_are_a_value_of_their_own() {
    // The scores are the output of the model, the attention is not asked for.
    let scores = |mode: i64| {
        let model = attend(23, &["o", "", "", "y"], |n| {
            n.int("qk_matmul_output_mode", mode)
                .int("is_causal", 1)
                .float("softcap", 20.0)
        });
        body(&model)
    };
    let raw = scores(0);
    assert!(raw.contains("matmul %q"), "{raw}");
    assert!(raw.contains("%y = mul") && !raw.contains("tanh"), "{raw}");
    let capped = scores(1);
    assert!(
        capped.contains("tanh") && !capped.contains("inf"),
        "{capped}"
    );
    let masked = scores(2);
    assert!(
        masked.contains("tanh") && masked.contains("-inf"),
        "{masked}"
    );
    assert!(!masked.contains("softmax"), "{masked}");
    assert!(scores(3).contains("softmax"));
    assert!(!scores(3).contains("= attention"), "nobody asked for it");
}

#[test]
fn a_layer_norm_gives_its_statistics() {
    let inputs = [x("x", &["S", "8"]), x("g", &["8"]), x("b", &["8"])];
    let nodes = [
        node(
            "LayerNormalization",
            &["x", "g", "b"],
            &["n", "mean", "inv"],
        ),
        node("Mul", &["mean", "inv"], &["y"]),
    ];
    let text = body(&model(17, &inputs, &[], &nodes));
    assert!(
        text.contains("%mean = reduce_mean %x, axes = [1]"),
        "{text}"
    );
    assert!(text.contains("%inv = rsqrt"), "{text}");
}

#[test]
fn groups_of_channels_are_normalised() {
    let inputs = [x("x", &["B", "6", "W"]), x("g", &["6"]), x("b", &["6"])];
    let group = |n: i64| node("GroupNormalization", &["x", "g", "b"], &["y"]).int("num_groups", n);
    let text = body(&model(21, &inputs, &[], &[group(3)]));
    assert!(text.contains("[B, 3, 2 * W]"), "{text}");
    assert_eq!(
        codes(&model(21, &inputs, &[], &[group(4)])),
        ["shape-mismatch"]
    );
    let instance = node("InstanceNormalization", &["x", "g", "b"], &["y"]);
    assert!(body(&model(22, &inputs, &[], &[instance])).contains("reduce_mean"));
}

#[test]
fn newer_operator_sets_than_are_known_are_refused() {
    let nodes = [node("Tanh", &["x"], &["y"])];
    let of = |opset: i64| model(opset, &[x("x", &["S"])], &[], &nodes);
    assert!(import(&of(28)).is_ok());
    let error = import(&of(29)).unwrap_err();
    assert!(error.is_unsupported());
    let text = error.to_string();
    assert!(text.contains("operator set 29"), "{text}");
    assert!(text.contains("y (Tanh, opset 29)"), "{text}");
}

#[test]
fn a_remainder_of_floats_takes_the_divisors_sign_from_opset_28() {
    let nodes = [node("Mod", &["x", "z"], &["y"])];
    let inputs = [x("x", &["S"]), x("z", &["S"])];
    assert_eq!(codes(&model(27, &inputs, &[], &nodes)), ["bad-attribute"]);
    let text = body(&model(28, &inputs, &[], &nodes));
    assert!(text.contains("rem %x, %z"), "{text}");
    assert!(text.contains("%y = where"), "{text}");
}
