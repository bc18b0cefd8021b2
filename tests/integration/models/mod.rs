//! Real architectures, from the file to the result.

mod data_lengths;
mod exports;
mod hand;
mod minilm;
mod mutations;
mod rewrites;
mod scores;
mod tables;
mod tiny;

use crate::support::{Outcome, check_eq, ensure};
use attnc::opt::AttentionReport;
use attnc::plan::DimValues;
use attnc::{HostTensor, Model, Tensors, random};
use libtest_mimic::Trial;
use std::path::Path;

/// What is said of a model file, and whether it holds.
type Check = (&'static str, fn(&Path) -> Outcome);

pub(crate) fn trials() -> Vec<Trial> {
    let groups = [
        tiny::trials(),
        exports::trials(),
        tables::trials(),
        data_lengths::trials(),
        hand::trials(),
        minilm::trials(),
        mutations::trials(),
    ];
    groups.into_iter().flatten().collect()
}

/// Those with published weights.
pub(crate) fn real() -> Vec<Trial> {
    minilm::trials()
}

/// All attention fused, and as much of it as there is.
fn all_fused(report: &AttentionReport, expected: usize) -> Outcome {
    check_eq("declined", Vec::new(), report.declined.clone())?;
    check_eq(
        "found and fused",
        (expected, expected),
        (report.found, report.fused),
    )
}

/// Compiling twice gives the same plan and the same shaders, byte for byte.
fn same_twice(path: &Path) -> Outcome {
    let compile = || {
        let model = Model::open(path)?;
        let explained = attnc::explain::explain(
            &model,
            &attnc::opt::Options::default(),
            &attnc::plan::DeviceProfile::webgpu(),
        )?;
        Ok::<_, attnc::Error>(explained)
    };
    let (first, second) = (compile()?, compile()?);
    let json = |x: &attnc::explain::Explained| serde_json::to_string(&x.compiled.plan);
    ensure(json(&first)? == json(&second)?, || {
        "two compiles give different plans".to_owned()
    })?;
    check_eq("reports", &first.report, &second.report)?;
    let shaders = |x: &attnc::explain::Explained| {
        let kernels = x.compiled.plan.kernels.iter();
        kernels
            .map(|k| (k.name.clone(), k.wgsl.to_string()))
            .collect::<Vec<_>>()
    };
    check_eq("shaders", shaders(&first), shaders(&second))?;
    ensure(!shaders(&first).is_empty(), || "no kernel".to_owned())
}

/// Inputs for a model whose first axis is the batch, at a batch size and a length, the last sequence padded on the right by a third.
///
/// Lengths that the model does not have are left out, so that a vision model has its batch only.
fn made_inputs(
    model: &Model,
    (batch, seq): (i64, i64),
    seed: u64,
) -> Result<Tensors, attnc::Error> {
    let mut dims = DimValues::default();
    let first = model.inputs[0].shape[0].symbols();
    for name in attnc::inputs::lengths(&model.inputs) {
        let is_batch = first.contains(name.as_str());
        dims.set(&name, if is_batch { batch } else { seq });
    }
    let mut inputs = random::inputs(model, &dims, seed)?;
    for (name, tensor) in &mut inputs {
        let values = match name.as_str() {
            "attention_mask" => padded(tensor.shape()),
            // Which of the tokens belong to a second sentence; these models are given one.
            "token_type_ids" => vec![0.0; tensor.len()],
            _ => continue,
        };
        let made = HostTensor::new(tensor.shape().to_vec(), &values);
        *tensor = made.expect("of its shape").cast(tensor.dtype());
    }
    Ok(inputs)
}

/// Ones `[batch, seq]`, but zeros for the last third of the last row.
fn padded(shape: &[usize]) -> Vec<f64> {
    let (rows, columns) = (shape[0], shape[1]);
    let lengths = (0..rows).map(|row| {
        if row + 1 == rows {
            columns - columns / 3
        } else {
            columns
        }
    });
    lengths
        .flat_map(|length| (0..columns).map(move |at| f64::from(u8::from(at < length))))
        .collect()
}
