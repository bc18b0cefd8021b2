//! The operators that ONNX Runtime's optimiser and model builders write.

mod support;

use attnc_onnx::proto::{
    ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto, data_type,
};
use support::{With, body, codes, import, model, node, port};

fn x(name: &str, dims: &[&str]) -> ValueInfoProto {
    port(name, data_type::FLOAT, dims)
}

fn ints(name: &str, dims: &[&str]) -> ValueInfoProto {
    port(name, data_type::INT32, dims)
}

fn ms(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        domain: "com.microsoft".to_owned(),
        ..node(op, inputs, outputs)
    }
}

fn one(inputs: &[ValueInfoProto], constants: &[TensorProto], nodes: &[NodeProto]) -> ModelProto {
    let mut model = model(17, inputs, constants, nodes);
    model.opset_import.push(OperatorSetIdProto {
        domain: "com.microsoft".to_owned(),
        version: 1,
    });
    model
}

#[test]
fn a_skip_norm_gives_the_sum_too() {
    let inputs = [
        x("x", &["B", "S", "8"]),
        x("s", &["B", "S", "8"]),
        x("g", &["8"]),
    ];
    let nodes = [
        ms(
            "SkipSimplifiedLayerNormalization",
            &["x", "s", "g"],
            &["n", "", "", "sum"],
        ),
        node("Add", &["n", "sum"], &["y"]),
    ];
    let text = body(&one(&inputs, &[], &nodes));
    assert!(text.contains("%sum = add %x, %s"), "{text}");
    assert!(text.contains("%n = rms_norm %sum, %g, axis = 2"), "{text}");
    let nodes = [
        ms("SkipLayerNormalization", &["x", "s", "g"], &["n", "mean"]),
        node("Add", &["n", "mean"], &["y"]),
    ];
    let error = import(&one(&inputs, &[], &nodes)).unwrap_err();
    assert!(
        error.to_string().contains("the mean and deviation"),
        "{error}"
    );
}

#[test]
fn gelus_with_a_bias() {
    let inputs = [x("x", &["B", "8"]), x("b", &["8"])];
    let of = |op: &str| body(&one(&inputs, &[], &[ms(op, &["x", "b"], &["y"])]));
    assert!(of("BiasGelu").contains("%y = gelu %"));
    assert!(of("FastGelu").contains("%y = gelu_tanh %"));
    let product = ms("FusedMatMul", &["x", "w"], &["y"])
        .int("transA", 1)
        .float("alpha", 0.5);
    let text = body(&one(
        &[x("x", &["8", "S"]), x("w", &["8", "4"])],
        &[],
        &[product],
    ));
    assert!(text.contains("transpose %x"), "{text}");
    assert!(text.contains("%y = mul") && text.contains("0.5"), "{text}");
}

fn multi_head(with: impl Fn(NodeProto) -> NodeProto) -> ModelProto {
    let inputs = [
        x("q", &["B", "S", "64"]),
        x("k", &["B", "T", "64"]),
        x("v", &["B", "T", "32"]),
        x("bias", &["160"]),
        ints("mask", &["B", "T"]),
    ];
    let names = ["q", "k", "v", "bias", "mask"];
    one(
        &inputs,
        &[],
        &[with(ms("MultiHeadAttention", &names, &["y"]))],
    )
}

#[test]
fn a_padding_mask_adds_a_finite_number() {
    let text = body(&multi_head(|n| n.int("num_heads", 4)));
    assert!(
        text.contains("slice %bias, axis = 0, start = 128, len = 32"),
        "{text}"
    );
    assert!(text.contains("scale = 0.25"), "{text}");
    assert!(text.contains("-10000.0"), "{text}");
    assert!(!text.contains("mask_mod"), "{text}");
    let text = body(&multi_head(|n| {
        n.int("num_heads", 4).int("unidirectional", 1)
    }));
    assert!(text.contains("mask_mod = { kv_idx <= q_idx }"), "{text}");
}

#[test]
fn a_scale_that_is_given_is_taken() {
    let scaled = |n: NodeProto| n.int("num_heads", 4).float("scale", 0.75);
    let one_projection = one(
        &[x("x", &["B", "S", "32"]), x("w", &["32", "96"])],
        &[],
        &[scaled(ms("Attention", &["x", "w"], &["y"]))],
    );
    let models = [
        multi_head(scaled),
        group_query(|n| n.float("scale", 0.75)),
        one_projection,
    ];
    for model in models {
        let text = body(&model);
        assert!(text.contains("scale = 0.75"), "{text}");
    }
}

#[test]
fn what_a_multi_head_attention_lacks_is_said() {
    assert_eq!(codes(&multi_head(|n| n)), ["bad-attribute"]);
    assert_eq!(
        codes(&multi_head(|n| n.int("num_heads", 5))),
        ["shape-mismatch"]
    );
    let error = import(&multi_head(|n| n.int("num_heads", 4).int("tilt", 1))).unwrap_err();
    assert!(error.to_string().contains("attribute `tilt`"), "{error}");
    assert!(
        error
            .to_string()
            .contains("com.microsoft.MultiHeadAttention"),
        "{error}"
    );
}

#[test]
fn one_projection_is_cut_in_three() {
    let inputs = [
        x("x", &["B", "S", "32"]),
        x("w", &["32", "96"]),
        x("b", &["96"]),
        x("past", &["2", "B", "4", "P", "8"]),
    ];
    let nodes = [
        ms("Attention", &["x", "w", "b", "", "past"], &["y", "present"])
            .int("num_heads", 4)
            .int("unidirectional", 1),
    ];
    let text = body(&one(&inputs, &[], &nodes));
    assert!(text.contains("axis = 2, start = 64, len = 32"), "{text}");
    assert!(text.contains("kv_idx <= P + q_idx"), "{text}");
}

