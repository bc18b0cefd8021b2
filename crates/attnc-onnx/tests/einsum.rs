//! Sums of products by letters.

mod support;

use attnc_onnx::ImportError;
use attnc_onnx::proto::{ModelProto, data_type};
use support::{With, body, codes, import, model, node, port};

fn einsum(equation: &str, operands: &[&[&str]]) -> ModelProto {
    let names = ["a", "b", "c"];
    let inputs: Vec<_> = operands
        .iter()
        .zip(names)
        .map(|(dims, name)| port(name, data_type::FLOAT, dims))
        .collect();
    let node = node("Einsum", &names[..operands.len()], &["y"])
        .attr("equation", 3, |a| a.s = Some(equation.to_owned().into()));
    model(17, &inputs, &[], &[node])
}

#[test]
fn scores_are_a_product_with_a_transpose() {
    let heads: &[&str] = &["B", "4", "S", "16"];
    let keys: &[&str] = &["B", "4", "T", "16"];
    let text = body(&einsum("bhqd,bhkd->bhqk", &[heads, keys]));
    assert!(text.contains("transpose %b, perm = [0, 1, 3, 2]"), "{text}");
    assert!(text.contains("%y = matmul %a, "), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn heads_in_the_middle_are_moved() {
    let text = body(&einsum(
        "bqhd,bkhd->bhqk",
        &[&["B", "S", "4", "16"], &["B", "T", "4", "16"]],
    ));
    assert!(text.contains("perm = [0, 2, 1, 3]"), "{text}");
    assert!(text.contains("perm = [0, 2, 3, 1]"), "{text}");
    assert!(text.contains("%y = matmul"), "{text}");
}

#[test]
fn two_letters_are_summed_as_one() {
    let text = body(&einsum(
        "bshd,hdm->bsm",
        &[&["B", "S", "4", "16"], &["4", "16", "64"]],
    ));
    assert!(text.contains("[B * S, 64]"), "{text}");
    assert!(text.contains("matmul"), "{text}");
}

#[test]
fn outer_products_sums_and_diagonals() {
    let text = body(&einsum("bq,bk->bqk", &[&["B", "S"], &["B", "T"]]));
    assert!(text.contains("%y = mul "), "{text}");
    let text = body(&einsum("ij->j", &[&["S", "3"]]));
    assert!(text.contains("reduce_sum %a, axes = [0]"), "{text}");
    let text = body(&einsum("ii->i", &[&["3", "3"]]));
    assert!(text.contains("len = 3, step = 4"), "{text}");
    let text = body(&einsum(
        "...ij,...jk->...ik",
        &[&["B", "2", "S", "8"], &["B", "2", "8", "T"]],
    ));
    assert_eq!(text, "%y = matmul %a, %b\nreturn %y\n");
    let text = body(&einsum(
        "ij,jk,kl",
        &[&["2", "3"], &["3", "4"], &["4", "5"]],
    ));
    assert_eq!(text.matches("matmul").count(), 2, "{text}");
}

#[test]
fn what_does_not_fit_is_said() {
    assert_eq!(
        codes(&einsum("ij,jk->im", &[&["2", "3"], &["3", "4"]])),
        ["bad-attribute"]
    );
    assert_eq!(
        codes(&einsum("ij->i", &[&["2", "3", "4"]])),
        ["bad-attribute"]
    );
    let error = import(&einsum("ii->i", &[&["S", "S"]])).unwrap_err();
    assert!(matches!(error, ImportError::Unsupported(_)), "{error}");
}
