//! Building ONNX models in a few words.
#![allow(
    dead_code,
    reason = "each test file is a crate of its own and uses a part of this"
)]

use attnc_onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto,
    ValueInfoProto, attribute_kind, data_type,
};
use attnc_onnx::{Import, ImportError};
use prost::Message;
use std::path::{Path, PathBuf};

/// A length: `"batch"`, `"64"`, or `"?"` for one without a name.
fn dimension(text: &str) -> DimensionProto {
    match text.parse() {
        Ok(n) => DimensionProto {
            dim_value: Some(n),
            dim_param: None,
        },
        Err(_) if text == "?" => DimensionProto::default(),
        Err(_) => DimensionProto {
            dim_value: None,
            dim_param: Some(text.to_owned()),
        },
    }
}

pub(crate) fn port(name: &str, elem_type: i32, dims: &[&str]) -> ValueInfoProto {
    let shape = TensorShapeProto {
        dim: dims.iter().map(|d| dimension(d)).collect(),
    };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto {
            tensor_type: Some(TensorTypeProto {
                elem_type,
                shape: Some(shape),
            }),
            ..Default::default()
        }),
    }
}

pub(crate) fn floats(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: data_type::FLOAT,
        raw_data: Some(
            values
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<_>>()
                .into(),
        ),
        ..Default::default()
    }
}

pub(crate) fn longs(name: &str, dims: &[i64], values: &[i64]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: data_type::INT64,
        int64_data: values.to_vec(),
        ..Default::default()
    }
}

pub(crate) fn external(name: &str, dims: &[i64], entries: &[(&str, &str)]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: data_type::FLOAT,
        data_location: 1,
        external_data: entries
            .iter()
            .map(|(key, value)| StringStringEntryProto {
                key: (*key).to_owned(),
                value: (*value).to_owned(),
            })
            .collect(),
        ..Default::default()
    }
}

pub(crate) fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: op.to_owned(),
        input: inputs.iter().map(|s| (*s).to_owned()).collect(),
        output: outputs.iter().map(|s| (*s).to_owned()).collect(),
        ..Default::default()
    }
}

/// Attributes in chains: `node(..).int("axis", 1)`.
pub(crate) trait With: Sized {
    fn attr(self, name: &str, kind: i32, fill: impl FnOnce(&mut AttributeProto)) -> Self;
    fn int(self, name: &str, value: i64) -> Self {
        self.attr(name, attribute_kind::INT, |a| a.i = Some(value))
    }
    fn ints(self, name: &str, value: &[i64]) -> Self {
        self.attr(name, attribute_kind::INTS, |a| a.ints = value.to_vec())
    }
    fn float(self, name: &str, value: f32) -> Self {
        self.attr(name, attribute_kind::FLOAT, |a| a.f = Some(value))
    }
    fn tensor(self, name: &str, value: TensorProto) -> Self {
        self.attr(name, attribute_kind::TENSOR, |a| {
            a.t = Some(Box::new(value));
        })
    }
}

impl With for NodeProto {
    fn attr(mut self, name: &str, kind: i32, fill: impl FnOnce(&mut AttributeProto)) -> Self {
        let mut attr = AttributeProto {
            name: name.to_owned(),
            kind,
            ..Default::default()
        };
        fill(&mut attr);
        self.attribute.push(attr);
        self
    }
}

/// A model with inputs `x` (or more) of f32 and one output `y`.
pub(crate) fn model(
    opset: i64,
    inputs: &[ValueInfoProto],
    constants: &[TensorProto],
    nodes: &[NodeProto],
) -> ModelProto {
    ModelProto {
        ir_version: 10,
        opset_import: vec![OperatorSetIdProto {
            domain: String::new(),
            version: opset,
        }],
        graph: Some(GraphProto {
            name: "test".to_owned(),
            node: nodes.to_vec(),
            input: inputs.to_vec(),
            output: vec![port("y", data_type::FLOAT, &[])],
            initializer: constants.to_vec(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(crate) fn import_in(model: &ModelProto, dir: Option<&Path>) -> Result<Import, ImportError> {
    attnc_onnx::import_bytes(model.encode_to_vec().into(), dir)
}

pub(crate) fn import(model: &ModelProto) -> Result<Import, ImportError> {
    import_in(model, None)
}

/// The graph's text without its first and last line, once it verifies.
#[track_caller]
pub(crate) fn body(model: &ModelProto) -> String {
    let import = import(model).unwrap_or_else(|e| panic!("{e}"));
    attnc_ir::verify(&import.graph).unwrap_or_else(|e| panic!("{e}"));
    let text = attnc_ir::text::print(&import.graph);
    let lines: Vec<_> = text.lines().collect();
    lines[1..lines.len() - 1]
        .iter()
        .map(|l| format!("{}\n", l.trim()))
        .collect()
}

/// The codes of the findings of an invalid model.
#[track_caller]
pub(crate) fn codes(model: &ModelProto) -> Vec<&'static str> {
    match import(model) {
        Err(ImportError::Invalid(found)) => found.0.iter().map(|d| d.code).collect(),
        other => panic!("expected an invalid model, found {other:?}"),
    }
}

/// A file in the folder of material that is not part of the project, if it is there.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Some(root.join("../shared/cases").join(path)).filter(|p| p.exists())
}