/// As the model builder writes it: the longest length is a shape, the others are data.
fn group_query(with: impl Fn(NodeProto) -> NodeProto) -> ModelProto {
    let inputs = [
        x("q", &["B", "S", "64"]),
        x("k", &["B", "S", "32"]),
        x("v", &["B", "S", "32"]),
        x("pk", &["B", "2", "P", "16"]),
        x("pv", &["B", "2", "P", "16"]),
        ints("last", &["B"]),
        ints("mask", &["B", "T"]),
        x("cos", &["128", "8"]),
        x("sin", &["128", "8"]),
    ];
    let names = ["q", "k", "v", "pk", "pv", "last", "total", "cos", "sin"];
    let nodes = [
        node("Shape", &["mask"], &["shape"]),
        node("Gather", &["shape", "one"], &["total"]),
        with(ms("GroupQueryAttention", &names, &["y", "nk", "nv"]))
            .int("num_heads", 4)
            .int("kv_num_heads", 2),
    ];
    one(&inputs, &[support::longs("one", &[], &[1])], &nodes)
}

#[test]
fn a_cache_is_written_behind_the_keys_of_each_sequence() {
    let text = body(&group_query(|n| {
        n.int("do_rotary", 1).int("local_window_size", 8)
    }));
    assert!(text.contains("max(P, T)"), "{text}");
    assert!(text.contains("gather %cos"), "{text}");
    assert!(text.contains("gather_elements"), "{text}");
    let attention = text.lines().find(|l| l.contains(" = attention ")).unwrap();
    for part in ["scale = 0.25", "kv_idx <= ", "- 7"] {
        assert!(attention.contains(part), "{part}\n{attention}");
    }
}

#[test]
fn group_query_attention_has_sinks() {
    let attention = |model: &ModelProto| {
        let text = body(model);
        let line = text.lines().find(|l| l.contains(" = attention "));
        line.unwrap().to_owned()
    };
    let smooth = attention(&group_query(|n| n.int("smooth_softmax", 1)));
    assert!(smooth.contains("sink = { 0.0 }"), "{smooth}");
    let sinks = |name: &'static str| {
        move |mut node: NodeProto| {
            node.input.extend(["", "", name].map(str::to_owned));
            node
        }
    };
    let mut model = group_query(sinks("sinks"));
    let graph = model.graph.as_mut().unwrap();
    graph.input.push(x("sinks", &["4"]));
    let learned = attention(&model);
    assert!(learned.contains("sink = { %sinks[h] }"), "{learned}");
    let error = import(&group_query(sinks("cos"))).unwrap_err();
    assert!(error.to_string().contains("head_sink is"), "{error}");
}

#[test]
fn what_a_group_query_attention_cannot_do_is_said() {
    let scaled = |mut node: NodeProto| {
        node.input.extend(["", "", "", "cos"].map(str::to_owned));
        node
    };
    let error = import(&group_query(scaled)).unwrap_err();
    assert!(error.to_string().contains("the operand k_scale"), "{error}");
}

#[test]
fn embeddings_are_looked_up_summed_and_normalised() {
    let inputs = [
        ints("ids", &["B", "S"]),
        ints("segments", &["B", "S"]),
        x("words", &["100", "8"]),
        x("places", &["64", "8"]),
        x("kinds", &["2", "8"]),
        x("g", &["8"]),
        x("b", &["8"]),
    ];
    let names = ["ids", "segments", "words", "places", "kinds", "g", "b"];
    let nodes = [ms("EmbedLayerNormalization", &names, &["y", ""])];
    let model = one(&inputs, &[], &nodes);
    let text = body(&model);
    assert!(
        text.contains("slice %places, axis = 0, start = 0, len = S"),
        "{text}"
    );
    assert!(text.contains("gather %kinds, %segments"), "{text}");
    assert!(text.contains("%y = layer_norm"), "{text}");
    assert_eq!(import(&model).unwrap().constraints.len(), 1);
}

#[test]
fn products_and_convolutions_with_an_activation_inside() {
    let text_attr = |node: NodeProto, value: &'static str| {
        node.attr("activation", 3, |a| a.s = Some(value.into()))
    };
    let inputs = [
        x("a", &["5", "8"]),
        x("b", &["8", "6"]),
        x("i", &["B", "4", "S"]),
        x("w", &["6", "4", "3"]),
        x("batch", &["4", "B", "8"]),
        x("right", &["B", "8", "6"]),
    ];
    let of = |node: NodeProto| one(&inputs, &[], &[node]);
    let gemm = text_attr(ms("FusedGemm", &["a", "b"], &["y"]), "LeakyRelu");
    let text = body(&of(gemm.float("activation_alpha", 0.25)));
    assert!(
        text.contains(" = matmul ") && text.contains("0.25"),
        "{text}"
    );
    let conv = text_attr(ms("FusedConv", &["i", "w"], &["y"]), "Relu");
    let text = body(&of(conv.clone()));
    assert!(
        text.contains(" = conv ") && text.contains("%y = relu "),
        "{text}"
    );
    let unknown = text_attr(ms("FusedGemm", &["a", "b"], &["y"]), "Mystery");
    let error = import(&of(unknown)).unwrap_err();
    assert!(
        error.to_string().contains("activation `Mystery`"),
        "{error}"
    );
    let product = ms("FusedMatMul", &["batch", "right"], &["y"]).int("transBatchA", 1);
    let text = body(&of(product));
    assert!(
        text.contains("transpose %batch, perm = [1, 0, 2]"),
        "{text}"
    );
    let flat = ms("FusedMatMul", &["a", "b"], &["y"]).int("transBatchA", 1);
    assert_eq!(codes(&of(flat)), ["shape-mismatch"]);
}
