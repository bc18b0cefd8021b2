//! ONNX models in a few words.

use attnc::onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto,
    ValueInfoProto, attribute_kind, data_type,
};
use prost::Message as _;

pub(crate) fn model(graph: GraphProto) -> Vec<u8> {
    let model = ModelProto {
        ir_version: 8,
        opset_import: vec![OperatorSetIdProto {
            domain: String::new(),
            version: 17,
        }],
        graph: Some(graph),
        ..ModelProto::default()
    };
    model.encode_to_vec()
}

pub(crate) fn graph(
    inputs: &[(&str, &[i64])],
    weights: Vec<TensorProto>,
    nodes: Vec<NodeProto>,
) -> GraphProto {
    GraphProto {
        name: "g".to_owned(),
        input: inputs.iter().map(|(name, dims)| port(name, dims)).collect(),
        output: vec![port("y", &[])],
        initializer: weights,
        node: nodes,
        ..GraphProto::default()
    }
}

/// An f32 input or output; without dims, of unknown shape.
pub(crate) fn port(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = |&n: &i64| DimensionProto {
        dim_value: Some(n),
        dim_param: None,
    };
    let shape = TensorShapeProto {
        dim: dims.iter().map(dim).collect(),
    };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto {
            tensor_type: Some(TensorTypeProto {
                elem_type: data_type::FLOAT,
                shape: (!dims.is_empty()).then_some(shape),
            }),
            ..TypeProto::default()
        }),
    }
}

pub(crate) fn node(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: op.to_owned(),
        name: format!("the {op} of {output}"),
        input: inputs.iter().map(|&i| i.to_owned()).collect(),
        output: vec![output.to_owned()],
        ..NodeProto::default()
    }
}

pub(crate) fn attribute(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        kind: attribute_kind::INT,
        i: Some(value),
        ..AttributeProto::default()
    }
}

pub(crate) fn weight(name: &str, dims: &[i64], bytes: Vec<u8>) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: data_type::FLOAT,
        raw_data: Some(bytes.into()),
        ..TensorProto::default()
    }
}

/// Four floats in `location`, from `offset` on.
pub(crate) fn external(name: &str, location: &str, offset: &str) -> TensorProto {
    let entries = [("location", location), ("offset", offset), ("length", "16")];
    let entry = |(key, value): (&str, &str)| StringStringEntryProto {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    TensorProto {
        name: name.to_owned(),
        dims: vec![4],
        data_type: data_type::FLOAT,
        data_location: 1,
        external_data: entries.map(entry).into(),
        ..TensorProto::default()
    }
}

/// `y = x + weights…`
pub(crate) fn sum(weights: Vec<TensorProto>) -> GraphProto {
    let mut nodes = Vec::new();
    let mut last = "x".to_owned();
    for (n, weight) in weights.iter().enumerate() {
        let out = if n + 1 == weights.len() {
            "y".to_owned()
        } else {
            format!("sum{n}")
        };
        nodes.push(node("Add", &[&last, &weight.name], &out));
        last = out;
    }
    graph(&[("x", &[4])], weights, nodes)
}
