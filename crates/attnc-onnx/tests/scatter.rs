//! Scattering becomes a choice by position.

mod support;

use attnc_onnx::proto::{ModelProto, NodeProto, TensorProto, ValueInfoProto, data_type};
use support::{With, body, codes, floats, import, longs, model, node, port};

fn x(name: &str, dims: &[&str]) -> ValueInfoProto {
    port(name, data_type::FLOAT, dims)
}

/// `x[:, start:start + n] = u`, as TorchScript writes it: a grid of two ranges.
fn block(start: &str, updates: TensorProto) -> ModelProto {
    let nodes = [
        node("Shape", &["x"], &["shape"]),
        node("Gather", &["shape", "zero"], &["rows"]),
        node("Gather", &["shape", "one"], &["columns"]),
        node("Range", &["zero", "rows", "one"], &["i"]),
        node("Range", &["zero", "columns", "one"], &["all"]),
        node("Slice", &["all", start, "far"], &["j"]),
        node("Reshape", &["i", "tall"], &["i1"]),
        node("Shape", &["j"], &["n"]),
        node("Concat", &["rows1", "n"], &["grid"]).int("axis", 0),
        node("Unsqueeze", &["rows", "axis"], &["rows1"]),
        node("Expand", &["i1", "grid"], &["i2"]),
        node("Expand", &["j", "grid"], &["j2"]),
        node("Unsqueeze", &["i2", "minus"], &["i3"]),
        node("Unsqueeze", &["j2", "minus"], &["j3"]),
        node("Concat", &["i3", "j3"], &["ij"]).int("axis", -1),
        node("Expand", &["value", "grid"], &["u"]),
        node("ScatterND", &["x", "ij", "u"], &["y"]),
    ];
    let constants = [
        longs("zero", &[], &[0]),
        longs("one", &[], &[1]),
        longs("axis", &[1], &[0]),
        longs("minus", &[1], &[-1]),
        longs("all_of_it", &[1], &[0]),
        longs("last_three", &[1], &[-3]),
        longs("far", &[1], &[i64::MAX]),
        longs("tall", &[2], &[-1, 1]),
        updates,
    ];
    model(17, &[x("x", &["B", "S"])], &constants, &nodes)
}

fn value() -> TensorProto {
    floats("value", &[1, 1], &[7.0])
}

#[test]
fn a_whole_slice_is_replaced() {
    let text = body(&block("all_of_it", value()));
    assert!(!text.contains("where"), "{text}");
    assert!(text.contains("broadcast"), "{text}");
}

#[test]
fn a_block_is_chosen_by_position() {
    let model = block("last_three", value());
    let text = body(&model);
    for part in [
        "iota i32[1, S], axis = 1, start = 0, step = 1",
        "length S - 3",
        "7.0, %x",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn constant_indices_become_a_table() {
    let nodes = [node("ScatterND", &["x", "at", "u"], &["y"])];
    let constants = [longs("at", &[3, 1], &[4, -2, 1])];
    let inputs = [x("x", &["5", "S"]), x("u", &["3", "S"])];
    let text = body(&model(18, &inputs, &constants, &nodes));
    assert!(
        text.contains("[-1, 2, -1, 1, 0]") || text.contains("i32[5]"),
        "{text}"
    );
    assert!(text.contains("gather %u"), "{text}");
    assert!(text.contains("%y = where "), "{text}");
}

#[test]
fn a_reduction_joins_old_and_new() {
    let nodes = [add(node("ScatterND", &["x", "at", "u"], &["y"]))];
    let inputs = [x("x", &["4"]), x("u", &["2"])];
    let constants = |at: &[i64]| [longs("at", &[2, 1], at)];
    let text = body(&model(18, &inputs, &constants(&[1, 2]), &nodes));
    assert!(text.contains("add %x"), "{text}");
    let twice = import(&model(18, &inputs, &constants(&[3, 3]), &nodes)).unwrap_err();
    assert!(twice.to_string().contains("indices that repeat"), "{twice}");
    let beyond = model(18, &inputs, &constants(&[1, 4]), &nodes);
    assert_eq!(codes(&beyond), ["index-out-of-range"]);
}

fn add(node: NodeProto) -> NodeProto {
    node.attr("reduction", 3, |a| a.s = Some("add".into()))
}

#[test]
fn a_cache_is_written_by_position() {
    let inputs = [
        x("cache", &["B", "4", "M", "8"]),
        x("new", &["B", "4", "S", "8"]),
        port("at", data_type::INT64, &["B"]),
    ];
    let nodes = [node("TensorScatter", &["cache", "new", "at"], &["y"])];
    let text = body(&model(24, &inputs, &[], &nodes));
    assert!(text.contains("gather_elements %new"), "{text}");
    assert!(text.contains("%y = where "), "{text}");
    assert!(!text.contains("mod "), "{text}");
    let nodes = [nodes[0]
        .clone()
        .attr("mode", 3, |a| a.s = Some("circular".into()))];
    assert!(body(&model(24, &inputs, &[], &nodes)).contains("mod "));
}

#[test]
fn an_element_of_a_range_is_a_length() {
    let nodes = [
        node("Shape", &["x"], &["n"]),
        node("Squeeze", &["n"], &["n0"]),
        node("Range", &["zero", "n0", "one"], &["r"]),
        node("Gather", &["r", "minus"], &["last"]),
        node("Add", &["last", "one1"], &["size"]),
        node("Reshape", &["x", "size"], &["y"]),
    ];
    let constants = [
        longs("zero", &[], &[0]),
        longs("one", &[], &[1]),
        longs("one1", &[1], &[1]),
        longs("minus", &[1], &[-1]),
    ];
    let text = body(&model(17, &[x("x", &["S"])], &constants, &nodes));
    assert_eq!(text, "return %x as \"y\"\n");
}
