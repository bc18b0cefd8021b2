//! A shape with numbers in it: the graph, its inputs, and what must come out.
//!
//! Every contestant gets the same numbers, so that results can be compared: see [`Reference`].

use crate::reference::Reference;
use crate::roofline::{self, Piece};
use crate::shape::{Shape, Work};
use crate::shapes::dtype_name;
use attnc::inputs::{self, BoundInputs};
use attnc::ir::{Builder, DType};
use attnc::plan::DimValues;
use attnc::{Error, HostDType, HostTensor, Model, Tensors, opt, random};
use half::f16;

/// A shape, ready to be measured.
pub struct Task {
    /// The shape.
    pub shape: Shape,
    /// The graph; the right operand of a matmul is a weight in it.
    pub model: Model,
    /// What the graph takes, checked, in its order.
    pub bound: BoundInputs,
    /// All operands by name, weights of a matmul included: what a peer is given.
    pub operands: Tensors,
    /// What must come out.
    pub reference: Reference,
    /// The least that has to be done, kernel by kernel.
    pub pieces: Vec<Piece>,
}

impl Task {
    /// Draws numbers, and computes what must come out of them.
    ///
    /// # Errors
    /// Where a model cannot be opened, or its lengths are not a batch and a number of tokens.
    pub fn new(shape: &Shape) -> Result<Self, Error> {
        let (model, operands, given) = match &shape.work {
            Work::Attention(_) | Work::Matmul { .. } => kernel(shape)?,
            Work::Model {
                file,
                batch,
                tokens,
            } => {
                let model = Model::open(file)?;
                let given = random::inputs(&model, &lengths(&model, *batch, *tokens)?, 1)?;
                (model, given.clone(), given)
            }
        };
        let bound = inputs::bind(&model.inputs, &model.rules, &given, &DimValues::default())?;
        let reference = Reference::new(shape, &model, &operands, &bound)?;
        let pieces = match (shape.flops(), shape.bytes()) {
            (Some(flops), Some(bytes)) => vec![Piece { flops, bytes }],
            _ => {
                let optimised = attnc::optimise(&model.graph, &opt::Options::default())?;
                roofline::of_graph(&optimised.graph, &bound.dims).map_err(Error::Usage)?
            }
        };
        Ok(Self {
            pieces,
            shape: shape.clone(),
            model,
            bound,
            operands,
            reference,
        })
    }
}

/// The graph of one kernel, all its operands, and those that are not weights.
fn kernel(shape: &Shape) -> Result<(Model, Tensors, Tensors), Error> {
    let dtype = dtype_name(shape.dtype);
    let draw = |seed, sizes: Vec<usize>, deviation| tensor(shape.dtype, sizes, seed, deviation);
    match shape.work {
        Work::Matmul { m, k, n } => {
            let a = draw(1, vec![m, k], 1.0);
            // Sums of k products stay near 1, as in a trained layer.
            let b = draw(2, vec![k, n], 1.0 / (k as f64).sqrt());
            let mut builder = Builder::new("matmul");
            let graph_type = if shape.dtype == HostDType::F16 {
                DType::F16
            } else {
                DType::F32
            };
            let x = builder.input("a", graph_type, ["M".into(), attnc::ir::Dim::from(k)]);
            let weight = b
                .to_graph(graph_type)
                .map_err(|e| Error::Usage(e.to_string()))?;
            let weight = builder.constant(weight.named("b"));
            let y = builder.matmul(x, weight);
            builder.output("out", y);
            let model = Model::from_graph(builder.finish().map_err(Error::Graph)?)?;
            let given = Tensors::from([("a".to_owned(), a)]);
            let mut operands = given.clone();
            operands.insert("b".to_owned(), b);
            Ok((model, operands, given))
        }
        Work::Attention(a) => {
            let model = Model::from_text("attention", &a.graph_text(dtype))?;
            let kv = vec![1, a.kv_heads, a.kv, a.d];
            let given = Tensors::from([
                ("q".to_owned(), draw(1, vec![1, a.heads, a.q, a.d], 1.0)),
                ("k".to_owned(), draw(2, kv.clone(), 1.0)),
                ("v".to_owned(), draw(3, kv, 1.0)),
            ]);
            Ok((model, given.clone(), given))
        }
        Work::Model { .. } => unreachable!("a model is no kernel"),
    }
}

/// Uniform numbers around 0.
fn tensor(dtype: HostDType, shape: Vec<usize>, seed: u64, deviation: f64) -> HostTensor {
    let range = deviation * 3f64.sqrt();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // SplitMix64 (Steele, Lea, Flood 2014).
    let mut unit = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut draw = || range * (2.0 * unit() - 1.0);
    let len: usize = shape.iter().product();
    let made = if dtype == HostDType::F16 {
        let values: Vec<f16> = (0..len).map(|_| f16::from_f64(draw())).collect();
        HostTensor::new(shape, &values)
    } else {
        let values: Vec<f32> = (0..len).map(|_| draw() as f32).collect();
        HostTensor::new(shape, &values)
    };
    made.expect("as many values as the shape has")
}

/// Values for the two lengths of a text model: the first axis of its first input is the batch.
fn lengths(model: &Model, batch: usize, tokens: usize) -> Result<DimValues, Error> {
    let known = inputs::lengths(&model.inputs);
    let first = model.inputs.first().map(|port| port.shape.as_slice());
    let (Some([b, s]), 2) = (first, known.len()) else {
        return Err(Error::Usage(format!(
            "{}: expected a batch and a number of tokens, found the lengths {}",
            model.name,
            known.join(", ")
        )));
    };
    let (b, s) = (b.to_string(), s.to_string());
    Ok([(b.as_str(), batch as i64), (s.as_str(), tokens as i64)]
        .into_iter()
        .collect())
}
