//! What a model takes for granted about its inputs beyond their types.
//!
//! Two kinds: lengths (`seq` is at most the rows of a position table) and ids (token ids are below the
//! rows of the table they look up). Both are checked before a run, so that every backend refuses the same
//! inputs with the same words; a shader could only clamp an id.

use crate::HostTensor;
use crate::inputs::InputProblem;
use crate::ir::{DType, Graph, Op, ValueId};
use crate::onnx::Constraint;
use crate::plan::DimValues;

/// What a model takes for granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Lengths that must not be larger than others.
    pub constraints: Vec<Constraint>,
    /// Inputs whose elements are indices into a table.
    pub lookups: Vec<Lookup>,
}

/// An input whose every element is an index into an axis of known length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The input's name.
    pub input: String,
    /// Length of the axis; indices from `-rows` count from its end.
    pub rows: i64,
    /// The source node that looks up.
    pub node: String,
}

impl Rules {
    /// The rules of a graph.
    pub(crate) fn of(graph: &Graph, constraints: Vec<Constraint>) -> Self {
        let inputs = graph.inputs().iter();
        Self {
            constraints,
            lookups: inputs.filter_map(|&id| lookup(graph, id)).collect(),
        }
    }

    /// The constraints that do not hold; one whose lengths have no values is left to whoever needs them.
    pub(crate) fn broken_constraints(&self, dims: &DimValues) -> Vec<InputProblem> {
        let problem = |c: &Constraint| {
            let (low, high) = (dims.eval(&c.smaller).ok()?, dims.eval(&c.larger).ok()?);
            (low > high).then(|| InputProblem::Constraint {
                smaller: format!("{} = {low}", c.smaller),
                larger: match c.larger.as_const() {
                    Some(_) => high.to_string(),
                    None => format!("{} = {high}", c.larger),
                },
                why: c.why.clone(),
            })
        };
        self.constraints.iter().filter_map(problem).collect()
    }

    /// The first element of an input that is no index of the table it looks up.
    pub(crate) fn broken_lookup(&self, input: &str, tensor: &HostTensor) -> Option<InputProblem> {
        let lookup = self.lookups.iter().find(|l| l.input == input)?;
        let rows = lookup.rows as f64;
        let outside = |x: f64| x < -rows || x >= rows;
        let at = tensor.values().position(|x| outside(x.to_f64()))?;
        Some(InputProblem::Lookup {
            name: input.to_owned(),
            at: tensor.index_of(at),
            value: tensor.value(at).to_string(),
            rows: lookup.rows,
            node: lookup.node.clone(),
        })
    }
}

/// The smallest table that all elements of an input look up, if they do: only changes of shape may stand
/// between, since elements that something selects among need not all be indices.
fn lookup(graph: &Graph, input: ValueId) -> Option<Lookup> {
    let keeps_all = |op: &Op| {
        matches!(
            op,
            Op::Reshape(_) | Op::Transpose(_) | Op::Broadcast(_) | Op::Cast(DType::I32)
        )
    };
    let tables = tables(graph, input, &keeps_all);
    let (user, rows) = tables.into_iter().min_by_key(|(_, rows)| *rows)?;
    let (input, node) = (graph.node(input), graph.node(user));
    Some(Lookup {
        input: input.name().to_owned(),
        rows,
        node: node
            .origin
            .first()
            .map_or(node.name(), String::as_str)
            .to_owned(),
    })
}

/// The nodes that an input reaches as their index through ops that `follow` admits, with the length of the
/// axis they look up, where that is known.
pub(crate) fn tables(
    graph: &Graph,
    input: ValueId,
    follow: &dyn Fn(&Op) -> bool,
) -> Vec<(ValueId, i64)> {
    let mut seen = std::collections::BTreeSet::new();
    let mut stack = vec![input];
    let mut found = Vec::new();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        for user in graph.users(value) {
            let node = graph.node(user);
            match &node.op {
                Op::Gather { axis } | Op::GatherElements { axis } => {
                    let is_index = node.operands().get(1) == Some(&value);
                    let rows = graph.ty(node.operands()[0]).shape[*axis].as_const();
                    found.extend(rows.filter(|_| is_index).map(|rows| (user, rows)));
                }
                op if follow(op) => stack.push(user),
                _ => {}
            }
        }
    }
    found
}
