//! One compile serves every batch size and length: exports with open lengths run at three others, against
//! the graph as imported in f64, and no pipeline is made for any of them.

use super::exports::{Export, chosen};
use super::{Gear, known, verdict::Verdict};
use crate::support::{Outcome, agree, check_eq, on_both, session};
use attnc::plan::DimValues;
use attnc::{HostTensor, Model, Tensors, npz, oracle};
use libtest_mimic::{Failed, Trial};

/// Batch sizes and lengths; what a model calls a second length is one shorter.
const PAIRS: [(i64, i64); 3] = [(1, 4), (3, 12), (2, 24)];

pub(super) fn trials(gear: Gear) -> Vec<Trial> {
    let exports = chosen(gear, Export::is_dynamic);
    let trials = exports.into_iter().flat_map(|export| {
        let name = format!("corpus/lengths/{}", export.name());
        on_both(&name, &[], move |backend| runs(&export, backend))
    });
    trials.collect()
}

fn runs(export: &Export, backend: &'static str) -> Outcome {
    let name = format!("exports/{}", export.name());
    let known = known::expected(&name, backend);
    let model = match (Model::open(export.model()), known) {
        // Refusals are settled where the export runs as it came.
        (Err(error), Some(known)) => return known::refused(&Verdict::of_error(&error), known),
        (model, _) => model?,
    };
    let mut session = match (session(&model, backend), known) {
        (Err(error), Some(known)) => return known::refused(&Verdict::of_error(&error), known),
        (session, _) => session?,
    };
    let shipped = npz::read(&export.folder.join("inputs.npz"))?;
    session.run(&shipped)?;
    let made = session.stats().pipelines_created;
    for (batch, length) in PAIRS {
        let dims = lengths(&model, batch, length)?;
        let inputs = cycled(&model, &shipped, &dims)?;
        let expected = oracle::run(&model, &inputs, &dims)?;
        let found = session.run(&inputs)?;
        let at = format!("{batch} × {length}");
        agree(&at, &expected, &found, export.tolerance())?;
        check_eq("pipelines", made, session.stats().pipelines_created)?;
    }
    Ok(())
}

/// A value for every length of the model, by the names that the exports of the corpus use.
fn lengths(model: &Model, batch: i64, length: i64) -> Result<DimValues, Failed> {
    let mut dims = DimValues::default();
    for name in attnc::inputs::lengths(&model.inputs) {
        let value = match name.as_str() {
            "batch" => batch,
            "seq" | "src" | "total" => length,
            "tgt" | "past" => length - 1,
            other => return Err(format!("what is the length `{other}`?").into()),
        };
        dims.set(&name, value);
    }
    Ok(dims)
}

/// The case's own inputs, repeated or cut along every axis: ids stay ids, and masks masks.
fn cycled(model: &Model, shipped: &Tensors, dims: &DimValues) -> Result<Tensors, Failed> {
    let mut inputs = Tensors::new();
    for port in &model.inputs {
        let given = shipped.get(&port.name).ok_or("inputs of the case")?;
        let mut shape = Vec::new();
        for dim in &port.shape {
            shape.push(usize::try_from(dims.eval(dim)?)?);
        }
        let count = shape.iter().product();
        let values: Vec<f64> = (0..count).map(|flat| at(given, &shape, flat)).collect();
        let tensor = HostTensor::new(shape, &values)?.cast(given.dtype());
        inputs.insert(port.name.clone(), tensor);
    }
    Ok(inputs)
}

/// The element of `given` at an index over `shape`, modulo its own shape.
fn at(given: &HostTensor, shape: &[usize], mut flat: usize) -> f64 {
    let (mut from, mut stride) = (0, 1);
    for (&size, &own) in shape.iter().zip(given.shape()).rev() {
        from += flat % size % own * stride;
        flat /= size;
        stride *= own;
    }
    given.value(from).to_f64()
}
