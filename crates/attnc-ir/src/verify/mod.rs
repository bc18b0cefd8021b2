//! Whether a graph is one that every pass and every backend can take as it is.
//!
//! [`verify`] collects every violation, each under one of the codes of [`RULES`]; `at` names the value.
//! The pass session calls it before the first pass and after each one, so a rule here is what all code
//! behind may rely on.
//!
//! ```
//! use attnc_ir::{DType, Graph, Op, TensorType, verify};
//! let mut g = Graph::new("g");
//! let x = g.add_input("x", TensorType::new(DType::F32, ["B"]));
//! let y = g.insert(Op::Softmax { axis: 1 }, &[x], g.ty(x).clone(), Some("y"));
//! g.add_output("y", y);
//! assert_eq!(verify(&g).unwrap_err().0[0].code, "bad-axis");
//! ```

mod sizes;
mod types;

pub use sizes::{MAX_DIM_DEGREE, MAX_DIM_DEPTH, MAX_DIM_TERMS, MAX_RANK, is_length_name};
pub(crate) use sizes::{check_sizes, is_workable, too_complex};

use crate::{Diagnostic, Diagnostics, Graph, Node, Op, TensorData, TensorType, ValueId};
use sizes::{check_lengths, input_symbols};
use std::collections::BTreeSet;
use types::check_type;

/// Every code that [`verify`] gives, with the rule behind it.
pub const RULES: &[(&str, &str)] = &[
    (
        "missing-value",
        "operands and outputs are values of the graph",
    ),
    ("cycle", "no value depends on itself"),
    ("no-outputs", "there is an output"),
    ("duplicate-output", "output names are unique"),
    (
        "unlisted-input",
        "an input node stands in the list of inputs",
    ),
    (
        "operand-count",
        "an op has the operands it takes; more only where an epilogue or mod may load them",
    ),
    ("dtype-mismatch", "element types of operands fit the op"),
    ("shape-mismatch", "shapes of operands fit the op"),
    (
        "bad-axis",
        "axes are below the rank, ascending or a permutation where the op wants that",
    ),
    (
        "type-mismatch",
        "the stated type is the inferred one, or the epilogue's element type over that shape",
    ),
    (
        "bad-expression",
        "expressions load existing operands with as many i32 indices as axes and the operand's \
     element type, use only the index variables and the argument there are, and give the wanted type",
    ),
    (
        "stray-epilogue",
        "only matmul, softmax, norms, reductions and attention carry an epilogue",
    ),
    (
        "bad-storage",
        "a storage order is a permutation of the axes, and inputs have none",
    ),
    (
        "bad-parameter",
        "eps is finite and not negative, scale is finite",
    ),
    (
        "constant-data",
        "a constant has as many bytes as its type says, or at least a weight name",
    ),
    ("negative-size", "sizes known now are not negative"),
    ("too-large", "sizes known now are below 2^40 elements"),
    (
        "too-complex",
        "values have at most 16 axes; lengths have at most 256 terms, degree 32 and nest 16 deep; element counts have at most 4096 terms",
    ),
    (
        "unbound-length",
        "every run-time length occurs in the type of an input",
    ),
    (
        "bad-length-name",
        "lengths have names that the text form can tell from index variables and keywords",
    ),
    ("stray-index", "index variables stand in expressions only"),
];

/// Checks all of [`RULES`].
///
/// # Errors
/// All violations: those of the graph as a whole first, then value by value in ascending order.
pub fn verify(graph: &Graph) -> Result<(), Diagnostics> {
    let mut out = Diagnostics::default();
    check_graph(graph, &mut out);
    let known = input_symbols(graph);
    for id in graph.values() {
        let node = graph.node(id);
        let mut found = Vec::new();
        if node.operands().iter().any(|&o| !graph.contains(o)) {
            found.push(Diagnostic::error(
                "missing-value",
                "an operand is not in the graph",
            ));
        } else {
            check_node(graph, id, &known, &mut found);
        }
        let at = format!("%{}", node.name());
        out.0.extend(found.into_iter().map(|d| d.at(at.clone())));
    }
    out.into_result()
}

