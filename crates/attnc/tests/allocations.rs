//! What a session allocates at the lengths of the run before.
//!
//! Everything is counted, on every thread. On the CPU a run into the outputs of an earlier run allocates
//! nothing; on the GPU, what the runner below the session does
//! (`attnc-wgpu/tests/allocations` holds that to what wgpu does by itself).

use attnc::backend::{Backends, Wish};
use attnc::gpu::{AdapterChoice, Gpu, HostTensorRef, Runner};
use attnc::ir::TensorData;
use attnc::plan::DimValues;
use attnc::{Compiled, HostTensor, Model, Session, SessionOptions, Tensors, inputs, npz};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::path::Path;

#[path = "../../attnc-wgpu/tests/allocations/counting.rs"]
mod counting;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

const BERT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/models/bert_tiny.onnx"
);

/// Everything but matrix products, attention and what is read from ids.
const ROWS: &str = "graph @rows(%x: f32[B, S, 16], %w: f32[16], %mask: bool[B, S, 16]) {
  %zero = constant f32[16] splat 0.0
  %n = layer_norm %x, %w, %zero, axis = 2, eps = 1e-5
  %g = gelu %n
  %s = softmax %g, axis = 2
  %t = transpose %s, perm = [0, 2, 1]
  %r = reduce_sum %x, axes = [1], keep_dims = true
  %p = add %x, %r
  %y = where %mask, %p, %x
  return %y, %t
}";

fn main() {
    let mut arguments = Arguments::from_args();
    // The allocator counts for the whole program, so one test at a time.
    arguments.test_threads = Some(1);
    let required = std::env::var_os("ATTNC_REQUIRE_GPU").is_some_and(|v| v == "1");
    let gpu = Backends::standard().open("gpu", &Wish::default());
    let missing = gpu.err().map(|error| error.to_string());
    let on_gpu = |name: &str, test: fn() -> Result<(), Failed>| {
        let missing = missing.clone();
        Trial::ignorable_test(name, move || match missing {
            Some(why) if required => Err(why.into()),
            Some(why) => Ok(Completion::ignored_with(why)),
            None => test().map(|()| Completion::Completed),
        })
    };
    let trials = vec![
        Trial::test("rows_again_allocate_nothing_on_the_cpu", rows),
        Trial::test("bert_again_allocates_nothing_on_the_cpu", bert_on_the_cpu),
        on_gpu("bert_again_allocates_what_wgpu_does", bert),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

/// Devices on which allocations are counted.
const DEVICES: usize = 6;

fn rows() -> Result<(), Failed> {
    let model = Model::from_text("rows", ROWS)?;
    at_most(0, again(&model, "cpu", &rows_inputs())?)
}

fn bert() -> Result<(), Failed> {
    let model = Model::open(BERT)?;
    let given = npz::read(&Path::new(BERT).with_extension("inputs.npz"))?;
    // wgpu's tables come to one allocation less on some devices, whoever runs there: the most of several counts, on
    // both sides.
    let (mut needed, mut found) = (0, 0);
    for _ in 0..DEVICES {
        needed = needed.max(below(&model, &given)?);
        found = found.max(again(&model, "gpu", &given)?);
    }
    at_most(needed, found)
}

fn bert_on_the_cpu() -> Result<(), Failed> {
    let model = Model::open(BERT)?;
    let given = npz::read(&Path::new(BERT).with_extension("inputs.npz"))?;
    at_most(0, again(&model, "cpu", &given)?)
}

fn at_most(needed: u64, found: u64) -> Result<(), Failed> {
    if found <= needed {
        Ok(())
    } else {
        Err(format!("{found} allocations instead of {needed}").into())
    }
}

fn rows_inputs() -> Tensors {
    let ramp: Vec<f32> = (0..2 * 5 * 16).map(|n| n as f32 * 0.01).collect();
    let mask: Vec<bool> = (0..2 * 5 * 16).map(|n| n % 3 == 0).collect();
    let tensor = |shape: &[usize], values: &[f32]| HostTensor::new(shape.to_vec(), values).unwrap();
    Tensors::from([
        ("x".to_owned(), tensor(&[2, 5, 16], &ramp)),
        ("w".to_owned(), tensor(&[16], &ramp[..16])),
        (
            "mask".to_owned(),
            HostTensor::new(vec![2, 5, 16], &mask).unwrap(),
        ),
    ])
}

/// Allocations of a run of the session like the one before.
fn again(model: &Model, backend: &str, given: &Tensors) -> Result<u64, Failed> {
    let options = SessionOptions {
        backend: backend.to_owned(),
        ..SessionOptions::default()
    };
    let mut session = Session::of_model(model, &options, &Backends::standard())?;
    let bound = session.bind(given, &DimValues::default())?;
    let first = session.run_bound(&bound)?;
    let mut outputs = first.clone();
    let made = session.stats();
    let mut good = true;
    let found = counting::fewest(|| good &= session.run_into(&bound, &mut outputs).is_ok());
    if !good || outputs != first {
        return Err("a later run gives something else".into());
    }
    if session.stats() != made {
        return Err(format!("objects were made:\n{made:?}\n{:?}", session.stats()).into());
    }
    Ok(found)
}

fn borrowed(data: &TensorData) -> HostTensorRef<'_> {
    HostTensorRef {
        dtype: data.dtype,
        shape: &data.shape,
        bytes: data.bytes.as_deref().unwrap_or_default(),
    }
}

/// Allocations of the same run without a session.
fn below(model: &Model, given: &Tensors) -> Result<u64, Failed> {
    let gpu = Gpu::open(&AdapterChoice::any())?;
    let Compiled { plan, weights, .. } = attnc::compile(&model.graph, &gpu.profile)?;
    let mut runner = Runner::new(&gpu.device, &gpu.queue, &plan, &weights)?;
    let bound = inputs::bind(&model.inputs, &model.rules, given, &DimValues::default())?;
    let named = plan.inputs.iter().zip(&bound.tensors);
    let named: Vec<_> = named
        .map(|(port, data)| (port.name.as_str(), borrowed(data)))
        .collect();
    let mut good = true;
    let found = counting::fewest(|| {
        let run = runner.run_each(&named.as_slice(), &bound.dims, &mut |_, _| ());
        good &= run.is_ok();
    });
    good.then_some(found).ok_or_else(|| "the run failed".into())
}
