//! Sizes that can be worked with, and the lengths they are made of.

use crate::scalar::{Scalar, ScalarExpr};
use crate::{Atom, Diagnostic, Dim, Graph, Node, Op, TensorType};
use std::collections::BTreeSet;

/// Most axes of a value.
pub const MAX_RANK: usize = 16;
/// Deepest nesting of `floordiv`, `max` and `min` in a length.
pub const MAX_DIM_DEPTH: usize = 16;
/// Most terms of a length.
pub const MAX_DIM_TERMS: usize = 256;
/// Highest degree of a length.
pub const MAX_DIM_DEGREE: u32 = 32;
/// The product of the lengths of a shape, written out, has at most this many terms.
const MAX_TERMS: usize = 4096;
/// A value has fewer elements than this.
const MAX_ELEMENTS: i64 = 1 << 40;

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
    if !ty.shape.iter().all(is_workable) {
        out.push(too_complex());
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

/// Whether a length is small enough to be computed with.
pub(crate) fn is_workable(dim: &Dim) -> bool {
    fn nests(dim: &Dim, left: usize) -> bool {
        dim.terms().count() <= MAX_DIM_TERMS
            && dim.terms().all(|(_, mono)| {
                mono.iter().map(|(_, power)| *power).sum::<u32>() <= MAX_DIM_DEGREE
                    && mono.iter().all(|(atom, _)| match atom {
                        Atom::Sym(_) | Atom::Index(_) => true,
                        Atom::FloorDiv(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                            left > 0 && nests(a, left - 1) && nests(b, left - 1)
                        }
                    })
            })
    }
    nests(dim, MAX_DIM_DEPTH)
}

/// What is said of a length that is not.
pub(crate) fn too_complex() -> Diagnostic {
    Diagnostic::error(
        "too-complex",
        format!(
            "a length of more than {MAX_DIM_TERMS} terms, of a degree above {MAX_DIM_DEGREE}, or of \
             more than {MAX_DIM_DEPTH} quotients, minima and maxima in each other"
        ),
    )
}

pub(super) fn input_symbols(graph: &Graph) -> BTreeSet<String> {
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

pub(super) fn check_lengths(node: &Node, known: &BTreeSet<String>, out: &mut Vec<Diagnostic>) {
    let mut dims = attribute_dims(&node.op);
    dims.extend(&node.ty.shape);
    let ints = node.expressions().into_iter().flat_map(ScalarExpr::nodes);
    let ints = ints.filter_map(|n| {
        if let Scalar::Int(d) = n {
            Some(d)
        } else {
            None
        }
    });
    if !attribute_dims(&node.op)
        .into_iter()
        .chain(ints)
        .all(is_workable)
    {
        out.push(too_complex());
    }
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
    symbols.extend(node.expressions().into_iter().flat_map(ScalarExpr::symbols));
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
