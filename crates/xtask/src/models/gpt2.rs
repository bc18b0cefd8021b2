//! GPT-2 as the dynamo exporter writes it with dynamic shapes, at opset 18 and at opset 23.
//!
//! Projections are `Gemm` on `[B·S, HIDDEN]`, one of them for Q, K and V together; the mask is
//! causal and padding in one boolean; the embedding is tied to the language model's head. Up to
//! opset 22 attention is taken apart and masked by adding -3.4e38; from 23 it is one `Attention`.

use super::blocks::{
    BIAS_SPREAD, QK_SPREAD, SPREAD, additive, arange_4d, dim, layer_norm, look_up_padding, sdpa,
    split_heads,
};
use super::npz::Array;
use super::weights::Weights;
use super::writer::Attribute::{Float, Int, Ints};
use super::writer::{Dim, Exporter, Writer};
use super::{FFN, HEAD_DIM, HIDDEN, LAYERS, Model, POSITIONS, VOCAB, padded_right};
use crate::onnx;

const EPSILON: f32 = 1e-5;

/// Shapes that every layer uses, as vectors.
struct Shapes {
    batch: String,
    seq: String,
    /// `[B, S, -1, HEAD_DIM]`
    heads: String,
    /// `[B, S, HIDDEN]`
    hidden: String,
    /// `[-1, HIDDEN]`
    rows: String,
}

/// What attention is masked with.
enum Mask {
    /// To be added to the scores.
    Additive(String),
    /// For the `Attention` operator.
    Boolean(String),
}

/// Opset 18. The first sequence of the inputs is padded on the left, as for generation, so that
/// its first rows see no key at all and the finite fill decides what they are.
pub(super) fn gpt2_tiny() -> Model {
    let seq = 21;
    let left = (0..seq).map(|position| i64::from(position >= 5));
    let mask = left.chain(padded_right(seq, &[16, seq])).collect();
    gpt2("gpt2_tiny", 18, seq, mask)
}

/// Opset 23. Padding is on the right, so that every row sees a key.
pub(super) fn gpt2_opset23_tiny() -> Model {
    let seq = 19;
    gpt2("gpt2_opset23_tiny", 23, seq, padded_right(seq, &[seq, 11]))
}

fn gpt2(name: &'static str, opset: i64, seq: usize, mask: Vec<i64>) -> Model {
    let mut g = Writer::new(Exporter::Dynamo, opset);
    let mut w = Weights::new(opset.unsigned_abs());
    let dims = [Dim::Named("batch"), Dim::Named("seq")];
    g.input("input_ids", onnx::INT64, &dims);
    g.input("attention_mask", onnx::INT64, &dims);
    let (mut x, attend, shapes, head) = prologue(&mut g, &mut w);
    let attend = if opset < 23 {
        Mask::Additive(additive(&mut g, &attend, f32::MIN))
    } else {
        Mask::Boolean(attend)
    };
    for layer in 0..LAYERS {
        x = block(
            &mut g,
            &mut w,
            &x,
            &format!("transformer.h.{layer}"),
            &attend,
            &shapes,
        );
    }
    let x = layer_norm(&mut g, &mut w, &x, "transformer.ln_f", EPSILON);
    let logits = g.op("MatMul", &[&x, &head], &[]);
    let out = [Dim::Named("batch"), Dim::Named("seq"), Dim::Fixed(VOCAB)];
    g.output(&logits, "logits", &out);
    let shape = vec![mask.len() / seq, seq];
    let ids = w.ids(VOCAB, mask.len());
    Model {
        name,
        onnx: g.finish(),
        inputs: vec![
            ("input_ids", Array::I64(shape.clone(), ids)),
            ("attention_mask", Array::I64(shape, mask)),
        ],
    }
}

