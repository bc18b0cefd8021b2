//! `parse(print(g))` is `g`, and printing is a fixed point, for random graphs of all ops.

mod support;

use attnc_ir::{DType, Graph, Op, ValueId, scalar, text, verify};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use support::Choices;

/// What a value is, apart from where it stands: scalar constants written in place are their type and bits.
#[derive(Debug, PartialEq)]
enum Operand {
    Named(String),
    Literal(DType, Vec<u8>),
}

fn operand(g: &Graph, id: ValueId, written: &BTreeSet<String>) -> Operand {
    let node = g.node(id);
    match &node.op {
        Op::Constant(data) if data.shape.is_empty() && !written.contains(node.name()) => {
            Operand::Literal(
                data.dtype,
                data.bytes.as_ref().map(|b| b.to_vec()).unwrap_or_default(),
            )
        }
        _ => Operand::Named(node.name().to_owned()),
    }
}

/// The names of the values that have a line or a place in the header.
fn written(graph: &Graph) -> BTreeSet<String> {
    let printout = text::Printout::new(graph);
    let lines = graph
        .values()
        .filter(|v| printout.text[printout.spans[v].clone()].starts_with('%'));
    lines.map(|v| graph.node(v).name().to_owned()).collect()
}

fn assert_same(a: &Graph, b: &Graph, written: &BTreeSet<String>) {
    assert_eq!(a.name(), b.name());
    let names = |g: &Graph, ids: &[ValueId]| {
        ids.iter()
            .map(|&v| g.node(v).name().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(a, a.inputs()), names(b, b.inputs()));
    let outputs = |g: &Graph| {
        g.outputs()
            .iter()
            .map(|(n, v)| (n.clone(), g.node(*v).name().to_owned()))
            .collect::<Vec<_>>()
    };
    assert_eq!(outputs(a), outputs(b));
    let nodes = |g: &Graph| -> BTreeMap<String, ValueId> {
        let all = g.values().map(|v| (g.node(v).name().to_owned(), v));
        all.filter(|(n, _)| written.contains(n)).collect()
    };
    let (x, y) = (nodes(a), nodes(b));
    assert_eq!(x.keys().collect::<Vec<_>>(), y.keys().collect::<Vec<_>>());
    for (name, &v) in &x {
        let (n, m) = (a.node(v), b.node(y[name]));
        assert_eq!(n.op, m.op, "op of {name}");
        assert_eq!(n.ty, m.ty, "type of {name}");
        assert_eq!(n.epilogue, m.epilogue, "epilogue of {name}");
        assert_eq!(n.storage, m.storage, "storage of {name}");
        let operands = |g: &Graph, ids: &[ValueId]| {
            ids.iter()
                .map(|&o| operand(g, o, written))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            operands(a, n.operands()),
            operands(b, m.operands()),
            "operands of {name}"
        );
    }
}

fn check(numbers: Vec<u32>) -> Graph {
    let graph = support::graph(&mut Choices::new(numbers));
    for value in graph.values() {
        let made = scalar::of_node(&graph, value).is_some();
        assert_eq!(scalar::has_form(&graph, value), made);
    }
    let source = text::print(&graph);
    if let Err(found) = verify(&graph) {
        // Products of products may grow beyond what the verifier takes; nothing else may be wrong.
        if found.0.iter().all(|d| d.code == "too-complex") {
            return graph;
        }
        panic!("{source}\n{found}");
    }
    let again = text::parse(&source).unwrap_or_else(|found| {
        panic!(
            "{source}\n{}",
            attnc_ir::render_diagnostics("printed", &source, &found)
        )
    });
    assert_eq!(text::print(&again), source);
    assert_same(&graph, &again, &written(&graph));
    graph
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_read_back(numbers in prop::collection::vec(any::<u32>(), 0..400)) {
        check(numbers);
    }
}

/// The generator would be worth little if it left ops out.
#[test]
fn the_generator_makes_every_op() {
    let mut seen = BTreeSet::new();
    let mut state = 1u32;
    for _ in 0..400 {
        let numbers = (0..400).map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        });
        let graph = check(numbers.collect());
        seen.extend(graph.values().map(|v| graph.node(v).op.name()));
    }
    for name in [
        "constant",
        "reshape",
        "transpose",
        "broadcast",
        "slice",
        "concat",
        "pad",
        "gather",
        "gather_elements",
        "gather_nd",
        "iota",
        "length",
        "where",
        "cast",
        "cumsum",
        "softmax",
        "layer_norm",
        "rms_norm",
        "matmul",
        "conv",
        "attention",
        "map",
        "reduce_sum",
        "reduce_any",
        "add",
        "gelu",
        "xor",
        "le",
    ] {
        assert!(seen.contains(name), "{name} was never made; made: {seen:?}");
    }
}
