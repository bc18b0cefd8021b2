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

use crate::scalar::{Scalar, ScalarExpr};
use crate::{
    Atom, DType, Diagnostic, Diagnostics, Dim, Graph, Node, Op, TensorData, TensorType, ValueId,
    infer,
};
use std::collections::BTreeSet;

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
        "values have at most 16 axes, lengths nest at most 16 deep, element counts have at most 4096 terms",
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

/// Most axes of a value.
pub const MAX_RANK: usize = 16;
/// Deepest nesting of `floordiv`, `max` and `min` in a length.
pub const MAX_DIM_DEPTH: usize = 16;
/// The product of the lengths of a shape, written out, has at most this many terms.
const MAX_TERMS: usize = 4096;
/// A value has fewer elements than this.
const MAX_ELEMENTS: i64 = 1 << 40;

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

/// Whether the type is of a size that can be worked with; what is not is reported.
pub(crate) fn check_sizes(ty: &TensorType, out: &mut Vec<Diagnostic>) -> bool {
    let before = out.len();
    if ty.rank() > MAX_RANK {
        out.push(Diagnostic::error(
            "too-complex",
            format!(
                "a value of {} axes; at most {MAX_RANK} are supported",
                ty.rank()
            ),
        ));
        return false;
    }
    if ty.shape.iter().any(|d| dim_depth(d) > MAX_DIM_DEPTH) {
        out.push(Diagnostic::error(
            "too-complex",
            format!("a length nests more than {MAX_DIM_DEPTH} quotients, minima or maxima"),
        ));
        return false;
    }
    for dim in ty
        .shape
        .iter()
        .filter(|d| d.as_const().is_some_and(|n| n < 0))
    {
        out.push(Diagnostic::error(
            "negative-size",
            format!("{ty} has an axis of size {dim}"),
        ));
    }
    // The part that is known; unknown lengths count as 1 and are checked when they are bound.
    let mut sizes = ty.shape.iter().filter_map(Dim::as_const);
    let known = sizes.try_fold(1i64, |n, size| n.checked_mul(size.max(1)));
    if known.is_none_or(|n| n >= MAX_ELEMENTS) {
        out.push(Diagnostic::error(
            "too-large",
            format!("{ty} has 2^40 elements or more"),
        ));
    }
    let mut terms = ty.shape.iter().map(|d| d.terms().count().max(1));
    let product = terms.try_fold(1usize, usize::checked_mul);
    if product.is_none_or(|n| n > MAX_TERMS) {
        out.push(Diagnostic::error(
            "too-complex",
            format!("the number of elements is a polynomial of more than {MAX_TERMS} terms"),
        ));
    }
    out.len() == before
}

pub(crate) fn dim_depth(dim: &Dim) -> usize {
    let inner = dim
        .terms()
        .flat_map(|(_, mono)| mono)
        .map(|(atom, _)| match atom {
            Atom::Sym(_) | Atom::Index(_) => 0,
            Atom::FloorDiv(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                1 + dim_depth(a).max(dim_depth(b))
            }
        });
    inner.max().unwrap_or(0)
}

fn input_symbols(graph: &Graph) -> BTreeSet<String> {
    let inputs = graph.inputs().iter().filter(|v| graph.contains(**v));
    let dims = inputs.flat_map(|&v| &graph.ty(v).shape);
    dims.flat_map(Dim::symbols).map(|s| s.to_string()).collect()
}

/// The lengths in a node's attributes, outside of expressions.
fn attribute_dims(op: &Op) -> Vec<&Dim> {
    match op {
        Op::Reshape(shape) | Op::Broadcast(shape) | Op::Map { shape, .. } => shape.iter().collect(),
        Op::Slice { start, len, .. } => vec![start, len],
        Op::Pad { before, after, .. } => before.iter().chain(after).collect(),
        Op::Iota {
            shape, start, step, ..
        } => shape.iter().chain([start, step]).collect(),
        Op::Length(dim) => vec![dim],
        _ => Vec::new(),
    }
}

/// The expressions of a node: of its op, and its epilogue.
fn expressions(node: &Node) -> Vec<&ScalarExpr> {
    let of_op = match &node.op {
        Op::Map { expr, .. } => [Some(expr), None],
        Op::Attention(a) => [a.score_mod.as_ref(), a.mask_mod.as_ref()],
        _ => [None, None],
    };
    of_op.into_iter().flatten().chain(&node.epilogue).collect()
}