fn check_graph(graph: &Graph, out: &mut Diagnostics) {
    if graph.outputs().is_empty() {
        out.push(
            Diagnostic::error("no-outputs", "the graph has no outputs")
                .note("without outputs nothing has to be computed"),
        );
    }
    let mut names = BTreeSet::new();
    for (name, value) in graph.outputs() {
        if !graph.contains(*value) {
            out.push(Diagnostic::error(
                "missing-value",
                format!("output `{name}` is not a value of the graph"),
            ));
        }
        if !names.insert(name) {
            out.push(Diagnostic::error(
                "duplicate-output",
                format!("two outputs are called `{name}`"),
            ));
        }
    }
    let ordered: BTreeSet<_> = graph.topo_order().into_iter().collect();
    if let Some(id) = graph.values().find(|v| !ordered.contains(v)) {
        let count = graph.len() - ordered.len();
        let name = graph.node(id).name();
        out.push(
            Diagnostic::error(
                "cycle",
                format!("{count} values depend on themselves or on such values"),
            )
            .at(format!("%{name}")),
        );
    }
}

fn check_node(graph: &Graph, id: ValueId, known: &BTreeSet<String>, out: &mut Vec<Diagnostic>) {
    let node = graph.node(id);
    let mut sized = check_sizes(&node.ty, out);
    if let Op::Reshape(shape)
    | Op::Broadcast(shape)
    | Op::Iota { shape, .. }
    | Op::Map { shape, .. } = &node.op
        && *shape != node.ty.shape
    {
        sized &= check_sizes(
            &TensorType {
                dtype: node.ty.dtype,
                shape: shape.clone(),
            },
            out,
        );
    }
    if !sized {
        return;
    }
    check_lengths(node, known, out);
    check_parameters(&node.op, out);
    if let Some(order) = &node.storage {
        check_storage(node, order, out);
    }
    if node.op == Op::Input {
        if !graph.inputs().contains(&id) {
            out.push(
                Diagnostic::error(
                    "unlisted-input",
                    "an input that is not in the list of inputs",
                )
                .note("make inputs by Graph::add_input"),
            );
        }
        if !node.operands().is_empty() {
            out.push(Diagnostic::error(
                "operand-count",
                "an input takes no operands",
            ));
        }
    } else {
        let operands: Vec<&TensorType> = node.operands().iter().map(|&o| graph.ty(o)).collect();
        // An operand of a hopeless size is reported where it is defined; nothing is computed with it.
        if operands.iter().all(|ty| check_sizes(ty, &mut Vec::new())) {
            check_type(node, &operands, out);
        }
    }
}

fn check_parameters(op: &Op, out: &mut Vec<Diagnostic>) {
    match op {
        Op::LayerNorm { eps, .. } | Op::RmsNorm { eps, .. } if !eps.is_finite() || *eps < 0.0 => {
            out.push(Diagnostic::error(
                "bad-parameter",
                format!(
                    "{} with eps = {eps}; expected a finite number that is not negative",
                    op.name()
                ),
            ));
        }
        Op::Attention(a) if !a.scale.is_finite() => {
            out.push(Diagnostic::error(
                "bad-parameter",
                format!(
                    "attention with scale = {}; expected a finite number",
                    a.scale
                ),
            ));
        }
        Op::LinearAttention(linear) if !linear.scale.is_finite() => {
            out.push(Diagnostic::error(
                "bad-parameter",
                format!(
                    "linear_attention with scale = {}; expected a finite number",
                    linear.scale
                ),
            ));
        }
        Op::Constant(data) => check_constant(data, out),
        _ => {}
    }
}

fn check_constant(data: &TensorData, out: &mut Vec<Diagnostic>) {
    let expected = data
        .shape
        .iter()
        .try_fold(data.dtype.bytes(), |n, &d| n.checked_mul(d));
    match (&data.bytes, &data.name) {
        (Some(bytes), _) if Some(bytes.len()) != expected => out.push(Diagnostic::error(
            "constant-data",
            format!(
                "a {} constant of shape {:?} with {} bytes",
                data.dtype,
                data.shape,
                bytes.len()
            ),
        )),
        (None, None) => out.push(Diagnostic::error(
            "constant-data",
            "a constant with neither data nor the name of a weight",
        )),
        _ => {}
    }
}

fn check_storage(node: &Node, order: &[usize], out: &mut Vec<Diagnostic>) {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    if sorted.iter().copied().ne(0..node.ty.rank()) {
        out.push(Diagnostic::error(
            "bad-storage",
            format!(
                "storage order {order:?} does not permute the {} axes of {}",
                node.ty.rank(),
                node.ty
            ),
        ));
    } else if node.op == Op::Input {
        out.push(Diagnostic::error(
            "bad-storage",
            "an input with a storage order; callers hand over inputs in the order of their axes",
        ));
    }
}
