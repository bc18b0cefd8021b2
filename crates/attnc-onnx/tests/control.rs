//! Scan, Loop and If: unrolled or chosen where that is known, refused by name elsewhere.

mod support;

use attnc_onnx::proto::{GraphProto, NodeProto, attribute_kind, data_type};
use support::{With, body, codes, floats, import, longs, model, node, port};

fn graph(inputs: &[&str], nodes: &[NodeProto], outputs: &[&str]) -> GraphProto {
    let ports = |names: &[&str]| {
        let port = |n: &&str| port(n, data_type::FLOAT, &[]);
        names.iter().map(port).collect()
    };
    GraphProto {
        node: nodes.to_vec(),
        input: ports(inputs),
        output: ports(outputs),
        ..Default::default()
    }
}

fn with_graph(node: NodeProto, name: &str, graph: GraphProto) -> NodeProto {
    node.attr(name, attribute_kind::GRAPH, |a| a.g = Some(Box::new(graph)))
}

/// The sum so far, and all of them: `outer` is a name from around.
fn running_sum(steps: &str) -> attnc_onnx::proto::ModelProto {
    let step = [
        node("Add", &["sum", "row"], &["more"]),
        node("Mul", &["more", "outer"], &["scaled"]),
    ];
    let inner = graph(&["sum", "row"], &step, &["more", "scaled"]);
    let scan = node("Scan", &["first", "x"], &["last", "y"]).int("num_scan_inputs", 1);
    let nodes = [
        // Computed behind the Scan in the file: what a body sees counts as an operand.
        with_graph(scan, "body", inner),
        node("Neg", &["w"], &["outer"]),
    ];
    let inputs = [
        port("x", data_type::FLOAT, &[steps, "B"]),
        port("first", data_type::FLOAT, &["B"]),
        port("w", data_type::FLOAT, &["B"]),
    ];
    model(17, &inputs, &[], &nodes)
}

#[test]
fn a_scan_of_constant_length_is_unrolled() {
    let text = body(&running_sum("3"));
    assert_eq!(text.matches(" = add ").count(), 3, "{text}");
    assert_eq!(text.matches(" = mul ").count(), 3, "{text}");
    assert_eq!(text.matches(" = neg ").count(), 1, "{text}");
    assert!(text.contains("axis = 0, start = 2, len = 1"), "{text}");
    assert!(text.contains(" = concat "), "{text}");
}