fn check_lengths(node: &Node, known: &BTreeSet<String>, out: &mut Vec<Diagnostic>) {
    let mut dims = attribute_dims(&node.op);
    dims.extend(&node.ty.shape);
    let indices: BTreeSet<u32> = dims.iter().flat_map(|d| d.indices()).collect();
    for n in indices {
        out.push(
            Diagnostic::error(
                "stray-index",
                format!("index variable d{n} outside of an expression"),
            )
            .note("types and attributes are made of numbers and run-time lengths"),
        );
    }
    let mut symbols: BTreeSet<String> = dims
        .iter()
        .flat_map(|d| d.symbols())
        .map(|s| s.to_string())
        .collect();
    symbols.extend(expressions(node).into_iter().flat_map(ScalarExpr::symbols));
    for name in symbols {
        if !is_length_name(&name) {
            out.push(
                Diagnostic::error("bad-length-name", format!("`{name}` cannot be the name of a length"))
                    .note("take a letter or `_`, then letters, digits and `_`; d0, e0, … and true, false, inf, nan, score, acc are taken"),
            );
        } else if !known.contains(&name) {
            out.push(
                Diagnostic::error(
                    "unbound-length",
                    format!("length `{name}` is in no type of an input"),
                )
                .note("run-time lengths take their values from the shapes of the inputs"),
            );
        }
    }
}

/// Whether a run-time length may have this name: an identifier that is no index variable (`d0`), binding
/// (`e0`) or keyword of the text form.
#[must_use]
pub fn is_length_name(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let rest = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let numbered = name.len() > 1
        && (name.starts_with('d') || name.starts_with('e'))
        && name[1..].bytes().all(|b| b.is_ascii_digit());
    let keyword = matches!(
        name,
        "true" | "false" | "inf" | "nan" | "score" | "acc" | "arg"
    );
    starts && rest && !numbered && !keyword
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

fn check_type(node: &Node, operands: &[&TensorType], out: &mut Vec<Diagnostic>) {
    let most = node.op.arity().1;
    if operands.len() > most && node.op.takes_epilogue() && node.epilogue.is_none() {
        out.push(Diagnostic::error(
            "operand-count",
            format!(
                "{} takes {most} operands, found {} and no epilogue",
                node.op.name(),
                operands.len()
            ),
        ));
    }
    if node.epilogue.is_some() && !node.op.takes_epilogue() {
        out.push(
            Diagnostic::error(
                "stray-epilogue",
                format!("{} takes no epilogue", node.op.name()),
            )
            .note("put the expression into a map behind it"),
        );
        return;
    }
    let inferred = match infer::result_type(&node.op, operands) {
        Ok(ty) => ty,
        Err(diagnostic) => return out.push(diagnostic),
    };
    // Where an expression gives the value, f32 may be stored as any floating-point type.
    let widens = match (&node.epilogue, &node.op) {
        (Some(epilogue), _) => {
            let fits = infer::check_expr(
                "epilogue",
                epilogue,
                &inferred.shape,
                operands,
                node.ty.dtype,
            );
            out.extend(fits.err());
            true
        }
        (None, Op::Map { .. }) => inferred.dtype == DType::F32 && node.ty.dtype.is_float(),
        (None, _) => false,
    };
    if inferred.shape != node.ty.shape || !(widens || inferred.dtype == node.ty.dtype) {
        let expected = TensorType {
            dtype: if widens {
                node.ty.dtype
            } else {
                inferred.dtype
            },
            shape: inferred.shape,
        };
        out.push(Diagnostic::error(
            "type-mismatch",
            format!(
                "{} gives {expected}, but the value has type {}",
                node.op.name(),
                node.ty
            ),
        ));
    }
    check_loads(node, operands, out);
}

/// What [`infer::check_expr`] leaves open: types of loads and their indices, and where an argument is.
fn check_loads(node: &Node, operands: &[&TensorType], out: &mut Vec<Diagnostic>) {
    if let Op::Attention(a) = &node.op
        && a.mask_mod.as_ref().is_some_and(ScalarExpr::uses_arg)
    {
        out.push(Diagnostic::error(
            "bad-expression",
            "mask_mod uses the score, but a mask depends on indices and loads only",
        ));
    }
    for expr in expressions(node) {
        for (id, scalar) in expr.ids().zip(expr.nodes()) {
            let Scalar::Load { operand, index } = scalar else {
                continue;
            };
            let Some(ty) = operands.get(*operand) else {
                continue;
            };
            let wanted = if ty.dtype.is_float() {
                DType::F32
            } else {
                ty.dtype
            };
            if expr.dtype(id) != wanted {
                out.push(Diagnostic::error(
                    "bad-expression",
                    format!(
                        "a load of {} from operand {operand}, which is {ty}",
                        expr.dtype(id)
                    ),
                ));
            }
            if let Some(i) = index.iter().find(|i| expr.dtype(**i) != DType::I32) {
                out.push(Diagnostic::error(
                    "bad-expression",
                    format!(
                        "an index of type {} into operand {operand}; expected i32",
                        expr.dtype(*i)
                    ),
                ));
            }
        }
    }
}
