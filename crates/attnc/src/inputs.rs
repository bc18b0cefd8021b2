//! Checking what a host gives against what a model takes.
//!
//! ```
//! use attnc::{HostTensor, Model, Tensors, inputs};
//! let model = Model::from_text("m", "graph @m(%x: f32[B, 4], %ids: i32[B]) {
//!   %y = relu %x
//!   return %y
//! }")?;
//! let given = Tensors::from([("x".to_owned(), HostTensor::new(vec![2, 3], &[0f32; 6]).unwrap())]);
//! let problems = inputs::bind(&model.inputs, &model.rules, &given, &Default::default()).unwrap_err();
//! assert_eq!(problems.to_string(), "the inputs do not fit the model:
//!   input `ids` is missing: expected int32[B]
//!   input `x`, axis 1: expected 4, found 3");
//! # Ok::<(), attnc::Error>(())
//! ```
//!
//! Exit: tensors in the types of the graph, in the order of the ports, and a value for every length that
//! an input has.

use crate::host_tensor::TensorError;
use crate::ir::TensorData;
use crate::plan::{BindProblem, DimBinding, DimValues};
use crate::rules::Rules;
use crate::{HostTensor, Port, TensorType, Tensors};
use indexmap::IndexMap;
use std::collections::BTreeSet;

/// Something wrong with what was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputProblem {
    /// An input that was not given.
    #[error("input `{name}` is missing: expected {expected}")]
    Missing {
        /// Its name.
        name: String,
        /// Its type.
        expected: String,
    },
    /// A tensor that is no input.
    #[error("no input is named `{name}`; the inputs are {known}")]
    Unknown {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A tensor of another element type.
    #[error("input `{name}`: expected {expected}, found {found}")]
    DType {
        /// The input's name.
        name: String,
        /// The type the model declares.
        expected: String,
        /// The type given.
        found: String,
    },
    /// An element that the graph's type cannot hold.
    #[error("input `{name}`: {error}")]
    Value {
        /// The input's name.
        name: String,
        /// Which element, and why.
        error: TensorError,
    },
    /// A shape that does not fit, or a length without a value.
    #[error(transparent)]
    Shape(#[from] BindProblem),
    /// Lengths for which the model means nothing.
    #[error("{smaller} must be at most {larger}: {why}")]
    Constraint {
        /// The length that is too large, and its value.
        smaller: String,
        /// Its limit.
        larger: String,
        /// Why.
        why: String,
    },
    /// An element that is no index of the table it looks up.
    #[error("input `{name}`: element {at:?} is {value}, but `{node}` looks up one of {rows} rows")]
    Lookup {
        /// The input's name.
        name: String,
        /// Index of the element.
        at: Vec<usize>,
        /// Its value.
        value: String,
        /// Rows of the table.
        rows: i64,
        /// The node that looks up.
        node: String,
    },
}

/// Everything wrong with what was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the inputs do not fit the model:{}", .0.iter().map(|p| format!("\n  {p}")).collect::<String>())]
pub struct InputErrors(pub Vec<InputProblem>);

/// Inputs ready to run: every length has a value, every tensor is in the graph's type.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundInputs {
    /// Values of the lengths.
    pub dims: DimValues,
    /// The tensors, in the order of the ports.
    pub tensors: Vec<TensorData>,
}

/// The lengths that occur in the shapes of ports, sorted.
#[must_use]
pub fn lengths(ports: &[Port]) -> Vec<String> {
    let names: BTreeSet<String> = ports
        .iter()
        .flat_map(|p| p.shape.iter().flat_map(crate::ir::Dim::symbols))
        .map(|s| s.to_string())
        .collect();
    names.into_iter().collect()
}

/// A sentence for every name in `dims` that is none of the lengths `known`.
pub(crate) fn unknown_lengths(known: &[String], dims: &DimValues) -> Vec<String> {
    let listed = match known {
        [] => "none".to_owned(),
        _ => known.join(", "),
    };
    dims.iter()
        .filter(|(name, _)| !known.iter().any(|k| k == name))
        .map(|(name, _)| format!("no length is named `{name}`; the lengths are {listed}"))
        .collect()
}

/// Checks names, types and shapes, before anything is known of the values: what [`bind`] says of tensors
/// like these whatever they hold.
///
/// # Errors
/// Everything that does not fit.
pub fn check_types(
    ports: &[Port],
    rules: &Rules,
    given: &IndexMap<String, TensorType>,
    dims: &DimValues,
) -> Result<(), InputErrors> {
    let mut problems = name_problems(ports, |name| given.contains_key(name), given.keys());
    let wrong = ports.iter().filter_map(|port| {
        let found = given.get(&port.name)?;
        (!port.accepts(found.dtype)).then(|| dtype_problem(port, found.to_string()))
    });
    problems.extend(wrong);
    let shape = |name: &str| given.get(name).map(|t| t.shape.as_slice());
    match bind_shapes(ports, shape, dims) {
        Ok(dims) => problems.extend(rules.broken_constraints(&dims)),
        Err(shapes) => problems.extend(shapes),
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(InputErrors(problems))
    }
}

