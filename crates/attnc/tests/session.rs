//! Sessions through the public door: backends, bundles, weights beside a text, what is always said.

use attnc::backend::{Backend, Backends, CpuBackend, Executable, Opened, Stats, Wish};
use attnc::codegen::choice::Choices;
use attnc::inputs::BoundInputs;
use attnc::ir::{Graph, TensorData};
use attnc::plan::DeviceProfile;
use attnc::verify::{Tolerance, compare_all};
use attnc::{
    Error, HostDType, HostTensor, Model, Session, SessionOptions, Tensors, npz, opt, oracle,
};
use std::path::{Path, PathBuf};

const BERT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/models/bert_tiny.onnx"
);

fn bert_inputs() -> Tensors {
    npz::read(Path::new(BERT).with_extension("inputs.npz").as_ref()).unwrap()
}

fn options(backend: &str) -> SessionOptions {
    SessionOptions {
        backend: backend.to_owned(),
        ..SessionOptions::default()
    }
}

/// A folder of its own below the target directory, empty at first.
fn folder(test: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).unwrap();
    }
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn a_real_export_runs_on_the_cpu_and_agrees_with_the_oracle() {
    let model = Model::open(BERT).unwrap();
    let mut session = Session::of_model(&model, &options("cpu"), &Backends::standard()).unwrap();
    assert_eq!(session.why(), "running on the CPU");
    assert_eq!(
        session.attention().map(|a| (a.found, a.fused)),
        Some((2, 2))
    );
    let found = session.run(&bert_inputs()).unwrap();
    let expected = oracle::run(&model, &bert_inputs(), &Default::default()).unwrap();
    assert_eq!(expected["last_hidden_state"].dtype(), HostDType::F64);
    assert!(
        compare_all(&expected, &found, &Tolerance::default())
            .unwrap()
            .passed
    );
}

#[test]
fn what_is_chosen_is_said() {
    let opened = Backends::standard().open("auto", &Wish::default()).unwrap();
    if opened.fallback {
        assert!(opened.why.contains("running on the CPU"), "{}", opened.why);
    } else {
        assert!(opened.why.starts_with("running on "), "{}", opened.why);
        assert_eq!(opened.backend.name(), "gpu");
    }
}

#[test]
fn weights_of_a_text_come_from_the_file_beside_it() {
    let dir = folder("weights");
    let text = "graph @m(%x: f32[B, 2]) {
  %w = constant f32[2, 3] weight \"w\"
  %y = matmul %x, %w
  return %y
}";
    std::fs::write(dir.join("m.attn"), text).unwrap();
    let open = || Model::open(dir.join("m.attn"));
    assert!(matches!(open(), Err(Error::Io { .. })), "no file beside it");

    let write = |shape: Vec<usize>, bytes: &[u8]| {
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, bytes);
        let file = [("w", view.unwrap())];
        safetensors::serialize_to_file(file, None, &dir.join("m.safetensors")).unwrap();
    };
    let bytes: Vec<u8> = (1..=6u8).flat_map(|x| f32::from(x).to_le_bytes()).collect();
    write(vec![3, 2], &bytes);
    let error = open().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("weight `w`: expected f32[2, 3], found F32[3, 2]"),
        "{error}"
    );

    write(vec![2, 3], &bytes);
    let mut session =
        Session::of_model(&open().unwrap(), &options("cpu"), &Backends::standard()).unwrap();
    let x = HostTensor::new(vec![1, 2], &[1f32, 10.0]).unwrap();
    let y = session.run(&Tensors::from([("x".to_owned(), x)])).unwrap();
    assert_eq!(y["y"].to_f64(), [41.0, 52.0, 63.0]);
}

#[test]
fn attention_that_must_fuse_and_does_not_is_named() {
    let model = Model::open(BERT).unwrap();
    let unfused = SessionOptions {
        passes: opt::Options {
            fuse_attention: false,
            ..opt::Options::default()
        },
        require_fused: true,
        ..options("cpu")
    };
    let error = Session::of_model(&model, &unfused, &Backends::standard())
        .err()
        .unwrap();
    assert_eq!(error.exit_code(), 3);
    assert!(
        error.to_string().contains("layer.1/attention/self/Softmax"),
        "{error}"
    );
}

/// A backend of the host's: it counts, and leaves the work to the CPU.
struct Counting;

struct CountingExecutable(Box<dyn Executable>, u64);

impl Backend for Counting {
    fn name(&self) -> &str {
        "counting"
    }
    fn device(&self) -> String {
        "an abacus".to_owned()
    }
    fn profile(&self) -> DeviceProfile {
        DeviceProfile::webgpu()
    }
    fn compile(&self, graph: &Graph, choices: &Choices) -> Result<Box<dyn Executable>, Error> {
        Ok(Box::new(CountingExecutable(
            CpuBackend.compile(graph, choices)?,
            0,
        )))
    }
}

impl Executable for CountingExecutable {
    fn run(&mut self, inputs: &BoundInputs) -> Result<Vec<TensorData>, Error> {
        self.1 += 1;
        self.0.run(inputs)
    }
    fn stats(&self) -> Stats {
        Stats {
            pipelines_created: self.1,
            ..self.0.stats()
        }
    }
}

#[test]
fn a_host_brings_its_own_backend() {
    let mut backends = Backends::standard();
    backends.register("counting", |_| Ok(Opened::chosen(Box::new(Counting))));
    let model = Model::open(BERT).unwrap();
    let mut session = Session::of_model(&model, &options("counting"), &backends).unwrap();
    assert_eq!(session.why(), "running on an abacus");
    session.run(&bert_inputs()).unwrap();
    session.run(&bert_inputs()).unwrap();
    assert_eq!(session.stats().pipelines_created, 2);

    let error = Session::of_model(&model, &options("abacus"), &backends)
        .err()
        .unwrap();
    assert_eq!(
        (error.to_string().as_str(), error.exit_code()),
        (
            "no backend is named `abacus`; there are auto, gpu, cpu, counting",
            2
        )
    );
    let error = Counting.load(&attnc::plan::Plan::new("m", DeviceProfile::webgpu()), &());
    assert_eq!(error.err().map(|e| e.exit_code()), Some(3));
}