#[test]
fn a_scan_over_a_varying_or_long_length_is_refused_by_name() {
    for (steps, why) in [
        ("S", "a number of rounds that is not a constant"),
        ("257", "257 rounds, which are unrolled; needed: at most 256"),
        ("0", "a Scan of no rounds"),
    ] {
        let error = import(&running_sum(steps)).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn directions_and_axes_of_a_scan() {
    let step = [
        node("Add", &["sum", "row"], &["more"]),
        node("Neg", &["more"], &["out"]),
    ];
    let inner = graph(&["sum", "row"], &step, &["more", "out"]);
    let scan = node("Scan", &["first", "x"], &["last", "y"])
        .int("num_scan_inputs", 1)
        .ints("scan_input_axes", &[-1])
        .ints("scan_input_directions", &[1])
        .ints("scan_output_axes", &[1])
        .ints("scan_output_directions", &[1]);
    let inputs = [
        port("x", data_type::FLOAT, &["B", "2"]),
        port("first", data_type::FLOAT, &["B"]),
    ];
    let text = body(&model(17, &inputs, &[], &[with_graph(scan, "body", inner)]));
    // The last column first, and the first result last.
    let first = text.find("axis = 1, start = 1, len = 1").unwrap();
    let second = text.find("axis = 1, start = 0, len = 1").unwrap();
    assert!(first < second, "{text}");
    assert!(text.contains("axis = 1\n"), "{text}");
}

#[test]
fn a_loop_with_a_known_number_of_rounds_is_unrolled() {
    let step = [
        node("Mul", &["carried", "carried"], &["square"]),
        node("Identity", &["go"], &["on"]),
    ];
    let inner = graph(&["n", "go", "carried"], &step, &["on", "square", "square"]);
    let inputs = [port("x", data_type::FLOAT, &["B"])];
    let unrolled = |trips: i64| {
        let loops = node("Loop", &["trips", "", "x"], &["last", "y"]);
        let loops = with_graph(loops, "body", inner.clone());
        model(17, &inputs, &[longs("trips", &[], &[trips])], &[loops])
    };
    let text = body(&unrolled(4));
    assert_eq!(text.matches(" = mul ").count(), 4, "{text}");
    let error = import(&unrolled(1 << 40)).unwrap_err().to_string();
    assert!(error.contains("rounds, which are unrolled"), "{error}");
}

#[test]
fn a_loop_that_ends_where_data_says_so_is_refused() {
    let step = [
        node("ReduceMax", &["carried"], &["most"]).int("keepdims", 0),
        node("Less", &["most", "one"], &["on"]),
        node("Mul", &["carried", "carried"], &["square"]),
    ];
    let inner = graph(&["n", "go", "carried"], &step, &["on", "square"]);
    let loops = with_graph(node("Loop", &["trips", "", "x"], &["y"]), "body", inner);
    let inputs = [port("x", data_type::FLOAT, &["B"])];
    let constants = [longs("trips", &[], &[4]), floats("one", &[], &[1.0])];
    let error = import(&model(17, &inputs, &constants, &[loops])).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    assert!(
        error
            .to_string()
            .contains("rounds that end where data says so"),
        "{error}"
    );
}

#[test]
fn the_branch_of_a_known_condition_is_taken() {
    let branches = |op: &str| graph(&[], &[node(op, &["x"], &["z"])], &["z"]);
    let chosen = |condition: &str| {
        let node = node("If", &[condition], &["y"]);
        let node = with_graph(node, "then_branch", branches("Neg"));
        with_graph(node, "else_branch", branches("Abs"))
    };
    let rank = |n: i64| {
        let nodes = [
            node("Shape", &["x"], &["shape"]),
            node("Size", &["shape"], &["rank"]),
            node("Equal", &["rank", "n"], &["is"]),
            chosen("is"),
        ];
        let inputs = [port("x", data_type::FLOAT, &["B", "2"])];
        body(&model(17, &inputs, &[longs("n", &[], &[n])], &nodes))
    };
    assert!(rank(2).contains(" = neg ") && !rank(2).contains(" = abs "));
    assert!(rank(3).contains(" = abs "));
    let inputs = [
        port("x", data_type::FLOAT, &["B"]),
        port("c", data_type::BOOL, &[]),
    ];
    let error = import(&model(17, &inputs, &[], &[chosen("c")])).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("a condition that depends on data"),
        "{error}"
    );
}

#[test]
fn broken_bodies() {
    let inputs = [port("x", data_type::FLOAT, &["2", "B"])];
    let none = node("Scan", &["x"], &["y"]).int("num_scan_inputs", 1);
    assert_eq!(codes(&model(17, &inputs, &[], &[none])), ["bad-attribute"]);
    let dangling = graph(
        &["row"],
        &[node("Add", &["row", "nowhere"], &["out"])],
        &["out"],
    );
    let scan = node("Scan", &["x"], &["y"]).int("num_scan_inputs", 1);
    let scan = with_graph(scan, "body", dangling);
    assert_eq!(codes(&model(17, &inputs, &[], &[scan])), ["dangling-input"]);
    let odd = graph(
        &["row", "more"],
        &[node("Neg", &["row"], &["out"])],
        &["out"],
    );
    let scan = node("Scan", &["x"], &["y"]).int("num_scan_inputs", 1);
    let scan = with_graph(scan, "body", odd).int("tilt", 1);
    let error = import(&model(17, &inputs, &[], std::slice::from_ref(&scan))).unwrap_err();
    assert!(error.to_string().contains("attribute `tilt`"), "{error}");
    let scan = NodeProto {
        attribute: scan.attribute[..2].to_vec(),
        ..scan
    };
    assert_eq!(codes(&model(17, &inputs, &[], &[scan])), ["operand-count"]);
}
