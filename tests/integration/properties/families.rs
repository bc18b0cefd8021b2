//! Attention as models spell it, in the text form.

/// How queries, keys and values are laid out.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    /// Query heads.
    pub(super) queries: usize,
    /// Heads of keys and values; queries share them.
    pub(super) keys: usize,
    /// Features of a query and a key.
    pub(super) dim: usize,
    /// Features of a value.
    pub(super) value_dim: usize,
    /// Factor on the product.
    pub(super) scale: f64,
}

impl Heads {
    pub(super) fn of(dim: usize) -> Self {
        Self {
            queries: 2,
            keys: 2,
            dim,
            value_dim: dim,
            scale: 1.0 / (dim as f64).sqrt(),
        }
    }
}

/// A graph `[B, H, M, D] × [B, H, N, D] → [B, H, M, D]` named `o`. `masked` are lines that make `%m` of
/// `%s`, the scaled scores `[B, H, M, N]`; `extra` are further parameters.
pub(super) fn attention(heads: Heads, extra: &str, masked: &str) -> String {
    let Heads {
        queries,
        keys,
        dim,
        value_dim,
        scale,
    } = heads;
    let shared = queries / keys;
    let repeat = |x: &str, dim: usize| {
        if shared == 1 {
            return String::new();
        }
        format!(
            "  %{x}1 = reshape %{x}, shape = [B, {keys}, 1, N, {dim}]
  %{x}2 = broadcast %{x}1, shape = [B, {keys}, {shared}, N, {dim}]
  %{x}all = reshape %{x}2, shape = [B, {queries}, N, {dim}]\n"
        )
    };
    let all = if shared == 1 { "" } else { "all" };
    let comma = if extra.is_empty() { "" } else { ", " };
    format!(
        "graph @attention(%q: f32[B, {queries}, M, {dim}], %k: f32[B, {keys}, N, {dim}], %v: f32[B, {keys}, N, {value_dim}]{comma}{extra}) {{
{}{}  %kt = transpose %k{all}, perm = [0, 1, 3, 2]
  %r = matmul %q, %kt
  %s = mul %r, {scale:?}
{masked}
  %p = softmax %m, axis = 3
  %o = matmul %p, %v{all}
  return %o
}}",
        repeat("k", dim),
        repeat("v", value_dim)
    )
}

/// No mask.
pub(super) const ALL: &str = "  %m = mul %s, 1.0";

/// A key is seen by the queries at its place and later; the corner is the top left one.
pub(super) const CAUSAL: &str = "  %rows = iota i32[M, 1], axis = 0, start = 0, step = 1
  %columns = iota i32[1, N], axis = 1, start = 0, step = 1
  %alive = le %columns, %rows
  %m = where %alive, %s, -inf";

/// A boolean mask `%mask`, of any shape that broadcasts to the scores.
pub(super) const BOOLEAN: &str = "  %m = where %mask, %s, -inf";

/// Something that is added to the scores.
pub(super) const ADDED: &str = "  %m = add %s, %mask";

/// What takes the place of scores where `%mask` is false.
pub(super) fn filled(fill: &str) -> String {
    format!("  %m = where %mask, %s, {fill}")
}

/// What is added where the integers of `%mask` are 0.
pub(super) fn added(fill: &str) -> String {
    format!(
        "  %float = cast %mask, to = f32
  %inverse = sub 1.0, %float
  %fill = mul %inverse, {fill}
  %m = add %s, %fill"
    )
}

/// Causal, and keys where `%mask` is true; a finite fill elsewhere.
pub(super) fn padded_decoder(fill: &str) -> String {
    format!(
        "  %rows = iota i32[M, 1], axis = 0, start = 0, step = 1
  %columns = iota i32[1, N], axis = 1, start = 0, step = 1
  %causal = le %columns, %rows
  %alive = and %causal, %mask
  %m = where %alive, %s, {fill}"
    )
}
