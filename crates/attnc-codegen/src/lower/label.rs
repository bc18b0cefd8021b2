//! Short names for what an expression does, for kernel keys: `bias_gelu`, `causal`, `padding`.
//!
//! A name is a help for readers and nothing depends on it: two kernels of one name get numbers.

use attnc_ir::scalar::{ExprId, Scalar, ScalarExpr};
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, UnaryOp};

/// The element types of a kernel: `f16`, or `f16_f32` where it writes another type than it reads.
pub(super) fn types(operands: DType, result: DType) -> String {
    if operands == result {
        operands.to_string()
    } else {
        format!("{operands}_{result}")
    }
}

/// What an epilogue does, step by step from the argument on: `bias_gelu`, `bias_residual`.
pub(super) fn epilogue(expr: &ScalarExpr, rank: usize) -> String {
    let mut parts: Vec<&'static str> = Vec::new();
    for id in expr.ids() {
        let part = match expr.node(id) {
            Scalar::Binary(op, a, b) => operand_step(expr, *op, *a, *b, rank),
            Scalar::Unary(op, _) => Some(op.name()),
            Scalar::Select(..) => Some("select"),
            _ => None,
        };
        if let Some(part) = part
            && parts.last() != Some(&part)
        {
            parts.push(part);
        }
    }
    parts.retain(|p| !matches!(*p, "neg" | "not"));
    match parts.len() {
        0 => "epilogue".to_owned(),
        1..=4 => parts.join("_"),
        _ => format!("{}_etc", parts[..3].join("_")),
    }
}

/// `x + bias[n]` is `bias`, `x + t[m, n]` is `residual`, `x * 0.5` is `scale`.
fn operand_step(
    expr: &ScalarExpr,
    op: BinaryOp,
    a: ExprId,
    b: ExprId,
    rank: usize,
) -> Option<&'static str> {
    let loaded = [a, b].into_iter().find_map(|id| match expr.node(id) {
        Scalar::Load { index, .. } => Some(index_variables(expr, index)),
        _ => None,
    });
    match (op, loaded) {
        (BinaryOp::Add, Some(axes)) if axes.len() <= 1 => Some("bias"),
        (BinaryOp::Add, Some(axes)) if axes.len() == rank || axes.len() > 1 => Some("residual"),
        (BinaryOp::Mul, Some(axes)) if axes.len() <= 1 => Some("gain"),
        (BinaryOp::Mul, None) => Some("scale"),
        (BinaryOp::Add, None) => Some("add"),
        (op, _) => Some(op.name()),
    }
}

/// The index variables that occur in a load's index, ascending.
fn index_variables(expr: &ScalarExpr, index: &[ExprId]) -> Vec<u32> {
    let mut out: Vec<u32> = index
        .iter()
        .filter_map(|&id| match expr.node(id) {
            Scalar::Int(dim) => Some(dim.indices()),
            _ => None,
        })
        .flatten()
        .collect();
    out.sort_unstable();
    out.dedup();
    out
}

/// `causal`, `window`, `padding` or a join of them; `mask` for anything else.
pub(super) fn mask_mod(expr: &ScalarExpr) -> String {
    let mut parts: Vec<&'static str> = Vec::new();
    let mut other = false;
    let mut conjuncts = vec![expr.root()];
    while let Some(id) = conjuncts.pop() {
        let part = match expr.node(id) {
            Scalar::Binary(BinaryOp::And, a, b) => {
                conjuncts.extend([*b, *a]);
                continue;
            }
            Scalar::Load { index, .. } if !index_variables(expr, index).contains(&2) => "padding",
            Scalar::Load { .. } => "mask",
            Scalar::Compare(op, a, b) => match (expr.node(*a), expr.node(*b)) {
                (Scalar::Int(x), Scalar::Int(y)) => position_mask(*op, x, y),
                _ => "mask",
            },
            Scalar::Unary(UnaryOp::Not, a) if matches!(expr.node(*a), Scalar::Load { .. }) => {
                "padding"
            }
            _ => "mask",
        };
        other |= part == "mask";
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    if other && parts.len() > 1 {
        parts.retain(|p| *p != "mask");
        parts.push("mask");
    }
    parts.sort_unstable();
    parts.join("_")
}

/// `kv_idx <= q_idx + c` is causal, `kv_idx > q_idx - c` a window.
fn position_mask(op: CompareOp, x: &Dim, y: &Dim) -> &'static str {
    let difference = match op {
        CompareOp::Lt | CompareOp::Le => y.clone() - x.clone(),
        CompareOp::Gt | CompareOp::Ge => x.clone() - y.clone(),
        CompareOp::Eq | CompareOp::Ne => return "mask",
    };
    let coefficient = |n: u32| difference.split_index(n).and_then(|(c, _)| c.as_const());
    match (coefficient(2), coefficient(3)) {
        (Some(1), Some(-1)) => "causal",
        (Some(-1), Some(1)) => "window",
        _ => "mask",
    }
}

/// `softcap`, `alibi`, `bias` or `score`.
pub(super) fn score_mod(expr: &ScalarExpr) -> String {
    let has_tanh = expr
        .nodes()
        .iter()
        .any(|n| matches!(n, Scalar::Unary(UnaryOp::Tanh, _)));
    let loads = expr.loaded_operands();
    let distance = expr.nodes().iter().any(|n| match n {
        Scalar::Int(dim) => dim.indices().contains(&2) && dim.indices().contains(&3),
        _ => false,
    });
    let name = match (has_tanh, loads.is_empty(), distance) {
        (true, true, false) => "softcap",
        (true, ..) => "softcap_bias",
        (false, false, true) => "alibi",
        (false, false, false) => "bias",
        (false, true, true) => "distance",
        (false, true, false) => "score",
    };
    name.to_owned()
}

/// `softmax1` where every row may attend to nothing with logit 0, else `sink`.
pub(super) fn sink(expr: &ScalarExpr) -> String {
    let name = match expr.node(expr.root()) {
        Scalar::Float(bits) if f32::from_bits(*bits) == 0.0 => "softmax1",
        _ => "sink",
    };
    name.to_owned()
}

/// What a pointwise kernel computes: `add`, `gather`, `copy`, `concat`; `map` where it is many things.
pub(super) fn map(expr: &ScalarExpr) -> String {
    let mut names: Vec<&'static str> = Vec::new();
    for id in expr.ids() {
        let name = match expr.node(id) {
            Scalar::Unary(op, _) => op.name(),
            Scalar::Binary(op, ..) if expr.dtype(id) == DType::F32 => op.name(),
            Scalar::Load { index, .. } if is_gather(expr, index) => "gather",
            Scalar::Select(..) => "select",
            Scalar::Cast(..) => "cast",
            _ => continue,
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.len() {
        0 if expr.loaded_operands().is_empty() => "fill".to_owned(),
        0 => "copy".to_owned(),
        1..=4 => names.join("_"),
        _ => format!("{}_etc", names[..3].join("_")),
    }
}

fn is_gather(expr: &ScalarExpr, index: &[ExprId]) -> bool {
    index
        .iter()
        .any(|&id| !matches!(expr.node(id), Scalar::Int(_)))
}