/// Everything before the first layer: the embedded tokens, the boolean mask `[B, 1, S, S]`, the
/// shapes, and the head's matrix, which is the embedding transposed.
fn prologue(g: &mut Writer, w: &mut Weights) -> (String, String, Shapes, String) {
    let words = w.normal(0.7, VOCAB * HIDDEN);
    let head: Vec<f32> = (0..HIDDEN as usize)
        .flat_map(|column| words.iter().skip(column).step_by(HIDDEN as usize).copied())
        .collect();
    let words = g.weight("lm_head.weight", &[VOCAB, HIDDEN], &words);
    let head = g.weight("lm_head.weight_t", &[HIDDEN, VOCAB], &head);
    let places = w.normal(0.7, POSITIONS * HIDDEN);
    let places = g.weight("transformer.wpe.weight", &[POSITIONS, HIDDEN], &places);

    let (batch, seq) = (dim(g, "input_ids", 0), dim(g, "input_ids", 1));
    let (zero, one, minus_one) = (g.int(0), g.int(1), g.ints(&[-1]));
    let seq_scalar = g.op("Squeeze", &[&seq], &[]);
    let flat = g.op("Concat", &[&minus_one, &seq], &[("axis", Int(0))]);
    let ids = g.op("Reshape", &["input_ids", &flat], &[("allowzero", Int(1))]);
    let word = g.op("Gather", &[&words, &ids], &[("axis", Int(0))]);
    let range = g.op("Range", &[&zero, &seq_scalar, &one], &[]);
    let first = g.ints(&[0]);
    let ids = g.op("Unsqueeze", &[&range, &first], &[]);
    let place = g.op("Gather", &[&places, &ids], &[("axis", Int(0))]);
    let x = g.op("Add", &[&word, &place], &[]);
    let attend = causal_padding_mask(g, &batch, &seq, &range);

    let (head_dim, hidden) = (g.ints(&[HEAD_DIM]), g.ints(&[HIDDEN]));
    let heads = [batch.as_str(), &seq, &minus_one, &head_dim];
    let heads = g.op("Concat", &heads, &[("axis", Int(0))]);
    let hidden = g.op("Concat", &[&batch, &seq, &hidden], &[("axis", Int(0))]);
    let rows = g.ints(&[-1, HIDDEN]);
    let shapes = Shapes {
        batch,
        seq,
        heads,
        hidden,
        rows,
    };
    (x, attend, shapes, head)
}

/// `true & (kv_idx <= q_idx) & mask[b, kv_idx]`, expanded to `[B, 1, S, S]`.
///
/// The number of keys is computed as the exporter does, as the mask's elements over the batch.
fn causal_padding_mask(g: &mut Writer, batch: &str, seq: &str, range: &str) -> String {
    let (zero, one, minus_one) = (g.int(0), g.int(1), g.ints(&[-1]));
    let mask_batch = dim(g, "attention_mask", 0);
    let mask_batch = g.op("Squeeze", &[&mask_batch], &[]);
    let mask_seq = dim(g, "attention_mask", 1);
    let mask_seq = g.op("Squeeze", &[&mask_seq], &[]);
    let batch_scalar = g.op("Squeeze", &[batch], &[]);
    let elements = g.op("Mul", &[&mask_batch, &mask_seq], &[]);
    let keys_scalar = g.op("Div", &[&elements, &batch_scalar], &[]);
    let shape = g.op("Concat", &[batch, &minus_one], &[("axis", Int(0))]);
    let mask = g.op(
        "Reshape",
        &["attention_mask", &shape],
        &[("allowzero", Int(1))],
    );
    let mask = g.op("Cast", &[&mask], &[("to", Int(onnx::BOOL.into()))]);

    let batches = g.op("Range", &[&zero, &batch_scalar, &one], &[]);
    let keys = g.op("Range", &[&zero, &keys_scalar, &one], &[]);
    let batches = arange_4d(g, &batches, 0);
    let queries = arange_4d(g, range, 2);
    let keys = arange_4d(g, &keys, 3);
    let causal = g.op("LessOrEqual", &[&keys, &queries], &[]);
    let ones = g.all_true(&[]);
    let causal = g.op("And", &[&ones, &causal], &[]);
    let padding = look_up_padding(g, &mask, &batches, &keys);
    let attend = g.op("And", &[&causal, &padding], &[]);

    let one = g.ints(&[1]);
    let keys = g.op(
        "Reshape",
        &[&keys_scalar, &minus_one],
        &[("allowzero", Int(0))],
    );
    let shape = g.op("Concat", &[batch, &one, seq, &keys], &[("axis", Int(0))]);
    g.op("Expand", &[&attend, &shape], &[])
}

fn block(
    g: &mut Writer,
    w: &mut Weights,
    x: &str,
    name: &str,
    attend: &Mask,
    shapes: &Shapes,
) -> String {
    let y = layer_norm(g, w, x, &format!("{name}.ln_1"), EPSILON);
    let y = attention(g, w, &y, &format!("{name}.attn"), attend, shapes);
    let x = g.op("Add", &[&y, x], &[]);
    let y = layer_norm(g, w, &x, &format!("{name}.ln_2"), EPSILON);
    let y = rows(g, &y, &shapes.rows);
    let matrix = w.normal(SPREAD, HIDDEN * FFN);
    let y = gemm(
        g,
        w,
        &y,
        &format!("{name}.mlp.c_fc"),
        (HIDDEN, FFN),
        &matrix,
    );
    let ffn = g.ints(&[FFN]);
    let shape = g.op(
        "Concat",
        &[&shapes.batch, &shapes.seq, &ffn],
        &[("axis", Int(0))],
    );
    let y = g.op("Reshape", &[&y, &shape], &[("allowzero", Int(1))]);
    let y = gelu_tanh(g, &y);
    let ffn_rows = g.ints(&[-1, FFN]);
    let y = rows(g, &y, &ffn_rows);
    let matrix = w.normal(SPREAD, FFN * HIDDEN);
    let y = gemm(
        g,
        w,
        &y,
        &format!("{name}.mlp.c_proj"),
        (FFN, HIDDEN),
        &matrix,
    );
    let y = g.op("Reshape", &[&y, &shapes.hidden], &[("allowzero", Int(1))]);
    g.op("Add", &[&x, &y], &[])
}

