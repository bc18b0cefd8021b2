//! The text form of a graph: what tests, remarks and bug reports show, and what `.attn` files hold.
//!
//! ```
//! use attnc_ir::text;
//! let source = "\
//! graph @scaled(%q: f32[B, M, 64], %k: f32[B, 64, N]) {
//!   %s = matmul %q, %k
//!   %o = mul %s, 0.125
//!   return %o as \"scores\"
//! }
//! ";
//! let graph = text::parse(source).unwrap();
//! assert_eq!(text::print(&graph), source);
//! ```
//!
//! # Form
//!
//! A line is `%value = op operands, attribute = value, …`. Types are inferred and not written, but for
//! inputs, `constant`, `iota` and `map`, where the type stands before the operands. Comments run from `//`
//! to the end of the line; printing drops them. Names are bare where they are made of
//! `[A-Za-z0-9_./:-]`, else in quotes: `%"a name"`. Lengths are polynomials: `2 * S + 1`,
//! `floordiv(S, 2)`, `max(1, S)`.
//!
//! | op | operands and attributes |
//! | --- | --- |
//! | `constant` | `f32[2] [1.0, 2.0]`, `f32[] 0.5`, `f32[64] splat 0.0`, `f32[9, 9] hex "…"` (the bytes), `f32[9] weight "name"`; a weight's name may follow values too |
//! | `iota` | `i32[S, 64], axis = 0, start = 0, step = 1` |
//! | `length` | a length |
//! | `reshape broadcast` | `%x, shape = [B, 64]` |
//! | `transpose` | `%x, perm = [1, 0]` |
//! | `slice` | `%x, axis = 0, start = 0, len = S`, `step = -1` |
//! | `pad` | `%x, before = [0, 1], after = [0, 1]`, then `value = 0.0` or `mode = edge` or `mode = reflect` |
//! | `concat gather gather_elements softmax` | operands, `axis = 0` |
//! | `gather_nd` | `%x, %i, batch_dims = 0` |
//! | `cast` | `%x, to = f16` |
//! | `reduce_sum` … `reduce_all` | `%x, axes = [1]`, `keep_dims = true` |
//! | `cumsum` | `%x, axis = 0`, `exclusive = true`, `reverse = true` |
//! | `layer_norm` | `%x, %gain, %bias, axis = 1, eps = 1e-5`; `rms_norm` without bias |
//! | `conv` | `%x, %w, %bias, strides = [1], dilations = [1], pads_before = [0], pads_after = [0], groups = 1` |
//! | `attention` | `%q, %k, %v, captured…, scale = 0.125`, `score_mod = { score + %m[b, kv_idx] }`, `mask_mod = { kv_idx <= q_idx }` |
//! | `map` | `f32[B, 64], captured…, expr = { relu(%x[d0, d1]) }` |
//! | the pointwise ops, `where`, `matmul` | operands |
//!
//! Any op may end with `storage = [0, 2, 1, 3]`, and those that take one with `epilogue = { acc * 2.0 }`;
//! an element type before the brace says how the result is stored (`epilogue = f16 { … }`) where that is
//! not the type of the first operand.
//!
//! A rank-0 constant without a name is written where it is used: `mul %x, 0.125`. Its element type is that
//! of the other operands; where that says nothing, it is stated: `add f32 1.0, f32 2.0`.
//!
//! # Expressions
//!
//! What [`scalar::print`](crate::scalar::print) writes: `| & == != < <= > >= + - * /` from loose to tight,
//! `select(condition, a, b)`, functions by the name of the op, casts by the name of the type, loads
//! `%x[d0, 0]`, literals (`1` is an i32, `1.0` an f32), lengths, and bindings in front: `e0 = …; e0 * e0`.
//! Index variables are `d0, d1, …`, in attention also `b, h, q_idx, kv_idx` unless an input has a length of
//! that name. Where an operand occurs twice, `%x#3` is the one of that number. Reading keeps an expression
//! as it is written; arithmetic of lengths and indices alone becomes one polynomial.
//!
//! Invariant: for a verified graph `g`, `parse(print(g))` is `g` again (scalar constants of one value become
//! one node, big named weights lose their data, source nodes are not written), and `print` of that is the
//! same text.

mod attributes;
mod constant;
mod expression;
mod lexer;
mod literal;
mod names;
mod operation;
mod parse;
mod print;
mod statement;
mod structure;
mod term;

pub use names::{quoted, sigil_name};
pub use parse::parse;
pub use print::{Printout, print};

/// Every code that [`parse`] gives beside those of [`verify::RULES`](crate::verify::RULES).
pub const CODES: &[(&str, &str)] = &[
    ("unexpected-character", "a character that starts no token"),
    (
        "bad-string",
        "a string without an end, or an unknown escape",
    ),
    (
        "bad-number",
        "a number that is malformed or beyond its type",
    ),
    ("syntax", "something else was expected here"),
    ("undefined-value", "a value that no line above defines"),
    ("duplicate-name", "two values of one name"),
    ("unknown-op", "an op that does not exist"),
    (
        "unknown-attribute",
        "an attribute that the op does not have",
    ),
    ("duplicate-attribute", "an attribute given twice"),
    ("missing-attribute", "an attribute that the op needs"),
    (
        "bad-attribute",
        "the value of an attribute is of the wrong kind",
    ),
    (
        "bad-literal",
        "a literal that is not of its element type, or whose element type is not known",
    ),
];
