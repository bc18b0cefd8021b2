//! A real model: all-MiniLM-L6-v2 with its published weights, mapped from the file they came in.
//!
//! `cargo xtask fetch` brings the weights and writes `minilm.onnx` over them. Where three exports of the
//! same model by PyTorch are at hand, they are put beside the same weights and held to the same results.

use super::{Check, all_fused, made_inputs, same_twice, scores};
use crate::support::{
    Need, Outcome, absent, agree, check_eq, ensure, files, material, on_both, scratch, session,
    stem, trial, workspace,
};
use attnc::explain::{Explained, explain};
use attnc::ir::Op;
use attnc::plan::{DeviceProfile, DimValues};
use attnc::{Model, Tensors, npz, opt, oracle};
use libtest_mimic::{Failed, Trial};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

const TOLERANCE: f64 = 1e-4;
const LAYERS: usize = 6;
/// Distinct kernels of the model, at most.
const KERNELS: usize = 16;
/// Bytes of intermediates for one sequence of 512 tokens, less than.
const ARENA: u64 = 8 << 20;
/// One compile serves these, in this order.
const SHAPES: [(i64, i64); 3] = [(3, 21), (1, 7), (2, 128)];

fn fetched() -> PathBuf {
    workspace().join("target/fetch/minilm")
}

fn written() -> PathBuf {
    fetched().join("minilm.onnx")
}

pub(super) fn trials() -> Vec<Trial> {
    let need = [Need::Fetched(written())];
    let mut trials = of_model("models/minilm", &need, Ok(written()));
    trials.push(trial("models/minilm weights are mapped", &need, || {
        weights_are_mapped(&written())
    }));
    let Some(folder) = material("models/minilm") else {
        let why = "no ../shared/cases/models/minilm beside the workspace";
        trials.push(absent("models/minilm exports", why));
        return trials;
    };
    for export in files(&folder, "onnx") {
        let name = format!("models/{}", stem(&export));
        let placed = beside_weights(&export);
        trials.extend(of_model(&name, &need, placed.clone()));
        trials.extend(on_both(
            &format!("{name} as PyTorch"),
            &need,
            move |backend| as_pytorch(&export, &placed.clone()?, backend),
        ));
    }
    trials
}

fn of_model(name: &str, need: &[Need], path: Result<PathBuf, String>) -> Vec<Trial> {
    let given = path.clone();
    let mut trials = on_both(name, need, move |backend| runs(&given.clone()?, backend));
    let checks: [Check; 4] = [
        ("kernels", kernels),
        ("arena", arena),
        ("no scores in memory", scores::none_in_memory),
        ("same bytes twice", same_twice),
    ];
    for (what, check) in checks {
        let path = path.clone();
        trials.push(trial(format!("{name} {what}"), need, move || check(&path?)));
    }
    trials
}

/// The export in a folder that holds the weights too, since external data may not leave the folder.
fn beside_weights(export: &Path) -> Result<PathBuf, String> {
    let place = || {
        let folder = scratch().join("minilm");
        std::fs::create_dir_all(&folder)?;
        let weights = folder.join("model.safetensors");
        let source = fetched().join("model.safetensors");
        if source.exists() && !weights.exists() {
            // Another run may be faster.
            match std::fs::hard_link(&source, &weights) {
                Ok(()) => {}
                Err(_) if weights.exists() => {}
                Err(_) => drop(std::fs::copy(&source, &weights)?),
            }
        }
        let path = folder.join(export.file_name().unwrap_or_default());
        std::fs::write(&path, std::fs::read(export)?)?;
        Ok(path)
    };
    place().map_err(|e: std::io::Error| format!("cannot place {}: {e}", export.display()))
}

/// Inputs at a shape and what the oracle makes of them; computed once, since they cost seconds.
fn oracle_at(shape: (i64, i64)) -> Result<Arc<(Tensors, Tensors)>, Failed> {
    type Known = BTreeMap<(i64, i64), Arc<(Tensors, Tensors)>>;
    static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();
    let known = KNOWN.get_or_init(Mutex::default);
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pair) = known.get(&shape) {
        return Ok(pair.clone());
    }
    let model = Model::open(written())?;
    let inputs = made_inputs(&model, shape, 7)?;
    let expected = oracle::run(&model, &inputs, &DimValues::default())?;
    let pair = Arc::new((inputs, expected));
    known.insert(shape, pair.clone());
    Ok(pair)
}

/// All shapes on one session: as the oracle, and pipelines are made for the first only.
fn runs(path: &Path, backend: &'static str) -> Outcome {
    let model = Model::open(path)?;
    let mut session = session(&model, backend)?;
    all_fused(session.attention().expect("a model says"), LAYERS)?;
    let mut pipelines = Vec::new();
    for (batch, seq) in SHAPES {
        let known = oracle_at((batch, seq))?;
        let mut inputs = made_inputs(&model, (batch, seq), 7)?;
        for (name, tensor) in &mut inputs {
            // Token types are zeros, whether they are an input or written into the model.
            if let Some(same) = known.0.get(name) {
                *tensor = same.clone();
            }
        }
        let found = session.run(&inputs)?;
        agree(&format!("{batch} × {seq}"), &known.1, &found, TOLERANCE)?;
        pipelines.push(session.stats().pipelines_created);
    }
    check_eq(
        "pipelines",
        vec![pipelines[0]; SHAPES.len()],
        pipelines.clone(),
    )?;
    ensure((pipelines[0] > 0) == (backend == "gpu"), || {
        format!("{pipelines:?} pipelines on {backend}")
    })?;
    ensure(pipelines[0] <= KERNELS as u64, || {
        format!("{} pipelines, at most {KERNELS} expected", pipelines[0])
    })
}

