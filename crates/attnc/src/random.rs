//! Inputs drawn from a seed, for models whose inputs nobody has at hand.
//!
//! Floats are uniform in [-1, 1). An integer input that looks up a table (token ids) is drawn below the
//! size of the smallest table it looks up; every other integer, and every boolean, is 1, which is what a
//! mask wants. The same seed gives the same values everywhere.

use crate::host_tensor::byte_len;
use crate::ir::{Graph, Op, ValueId};
use crate::plan::DimValues;
use crate::rules::tables;
use crate::{Error, HostDType, HostTensor, Model, Port, Tensors, inputs};

/// More bytes than this are not drawn: 4 GiB.
const MAX_BYTES: usize = 4 << 30;

/// Draws all inputs of a model.
///
/// # Errors
/// Every length without a value in `dims`, and inputs too large to draw.
pub fn inputs(model: &Model, dims: &DimValues, seed: u64) -> Result<Tensors, Error> {
    let mut random = SplitMix64(seed);
    let shapes = shapes(model, dims)?;
    let mut tensors = Tensors::new();
    for (port, shape) in model.inputs.iter().zip(shapes) {
        let dtype = port.host_dtype();
        let len = shape.iter().product();
        let table = model
            .graph
            .by_name(&port.name)
            .and_then(|input| smallest_table(&model.graph, input));
        let mut draw = || match table {
            _ if dtype.is_float() => random.unit() * 2.0 - 1.0,
            Some(rows) => (random.unit() * rows as f64).floor(),
            None => 1.0,
        };
        let values: Vec<f64> = (0..len).map(|_| draw()).collect();
        let tensor = HostTensor::new(shape, &values).expect("as many values as the shape has");
        tensors.insert(port.name.clone(), tensor.cast(dtype));
    }
    Ok(tensors)
}

fn shapes(model: &Model, dims: &DimValues) -> Result<Vec<Vec<usize>>, Error> {
    let known = inputs::lengths(&model.inputs);
    let mut wrong: Vec<String> = known
        .iter()
        .filter(|name| dims.get(name).is_none())
        .map(|name| format!("length `{name}` has no value: give --dim {name}=N"))
        .collect();
    wrong.extend(inputs::unknown_lengths(&known, dims));
    if wrong.is_empty() {
        wrong.extend(negative_axes(&model.inputs, dims));
    }
    if !wrong.is_empty() {
        return Err(Error::Usage(wrong.join("\n")));
    }
    let shape = |port: &Port| {
        let sizes: Option<Vec<usize>> = port
            .shape
            .iter()
            .map(|dim| usize::try_from(dims.eval(dim).ok()?).ok())
            .collect();
        sizes
            .filter(|s| byte_len(HostDType::F64, s).is_some_and(|bytes| bytes <= MAX_BYTES))
            .ok_or_else(|| {
                let text = port.type_text();
                Error::Usage(format!(
                    "input `{}` of type {text} is too large to draw at these lengths; give smaller ones with --dim",
                    port.name
                ))
            })
    };
    model.inputs.iter().map(shape).collect()
}

/// A sentence for every axis whose length, such as `B - 5` at `B = 2`, is negative.
fn negative_axes(ports: &[Port], dims: &DimValues) -> Vec<String> {
    let axes = ports
        .iter()
        .flat_map(|port| port.shape.iter().map(move |dim| (port, dim)));
    let negative = axes.filter_map(|(port, dim)| Some((port, dim, dims.eval(dim).ok()?)));
    negative
        .filter(|(_, _, value)| *value < 0)
        .map(|(port, dim, value)| {
            format!(
                "input `{}` of type {}: length {dim} is {value}; it must be at least 0",
                port.name,
                port.type_text()
            )
        })
        .collect()
}

/// Rows of the smallest table that an input looks up, followed through views, casts and selections:
/// selecting among ids keeps them ids, arithmetic makes something else of them.
fn smallest_table(graph: &Graph, input: ValueId) -> Option<u64> {
    let follow =
        |op: &Op| op.is_view() || matches!(op, Op::Cast(_) | Op::Where | Op::Concat { .. });
    let tables = tables(graph, input, &follow);
    let rows = tables.into_iter().map(|(_, rows)| rows).min()?;
    u64::try_from(rows).ok()
}

/// Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "graph @m(%ids: i32[B, S], %mask: i32[B, S], %x: f32[B, 4]) {
  %table = constant f32[7, 2] splat 0.5
  %flat = reshape %ids, shape = [B * S]
  %rows = gather %table, %flat, axis = 0
  %m = cast %mask, to = f32
  %y = relu %x
  return %rows, %m, %y
}";

    #[test]
    fn ids_stay_below_their_table_and_masks_are_ones() {
        let model = Model::from_text("m", TEXT).unwrap();
        let dims = DimValues::from([("B", 3), ("S", 40)]);
        let drawn = inputs(&model, &dims, 1).unwrap();
        let ids = drawn["ids"].to_f64();
        assert!(ids.iter().all(|id| (0.0..7.0).contains(id)));
        assert!((0..7).all(|n| ids.contains(&f64::from(n))), "all ids occur");
        assert!(drawn["mask"].to_f64().iter().all(|&x| x == 1.0));
        assert!(drawn["x"].to_f64().iter().all(|x| (-1.0..1.0).contains(x)));
        assert_eq!(drawn, inputs(&model, &dims, 1).unwrap());
        assert_ne!(drawn, inputs(&model, &dims, 2).unwrap());
    }

    #[test]
    fn lengths_without_a_value_and_unknown_ones_are_all_named() {
        let model = Model::from_text("m", TEXT).unwrap();
        let error = inputs(&model, &DimValues::from([("T", 3)]), 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "length `B` has no value: give --dim B=N\n\
             length `S` has no value: give --dim S=N\n\
             no length is named `T`; the lengths are B, S"
        );
        let huge = DimValues::from([("B", 1 << 40), ("S", 1 << 40)]);
        assert_eq!(inputs(&model, &huge, 1).unwrap_err().exit_code(), 2);
    }
}
