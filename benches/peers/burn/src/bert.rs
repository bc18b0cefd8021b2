//! BERT as a user of burn would write it, from its published checkpoint: MiniLM is one.
//!
//! burn's own functions throughout (`linear`, `layer_norm`, `embedding`, `attention`, `gelu`); a mask is one of
//! keys. Weights are transposed when they are loaded, as burn's `linear` takes them.
//!
//! Devlin et al. 2018, arXiv:1810.04805, section 3.

use crate::protocol::Operand;
use burn::tensor::activation::gelu;
use burn::tensor::module::{attention, embedding, layer_norm, linear};
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use safetensors::SafeTensors;
use std::path::Path;

const EPSILON: f64 = 1e-12;
/// Columns of a head, in MiniLM.
const HEAD: usize = 32;

struct Linear {
    weight: Tensor<2>,
    bias: Tensor<1>,
}

impl Linear {
    fn of(&self, x: Tensor<3>) -> Tensor<3> {
        linear(x, self.weight.clone(), Some(self.bias.clone()))
    }
}

struct Norm {
    gain: Tensor<1>,
    bias: Tensor<1>,
}

impl Norm {
    fn of(&self, x: Tensor<3>) -> Tensor<3> {
        layer_norm(x, self.gain.clone(), Some(self.bias.clone()), EPSILON)
    }
}

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    attention_norm: Norm,
    intermediate: Linear,
    projection: Linear,
    norm: Norm,
}

impl Layer {
    fn of(&self, x: Tensor<3>, mask: &Tensor<4, Bool>) -> Tensor<3> {
        let [batch, tokens, hidden] = x.dims();
        let heads = |linear: &Linear| {
            let y = linear.of(x.clone());
            let y = y.reshape([batch, tokens, hidden / HEAD, HEAD]);
            y.swap_dims(1, 2)
        };
        let (q, k, v) = (heads(&self.query), heads(&self.key), heads(&self.value));
        let options = AttentionModuleOptions::default();
        let o = attention(q, k, v, Some(mask.clone()), None, options);
        let o = o.swap_dims(1, 2).reshape([batch, tokens, hidden]);
        let x = self.attention_norm.of(self.output.of(o) + x);
        let y = self.projection.of(gelu(self.intermediate.of(x.clone())));
        self.norm.of(y + x)
    }
}

/// The model with its inputs.
pub struct Bert {
    words: Tensor<2>,
    types: Tensor<2>,
    positions: Tensor<2>,
    norm: Norm,
    layers: Vec<Layer>,
    ids: Tensor<2, Int>,
    type_ids: Tensor<2, Int>,
    /// True where a key does not count.
    mask: Tensor<4, Bool>,
}

impl Bert {
    /// The checkpoint beside `model`, and inputs by their usual names.
    pub fn load(model: &Path, operands: &[Operand], device: &Device) -> Result<Self, String> {
        let file = model.with_file_name("model.safetensors");
        let bytes = std::fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let weights = Weights {
            tensors: SafeTensors::deserialize(&bytes).map_err(|e| e.to_string())?,
            device,
        };
        let ids = input(operands, "input_ids")?;
        let [batch, tokens] = ids.shape[..] else {
            return Err(format!(
                "expected input_ids of two axes, found {:?}",
                ids.shape
            ));
        };
        let mask = input(operands, "attention_mask")?;
        let hidden = mask.values.iter().map(|x| *x == 0.0).collect::<Vec<_>>();
        let hidden = TensorData::new(hidden, [batch, 1, 1, tokens]);
        let hidden: Tensor<4, Bool> = Tensor::from_data(hidden, device);
        let heads = weights.matrix("embeddings.LayerNorm.weight")?.0[0] / HEAD;
        let layers = (0..).take_while(|n| weights.has_layer(*n));
        Ok(Self {
            words: weights.table("embeddings.word_embeddings.weight")?,
            types: weights.table("embeddings.token_type_embeddings.weight")?,
            positions: weights.table("embeddings.position_embeddings.weight")?,
            norm: weights.norm("embeddings.LayerNorm")?,
            layers: layers.map(|n| weights.layer(n)).collect::<Result<_, _>>()?,
            type_ids: integers(input(operands, "token_type_ids")?, device),
            ids: integers(ids, device),
            mask: hidden.expand([batch, heads, tokens, tokens]),
        })
    }

