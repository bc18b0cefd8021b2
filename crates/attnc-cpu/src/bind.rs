//! Binding a graph to the shapes of its inputs: the values of all lengths and the shapes of all values.
//!
//! Invariant on exit: every value of the graph has a shape whose element count fits an `isize`, and every
//! symbolic length that occurs in a shape has a value of at least 0.

use crate::error::place;
use crate::{ExecError, InputProblem, LengthError, Tensor};
use attnc_ir::{Atom, DType, Dim, Graph, TensorType, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Values of symbolic lengths, by name.
pub type Dims = BTreeMap<String, i64>;

/// A graph with its lengths known.
#[derive(Debug, Clone)]
pub(crate) struct Bound {
    /// Values of the lengths.
    pub(crate) dims: Dims,
    /// Operands before users.
    pub(crate) order: Vec<ValueId>,
    /// Shape of each value, by [`ValueId::index`].
    shapes: Vec<Vec<usize>>,
}

impl Bound {
    /// Binds the shapes of all values; `dims` as [`bind_dims`] gives them.
    pub(crate) fn new(graph: &Graph, dims: Dims) -> Result<Self, ExecError> {
        let order = graph.topo_order();
        if order.len() != graph.len() {
            return Err(ExecError::Malformed {
                at: format!("@{}", graph.name()),
                message: "some values depend on themselves".to_owned(),
            });
        }
        let mut bound = Self {
            dims,
            order,
            shapes: vec![Vec::new(); graph.id_bound()],
        };
        for id in bound.order.clone() {
            let shape = bound.shape_of(graph, id, &graph.ty(id).shape)?;
            bound.shapes[id.index()] = shape;
        }
        Ok(bound)
    }

    /// Sizes of the axes of a value.
    pub(crate) fn shape(&self, id: ValueId) -> &[usize] {
        &self.shapes[id.index()]
    }

    /// The value of an expression of lengths in node `id`.
    pub(crate) fn value(&self, graph: &Graph, id: ValueId, dim: &Dim) -> Result<i64, ExecError> {
        dim.eval(&|name| self.dims.get(name).copied())
            .map_err(|error| ExecError::Length {
                at: place(graph, id),
                error: error.into(),
            })
    }

    fn shape_of(&self, graph: &Graph, id: ValueId, dims: &[Dim]) -> Result<Vec<usize>, ExecError> {
        let mut shape = Vec::with_capacity(dims.len());
        for dim in dims {
            let value = self.value(graph, id, dim)?;
            let size = usize::try_from(value).map_err(|_| ExecError::Length {
                at: place(graph, id),
                error: LengthError::Negative {
                    dim: dim.to_string(),
                    value,
                },
            })?;
            shape.push(size);
        }
        // 8 bytes an element must be addressable. A zero does not excuse absurd sizes beside it.
        let bytes = shape
            .iter()
            .fold(8u128, |n, &d| n.saturating_mul(d.max(1) as u128));
        if bytes > isize::MAX.unsigned_abs() as u128 {
            return Err(ExecError::TooLarge {
                at: place(graph, id),
                needed: bytes,
                available: crate::memory::available_bytes(),
            });
        }
        Ok(shape)
    }
}

/// The values of the lengths that follow from `inputs`, added to `known`. Checks names, element types,
/// ranks and sizes of all inputs.
///
/// # Errors
/// [`ExecError::Inputs`] with everything that does not fit.
pub fn bind_dims(
    graph: &Graph,
    known: &Dims,
    inputs: &[(String, Tensor)],
) -> Result<Dims, ExecError> {
    let given = inputs.iter().map(|(name, t)| Given {
        name,
        dtype: t.dtype(),
        shape: t.shape(),
    });
    dims_of(graph, known, &given.collect::<Vec<_>>())
}

/// What is to be known of an input before its values are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [usize],
}

