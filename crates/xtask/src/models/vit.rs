//! ViT as the dynamo exporter writes it at opset 18: a 3×32×32 image, patches of 8×8 by `Conv`, a
//! class token in front, dynamic batch.
//!
//! The mask is boolean, all true and constant: an importer should find that it masks nothing.

use super::blocks::{additive, dim, gelu_erf, layer_norm, linear, sdpa, split_heads};
use super::npz::Array;
use super::weights::Weights;
use super::writer::Attribute::{Int, Ints, Text};
use super::writer::{Dim, Exporter, Writer};
use super::{FFN, HEAD_DIM, HEADS, HIDDEN, LAYERS, Model};
use crate::onnx;

const EPSILON: f32 = 1e-12;
const CHANNELS: i64 = 3;
const IMAGE: i64 = 32;
const PATCH: i64 = 8;
const PATCHES: i64 = (IMAGE / PATCH) * (IMAGE / PATCH);
/// Patches and the class token.
const TOKENS: i64 = PATCHES + 1;

pub(super) fn vit_tiny() -> Model {
    let mut g = Writer::new(Exporter::Dynamo, 18);
    let mut w = Weights::new(5);
    let image = [CHANNELS, IMAGE, IMAGE].map(Dim::Fixed);
    let dims = [&[Dim::Named("batch")], &image[..]].concat();
    g.input("pixel_values", onnx::FLOAT, &dims);
    let batch = dim(&mut g, "pixel_values", 0);
    let mut x = embed(&mut g, &mut w, &batch);
    let (one, tokens) = (g.ints(&[1]), g.ints(&[TOKENS]));
    let shape = [batch.as_str(), &one, &tokens, &tokens];
    let shape = g.op("Concat", &shape, &[("axis", Int(0))]);
    let mask = g.all_true(&[1, 1, TOKENS, 1]);
    let mask = g.op("Expand", &[&mask, &shape], &[]);
    let bias = additive(&mut g, &mask, f32::MIN);
    for layer in 0..LAYERS {
        x = block(&mut g, &mut w, &x, &format!("layers.{layer}"), &bias);
    }
    let x = layer_norm(&mut g, &mut w, &x, "layernorm", EPSILON);
    let out = [Dim::Named("batch"), Dim::Fixed(TOKENS), Dim::Fixed(HIDDEN)];
    g.output(&x, "last_hidden_state", &out);
    let images = w.normal(1.0, 2 * CHANNELS * IMAGE * IMAGE);
    let shape = [2, CHANNELS, IMAGE, IMAGE].map(|dim| dim as usize).to_vec();
    Model {
        name: "vit_tiny",
        onnx: g.finish(),
        inputs: vec![("pixel_values", Array::F32(shape, images))],
    }
}

/// Patches and class token, each with its position: `[B, TOKENS, HIDDEN]`.
fn embed(g: &mut Writer, w: &mut Weights, batch: &str) -> String {
    let kernel = w.normal(0.07, HIDDEN * CHANNELS * PATCH * PATCH);
    let name = "embeddings.patch_embeddings.projection";
    let dims = [HIDDEN, CHANNELS, PATCH, PATCH];
    let kernel = g.weight(&format!("{name}.weight"), &dims, &kernel);
    let bias = g.weight(&format!("{name}.bias"), &[HIDDEN], &w.normal(0.1, HIDDEN));
    let class = g.weight(
        "embeddings.cls_token",
        &[1, 1, HIDDEN],
        &w.normal(1.0, HIDDEN),
    );
    let places = w.normal(0.7, TOKENS * HIDDEN);
    let places = g.weight(
        "embeddings.position_embeddings",
        &[1, TOKENS, HIDDEN],
        &places,
    );
    let attributes = [
        ("group", Int(1)),
        ("pads", Ints(&[0, 0, 0, 0])),
        ("auto_pad", Text("NOTSET")),
        ("strides", Ints(&[PATCH, PATCH])),
        ("dilations", Ints(&[1, 1])),
        ("kernel_shape", Ints(&[PATCH, PATCH])),
    ];
    let x = g.op("Conv", &["pixel_values", &kernel, &bias], &attributes);
    let flat = g.ints(&[-1, HIDDEN, PATCHES]);
    let x = g.op("Reshape", &[&x, &flat], &[("allowzero", Int(1))]);
    let x = g.op("Transpose", &[&x], &[("perm", Ints(&[0, 2, 1]))]);
    let one = g.ints(&[1]);
    let shape = g.op("Concat", &[batch, &one, &one], &[("axis", Int(0))]);
    let class = g.op("Expand", &[&class, &shape], &[]);
    let x = g.op("Concat", &[&class, &x], &[("axis", Int(1))]);
    g.op("Add", &[&x, &places], &[])
}

fn block(g: &mut Writer, w: &mut Weights, x: &str, name: &str, bias: &str) -> String {
    let heads = g.ints(&[-1, TOKENS, HEADS, HEAD_DIM]);
    let y = layer_norm(g, w, x, &format!("{name}.layernorm_before"), EPSILON);
    let [q, k, v] = ["q_proj", "k_proj", "v_proj"].map(|part| {
        let part = format!("{name}.attention.{part}");
        let y = linear(g, w, &y, &part, (HIDDEN, HIDDEN));
        split_heads(g, &y, &heads)
    });
    let y = sdpa(g, (&q, &k, &v), bias);
    let y = g.op("Transpose", &[&y], &[("perm", Ints(&[0, 2, 1, 3]))]);
    let merged = g.ints(&[-1, TOKENS, HIDDEN]);
    let y = g.op("Reshape", &[&y, &merged], &[("allowzero", Int(1))]);
    let y = linear(
        g,
        w,
        &y,
        &format!("{name}.attention.o_proj"),
        (HIDDEN, HIDDEN),
    );
    let x = g.op("Add", &[&y, x], &[]);
    let y = layer_norm(g, w, &x, &format!("{name}.layernorm_after"), EPSILON);
    let y = linear(g, w, &y, &format!("{name}.mlp.fc1"), (HIDDEN, FFN));
    let y = gelu_erf(g, &y);
    let y = linear(g, w, &y, &format!("{name}.mlp.fc2"), (FFN, HIDDEN));
    g.op("Add", &[&y, &x], &[])
}