fn attention(
    g: &mut Writer,
    w: &mut Weights,
    x: &str,
    name: &str,
    attend: &Mask,
    shapes: &Shapes,
) -> String {
    let y = rows(g, x, &shapes.rows);
    let matrix = qkv_matrix(w);
    let y = gemm(
        g,
        w,
        &y,
        &format!("{name}.c_attn"),
        (HIDDEN, 3 * HIDDEN),
        &matrix,
    );
    let three = g.ints(&[3 * HIDDEN]);
    let shape = g.op(
        "Concat",
        &[&shapes.batch, &shapes.seq, &three],
        &[("axis", Int(0))],
    );
    let y = g.op("Reshape", &[&y, &shape], &[("allowzero", Int(1))]);
    let split = [("axis", Int(2)), ("num_outputs", Int(3))];
    let parts = g.op_outputs("Split", &[&y], &split, 3);
    let mut heads = |part: usize| split_heads(g, &parts[part], &shapes.heads);
    let (k, v, q) = (heads(1), heads(2), heads(0));
    let y = match attend {
        Mask::Additive(bias) => sdpa(g, (&q, &k, &v), bias),
        Mask::Boolean(mask) => {
            let attributes = [
                ("qk_matmul_output_mode", Int(0)),
                ("softcap", Float(0.0)),
                ("scale", Float((1.0 / (HEAD_DIM as f64).sqrt()) as f32)),
                ("is_causal", Int(0)),
            ];
            g.op("Attention", &[&q, &k, &v, mask], &attributes)
        }
    };
    let y = g.op("Transpose", &[&y], &[("perm", Ints(&[0, 2, 1, 3]))]);
    let y = g.op("Reshape", &[&y, &shapes.rows], &[]);
    let matrix = w.normal(SPREAD, HIDDEN * HIDDEN);
    let y = gemm(
        g,
        w,
        &y,
        &format!("{name}.c_proj"),
        (HIDDEN, HIDDEN),
        &matrix,
    );
    g.op("Reshape", &[&y, &shapes.hidden], &[("allowzero", Int(1))])
}

/// `[HIDDEN, 3 · HIDDEN]`: columns of Q and K with their own spread, then those of V.
fn qkv_matrix(w: &mut Weights) -> Vec<f32> {
    (0..HIDDEN)
        .flat_map(|_| {
            let mut row = w.normal(QK_SPREAD, 2 * HIDDEN);
            row.extend(w.normal(SPREAD, HIDDEN));
            row
        })
        .collect()
}

fn rows(g: &mut Writer, x: &str, shape: &str) -> String {
    g.op("Reshape", &[x, shape], &[("allowzero", Int(1))])
}

fn gemm(
    g: &mut Writer,
    w: &mut Weights,
    x: &str,
    name: &str,
    (rows, columns): (i64, i64),
    matrix: &[f32],
) -> String {
    let matrix = g.weight(&format!("{name}.weight"), &[rows, columns], matrix);
    let bias = w.normal(BIAS_SPREAD, columns);
    let bias = g.weight(&format!("{name}.bias"), &[columns], &bias);
    let attributes = [
        ("beta", Float(1.0)),
        ("transB", Int(0)),
        ("alpha", Float(1.0)),
        ("transA", Int(0)),
    ];
    g.op("Gemm", &[x, &matrix, &bias], &attributes)
}

/// `0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))`.
fn gelu_tanh(g: &mut Writer, x: &str) -> String {
    let half = g.float(0.5);
    let halved = g.op("Mul", &[x, &half], &[]);
    let three = g.float(3.0);
    let cubed = g.op("Pow", &[x, &three], &[]);
    let factor = g.float(0.044_715);
    let cubed = g.op("Mul", &[&cubed, &factor], &[]);
    let sum = g.op("Add", &[x, &cubed], &[]);
    let root = g.float((2.0 / std::f64::consts::PI).sqrt() as f32);
    let inner = g.op("Mul", &[&sum, &root], &[]);
    let tanh = g.op("Tanh", &[&inner], &[]);
    let one = g.float(1.0);
    let shifted = g.op("Add", &[&tanh, &one], &[]);
    g.op("Mul", &[&halved, &shifted], &[])
}