/// As [`bind_dims`], for inputs in any form.
pub(crate) fn dims_of(
    graph: &Graph,
    known: &Dims,
    inputs: &[Given<'_>],
) -> Result<Dims, ExecError> {
    let mut problems = name_problems(graph, inputs);
    let mut sizes = Vec::new();
    for &id in graph.inputs() {
        let name = graph.node(id).name();
        let expected = graph.ty(id);
        let Some(tensor) = inputs.iter().find(|t| t.name == name) else {
            problems.push(InputProblem::Missing {
                name: name.to_owned(),
                expected: expected.to_string(),
            });
            continue;
        };
        if tensor.dtype != expected.dtype || !constants_fit(expected, tensor.shape) {
            problems.push(InputProblem::Type {
                name: name.to_owned(),
                expected: expected.to_string(),
                found: TensorType::new(tensor.dtype, tensor.shape.iter().copied()).to_string(),
            });
            continue;
        }
        for (axis, (dim, &size)) in expected.shape.iter().zip(tensor.shape).enumerate() {
            sizes.push(Size {
                name,
                axis,
                dim,
                size,
            });
        }
    }
    let mut dims = known.clone();
    solve(&mut dims, &sizes);
    problems.extend(sizes.iter().filter_map(|s| s.problem(&dims)));
    if problems.is_empty() {
        Ok(dims)
    } else {
        Err(ExecError::Inputs(problems))
    }
}

fn name_problems(graph: &Graph, inputs: &[Given<'_>]) -> Vec<InputProblem> {
    let names: Vec<&str> = graph
        .inputs()
        .iter()
        .map(|&id| graph.node(id).name())
        .collect();
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for &Given { name, .. } in inputs {
        if !names.contains(&name) {
            problems.push(InputProblem::Unknown {
                name: name.to_owned(),
                inputs: names.join(", "),
            });
        } else if !seen.insert(name) {
            problems.push(InputProblem::Repeated {
                name: name.to_owned(),
            });
        }
    }
    problems
}

fn constants_fit(expected: &TensorType, shape: &[usize]) -> bool {
    expected.rank() == shape.len()
        && expected.shape.iter().zip(shape).all(|(dim, &size)| {
            dim.as_const()
                .is_none_or(|d| usize::try_from(d).is_ok_and(|d| d == size))
        })
}

/// An axis of an input and what was given for it.
struct Size<'a> {
    name: &'a str,
    axis: usize,
    dim: &'a Dim,
    size: usize,
}

impl Size<'_> {
    fn problem(&self, dims: &Dims) -> Option<InputProblem> {
        match self.dim.eval(&|name| dims.get(name).copied()) {
            Ok(value) if usize::try_from(value).is_ok_and(|v| v == self.size) => None,
            Ok(expected) => Some(InputProblem::Contradiction {
                name: self.name.to_owned(),
                axis: self.axis,
                dim: self.dim.to_string(),
                expected,
                found: self.size,
            }),
            Err(_) => Some(InputProblem::Unsolved {
                name: self.name.to_owned(),
                axis: self.axis,
                dim: self.dim.to_string(),
                symbols: unknowns(self.dim, dims).join(", "),
            }),
        }
    }
}

fn unknowns(dim: &Dim, dims: &Dims) -> Vec<String> {
    dim.symbols()
        .into_iter()
        .filter(|s| !dims.contains_key(&**s))
        .map(|s| s.to_string())
        .collect()
}

/// Solves one length after another: any axis that has one unknown, linear, with a coefficient that divides.
fn solve(dims: &mut Dims, sizes: &[Size<'_>]) {
    loop {
        let found = sizes.iter().find_map(|s| {
            let [unknown] = <[String; 1]>::try_from(unknowns(s.dim, dims)).ok()?;
            let size = i64::try_from(s.size).ok()?;
            let value = solve_linear(s.dim, &unknown, size, dims)?;
            (value >= 0).then_some((unknown, value))
        });
        match found {
            Some((name, value)) => dims.insert(name, value),
            None => return,
        };
    }
}

/// The value of `unknown` that makes `dim` equal `size`, where `dim` is `rest + coeff * unknown`.
fn solve_linear(dim: &Dim, unknown: &str, size: i64, dims: &Dims) -> Option<i64> {
    let at = |value: i64| {
        dim.eval(&|name| {
            if name == unknown {
                Some(value)
            } else {
                dims.get(name).copied()
            }
        })
        .ok()
    };
    let linear = dim.terms().all(|(_, mono)| {
        mono.iter().all(|(atom, power)| match atom {
            Atom::Sym(s) => &**s != unknown || *power == 1,
            _ => !dim_of_atom_mentions(atom, unknown),
        })
    });
    if !linear {
        return None;
    }
    let rest = at(0)?;
    let coeff = at(1)?.checked_sub(rest)?;
    let value = size.checked_sub(rest)?;
    (coeff != 0 && value % coeff == 0).then(|| value / coeff)
}

fn dim_of_atom_mentions(atom: &Atom, name: &str) -> bool {
    match atom {
        Atom::FloorDiv(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
            a.symbols().contains(name) || b.symbols().contains(name)
        }
        Atom::Sym(_) | Atom::Index(_) => false,
    }
}
