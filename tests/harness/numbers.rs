//! Inputs from a seed, and the comparison of results.

use super::file::Case;
use attnc::ir::{DType, Graph, Op, SharedBytes};
use attnc::plan::DimValues;
use attnc::verify::{Tolerance, compare_all};
use attnc::{HostTensor, Model, Tensors, random};

/// Reads a case; weights that it only names get values.
pub(crate) fn model(case: &Case) -> Result<Model, String> {
    let mut model = Model::from_text(&case.name, &case.source()).map_err(|e| e.to_string())?;
    supply_weights(&mut model.graph)?;
    Ok(model)
}

/// Gives every weight without data numbers in [-0.5, 0.5): parts of one buffer, no two alike.
fn supply_weights(graph: &mut Graph) -> Result<(), String> {
    let missing = |graph: &Graph, id| match &graph.node(id).op {
        Op::Constant(data) if data.bytes.is_none() => Some((id, data.dtype, data.len())),
        _ => None,
    };
    let weights: Vec<_> = graph.values().filter_map(|id| missing(graph, id)).collect();
    let Some(largest) = weights.iter().map(|(.., len)| *len).max() else {
        return Ok(());
    };
    let mut state = 1u32;
    // Numerical Recipes' generator is enough: the numbers only have to differ.
    let numbers = (0..largest + weights.len()).flat_map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1u32 << 24) as f32 - 0.5).to_le_bytes()
    });
    let buffer = SharedBytes::from(numbers.collect::<Vec<u8>>());
    for (n, (id, dtype, len)) in weights.into_iter().enumerate() {
        if dtype != DType::F32 {
            return Err(format!(
                "a named weight of type {dtype}: cases get values for f32 ones only"
            ));
        }
        if let Op::Constant(data) = &mut graph.node_mut(id).op {
            data.bytes = buffer.slice(4 * n..4 * (n + len));
        }
    }
    Ok(())
}

/// The lengths of one `// dims: B = 2, M = 17`.
pub(crate) fn dims(text: &str) -> Result<DimValues, String> {
    let mut out = DimValues::default();
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| format!("`{part}` is not `NAME = N`"))?;
        let value = value
            .trim()
            .parse()
            .map_err(|_| format!("`{part}` is not `NAME = N`"))?;
        out.set(name.trim(), value);
    }
    Ok(out)
}

/// Small lengths for a model, all different, so that axes that are mixed up show.
pub(crate) fn some_dims(model: &Model) -> DimValues {
    let names = attnc::inputs::lengths(&model.inputs);
    let sizes = [2, 3, 5, 7, 4, 6, 9, 11].into_iter().chain(12..);
    let mut out = DimValues::default();
    for (name, size) in names.iter().zip(sizes) {
        out.set(name, size);
    }
    out
}

/// Random inputs, some of them filled as headers `// input: mask = zeros` say.
pub(crate) fn inputs(case: &Case, model: &Model, dims: &DimValues) -> Result<Tensors, String> {
    let seed = match case.get("seed") {
        Some(text) => text
            .parse()
            .map_err(|_| format!("`// seed: {text}` is no number"))?,
        None => 1,
    };
    let mut tensors = random::inputs(model, dims, seed).map_err(|e| e.to_string())?;
    for text in case.all("input") {
        let (name, how) = text
            .split_once('=')
            .ok_or_else(|| format!("`// input: {text}` is not `name = how`"))?;
        let tensor = tensors
            .get_mut(name.trim())
            .ok_or_else(|| format!("no input is called `{}`", name.trim()))?;
        *tensor = filled(tensor, how.trim())?;
    }
    Ok(tensors)
}

/// The tensor filled: `zeros`, `ones`, `nan`, `count` (0, 1, 2, …), `every 3` (1 at every third element), or
/// listed values `5, 0, 3` that are repeated.
fn filled(tensor: &HostTensor, how: &str) -> Result<HostTensor, String> {
    let len = tensor.len();
    let values: Vec<f64> = match how.split_once(' ') {
        _ if how == "zeros" => vec![0.0; len],
        _ if how == "ones" => vec![1.0; len],
        _ if how == "nan" => vec![f64::NAN; len],
        _ if how == "count" => (0..len).map(|i| i as f64).collect(),
        Some(("every", n)) => {
            let n: usize = n
                .parse()
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| format!("`{how}`: every how many?"))?;
            (0..len).map(|i| f64::from(u8::from(i % n == 0))).collect()
        }
        _ => {
            let listed: Result<Vec<f64>, _> = how.split(',').map(|v| v.trim().parse()).collect();
            let listed = listed.map_err(|_| format!("`{how}` is no way to fill an input"))?;
            listed.into_iter().cycle().take(len).collect()
        }
    };
    let wide = HostTensor::new(tensor.shape().to_vec(), &values).map_err(|e| e.to_string())?;
    Ok(wide.cast(tensor.dtype()))
}

/// Holds results to expected ones; the message names every output that is off, and how far.
pub(crate) fn agree(
    expected: &Tensors,
    found: &Tensors,
    tolerance: &Tolerance,
) -> Result<(), String> {
    let comparison = compare_all(expected, found, tolerance).map_err(|e| e.to_string())?;
    let wrong = comparison.outputs.iter().filter(|o| !o.passed);
    let wrong: Vec<_> = wrong
        .map(|o| format!("{} {}: {}", o.name, o.found, o.problem))
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}
