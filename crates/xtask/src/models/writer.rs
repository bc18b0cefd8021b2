//! Puts a graph together the way an exporter of PyTorch does, and writes it as ONNX.
//!
//! The two exporters differ in what matters to an importer: TorchScript emits a `Constant` node
//! before each use and names values by module path (`/encoder/layer.0/MatMul_output_0`); dynamo
//! emits each constant once as an initializer and numbers values (`val_12`).

use std::collections::BTreeMap;
use std::ops::Range;

use prost::Message as _;

use crate::onnx::{self, AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto};
use crate::onnx::{OperatorSetIdProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto};
use crate::onnx::{StringStringEntryProto, ValueInfoProto};

/// Whose idioms to write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Exporter {
    TorchScript,
    Dynamo,
}

/// The value of an attribute.
pub(super) enum Attribute<'a> {
    Int(i64),
    Float(f32),
    Ints(&'a [i64]),
    Text(&'a str),
    Tensor(TensorProto),
}

/// A dim of an input or output.
#[derive(Clone, Copy)]
pub(super) enum Dim {
    Named(&'static str),
    Fixed(i64),
}

/// A graph in the making. Values are the names of node outputs.
pub(super) struct Writer {
    exporter: Exporter,
    opset: i64,
    graph: GraphProto,
    /// Module path of the nodes to come; TorchScript only.
    scope: String,
    /// How often a TorchScript name was used.
    used: BTreeMap<String, usize>,
    /// The initializers that hold dynamo's constants.
    constants: BTreeMap<(i32, Vec<i64>, Vec<u8>), String>,
    values: usize,
}

impl Writer {
    pub(super) fn new(exporter: Exporter, opset: i64) -> Self {
        let graph = GraphProto {
            name: "main_graph".to_owned(),
            ..GraphProto::default()
        };
        Self {
            exporter,
            opset,
            graph,
            scope: String::new(),
            used: BTreeMap::new(),
            constants: BTreeMap::new(),
            values: 0,
        }
    }

    /// Declares an input of a type such as [`onnx::INT64`].
    pub(super) fn input(&mut self, name: &str, elem_type: i32, dims: &[Dim]) {
        self.graph.input.push(value_info(name, elem_type, dims));
    }

    /// Makes a value the `f32` output `name`; the node that computes it writes that name.
    pub(super) fn output(&mut self, value: &str, name: &str, dims: &[Dim]) {
        let values = self
            .graph
            .node
            .iter_mut()
            .flat_map(|node| node.output.iter_mut());
        for output in values.filter(|output| *output == value) {
            name.clone_into(output);
        }
        self.graph.output.push(value_info(name, onnx::FLOAT, dims));
    }

    /// Sets the module path of the nodes to come, without leading slash.
    pub(super) fn enter(&mut self, module: &str) {
        self.scope = module.to_owned();
    }

    /// A weight of the model, by its name in the state dict.
    pub(super) fn weight(&mut self, name: &str, dims: &[i64], data: &[f32]) -> String {
        let count: i64 = dims.iter().product();
        assert_eq!(
            count.unsigned_abs() as usize,
            data.len(),
            "{name}: {dims:?}"
        );
        self.graph
            .initializer
            .push(tensor(name, onnx::FLOAT, dims, floats(data)));
        name.to_owned()
    }

    /// A weight whose elements are a part of a file beside the model.
    pub(super) fn external(&mut self, name: &str, dims: &[i64], file: &str, part: Range<u64>) {
        let length = part.end - part.start;
        let entries = [
            ("location", file.to_owned()),
            ("offset", part.start.to_string()),
            ("length", length.to_string()),
        ];
        let entry = |(key, value): (&str, String)| StringStringEntryProto {
            key: key.to_owned(),
            value,
        };
        self.graph.initializer.push(TensorProto {
            external_data: entries.map(entry).into(),
            data_location: onnx::EXTERNAL,
            ..tensor(name, onnx::FLOAT, dims, Vec::new())
        });
    }

    /// An int64 buffer of the model, such as precomputed position ids.
    pub(super) fn buffer(&mut self, name: &str, dims: &[i64], data: &[i64]) -> String {
        self.graph
            .initializer
            .push(tensor(name, onnx::INT64, dims, integers(data)));
        name.to_owned()
    }

    /// A float scalar.
    pub(super) fn float(&mut self, value: f32) -> String {
        self.constant(onnx::FLOAT, &[], floats(&[value]))
    }

    /// An int64 scalar.
    pub(super) fn int(&mut self, value: i64) -> String {
        self.constant(onnx::INT64, &[], integers(&[value]))
    }

    /// An int64 vector.
    pub(super) fn ints(&mut self, values: &[i64]) -> String {
        self.constant(onnx::INT64, &[values.len() as i64], integers(values))
    }

    /// Booleans of a shape, all true.
    pub(super) fn all_true(&mut self, dims: &[i64]) -> String {
        let count: i64 = dims.iter().product();
        self.constant(onnx::BOOL, dims, vec![1; count.unsigned_abs() as usize])
    }

    /// A constant of any shape, written the exporter's way.
    pub(super) fn constant(&mut self, data_type: i32, dims: &[i64], data: Vec<u8>) -> String {
        if self.exporter == Exporter::TorchScript {
            let value = tensor("", data_type, dims, data);
            return self.op("Constant", &[], &[("value", Attribute::Tensor(value))]);
        }
        let key = (data_type, dims.to_vec(), data);
        if let Some(name) = self.constants.get(&key) {
            return name.clone();
        }
        let name = self.next_value();
        self.graph
            .initializer
            .push(tensor(&name, data_type, dims, key.2.clone()));
        self.constants.insert(key, name.clone());
        name
    }

    /// A node with one output, whose name is returned.
    pub(super) fn op(
        &mut self,
        op_type: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute<'_>)],
    ) -> String {
        self.op_outputs(op_type, inputs, attributes, 1).remove(0)
    }

    /// A node with `count` outputs.
    pub(super) fn op_outputs(
        &mut self,
        op_type: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute<'_>)],
        count: usize,
    ) -> Vec<String> {
        let (name, outputs) = match self.exporter {
            Exporter::TorchScript => self.scoped_names(op_type, count),
            Exporter::Dynamo => {
                let outputs: Vec<_> = (0..count).map(|_| self.next_value()).collect();
                (format!("node_{op_type}_{}", self.values - count), outputs)
            }
        };
        self.graph.node.push(NodeProto {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: outputs.clone(),
            name,
            op_type: op_type.to_owned(),
            attribute: attributes
                .iter()
                .map(|(name, value)| attribute(name, value))
                .collect(),
        });
        outputs
    }

    fn scoped_names(&mut self, op_type: &str, count: usize) -> (String, Vec<String>) {
        let slash = if self.scope.is_empty() { "" } else { "/" };
        let path = format!("{slash}{}/{op_type}", self.scope);
        let used = self.used.entry(path.clone()).or_default();
        let name = if *used == 0 {
            path
        } else {
            format!("{path}_{used}")
        };
        *used += 1;
        let outputs = (0..count).map(|k| format!("{name}_output_{k}")).collect();
        (name, outputs)
    }

    fn next_value(&mut self) -> String {
        self.values += 1;
        format!("val_{}", self.values - 1)
    }

    /// The file.
    pub(super) fn finish(self) -> Vec<u8> {
        let model = ModelProto {
            // What PyTorch writes for these exporters.
            ir_version: if self.exporter == Exporter::TorchScript {
                8
            } else {
                10
            },
            producer_name: "attnc xtask".to_owned(),
            graph: Some(self.graph),
            opset_import: vec![OperatorSetIdProto {
                domain: String::new(),
                version: self.opset,
            }],
        };
        model.encode_to_vec()
    }
}

fn attribute(name: &str, value: &Attribute<'_>) -> AttributeProto {
    let named = AttributeProto {
        name: name.to_owned(),
        ..AttributeProto::default()
    };
    match value {
        Attribute::Int(i) => AttributeProto {
            i: Some(*i),
            kind: onnx::ATTRIBUTE_INT,
            ..named
        },
        Attribute::Float(f) => AttributeProto {
            f: Some(*f),
            kind: onnx::ATTRIBUTE_FLOAT,
            ..named
        },
        Attribute::Ints(ints) => AttributeProto {
            ints: ints.to_vec(),
            kind: onnx::ATTRIBUTE_INTS,
            ..named
        },
        Attribute::Text(text) => AttributeProto {
            s: Some(text.as_bytes().to_vec()),
            kind: onnx::ATTRIBUTE_STRING,
            ..named
        },
        Attribute::Tensor(t) => AttributeProto {
            t: Some(t.clone()),
            kind: onnx::ATTRIBUTE_TENSOR,
            ..named
        },
    }
}

fn tensor(name: &str, data_type: i32, dims: &[i64], raw_data: Vec<u8>) -> TensorProto {
    TensorProto {
        dims: dims.to_vec(),
        data_type,
        name: name.to_owned(),
        raw_data,
        ..TensorProto::default()
    }
}

fn value_info(name: &str, elem_type: i32, dims: &[Dim]) -> ValueInfoProto {
    let dim = dims
        .iter()
        .map(|dim| match *dim {
            Dim::Named(name) => DimensionProto {
                dim_value: None,
                dim_param: Some(name.to_owned()),
            },
            Dim::Fixed(value) => DimensionProto {
                dim_value: Some(value),
                dim_param: None,
            },
        })
        .collect();
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto {
            tensor_type: Some(TensorTypeProto {
                elem_type,
                shape: Some(TensorShapeProto { dim }),
            }),
        }),
    }
}

fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// Little-endian bytes of int64 elements.
pub(super) fn integers(values: &[i64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
