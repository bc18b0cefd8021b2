//! Every operator that imports: attributes and operands never seen are refused by name, and whatever else a
//! node is made of, the answer is a graph that verifies or an error.

mod support;

use attnc_onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    ValueInfoProto, attribute_kind, data_type,
};
use attnc_onnx::{Operator, operators};
use prost::Message;
use std::panic::{AssertUnwindSafe, catch_unwind};
use support::{With, floats, import, longs, model, node, port};

/// splitmix64: Steele, Lea and Flood 2014, <https://doi.org/10.1145/2660193.2660195>.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n).unwrap()).unwrap()
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// Run-time operands of every rank and of the types that operators take.
fn inputs() -> Vec<ValueInfoProto> {
    let shapes: [&[&str]; 7] = [
        &[],
        &["8"],
        &["B", "8"],
        &["B", "S", "8"],
        &["B", "2", "S", "4"],
        &["2", "2", "4", "4"],
        &["B", "2", "2", "S", "4"],
    ];
    let types = [
        (data_type::FLOAT, "f"),
        (data_type::FLOAT16, "h"),
        (data_type::INT64, "i"),
        (data_type::BOOL, "b"),
        (data_type::UINT8, "u"),
        (data_type::DOUBLE, "d"),
    ];
    let mut out = Vec::new();
    for (elem_type, letter) in types {
        for (n, shape) in shapes.iter().enumerate() {
            out.push(port(&format!("{letter}{n}"), elem_type, shape));
        }
    }
    out
}

/// Constants: small, and of numbers that would be huge as lengths.
fn constants() -> Vec<TensorProto> {
    vec![
        longs("zero", &[], &[0]),
        longs("two", &[1], &[2]),
        longs("list", &[4], &[1, 2, 4, 4]),
        longs("minus", &[2], &[-1, 0]),
        longs("huge", &[4], &[1 << 40, 1 << 40, 1 << 31, -1]),
        longs("most", &[], &[i64::MAX]),
        longs("least", &[2], &[i64::MIN, i64::MIN]),
        longs("none", &[0], &[]),
        floats("half", &[], &[0.5]),
        floats("scales", &[4], &[1.0, 1.0, 2.0, 1.5]),
        floats("wild", &[3], &[f32::NAN, f32::INFINITY, -1e38]),
        floats("table", &[8, 24], &[0.25; 192]),
    ]
}

fn attribute(name: &str, random: &mut Random) -> AttributeProto {
    let ints = [0, 1, 2, 4, -1, 3, 8, 1 << 40, i64::MAX, i64::MIN];
    let words = [
        "linear",
        "constant",
        "NOTSET",
        "SAME_UPPER",
        "add",
        "bhqd,bhkd->bhqk",
        "tanh",
        "é",
    ];
    let mut out = AttributeProto {
        name: name.to_owned(),
        ..Default::default()
    };
    match random.below(8) {
        0..=3 => (out.kind, out.i) = (attribute_kind::INT, Some(random.pick(&ints))),
        4 => {
            out.kind = attribute_kind::FLOAT;
            out.f = Some(random.pick(&[0.0, 1.0, -1.0, 0.5, f32::NAN, f32::MAX]));
        }
        5 => {
            out.kind = attribute_kind::INTS;
            out.ints = (0..random.below(5)).map(|_| random.pick(&ints)).collect();
        }
        6 => {
            out.kind = attribute_kind::STRING;
            out.s = Some(random.pick(&words).as_bytes().to_vec().into());
        }
        _ => {
            out.kind = attribute_kind::GRAPH;
            out.g = Some(Box::new(GraphProto {
                node: vec![node("Neg", &["a"], &["b"])],
                input: vec![port("a", data_type::FLOAT, &[])],
                output: vec![port("b", data_type::FLOAT, &[])],
                ..Default::default()
            }));
        }
    }
    out
}

fn with_domains(mut model: ModelProto) -> ModelProto {
    for domain in ["com.microsoft", "ai.onnx.preview"] {
        model.opset_import.push(OperatorSetIdProto {
            domain: domain.to_owned(),
            version: 1,
        });
    }
    model
}

