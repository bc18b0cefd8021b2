//! BERT as the TorchScript exporter writes it at opset 17 with dynamic axes.
//!
//! Every `view` asks for the shape of its input, element by element; token types are a slice of
//! zeros expanded through a chain that treats -1 as "keep"; the padding mask is
//! `(1 - mask) · -3.4e38`, added after the division by √d.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};

use super::blocks::{BIAS_SPREAD, spread};
use super::npz::Array;
use super::stored::{self, Stored};
use super::weights::Weights;
use super::writer::Attribute::{Float, Int, Ints, Tensor};
use super::writer::{Dim, Exporter, Writer, integers};
use super::{FFN, HEADS, HIDDEN, LAYERS, Model, POSITIONS, VOCAB, padded_right};
use crate::onnx::{self, TensorProto};

const TOKEN_TYPES: i64 = 2;
const EPSILON: f32 = 1e-12;

/// How large the model is; the names are those of the tiny models' constants.
struct Size {
    hidden: i64,
    heads: i64,
    ffn: i64,
    vocab: i64,
    positions: i64,
    layers: usize,
}

const TINY: Size = Size {
    hidden: HIDDEN,
    heads: HEADS,
    ffn: FFN,
    vocab: VOCAB,
    positions: POSITIONS,
    layers: LAYERS,
};

/// all-MiniLM-L6-v2, as its `config.json` has it.
const MINILM: Size = Size {
    hidden: 384,
    heads: 12,
    ffn: 1536,
    vocab: 30522,
    positions: 512,
    layers: 6,
};

/// Where weights come from: drawn here, or parts of a file beside the model.
enum Source {
    Drawn(Weights),
    Stored(BTreeMap<String, Stored>),
}

/// The writer, the weights, and the number of matrices so far: TorchScript renames a transposed
/// weight to `onnx::MatMul_N`.
struct Bert {
    g: Writer,
    size: Size,
    source: Source,
    matrices: usize,
    /// Weights that the file does not have, or in another shape.
    missing: Vec<String>,
}

pub(super) fn bert_tiny() -> Model {
    let (onnx, source) = Bert::new(TINY, Source::Drawn(Weights::new(1))).write();
    let Source::Drawn(mut weights) = source else {
        unreachable!("a source stays what it is");
    };
    Model {
        name: "bert_tiny",
        onnx,
        inputs: inputs(&mut weights),
    }
}

/// all-MiniLM-L6-v2 at its full size over the published weights, which stay where they are: every
/// weight is external data in `safetensors`, beside which the model belongs.
pub(super) fn minilm(safetensors: &Path) -> Result<Vec<u8>> {
    let stored = stored::read(safetensors)?;
    let mut bert = Bert::new(MINILM, Source::Stored(stored));
    bert.graph();
    ensure!(
        bert.missing.is_empty(),
        "{}: no f32 weight of that name and shape: {}",
        safetensors.display(),
        bert.missing.join(", ")
    );
    Ok(bert.g.finish())
}

impl Bert {
    fn new(size: Size, source: Source) -> Self {
        Self {
            g: Writer::new(Exporter::TorchScript, 17),
            size,
            source,
            matrices: 0,
            missing: Vec::new(),
        }
    }

    fn write(mut self) -> (Vec<u8>, Source) {
        self.graph();
        (self.g.finish(), self.source)
    }

    fn graph(&mut self) {
        let dims = [Dim::Named("batch"), Dim::Named("seq")];
        self.g.input("input_ids", onnx::INT64, &dims);
        self.g.input("attention_mask", onnx::INT64, &dims);
        let mut x = self.embed();
        let mask = self.padding_mask();
        for layer in 0..self.size.layers {
            x = self.layer(&x, &mask, &format!("encoder/layer.{layer}"));
        }
        let hidden = Dim::Fixed(self.size.hidden);
        let out = [Dim::Named("batch"), Dim::Named("seq"), hidden];
        self.g.output(&x, "last_hidden_state", &out);
    }

    /// A weight by its name in the state dict, drawn around `mean` where it is not stored.
    fn weight(&mut self, name: &str, dims: &[i64], mean: f64, spread: f64) -> String {
        match &mut self.source {
            Source::Drawn(weights) => {
                let drawn = weights.around(mean, spread, dims.iter().product());
                self.g.weight(name, dims, &drawn);
            }
            Source::Stored(stored) => match stored.get(name) {
                Some(part) if part.shape == dims => {
                    self.g
                        .external(name, dims, stored::FILE, part.bytes.clone());
                }
                _ => self.missing.push(format!("{name} {dims:?}")),
            },
        }
        name.to_owned()
    }

    /// `Wᵀ` of a linear layer. Stored as PyTorch has it, it is turned in the graph; the exporter turns
    /// it itself, and then calls it `onnx::MatMul_N`.
    fn matrix(&mut self, path: &str, (rows, columns): (i64, i64)) -> String {
        let spread = spread(path);
        if let Source::Drawn(_) = self.source {
            let name = format!("onnx::MatMul_{}", 311 + self.matrices);
            self.matrices += 1;
            return self.weight(&name, &[rows, columns], 0.0, spread);
        }
        let name = format!("{}.weight", path.replace('/', "."));
        let stored = self.weight(&name, &[columns, rows], 0.0, spread);
        self.g
            .op("Transpose", &[&stored], &[("perm", Ints(&[1, 0]))])
    }