fn dtype_problem(port: &Port, found: String) -> InputProblem {
    InputProblem::DType {
        name: port.name.clone(),
        expected: port.type_text(),
        found,
    }
}

/// Checks names, types, shapes and values; `dims` has values for lengths, as `--dim` gives them.
///
/// # Errors
/// Everything that does not fit.
pub fn bind(
    ports: &[Port],
    rules: &Rules,
    given: &Tensors,
    dims: &DimValues,
) -> Result<BoundInputs, InputErrors> {
    let mut problems = name_problems(ports, |name| given.contains_key(name), given.keys());
    let mut tensors = Vec::with_capacity(ports.len());
    for port in ports {
        let Some(tensor) = given.get(&port.name) else {
            continue;
        };
        if port.accepts(tensor.dtype()) {
            match tensor.to_graph(port.dtype) {
                Ok(data) => {
                    problems.extend(rules.broken_lookup(&port.name, tensor));
                    tensors.push(data);
                }
                Err(error) => problems.push(InputProblem::Value {
                    name: port.name.clone(),
                    error,
                }),
            }
        } else {
            problems.push(dtype_problem(port, tensor.type_text()));
        }
    }
    let shape = |name: &str| given.get(name).map(HostTensor::shape);
    match bind_shapes(ports, shape, dims) {
        Ok(dims) => {
            problems.extend(rules.broken_constraints(&dims));
            if problems.is_empty() {
                return Ok(BoundInputs { dims, tensors });
            }
        }
        Err(shapes) => problems.extend(shapes),
    }
    Err(InputErrors(problems))
}

fn name_problems<'n>(
    ports: &[Port],
    is_given: impl Fn(&str) -> bool,
    given: impl Iterator<Item = &'n String>,
) -> Vec<InputProblem> {
    let missing = ports.iter().filter(|p| !is_given(&p.name));
    let missing = missing.map(|p| InputProblem::Missing {
        name: p.name.clone(),
        expected: p.type_text(),
    });
    let known: Vec<_> = ports.iter().map(|p| format!("`{}`", p.name)).collect();
    let unknown = given.filter(|name| !ports.iter().any(|p| p.name == **name));
    let unknown = unknown.map(|name| InputProblem::Unknown {
        name: name.clone(),
        known: known.join(", "),
    });
    missing.chain(unknown).collect()
}

