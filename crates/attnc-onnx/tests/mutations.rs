//! Real models with bytes flipped, inserted, deleted and cut off: an answer, never a panic.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// xorshift64: Marsaglia 2003.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n.max(1)).unwrap()).unwrap()
    }
}

fn mutate(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(out.len());
        match random.below(8) {
            0 => out.truncate(at),
            1 => out.insert(at, u8::try_from(random.below(256)).unwrap()),
            2 if !out.is_empty() => drop(out.drain(at..(at + 1 + random.below(16)).min(out.len()))),
            3 if !out.is_empty() => out[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            4 => {
                let (from, len) = (random.below(out.len()), random.below(64));
                let part = out[from..(from + len).min(out.len())].to_vec();
                out.splice(at..at, part);
            }
            _ if !out.is_empty() => out[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
    out
}

/// The parts of a model that say something: weights are most of its bytes, and their values hardly matter.
fn small_models() -> Vec<Vec<u8>> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models");
    let mut found: Vec<_> = std::fs::read_dir(own)
        .into_iter()
        .flatten()
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "onnx"))
        .collect();
    for case in [
        "gpt2_dyn18ds_sdpa",
        "bert_ts17dyn_sdpa_tf444",
        "t5_dyn18ds_eager",
        "hand_alibi_dyn18ds_torch",
    ] {
        found.extend(support::shared(&format!("exports/{case}/model.onnx")));
    }
    found.sort();
    found.iter().map(|p| std::fs::read(p).unwrap()).collect()
}

/// The same model with its weights taken out of the bytes: every tensor over 64 bytes becomes external.
fn without_weights(bytes: &[u8]) -> Vec<u8> {
    use attnc_onnx::proto::ModelProto;
    use prost::Message;
    let mut model = ModelProto::decode(bytes).unwrap();
    for tensor in &mut model.graph.as_mut().unwrap().initializer {
        if let Some(raw) = tensor.raw_data.as_ref().filter(|r| r.len() > 64) {
            // An expanded zero of the right type and shape stands in: broken on purpose, cheap to mutate.
            tensor.dims = vec![1];
            tensor.raw_data = Some(raw.slice(..raw.len().min(8)));
        }
    }
    model.encode_to_vec()
}

#[test]
fn two_thousand_broken_models_never_panic() {
    let models = small_models();
    assert!(!models.is_empty(), "the project's small models are there");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut imported = 0;
    for round in 0..2000 {
        let model = &models[round % models.len()];
        let base = if round % 2 == 0 {
            model.clone()
        } else {
            without_weights(model)
        };
        let broken = mutate(&base, &mut random);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let import = attnc_onnx::import_bytes(broken.clone().into(), None).ok()?;
            Some(attnc_ir::verify(&import.graph))
        }));
        match outcome {
            Err(_) => panic!("round {round} panicked"),
            Ok(Some(Err(found))) => {
                panic!("round {round} gave a graph that does not verify: {found}")
            }
            Ok(Some(Ok(()))) => imported += 1,
            Ok(None) => {}
        }
    }
    // A flipped bit of a weight leaves a model; if nothing came through, this tested nothing.
    assert!(imported > 100, "{imported} of 2000 imported");
}

/// One small model of each operator whose importer reads more than one thing.
fn operators() -> Vec<Vec<u8>> {
    use attnc_onnx::proto::{NodeProto, OperatorSetIdProto, data_type};
    use prost::Message;
    use support::{With, longs, model, node, port};
    let ms = |op: &str, inputs: &[&str]| NodeProto {
        domain: "com.microsoft".to_owned(),
        ..node(op, inputs, &["y"]).int("num_heads", 2)
    };
    let x = |name: &str, dims: &[&str]| port(name, data_type::FLOAT, dims);
    let inputs = [
        x("x", &["B", "S", "8"]),
        x("w", &["8", "24"]),
        x("h", &["B", "2", "S", "4"]),
        x("t", &["9", "2"]),
        port("at", data_type::INT32, &["B"]),
    ];
    let constants = [longs("n", &[], &[7]), longs("ij", &[2, 2], &[0, 1, 1, 0])];
    let text = |node: NodeProto, name: &str, value: &'static str| {
        node.attr(name, 3, |a| a.s = Some(value.into()))
    };
    let nodes = [
        ms("MultiHeadAttention", &["x", "x", "x", "", "at"]),
        ms("Attention", &["x", "w", "", "at"]),
        ms(
            "GroupQueryAttention",
            &["x", "x", "x", "h", "h", "at", "n", "t", "t"],
        )
        .int("kv_num_heads", 2)
        .int("do_rotary", 1),
        node("Attention", &["h", "h", "h"], &["y"]).int("left_window_size", 3),
        text(
            node("Einsum", &["h", "h"], &["y"]),
            "equation",
            "bhqd,bhkd->bhqk",
        ),
        text(
            node("TensorScatter", &["h", "h", "at"], &["y"]),
            "mode",
            "circular",
        ),
        text(
            node("ScatterND", &["t", "ij", "n1"], &["y"]),
            "reduction",
            "add",
        ),
        text(
            node("Resize", &["t", "", "", "to"], &["y"]),
            "mode",
            "cubic",
        ),
        node("GroupNormalization", &["w", "t", "t"], &["y"]).int("num_groups", 4),
    ];
    nodes
        .iter()
        .map(|node| {
            let mut model = model(25, &inputs, &constants, std::slice::from_ref(node));
            let graph = model.graph.as_mut().unwrap();
            graph.initializer.push(longs("to", &[2], &[18, 4]));
            graph
                .initializer
                .push(support::floats("n1", &[2], &[1.0; 2]));
            model.opset_import.push(OperatorSetIdProto {
                domain: "com.microsoft".to_owned(),
                version: 1,
            });
            model.encode_to_vec()
        })
        .collect()
}

#[test]
fn broken_operators_never_panic() {
    let models = operators();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut imported = 0;
    for round in 0..4500 {
        let broken = mutate(&models[round % models.len()], &mut random);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let import = attnc_onnx::import_bytes(broken.into(), None).ok()?;
            Some(attnc_ir::verify(&import.graph))
        }));
        match outcome {
            Err(_) => panic!("round {round} panicked"),
            Ok(Some(Err(found))) => panic!("round {round} does not verify: {found}"),
            Ok(Some(Ok(()))) => imported += 1,
            Ok(None) => {}
        }
    }
    assert!(imported > 100, "{imported} of 4500 imported");
}