    /// The last hidden state.
    pub fn run(&self) -> Tensor<3> {
        let tokens = self.ids.dims()[1];
        let positions = self.positions.clone().slice([0..tokens]).unsqueeze::<3>();
        let x = embedding(self.words.clone(), self.ids.clone())
            + embedding(self.types.clone(), self.type_ids.clone())
            + positions;
        let x = self.norm.of(x);
        let layers = self.layers.iter();
        layers.fold(x, |x, layer| layer.of(x, &self.mask))
    }
}

fn input<'a>(operands: &'a [Operand], name: &str) -> Result<&'a Operand, String> {
    let found = operands.iter().find(|o| o.name == name);
    found.ok_or_else(|| format!("expected the inputs of a BERT, found no {name}"))
}

fn integers(operand: &Operand, device: &Device) -> Tensor<2, Int> {
    let values: Vec<i32> = operand.values.iter().map(|x| *x as i32).collect();
    let shape = [operand.shape[0], operand.shape[1]];
    Tensor::from_data(TensorData::new(values, shape), device)
}

struct Weights<'a> {
    tensors: SafeTensors<'a>,
    device: &'a Device,
}

impl Weights<'_> {
    fn has_layer(&self, n: usize) -> bool {
        let name = format!("encoder.layer.{n}.output.dense.bias");
        self.tensors.tensor(&name).is_ok()
    }

    fn matrix(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>), String> {
        let tensor = self
            .tensors
            .tensor(name)
            .map_err(|e| format!("{name}: {e}"))?;
        let words = tensor.data().as_chunks::<4>().0.iter();
        let values = words.map(|b| f32::from_le_bytes(*b)).collect();
        Ok((tensor.shape().to_vec(), values))
    }

    fn vector(&self, name: &str) -> Result<Tensor<1>, String> {
        let (shape, values) = self.matrix(name)?;
        Ok(Tensor::from_data(
            TensorData::new(values, [shape[0]]),
            self.device,
        ))
    }

    fn table(&self, name: &str) -> Result<Tensor<2>, String> {
        let (shape, values) = self.matrix(name)?;
        let data = TensorData::new(values, [shape[0], shape[1]]);
        Ok(Tensor::from_data(data, self.device))
    }

    fn linear(&self, name: &str) -> Result<Linear, String> {
        let (shape, values) = self.matrix(&format!("{name}.weight"))?;
        let [outputs, inputs] = shape[..] else {
            return Err(format!("{name}: expected a matrix"));
        };
        let transposed = (0..inputs * outputs).map(|i| values[i % outputs * inputs + i / outputs]);
        let data = TensorData::new(transposed.collect::<Vec<_>>(), [inputs, outputs]);
        Ok(Linear {
            weight: Tensor::from_data(data, self.device),
            bias: self.vector(&format!("{name}.bias"))?,
        })
    }

    fn norm(&self, name: &str) -> Result<Norm, String> {
        Ok(Norm {
            gain: self.vector(&format!("{name}.weight"))?,
            bias: self.vector(&format!("{name}.bias"))?,
        })
    }

    fn layer(&self, n: usize) -> Result<Layer, String> {
        let linear = |part: &str| self.linear(&format!("encoder.layer.{n}.{part}"));
        let norm = |part: &str| self.norm(&format!("encoder.layer.{n}.{part}"));
        Ok(Layer {
            query: linear("attention.self.query")?,
            key: linear("attention.self.key")?,
            value: linear("attention.self.value")?,
            output: linear("attention.output.dense")?,
            attention_norm: norm("attention.output.LayerNorm")?,
            intermediate: linear("intermediate.dense")?,
            projection: linear("output.dense")?,
            norm: norm("output.LayerNorm")?,
        })
    }
}