/// The lengths from the shapes that are there. A length that a missing input would have given is not
/// complained about again.
fn bind_shapes<'s>(
    ports: &[Port],
    given: impl Fn(&str) -> Option<&'s [usize]>,
    dims: &DimValues,
) -> Result<DimValues, Vec<InputProblem>> {
    let names = lengths(ports);
    let shapes = ports.iter().map(|p| (p.name.as_str(), p.shape.as_slice()));
    let binding = DimBinding::new(&names, shapes).dims(dims);
    let binding = ports
        .iter()
        .fold(binding, |binding, port| match given(&port.name) {
            Some(shape) => binding.shape(&port.name, shape),
            None => binding,
        });
    let all_there = ports.iter().all(|p| given(&p.name).is_some());
    binding.finish().map_err(|errors| {
        let told = |p: &BindProblem| all_there || !matches!(p, BindProblem::NoValue { .. });
        errors
            .0
            .into_iter()
            .filter(told)
            .map(InputProblem::from)
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostDType;
    use crate::ir::{DType, Dim};

    fn port(name: &str, dtype: DType, shape: &[&str], declared: Option<HostDType>) -> Port {
        let shape = shape.iter().map(|d| d.parse::<Dim>().unwrap()).collect();
        Port {
            name: name.to_owned(),
            dtype,
            shape,
            declared,
        }
    }

    fn ports() -> [Port; 2] {
        [
            port("ids", DType::I32, &["B", "S"], Some(HostDType::I64)),
            port("mask", DType::F32, &["B", "S"], Some(HostDType::F32)),
        ]
    }

    fn problems(given: Tensors) -> Vec<String> {
        let error = bind(&ports(), &Rules::default(), &given, &DimValues::default()).unwrap_err();
        error.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn good_inputs_give_lengths_and_graph_types() {
        let given = Tensors::from([
            (
                "mask".into(),
                HostTensor::new(vec![1, 2], &[1f32, 0.0]).unwrap(),
            ),
            (
                "ids".into(),
                HostTensor::new(vec![1, 2], &[7i64, -1]).unwrap(),
            ),
        ]);
        let bound = bind(&ports(), &Rules::default(), &given, &DimValues::default()).unwrap();
        assert_eq!(bound.dims, DimValues::from([("B", 1), ("S", 2)]));
        assert_eq!(bound.tensors[0].to_f64(), Some(vec![7.0, -1.0]));
        assert_eq!(bound.tensors[0].dtype, DType::I32);
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let given = Tensors::from([
            (
                "ids".into(),
                HostTensor::new(vec![2, 3], &[0f32; 6]).unwrap(),
            ),
            (
                "maks".into(),
                HostTensor::new(vec![2, 3], &[0f32; 6]).unwrap(),
            ),
        ]);
        assert_eq!(
            problems(given),
            [
                "input `mask` is missing: expected float32[B, S]",
                "no input is named `maks`; the inputs are `ids`, `mask`",
                "input `ids`: expected int64[B, S], found float32[2, 3]",
            ]
        );
    }

    #[test]
    fn shapes_are_checked_against_each_other() {
        let given = Tensors::from([
            (
                "ids".into(),
                HostTensor::new(vec![2, 3], &[0i64; 6]).unwrap(),
            ),
            (
                "mask".into(),
                HostTensor::new(vec![2, 4], &[0f32; 8]).unwrap(),
            ),
        ]);
        let found = problems(given);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("input `mask`, axis 1: expected S = 3"),
            "{found:?}"
        );
    }

    #[test]
    fn values_beyond_the_graphs_type_name_input_index_and_value() {
        let given = Tensors::from([
            (
                "ids".into(),
                HostTensor::new(vec![1, 2], &[0i64, 1 << 35]).unwrap(),
            ),
            (
                "mask".into(),
                HostTensor::new(vec![1, 2], &[0f32; 2]).unwrap(),
            ),
        ]);
        assert_eq!(
            problems(given),
            ["input `ids`: element [0, 1] is 34359738368, which does not fit i32"]
        );
    }

    #[test]
    fn what_the_model_takes_for_granted_is_checked() {
        let given = Tensors::from([
            (
                "ids".into(),
                HostTensor::new(vec![1, 9], &[0i64; 9]).unwrap(),
            ),
            (
                "mask".into(),
                HostTensor::new(vec![1, 9], &[0f32; 9]).unwrap(),
            ),
        ]);
        let limit = crate::onnx::Constraint {
            smaller: Dim::sym("S"),
            larger: Dim::from(8),
            why: "the position table has 8 rows".to_owned(),
        };
        let rules = Rules {
            constraints: vec![limit],
            lookups: Vec::new(),
        };
        let error = bind(&ports(), &rules, &given, &DimValues::default()).unwrap_err();
        assert_eq!(
            error.0[0].to_string(),
            "S = 9 must be at most 8: the position table has 8 rows"
        );
    }

    #[test]
    fn types_alone_show_what_does_not_fit() {
        let ty = |dtype, shape: &[usize]| TensorType {
            dtype,
            shape: shape.to_vec(),
        };
        let given = IndexMap::from([
            ("ids".to_owned(), ty(HostDType::F32, &[1, 9])),
            ("mask".to_owned(), ty(HostDType::F32, &[1, 8])),
            ("more".to_owned(), ty(HostDType::F32, &[])),
        ]);
        let (rules, dims) = (Rules::default(), DimValues::default());
        let error = check_types(&ports(), &rules, &given, &dims).unwrap_err();
        let said: Vec<_> = error.0.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].contains("no input is named `more`"), "{said:?}");
        assert!(said[1].contains("found float32[1, 9]"), "{said:?}");
        assert!(said[2].contains("input `mask`, axis 1"), "{said:?}");
        let good = IndexMap::from([
            ("ids".to_owned(), ty(HostDType::I64, &[1, 8])),
            ("mask".to_owned(), ty(HostDType::F32, &[1, 8])),
        ]);
        assert_eq!(check_types(&ports(), &rules, &good, &dims), Ok(()));
    }

    #[test]
    fn ids_must_be_rows_of_their_table() {
        let text = "graph @m(%ids: i32[B]) {
  %table = constant f32[7, 2] splat 0.5
  %y = gather %table, %ids, axis = 0
  return %y
}";
        let model = crate::Model::from_text("m", text).unwrap();
        let check = |ids: &[i64]| {
            let ids = HostTensor::new(vec![ids.len()], ids).unwrap();
            let given = Tensors::from([("ids".to_owned(), ids)]);
            bind(&model.inputs, &model.rules, &given, &DimValues::default())
        };
        assert!(check(&[0, 6, -7]).is_ok());
        assert_eq!(
            check(&[0, 7]).unwrap_err().0[0].to_string(),
            "input `ids`: element [1] is 7, but `y` looks up one of 7 rows"
        );
        assert!(check(&[-8]).is_err());
    }

    #[test]
    fn any_integer_will_do_where_only_the_graph_speaks() {
        let port = port("n", DType::I32, &["B"], None);
        assert!(port.accepts(HostDType::I64) && port.accepts(HostDType::U8));
        assert!(!port.accepts(HostDType::F32) && !port.accepts(HostDType::Bool));
    }
}
