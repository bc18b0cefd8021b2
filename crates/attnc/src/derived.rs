//! Inputs of the graph that are computed from the inputs of the model, before a run.
//!
//! Lengths must be known before a plan runs. Where a model asks how many elements of a mask are set, or makes
//! a buffer as long as a number it computes, the importer leaves an input in the graph ([`DerivedInput`]),
//! and it is made here: the graph behind it is run in f64, and its result read.
//!
//! On exit every length of the graph has a value, and the tensors are those of the graph's inputs.

use crate::backend::{cpu_dims, cpu_named};
use crate::inputs::{BoundInputs, InputErrors, InputProblem};
use crate::ir::{DType, Dim, Graph, TensorData};
use crate::onnx::{DerivedInput, DerivedKind};
use crate::rules::Rules;
use crate::{Error, cpu};

/// Adds the derived inputs and the lengths that follow from them to the inputs of the model.
///
/// # Errors
/// Lengths that contradict what the model takes for granted, and what running the graphs behind says.
pub(crate) fn complete(
    derived: &[DerivedInput],
    rules: &Rules,
    bound: &mut BoundInputs,
) -> Result<(), Error> {
    for input in derived {
        let found = compute(input, bound)?;
        learn_lengths(input, &found, bound)?;
        bound.tensors.push(found);
    }
    match rules.broken_constraints(&bound.dims) {
        broken if broken.is_empty() => Ok(()),
        broken => Err(InputErrors(broken).into()),
    }
}

fn compute(input: &DerivedInput, bound: &BoundInputs) -> Result<TensorData, Error> {
    let tensors = cpu_named(&names(&input.graph), &bound.tensors)?;
    let results = cpu::interp::run(&input.graph, &cpu_dims(&bound.dims), &tensors)?;
    let (_, result) = results.first().expect("the graph has one output");
    let values = result.to_f64();
    let (shape, data) = match input.kind {
        DerivedKind::Positions => positions(result.shape(), &values),
        DerivedKind::Count => {
            let count = values.first().copied().unwrap_or(0.0).max(0.0);
            let count = (0..i32::MAX).take_while(|&n| f64::from(n) < count);
            let data: Vec<i32> = count.take(MAX_COUNT + 1).collect();
            if data.len() > MAX_COUNT {
                return Err(too_long(&input.name));
            }
            (vec![data.len()], data)
        }
    };
    let bytes: Vec<u8> = data.iter().flat_map(|n| n.to_le_bytes()).collect();
    Ok(TensorData::new(DType::I32, shape, bytes.into()))
}

/// More than any length that a model computes.
const MAX_COUNT: usize = 1 << 24;

fn too_long(name: &str) -> Error {
    let problem = InputProblem::Constraint {
        smaller: format!("the length that `{name}` says"),
        larger: MAX_COUNT.to_string(),
        why: "lengths computed from data".to_owned(),
    };
    InputErrors(vec![problem]).into()
}

pub(crate) fn names(graph: &Graph) -> Vec<String> {
    let inputs = graph.inputs().iter();
    inputs.map(|&id| graph.node(id).name().to_owned()).collect()
}

/// The index of every element that is not 0, one row an axis.
fn positions(shape: &[usize], values: &[f64]) -> (Vec<usize>, Vec<i32>) {
    let found: Vec<usize> = (0..values.len()).filter(|&n| values[n] != 0.0).collect();
    let mut stride = values.len();
    let mut data = Vec::with_capacity(shape.len() * found.len());
    for &size in shape {
        stride = stride.checked_div(size).unwrap_or(0);
        let index = found.iter().map(|n| n / stride % size);
        data.extend(index.map(|n| i32::try_from(n).expect("an axis fits i32")));
    }
    (vec![shape.len(), found.len()], data)
}

/// The last axis gives its length a value, or agrees with what is known.
fn learn_lengths(
    input: &DerivedInput,
    found: &TensorData,
    bound: &mut BoundInputs,
) -> Result<(), Error> {
    let (Some(dim), Some(&size)) = (input.shape.last(), found.shape.last()) else {
        return Ok(());
    };
    let size = i64::try_from(size).expect("a length fits i64");
    if let Some(name) = dim.as_sym().filter(|name| bound.dims.get(name).is_none()) {
        bound.dims.set(name, size);
        return Ok(());
    }
    match bound.dims.eval(dim) {
        Ok(known) if known == size => Ok(()),
        Ok(known) => Err(disagreement(dim, known, size, &input.name)),
        Err(_) => Err(too_long(&input.name)),
    }
}

fn disagreement(dim: &Dim, known: i64, size: i64, name: &str) -> Error {
    let (known, found) = (format!("{dim} = {known}"), size.to_string());
    let problem = InputProblem::Constraint {
        smaller: known,
        larger: found,
        why: format!("the length of `{name}`, which is to be the same"),
    };
    InputErrors(vec![problem]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_rows_of_indices_in_order() {
        let (shape, data) = positions(&[2, 3], &[0.0, 1.0, 0.0, -2.0, 0.0, 1.0]);
        assert_eq!(shape, [2, 3]);
        assert_eq!(data, [0, 1, 1, 1, 0, 2]);
        assert_eq!(positions(&[2, 0], &[]), (vec![2, 0], vec![]));
    }
}
