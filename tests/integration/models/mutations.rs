//! Real models with bytes changed: whatever still imports goes all the way to a result or to an error.
//!
//! The importer's own tests mutate far more; here the survivors matter, since they are valid graphs that
//! no exporter would write. A pass, the lowering or the executor must not panic on any of them.

use crate::support::{Outcome, ensure, files, session, stem, trial, workspace};
use attnc::onnx::{self, proto::ModelProto};
use attnc::plan::{DeviceProfile, DimValues, MemoryPlan};
use attnc::{Error, Model, random};
use libtest_mimic::Trial;
use prost::Message as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Of each file; 2,000 together.
const MUTATIONS: u64 = 400;
/// What is larger than this is compiled only.
const RUN_BYTES: u64 = 64 << 20;

pub(super) fn trials() -> Vec<Trial> {
    let models = files(&workspace().join("tests/models"), "onnx");
    let trials = models.into_iter().map(|path| {
        let name = format!("models/{} mutated", stem(&path));
        trial(name, &[], move || never_panics(&path))
    });
    trials.collect()
}

fn never_panics(path: &Path) -> Outcome {
    let whole = std::fs::read(path)?;
    let places = structure(&whole)?;
    let mut imported = 0;
    let mut panicked = Vec::new();
    for seed in 0..MUTATIONS {
        let bytes = mutated(&whole, &places, seed);
        let outcome = catch_unwind(AssertUnwindSafe(|| all_the_way(bytes)));
        match outcome {
            Ok(Some(_)) => imported += 1,
            Ok(None) => {}
            Err(_) => panicked.push(seed),
        }
    }
    ensure(panicked.is_empty(), || {
        format!("mutations {panicked:?} of {} panic", stem(path))
    })?;
    ensure(imported > MUTATIONS / 20, || {
        format!("only {imported} of {MUTATIONS} imported: the passes saw little")
    })
}

/// Imports, optimises, lowers, and where it is small, runs on the CPU; `None` where it does not import.
fn all_the_way(bytes: Vec<u8>) -> Option<Result<(), Error>> {
    let import = onnx::import_bytes(bytes.into(), None).ok()?;
    let run = || {
        let model = Model::from_graph(import.graph)?;
        let compiled = attnc::compile(&model.graph, &DeviceProfile::webgpu())?;
        let mut dims = DimValues::default();
        for (at, name) in attnc::inputs::lengths(&model.inputs).iter().enumerate() {
            dims.set(name, 2 + at as i64);
        }
        let peak = MemoryPlan::new(&compiled.plan, &dims).map_or(u64::MAX, |m| m.peak_bytes);
        if peak <= RUN_BYTES {
            let inputs = random::inputs(&model, &dims, 1)?;
            let mut session = session(&model, "cpu")?;
            let bound = session.bind(&inputs, &dims)?;
            session.run_bound(&bound)?;
        }
        Ok(())
    };
    Some(run())
}

/// The bytes that are no weights: those make most of a file, and their values hardly matter.
fn structure(whole: &[u8]) -> Result<Vec<usize>, String> {
    let model = ModelProto::decode(whole).map_err(|e| e.to_string())?;
    let mut is_weight = vec![false; whole.len()];
    for weight in model.graph.unwrap_or_default().initializer {
        let data = weight.raw_data.unwrap_or_default();
        // Shapes and indices are structure.
        if data.len() > 256 {
            let at = whole.windows(data.len()).position(|part| part == data);
            let at = at.ok_or("a weight is in the file")?;
            is_weight[at..at + data.len()].fill(true);
        }
    }
    Ok((0..whole.len()).filter(|&at| !is_weight[at]).collect())
}

/// One to four bytes changed; the generator is Knuth's MMIX (TAOCP 2, 3.3.4).
fn mutated(whole: &[u8], places: &[usize], seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut below = |n: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let mut bytes = whole.to_vec();
    for _ in 0..=below(4) {
        let at = places[below(places.len())];
        match below(4) {
            0 => bytes[at] = bytes[at].wrapping_add(1),
            1 => bytes[at] = [0, 1, 0x7f, 0xff][below(4)],
            _ => bytes[at] ^= 1 << below(8),
        }
    }
    bytes
}
