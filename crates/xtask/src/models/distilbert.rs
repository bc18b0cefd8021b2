//! DistilBERT as the dynamo exporter writes it at opset 18 with dynamic shapes.
//!
//! The padding mask is boolean and built from `Range`, `GreaterOrEqual`, `And` and `GatherND`; the
//! fill is -inf, so that a sequence that is all padding has rows with no key, which come out as
//! zeros. The third sequence of the inputs is such a one.

use super::blocks::{
    additive, arange_4d, dim, gelu_erf, layer_norm, linear, look_up_padding, sdpa, split_heads,
};
use super::npz::Array;
use super::weights::Weights;
use super::writer::Attribute::{Int, Ints};
use super::writer::{Dim, Exporter, Writer};
use super::{FFN, HEAD_DIM, HIDDEN, LAYERS, Model, POSITIONS, VOCAB, padded_right};
use crate::onnx;

const EPSILON: f32 = 1e-12;

/// Shapes that every layer uses, computed once at the start.
struct Shapes {
    /// `[B, S, -1, HEAD_DIM]`
    heads: String,
    /// `[B, S, -1]`
    merged: String,
}

pub(super) fn distilbert_tiny() -> Model {
    let mut g = Writer::new(Exporter::Dynamo, 18);
    let mut w = Weights::new(2);
    let dims = [Dim::Named("batch"), Dim::Named("seq")];
    g.input("input_ids", onnx::INT64, &dims);
    g.input("attention_mask", onnx::INT64, &dims);
    let batch = dim(&mut g, "input_ids", 0);
    let seq = dim(&mut g, "attention_mask", 1);
    let mut x = embed(&mut g, &mut w, &seq);
    let mask = padding_mask(&mut g, &batch, &seq);
    let (minus_one, head_dim) = (g.ints(&[-1]), g.ints(&[HEAD_DIM]));
    let heads = [batch.as_str(), &seq, &minus_one, &head_dim];
    let shapes = Shapes {
        heads: g.op("Concat", &heads, &[("axis", Int(0))]),
        merged: g.op("Concat", &[&batch, &seq, &minus_one], &[("axis", Int(0))]),
    };
    let bias = additive(&mut g, &mask, f32::NEG_INFINITY);
    for layer in 0..LAYERS {
        let name = format!("transformer.layer.{layer}");
        x = block(&mut g, &mut w, &x, &name, &bias, &shapes);
    }
    let out = [Dim::Named("batch"), Dim::Named("seq"), Dim::Fixed(HIDDEN)];
    g.output(&x, "last_hidden_state", &out);
    Model {
        name: "distilbert_tiny",
        onnx: g.finish(),
        inputs: inputs(&mut w),
    }
}

fn embed(g: &mut Writer, w: &mut Weights, seq: &str) -> String {
    let words = w.normal(0.7, VOCAB * HIDDEN);
    let words = g.weight(
        "embeddings.word_embeddings.weight",
        &[VOCAB, HIDDEN],
        &words,
    );
    let places = w.normal(0.7, POSITIONS * HIDDEN);
    let places = g.weight(
        "embeddings.position_embeddings.weight",
        &[POSITIONS, HIDDEN],
        &places,
    );
    let ids: Vec<i64> = (0..POSITIONS).collect();
    let ids = g.buffer("embeddings.position_ids", &[1, POSITIONS], &ids);
    let word = g.op("Gather", &[&words, "input_ids"], &[("axis", Int(0))]);
    let (zero, one) = (g.ints(&[0]), g.ints(&[1]));
    let ids = g.op("Slice", &[&ids, &zero, seq, &one, &one], &[]);
    let place = g.op("Gather", &[&places, &ids], &[("axis", Int(0))]);
    let sum = g.op("Add", &[&word, &place], &[]);
    layer_norm(g, w, &sum, "embeddings.LayerNorm", EPSILON)
}

/// `true & (kv_idx >= 0) & mask[b, kv_idx]`, boolean `[B, 1, 1, S]`.
fn padding_mask(g: &mut Writer, batch: &str, seq: &str) -> String {
    let mask = g.op(
        "Cast",
        &["attention_mask"],
        &[("to", Int(onnx::BOOL.into()))],
    );
    let (zero, one) = (g.int(0), g.int(1));
    let batch = g.op("Squeeze", &[batch], &[]);
    let seq = g.op("Squeeze", &[seq], &[]);
    let batch = g.op("Range", &[&zero, &batch, &one], &[]);
    let keys = g.op("Range", &[&zero, &seq, &one], &[]);
    let batch = arange_4d(g, &batch, 0);
    let queries = arange_4d(g, &keys, 2);
    let keys = arange_4d(g, &keys, 3);
    let always = g.op("GreaterOrEqual", &[&queries, &zero], &[]);
    let ones = g.all_true(&[]);
    let always = g.op("And", &[&ones, &always], &[]);
    let padding = look_up_padding(g, &mask, &batch, &keys);
    g.op("And", &[&always, &padding], &[])
}

fn block(
    g: &mut Writer,
    w: &mut Weights,
    x: &str,
    name: &str,
    bias: &str,
    shapes: &Shapes,
) -> String {
    let [q, k, v] = ["q_lin", "k_lin", "v_lin"].map(|part| {
        let part = format!("{name}.attention.{part}");
        let y = linear(g, w, x, &part, (HIDDEN, HIDDEN));
        split_heads(g, &y, &shapes.heads)
    });
    let y = sdpa(g, (&q, &k, &v), bias);
    let y = g.op("Transpose", &[&y], &[("perm", Ints(&[0, 2, 1, 3]))]);
    let y = g.op("Reshape", &[&y, &shapes.merged], &[("allowzero", Int(1))]);
    let y = linear(
        g,
        w,
        &y,
        &format!("{name}.attention.out_lin"),
        (HIDDEN, HIDDEN),
    );
    let y = g.op("Add", &[&y, x], &[]);
    let x = layer_norm(g, w, &y, &format!("{name}.sa_layer_norm"), EPSILON);
    let y = linear(g, w, &x, &format!("{name}.ffn.lin1"), (HIDDEN, FFN));
    let y = gelu_erf(g, &y);
    let y = linear(g, w, &y, &format!("{name}.ffn.lin2"), (FFN, HIDDEN));
    let y = g.op("Add", &[&y, &x], &[]);
    layer_norm(g, w, &y, &format!("{name}.output_layer_norm"), EPSILON)
}

/// Three sequences: whole, padded on the right, and nothing but padding.
fn inputs(w: &mut Weights) -> Vec<(&'static str, Array)> {
    let (batch, seq) = (3, 13);
    let ids = w.ids(VOCAB, batch * seq);
    let mask = padded_right(seq, &[seq, 9, 0]);
    vec![
        ("input_ids", Array::I64(vec![batch, seq], ids)),
        ("attention_mask", Array::I64(vec![batch, seq], mask)),
    ]
}