fn of(op: &Operator, operands: &[&str]) -> NodeProto {
    NodeProto {
        domain: op.domain.to_owned(),
        ..node(op.name, operands, &["y", "y1", "y2"])
    }
}

#[test]
fn an_attribute_never_seen_is_refused_by_name() {
    let x = [port("x", data_type::FLOAT, &["B", "8"])];
    let mut count = 0;
    for op in operators() {
        let operands = vec!["x"; op.most_inputs.min(1)];
        let node = of(&op, &operands).int("never_seen", 1);
        let error = import(&with_domains(model(22, &x, &[], &[node]))).unwrap_err();
        assert!(error.is_unsupported(), "{}: {error}", op.name);
        let text = error.to_string();
        assert!(text.contains("attribute `never_seen`"), "{text}");
        assert!(text.contains(op.name), "{text}");
        count += 1;
    }
    assert!(count > 120, "{count} operators");
}

#[test]
fn more_operands_than_an_operator_has_are_refused() {
    let x = [port("x", data_type::FLOAT, &["B", "8"])];
    for op in operators().filter(|op| op.most_inputs < 32) {
        let operands = vec!["x"; op.most_inputs + 1];
        let error = import(&with_domains(model(22, &x, &[], &[of(&op, &operands)]))).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("expected at most"), "{}: {text}", op.name);
    }
}

#[test]
fn a_domain_never_seen_is_refused_by_name() {
    let x = [port("x", data_type::FLOAT, &["B", "8"])];
    let mut foreign = node("Gelu", &["x"], &["y"]);
    foreign.domain = "com.example".to_owned();
    let error = import(&model(20, &x, &[], &[foreign])).unwrap_err();
    assert!(error.to_string().contains("com.example.Gelu"), "{error}");
}

/// One node of random operands and attributes; every second one plain, so that some are right.
fn random_node(op: &Operator, names: &[String], plain: bool, random: &mut Random) -> NodeProto {
    let most = op.most_inputs.min(9) + usize::from(!plain && random.below(8) == 0);
    let count = match most {
        0 => 0,
        most if plain => 1 + random.below(most.min(4)),
        most => random.below(most + 1),
    };
    let usual = random.pick(names);
    let operands: Vec<String> = (0..count)
        .map(|_| match random.below(10) {
            _ if plain => usual.clone(),
            0 => String::new(),
            1..=4 => usual.clone(),
            _ => random.pick(names),
        })
        .collect();
    let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
    let mut node = of(op, &operands);
    node.output
        .truncate(1 + if plain { 0 } else { random.below(3) });
    for name in op.attributes {
        if random.below(if plain { 8 } else { 3 }) == 0 {
            node.attribute.push(attribute(name, random));
        }
    }
    node
}

#[test]
fn nodes_of_anything_never_panic() {
    let (inputs, constants) = (inputs(), constants());
    let mut names: Vec<String> = inputs.iter().map(|i| i.name.clone()).collect();
    names.extend(constants.iter().map(|c| c.name.clone()));
    let mut random = Random(7);
    let mut imported = std::collections::BTreeSet::new();
    let all: Vec<Operator> = operators().collect();
    for op in &all {
        for round in 0..60 {
            let node = random_node(op, &names, round % 2 == 0, &mut random);
            let opset = random.pick(&[11, 13, 17, 18, 20, 23, 24, 27, 28]);
            let bytes = with_domains(model(
                opset,
                &inputs,
                &constants,
                std::slice::from_ref(&node),
            ));
            let bytes = bytes.encode_to_vec();
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let import = attnc_onnx::import_bytes(bytes.into(), None).ok()?;
                Some(attnc_ir::verify(&import.graph))
            }));
            match outcome {
                Err(_) => panic!("{} in round {round} panicked: {node:?}", op.name),
                Ok(Some(Err(found))) => panic!("{} does not verify: {found}\n{node:?}", op.name),
                Ok(Some(Ok(()))) => drop(imported.insert((op.domain, op.name))),
                Ok(None) => {}
            }
        }
    }
    // If hardly anything came through, this tested nothing but refusals.
    assert!(
        2 * imported.len() > all.len(),
        "{} of {} operators",
        imported.len(),
        all.len()
    );
}