    /// One dim of a value as a scalar: `Gather(Shape(x), axis)`.
    fn size(&mut self, x: &str, axis: i64) -> String {
        let shape = self.g.op("Shape", &[x], &[]);
        let axis = self.g.int(axis);
        self.g.op("Gather", &[&shape, &axis], &[("axis", Int(0))])
    }

    /// A scalar as a vector of one.
    fn vector(&mut self, scalar: &str) -> String {
        let axes = self.g.ints(&[0]);
        self.g.op("Unsqueeze", &[scalar, &axes], &[])
    }

    /// `table[:, :seq]` of a constant `[1, POSITIONS]`.
    fn sliced(&mut self, table: &[i64], seq: &str) -> String {
        let table = self
            .g
            .constant(onnx::INT64, &[1, self.size.positions], integers(table));
        let (axes, starts) = (self.g.ints(&[1]), self.g.ints(&[0]));
        let ends = self.vector(seq);
        let steps = self.g.ints(&[1]);
        self.g
            .op("Slice", &[&table, &starts, &ends, &axes, &steps], &[])
    }

    /// `x.expand(batch, seq)`: a dim of -1 would keep the size, so the exporter compares and
    /// selects at run time.
    fn expanded(&mut self, x: &str, batch: &str, seq: &str) -> String {
        let (batch, seq) = (self.vector(batch), self.vector(seq));
        let g = &mut self.g;
        let shape = g.op("Concat", &[&batch, &seq], &[("axis", Int(0))]);
        let flat = g.ints(&[-1]);
        let shape = g.op("Reshape", &[&shape, &flat], &[("allowzero", Int(0))]);
        let rank = g.op("Shape", &[&shape], &[]);
        let one = TensorProto {
            dims: vec![1],
            data_type: onnx::INT64,
            name: String::new(),
            raw_data: integers(&[1]),
            ..TensorProto::default()
        };
        let ones = g.op("ConstantOfShape", &[&rank], &[("value", Tensor(one))]);
        let minus_one = g.int(-1);
        let keep = g.op("Mul", &[&ones, &minus_one], &[]);
        let keeps = g.op("Equal", &[&shape, &keep], &[]);
        let shape = g.op("Where", &[&keeps, &ones, &shape], &[]);
        g.op("Expand", &[x, &shape], &[])
    }

    fn embed(&mut self) -> String {
        let (batch, seq) = (self.size("input_ids", 0), self.size("input_ids", 1));
        let types: Vec<i64> = (0..self.size.positions).map(|_| 0).collect();
        let types = self.sliced(&types, &seq);
        let types = self.expanded(&types, &batch, &seq);
        self.g.enter("embeddings");
        let places: Vec<i64> = (0..self.size.positions).collect();
        let places = self.sliced(&places, &seq);
        let word = self.embedding("word_embeddings", self.size.vocab, "input_ids");
        let kind = self.embedding("token_type_embeddings", TOKEN_TYPES, &types);
        let sum = self.g.op("Add", &[&word, &kind], &[]);
        let place = self.embedding("position_embeddings", self.size.positions, &places);
        let sum = self.g.op("Add", &[&sum, &place], &[]);
        self.layer_norm(&sum, "embeddings/LayerNorm")
    }

    fn embedding(&mut self, name: &str, rows: i64, ids: &str) -> String {
        let name = format!("embeddings.{name}.weight");
        let table = self.weight(&name, &[rows, self.size.hidden], 0.0, 0.7);
        self.g.op("Gather", &[&table, ids], &[])
    }

    fn layer_norm(&mut self, x: &str, path: &str) -> String {
        self.g.enter(path);
        let name = path.replace('/', ".");
        let hidden = [self.size.hidden];
        let gain = self.weight(&format!("{name}.weight"), &hidden, 1.0, 0.1);
        let bias = self.weight(&format!("{name}.bias"), &hidden, 0.0, BIAS_SPREAD);
        let attributes = [("axis", Int(-1)), ("epsilon", Float(EPSILON))];
        self.g
            .op("LayerNormalization", &[x, &gain, &bias], &attributes)
    }

    /// `x · W + b`; TorchScript puts the bias first.
    fn linear(&mut self, x: &str, path: &str, (rows, columns): (i64, i64)) -> String {
        self.g.enter(path);
        let matrix = self.matrix(path, (rows, columns));
        let name = format!("{}.bias", path.replace('/', "."));
        let bias = self.weight(&name, &[columns], 0.0, BIAS_SPREAD);
        let product = self.g.op("MatMul", &[x, &matrix], &[]);
        self.g.op("Add", &[&bias, &product], &[])
    }

