//! Lengths that depend on data: the elements of `x` where `mask` is set, however many these are.
//!
//! A session computes such lengths before it runs; a bundle cannot, and is refused.

use crate::support::{Outcome, check_eq, ensure, on_both, scratch, session, trial};
use attnc::onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, attribute_kind, data_type,
};
use attnc::{Error, HostTensor, Model, Tensors};
use libtest_mimic::{Failed, Trial};
use prost::Message as _;

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = on_both("models/masked select", &[], selects);
    trials.push(trial("models/masked select is no bundle", &[], no_bundle));
    trials
}

/// Any number of elements, from the same session.
fn selects(backend: &'static str) -> Outcome {
    let mut session = session(&model(backend)?, backend)?;
    let x: Vec<f32> = (0..6_u8).map(f32::from).collect();
    for (mask, expected) in [
        ([0, 1, 0, 1, 1, 0], vec![1.0, 3.0, 4.0]),
        ([1, 1, 1, 1, 1, 1], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        ([0, 0, 0, 0, 0, 7], vec![5.0]),
    ] {
        let inputs = Tensors::from_iter([
            ("x".to_owned(), HostTensor::new(vec![2, 3], &x)?),
            (
                "mask".to_owned(),
                HostTensor::new::<i64>(vec![2, 3], &mask)?,
            ),
        ]);
        let found = session.run(&inputs)?;
        check_eq("shape", &[expected.len()][..], found["y"].shape())?;
        check_eq("elements", expected, found["y"].to_f64())?;
    }
    Ok(())
}

fn no_bundle() -> Outcome {
    let error = model("bundle")?.check_shippable().err();
    let Some(error @ Error::DataLengths(_)) = error else {
        return Err("a bundle that nobody can run was not refused".into());
    };
    ensure(error.to_string().contains("at"), || error.to_string())?;
    check_eq("exit code", 3, error.exit_code())
}

/// `y = x[mask != 0]`, as `NonZero`, `Transpose` and `GatherND`.
fn model(name: &str) -> Result<Model, Failed> {
    let mut turned = node("Transpose", &["at"], "places");
    turned.attribute.push(AttributeProto {
        name: "perm".to_owned(),
        ints: vec![1, 0],
        kind: attribute_kind::INTS,
        ..Default::default()
    });
    let graph = GraphProto {
        name: "masked_select".to_owned(),
        node: vec![
            node("NonZero", &["mask"], "at"),
            turned,
            node("GatherND", &["x", "places"], "y"),
        ],
        input: vec![
            port("x", data_type::FLOAT, &["B", "S"]),
            port("mask", data_type::INT64, &["B", "S"]),
        ],
        output: vec![port("y", data_type::FLOAT, &["N"])],
        ..Default::default()
    };
    let model = ModelProto {
        ir_version: 8,
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto {
            domain: String::new(),
            version: 18,
        }],
        ..Default::default()
    };
    let path = scratch().join(format!("masked_select_{name}.onnx"));
    std::fs::write(&path, model.encode_to_vec())?;
    Ok(Model::open(path)?)
}

fn node(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: op.to_owned(),
        name: output.to_owned(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: vec![output.to_owned()],
        ..Default::default()
    }
}

fn port(name: &str, elem_type: i32, lengths: &[&str]) -> ValueInfoProto {
    let dim = lengths.iter().map(|name| DimensionProto {
        dim_param: Some(name.to_string()),
        ..Default::default()
    });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto {
            tensor_type: Some(TensorTypeProto { elem_type, shape }),
            ..Default::default()
        }),
    }
}
