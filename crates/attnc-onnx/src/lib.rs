//! ONNX models to attnc graphs.
//!
//! Importing *executes* the model as far as it can be known without data: the arithmetic on shapes that
//! exporters write out (`Shape`, `Gather`, `Concat`, `Range`, …) is carried out on lengths, as polynomials
//! over the names that the file gives to the axes of its inputs. None of it is left in the graph.
//!
//! ```
//! use attnc_onnx::proto::{data_type, *};
//! use prost::Message;
//!
//! let port = |name: &str| ValueInfoProto {
//!     name: name.into(),
//!     r#type: Some(TypeProto {
//!         tensor_type: Some(TensorTypeProto {
//!             elem_type: data_type::FLOAT,
//!             shape: Some(TensorShapeProto {
//!                 dim: vec![DimensionProto { dim_param: Some("batch".into()), ..Default::default() }],
//!             }),
//!         }),
//!         ..Default::default()
//!     }),
//! };
//! let model = ModelProto {
//!     opset_import: vec![OperatorSetIdProto { version: 17, ..Default::default() }],
//!     graph: Some(GraphProto {
//!         node: vec![NodeProto {
//!             op_type: "Tanh".into(),
//!             input: vec!["x".into()],
//!             output: vec!["y".into()],
//!             ..Default::default()
//!         }],
//!         input: vec![port("x")],
//!         output: vec![port("y")],
//!         ..Default::default()
//!     }),
//!     ..Default::default()
//! };
//! let import = attnc_onnx::import_bytes(model.encode_to_vec().into(), None).unwrap();
//! assert_eq!(import.inputs[0].elem_type, "float");
//! assert_eq!(import.graph.ty(import.graph.outputs()[0].1).to_string(), "f32[batch]");
//! ```
//!
//! Invariant: a graph that comes out verifies; whatever goes in, there is no panic and no allocation that
//! the size of the input does not account for.

mod attrs;
mod call;
mod context;
mod dims;
mod error;
mod eval;
mod file;
mod known;
mod model;
mod ops;
mod order;
pub mod proto;
mod scan;
mod tensor;
pub mod tensor_pb;
mod value;

pub use error::{ImportError, Unsupported};

use attnc_ir::{Dim, Graph, Shape, SharedBytes};
use bytes::Bytes;
use prost::Message;
use std::path::Path;

/// An imported model.
#[derive(Debug)]
pub struct Import {
    /// The graph, with the file's names of inputs, outputs, values and weights.
    pub graph: Graph,
    /// The inputs, in the order of the file.
    pub inputs: Vec<PortInfo>,
    /// The outputs, in the order of the file.
    pub outputs: Vec<PortInfo>,
    /// What the graph takes for granted about its lengths; to be checked when they are known.
    pub constraints: Vec<Constraint>,
    /// Inputs of the graph that are not in the file, behind those that are: what lengths follow from.
    pub derived: Vec<DerivedInput>,
    /// What one may want to know: precision that was given up, say. Sorted.
    pub notes: Vec<String>,
}

/// An input of the graph whose shape depends on data, computed from the other inputs before a run.
///
/// A list of positions (`NonZero`) is as long as there are elements to find, and a buffer can be as long as
/// some number says that the model computes. Plans need their lengths before they run, so such a list is an
/// input, which the host makes from the result of a graph of its own.
#[derive(Debug, Clone)]
pub struct DerivedInput {
    /// The name of the input.
    pub name: String,
    /// Its shape; the last length is what its result says.
    pub shape: Shape,
    /// The graph with one output, over the inputs in front of this one.
    pub graph: Graph,
    /// What to make of its result.
    pub kind: DerivedKind,
}

/// What a [`DerivedInput`] holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DerivedKind {
    /// `i32[axes, N]`: the index of each element that is not 0, in order, a row an axis.
    Positions,
    /// `i32[N]`, where the result is the number N: 0, 1, 2, …
    Count,
}

/// An input or output as the file declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortInfo {
    /// The name.
    pub name: String,
    /// The ONNX element type: `int64`, which is an i32 in the graph.
    pub elem_type: &'static str,
    /// The shape.
    pub shape: Shape,
}

/// `smaller <= larger`: what the graph takes for granted about its lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    /// The length that must not be larger.
    pub smaller: Dim,
    /// The length that must not be smaller.
    pub larger: Dim,
    /// Why.
    pub why: String,
}

/// An operator that imports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operator {
    /// The domain; empty for the standard's own.
    pub domain: &'static str,
    /// The name.
    pub name: &'static str,
    /// More operands than this are an error.
    pub most_inputs: usize,
    /// The attributes that are understood; any other is an error.
    pub attributes: &'static [&'static str],
}

/// Every operator that imports.
///
/// ```
/// let gelu = attnc_onnx::operators().find(|op| op.name == "Gelu" && op.domain.is_empty());
/// assert_eq!(gelu.unwrap().attributes, ["approximate"]);
/// ```
pub fn operators() -> impl Iterator<Item = Operator> {
    let control = model::control::OPERATORS.iter();
    let control = control.map(|&(name, attributes)| Operator {
        domain: "",
        name,
        most_inputs: usize::MAX,
        attributes,
    });
    ops::operators().chain(control)
}

/// Imports the model in a file. The file and its external data are mapped, weights are not copied.
///
/// # Errors
/// Where the file cannot be read, is no model, contradicts itself, or uses what is not supported; the last
/// two list everything of their kind.
pub fn import(path: &Path) -> Result<Import, ImportError> {
    let bytes = file::map_model(path)?;
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    decode(bytes, Some(dir))
}

/// Imports a model from memory. External data is looked for in `dir`.
///
/// # Errors
/// As [`import`].
pub fn import_bytes(bytes: SharedBytes, dir: Option<&Path>) -> Result<Import, ImportError> {
    struct Owner(SharedBytes);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    decode(Bytes::from_owner(Owner(bytes)), dir)
}

fn decode(bytes: Bytes, dir: Option<&Path>) -> Result<Import, ImportError> {
    let length = bytes.len();
    let malformed = |reason| ImportError::Malformed {
        bytes: length,
        reason,
    };
    scan::check(&bytes).map_err(malformed)?;
    let model = proto::ModelProto::decode(bytes).map_err(|e| malformed(e.to_string()))?;
    model::import(&model, &mut file::Files::new(dir), length)
}
