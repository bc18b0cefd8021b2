//! What needs a GPU, a software one will do. Without an adapter these tests are ignored, and say so; where
//! `ATTNC_REQUIRE_GPU` is set, they fail.

use attnc::backend::{Backends, GpuBackend};
use attnc::plan::{DeviceProfile, bundle};
use attnc::verify::{Tolerance, compare_all};
use attnc::{HostTensor, Model, Session, SessionOptions, Tensors, npz};
use libtest_mimic::{Arguments, Completion, Trial};
use std::path::{Path, PathBuf};

#[path = "../examples/embed.rs"]
#[allow(dead_code, reason = "an example's `main` is not called here")]
mod embed;

const BERT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/models/bert_tiny.onnx"
);

fn main() {
    let no_adapter = GpuBackend::open(None).err().map(|error| error.to_string());
    let required = std::env::var_os("ATTNC_REQUIRE_GPU").is_some_and(|v| v == "1");
    let trial = |name: &str, test: fn()| {
        let no_adapter = no_adapter.clone();
        Trial::ignorable_test(name, move || match no_adapter {
            Some(why) if required => Err(why.into()),
            Some(why) => Ok(Completion::ignored_with(why)),
            None => {
                test();
                Ok(Completion::Completed)
            }
        })
    };
    let trials = vec![
        trial("a_bundle_runs_like_the_model_it_was_made_of", a_bundle),
        trial("new_lengths_create_no_pipelines", new_lengths),
        trial("the_embedding_host_and_the_oracle_agree", embedding),
        trial("a_cache_that_cannot_be_written_is_said", cache),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Pipelines are kept where the host says; where that cannot be, everything else goes on.
fn cache() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let _ = std::fs::remove_dir_all(&dir);
    let model = Model::open(BERT).unwrap();
    let open = |folder: &Path| {
        let options = SessionOptions {
            cache: Some(folder.to_owned()),
            ..options("gpu")
        };
        Session::of_model(&model, &options, &Backends::standard()).unwrap()
    };
    let mut session = open(&dir);
    assert_eq!(session.notes(), Vec::<String>::new());
    let Ok(mut written) = std::fs::read_dir(&dir) else {
        return; // a device without pipeline caches
    };
    let file = written.next().expect("one file").unwrap().path();
    let mut other = open(&file);
    let notes = other.notes();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains(file.to_str().unwrap()), "{notes:?}");
    let run = |session: &mut Session| session.run(&bert_inputs()).unwrap();
    assert_eq!(run(&mut session), run(&mut other));
}

fn embedding() {
    let said = embed::embed().unwrap();
    assert!(said.is_some_and(|said| said.contains("off by")));
}

fn bert_inputs() -> Tensors {
    npz::read(Path::new(BERT).with_extension("inputs.npz").as_ref()).unwrap()
}

fn options(backend: &str) -> SessionOptions {
    SessionOptions {
        backend: backend.to_owned(),
        ..SessionOptions::default()
    }
}

/// A bundle runs like the model it was made of.
fn a_bundle() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bundle");
    if dir.exists() {
        std::fs::remove_dir_all(&dir).unwrap();
    }
    let model = Model::open(BERT).unwrap();
    let compiled = attnc::compile(&model.graph, &DeviceProfile::webgpu()).unwrap();
    let compiled = compiled.named_after(&model);
    bundle::write(&dir, &compiled.plan, &compiled.weights).unwrap();
    let mut shipped = Session::open_with(&dir, &options("gpu")).unwrap();
    let mut direct = Session::of_model(&model, &options("gpu"), &Backends::standard()).unwrap();
    assert_eq!(shipped.inputs(), direct.inputs());
    let (a, b) = (
        shipped.run(&bert_inputs()).unwrap(),
        direct.run(&bert_inputs()).unwrap(),
    );
    assert!(compare_all(&a, &b, &Tolerance::default()).unwrap().passed);
    assert_eq!(
        shipped.stats().pipelines_created,
        compiled.plan.kernels.len() as u64
    );
}

/// One plan serves every length.
fn new_lengths() {
    let mut session = Session::open_with(BERT, &options("gpu")).unwrap();
    let mut created = Vec::new();
    for (batch, seq) in [(3, 21), (1, 7), (2, 64)] {
        let ids: Vec<i64> = (0..batch * seq).map(|i| i % 90).collect();
        let shape = vec![batch as usize, seq as usize];
        let ones = vec![1i64; ids.len()];
        let given = Tensors::from([
            (
                "input_ids".to_owned(),
                HostTensor::new(shape.clone(), &ids).unwrap(),
            ),
            (
                "attention_mask".to_owned(),
                HostTensor::new(shape, &ones).unwrap(),
            ),
        ]);
        session.run(&given).unwrap();
        created.push(session.stats().pipelines_created);
    }
    assert!(
        created[0] > 0 && created.iter().all(|n| *n == created[0]),
        "{created:?}"
    );
}