/// Three real sentences, as the model in double precision has them.
fn as_pytorch(export: &Path, path: &Path, backend: &str) -> Outcome {
    let folder = export.parent().ok_or("a folder")?;
    let inputs = npz::read(&folder.join("inputs.npz"))?;
    let expected = stem(export).replace("minilm_", "expected_");
    let expected = npz::read(&folder.join(expected).with_extension("npz"))?;
    let found = session(&Model::open(path)?, backend)?.run(&inputs)?;
    agree("three sentences", &expected, &found, TOLERANCE)
}

fn explained(path: &Path) -> Result<Explained, Failed> {
    let model = Model::open(path)?;
    Ok(explain(
        &model,
        &opt::Options::default(),
        &DeviceProfile::webgpu(),
    )?)
}

/// Few kernels, and the layers share theirs.
fn kernels(path: &Path) -> Outcome {
    let report = explained(path)?.report;
    let kernels = &report.kernels;
    ensure(kernels.len() <= KERNELS, || {
        format!("{} kernels, at most {KERNELS} expected", kernels.len())
    })?;
    let unshared: Vec<_> = kernels
        .iter()
        .filter(|k| k.uses > 1 && k.uses < LAYERS)
        .map(|k| format!("{} × {}", k.uses, k.name))
        .collect();
    ensure(unshared.is_empty(), || {
        format!("kernels of some layers only: {}", unshared.join(", "))
    })?;
    let attention: Vec<_> = kernels
        .iter()
        .filter(|k| k.name.starts_with("flash_attention"))
        .map(|k| k.uses)
        .collect();
    check_eq("uses of attention kernels", vec![LAYERS], attention)?;
    // Six projections a layer at least: what is left over belongs to the embedding.
    let once: usize = kernels.iter().map(|k| k.uses % LAYERS).sum();
    ensure(once <= 8, || {
        format!("{once} steps are of no layer: {kernels:?}")
    })
}

fn arena(path: &Path) -> Outcome {
    let explained = explained(path)?;
    let names = explained.report.dims.clone();
    let mut dims = DimValues::default();
    let batch = explained.compiled.plan.inputs[0].shape[0].symbols();
    for name in &names {
        let is_batch = batch.contains(name.as_str());
        dims.set(name, if is_batch { 1 } else { 512 });
    }
    let buffers = explained.at(&dims)?.report.buffers;
    let peak = buffers.arena_peak_bytes.ok_or("no peak")?;
    eprintln!(
        "{}: the arena of 1 × 512 takes {peak} bytes ({:.2} MiB)",
        stem(path),
        peak as f64 / f64::from(1 << 20)
    );
    ensure(peak > 0 && peak < ARENA, || {
        format!("{peak} bytes, fewer than {ARENA} expected")
    })
}

/// The weights of the model, and those the plan is given, lie in the mapped file, but for those of Q, K and V, which
/// one product of each layer has as one.
fn weights_are_mapped(path: &Path) -> Outcome {
    let model = Model::open(path)?;
    let compiled = attnc::compile(&model.graph, &DeviceProfile::webgpu())?;
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return Ok(()); // No such list on this system: the next platform's test looks.
    };
    let weights: Vec<_> = maps
        .lines()
        .filter(|line| line.ends_with("/model.safetensors"))
        .filter_map(|line| {
            let (start, end) = line.split_whitespace().next()?.split_once('-')?;
            let address = |text| usize::from_str_radix(text, 16).ok();
            Some(address(start)?..address(end)?)
        })
        .collect();
    ensure(!weights.is_empty(), || {
        "the weights are not mapped".to_owned()
    })?;
    let imported = model
        .graph
        .values()
        .filter_map(|v| match &model.graph.node(v).op {
            Op::Constant(data) => Some((model.graph.node(v).name(), data)),
            _ => None,
        });
    let planned = compiled
        .weights
        .0
        .iter()
        .map(|(name, data)| (name.as_str(), data));
    let (mut mapped, mut merged, mut copied) = (0, Vec::new(), Vec::new());
    for (name, data) in imported.chain(planned) {
        let bytes = data.bytes.as_deref().unwrap_or_default();
        let start = bytes.as_ptr() as usize;
        if weights.iter().any(|w| w.contains(&start)) {
            mapped += bytes.len();
        } else if name.matches('+').count() == 2 {
            merged.push(bytes.len());
        } else if bytes.len() > 64 << 10 {
            copied.push(format!("{name} ({} bytes)", bytes.len()));
        }
    }
    ensure(copied.is_empty(), || {
        format!("copied: {}", copied.join(", "))
    })?;
    merged.retain(|&bytes| bytes > 64 << 10); // biases are small
    check_eq("merged weights", LAYERS, merged.len())?;
    let merged: usize = merged.iter().sum();
    let file = std::fs::metadata(fetched().join("model.safetensors"))?.len() as usize;
    ensure(mapped + merged > 19 * (file / 10), || {
        format!("{mapped} and {merged} bytes of graph and plan are mapped, of twice {file}")
    })
}
