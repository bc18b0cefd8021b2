//! Inputs and outputs of a model, with the types its file declares.

use crate::HostDType;
use crate::ir::{DType, Dim, Graph};
use crate::plan::Plan;

/// An input or output of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name in the model.
    pub name: String,
    /// Its element type in the graph.
    pub dtype: DType,
    /// Its lengths.
    pub shape: Vec<Dim>,
    /// The element type that the model file declares; `None` where the graph's own is the only one.
    pub declared: Option<HostDType>,
}

impl Port {
    /// The element type of the host's tensors.
    #[must_use]
    pub fn host_dtype(&self) -> HostDType {
        self.declared.unwrap_or_else(|| self.dtype.into())
    }

    /// Whether a tensor of that type can be given.
    ///
    /// What a file declares is taken at its word. Where only the graph says `i32`, any integer will do:
    /// NumPy's are 64 bits unless told otherwise, and values are checked.
    #[must_use]
    pub fn accepts(&self, found: HostDType) -> bool {
        found == self.host_dtype()
            || (self.declared.is_none() && self.dtype.is_int() && found.is_int())
    }

    /// `int64[B, S]`.
    #[must_use]
    pub fn type_text(&self) -> String {
        let dims: Vec<_> = self.shape.iter().map(ToString::to_string).collect();
        format!("{}[{}]", self.host_dtype(), dims.join(", "))
    }

    /// The inputs of a graph that was not imported.
    pub(crate) fn inputs_of(graph: &Graph) -> Vec<Self> {
        let ports = graph.inputs().iter();
        ports
            .map(|&id| Self::of(graph.node(id).name(), graph, id))
            .collect()
    }

    /// The outputs of a graph that was not imported.
    pub(crate) fn outputs_of(graph: &Graph) -> Vec<Self> {
        let ports = graph.outputs().iter();
        ports.map(|(name, id)| Self::of(name, graph, *id)).collect()
    }

    fn of(name: &str, graph: &Graph, id: crate::ir::ValueId) -> Self {
        Self {
            name: name.to_owned(),
            dtype: graph.ty(id).dtype,
            shape: graph.ty(id).shape.clone(),
            declared: None,
        }
    }

    /// Inputs and outputs of a plan, which remembers what the model file declared.
    pub(crate) fn of_plan(plan: &Plan) -> (Vec<Self>, Vec<Self>) {
        let port = |p: &crate::plan::Port| Self {
            name: p.name.clone(),
            dtype: p.dtype,
            shape: p.shape.clone(),
            declared: p.source_dtype.as_deref().and_then(HostDType::from_name),
        };
        (
            plan.inputs.iter().map(port).collect(),
            plan.outputs.iter().map(port).collect(),
        )
    }
}