    /// `(1 - mask) · -3.4e38`, `[B, 1, 1, S]`.
    fn padding_mask(&mut self) -> String {
        self.g.enter("");
        let g = &mut self.g;
        let axes = g.ints(&[1]);
        let mask = g.op("Unsqueeze", &["attention_mask", &axes], &[]);
        let axes = g.ints(&[2]);
        let mask = g.op("Unsqueeze", &[&mask, &axes], &[]);
        let mask = g.op("Cast", &[&mask], &[("to", Int(onnx::FLOAT.into()))]);
        let one = g.float(1.0);
        let mask = g.op("Sub", &[&one, &mask], &[]);
        let lowest = g.float(f32::MIN);
        g.op("Mul", &[&mask, &lowest], &[])
    }

    /// `x.view(batch, seq, tail…)`.
    fn view(&mut self, x: &str, tail: &[i64]) -> String {
        let (batch, seq) = (self.size(x, 0), self.size(x, 1));
        let mut parts = vec![self.vector(&batch), self.vector(&seq)];
        parts.extend(tail.iter().map(|&dim| self.g.ints(&[dim])));
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let shape = self.g.op("Concat", &parts, &[("axis", Int(0))]);
        self.g.op("Reshape", &[x, &shape], &[("allowzero", Int(0))])
    }

    fn transpose(&mut self, x: &str, perm: [i64; 4]) -> String {
        self.g.op("Transpose", &[x], &[("perm", Ints(&perm))])
    }

    /// Self-attention without its output projection, `[B, S, HIDDEN]`.
    fn attention(&mut self, x: &str, mask: &str, path: &str) -> String {
        let Size { hidden, heads, .. } = self.size;
        let head_dim = hidden / heads;
        let square = (hidden, hidden);
        let q = self.linear(x, &format!("{path}/query"), square);
        let k = self.linear(x, &format!("{path}/key"), square);
        self.g.enter(path);
        let k = self.view(&k, &[heads, head_dim]);
        let v = self.linear(x, &format!("{path}/value"), square);
        self.g.enter(path);
        let v = self.view(&v, &[heads, head_dim]);
        let v = self.transpose(&v, [0, 2, 1, 3]);
        let q = self.view(&q, &[heads, head_dim]);
        let q = self.transpose(&q, [0, 2, 1, 3]);
        // Two transposes of K in one: heads to the front, then its rows and columns swapped.
        let k = self.transpose(&k, [0, 2, 3, 1]);
        let scores = self.g.op("MatMul", &[&q, &k], &[]);
        let root = self.g.float((head_dim as f32).sqrt());
        let scores = self.g.op("Div", &[&scores, &root], &[]);
        let scores = self.g.op("Add", &[&scores, mask], &[]);
        let weights = self.g.op("Softmax", &[&scores], &[("axis", Int(-1))]);
        let y = self.g.op("MatMul", &[&weights, &v], &[]);
        let y = self.transpose(&y, [0, 2, 1, 3]);
        self.view(&y, &[hidden])
    }

    fn layer(&mut self, x: &str, mask: &str, path: &str) -> String {
        let Size { hidden, ffn, .. } = self.size;
        let y = self.attention(x, mask, &format!("{path}/attention/self"));
        let output = format!("{path}/attention/output");
        let y = self.linear(&y, &format!("{output}/dense"), (hidden, hidden));
        self.g.enter(&output);
        let y = self.g.op("Add", &[&y, x], &[]);
        let x = self.layer_norm(&y, &format!("{output}/LayerNorm"));
        let y = self.linear(&x, &format!("{path}/intermediate/dense"), (hidden, ffn));
        self.g
            .enter(&format!("{path}/intermediate/intermediate_act_fn"));
        let y = self.gelu(&y);
        let y = self.linear(&y, &format!("{path}/output/dense"), (ffn, hidden));
        self.g.enter(&format!("{path}/output"));
        let y = self.g.op("Add", &[&y, &x], &[]);
        self.layer_norm(&y, &format!("{path}/output/LayerNorm"))
    }

    /// `x · (erf(x / √2) + 1) · 0.5`, in the order of TorchScript.
    fn gelu(&mut self, x: &str) -> String {
        let g = &mut self.g;
        let root = g.float(std::f32::consts::SQRT_2);
        let scaled = g.op("Div", &[x, &root], &[]);
        let erf = g.op("Erf", &[&scaled], &[]);
        let one = g.float(1.0);
        let shifted = g.op("Add", &[&erf, &one], &[]);
        let gated = g.op("Mul", &[x, &shifted], &[]);
        let half = g.float(0.5);
        g.op("Mul", &[&gated, &half], &[])
    }
}

/// Two sequences, the second padded on the right.
fn inputs(w: &mut Weights) -> Vec<(&'static str, Array)> {
    let (batch, seq) = (2, 17);
    let ids = w.ids(VOCAB, batch * seq);
    let mask = padded_right(seq, &[seq, 11]);
    vec![
        ("input_ids", Array::I64(vec![batch, seq], ids)),
        ("attention_mask", Array::I64(vec![batch, seq], mask)),
    ]
}
