//! Tuning: what is measured, taken, kept and used again; and that results do not depend on it.
//!
//! What a device would take is made up here, by a backend that lowers for a profile and runs on the CPU, so that
//! nothing depends on how fast anything is. What needs a GPU, a software one will do, is ignored where there is none,
//! and fails where `ATTNC_REQUIRE_GPU` is set.

use attnc::backend::{
    Backend, Backends, CpuBackend, Executable, GpuBackend, Opened, Stats, StepTime,
};
use attnc::codegen::choice::{Choices, Decision, KernelShape, Measured, Why};
use attnc::inputs::BoundInputs;
use attnc::ir::{Graph, TensorData};
use attnc::plan::{DeviceProfile, DimValues, SubgroupSizes};
use attnc::tune::{DeviceKey, Effort, Measurement, TuningCache};
use attnc::verify::{Tolerance, compare_all};
use attnc::{Error, HostTensor, Model, Session, SessionOptions, Tensors, lower_with, oracle};
use libtest_mimic::{Arguments, Completion, Trial};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

fn main() {
    let no_adapter = GpuBackend::open(None).err().map(|error| error.to_string());
    let required = std::env::var_os("ATTNC_REQUIRE_GPU").is_some_and(|v| v == "1");
    let made_up = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let on_gpu = |name: &str, test: fn()| {
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
        made_up("the_fastest_is_taken_kept_and_used_again", fastest),
        made_up("a_run_measures_what_is_unknown_and_once", first_run),
        made_up(
            "a_problem_without_work_is_left_to_later_lengths",
            without_work,
        ),
        made_up("what_the_device_does_not_run_is_said", failing),
        made_up("who_cannot_be_tuned_says_so", cannot),
        on_gpu("results_do_not_depend_on_the_choice", any_choice),
        on_gpu("tuning_survives_its_file", file),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A projection and attention over a cache, which has a kernel for one query and one for more.
const MODEL: &str = "graph @m(%x: f32[S, 16], %k: f32[1, 2, N, 8], %v: f32[1, 2, N, 8]) {
  %w = constant f32[16, 16] splat 0.125
  %y = matmul %x, %w
  %y4 = reshape %y, shape = [1, S, 2, 8]
  %q = transpose %y4, perm = [0, 2, 1, 3]
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  %p = softmax %s, axis = 3
  %o = matmul %p, %v
  return %o
}";

fn model() -> Model {
    Model::from_text("m", MODEL).unwrap()
}

fn inputs(queries: usize) -> Tensors {
    let tensor = |shape: &[usize]| {
        let len: usize = shape.iter().product();
        let values: Vec<f32> = (0..len).map(|i| (i % 13) as f32 / 8.0 - 0.7).collect();
        HostTensor::new(shape.to_vec(), &values).unwrap()
    };
    let cache = [1, 2, 37, 8];
    Tensors::from([
        ("x".to_owned(), tensor(&[queries, 16])),
        ("k".to_owned(), tensor(&cache)),
        ("v".to_owned(), tensor(&cache)),
    ])
}

/// What a made-up device knows and does; shared, as a device is between sessions.
#[derive(Default)]
struct Device {
    /// Milliseconds of candidates whose names begin so; 1 for others.
    takes: BTreeMap<&'static str, f64>,
    /// What it refuses to compile.
    refuses: Option<&'static str>,
    known: RefCell<BTreeMap<String, Measurement>>,
    compiled: Cell<usize>,
}

#[derive(Clone)]
struct MadeUp(Rc<Device>);

impl Backend for MadeUp {
    fn name(&self) -> &str {
        "made-up"
    }
    fn device(&self) -> String {
        "a made-up device".to_owned()
    }
    fn profile(&self) -> DeviceProfile {
        let mut profile = DeviceProfile::desktop();
        profile.features.subgroups = Some(SubgroupSizes { min: 8, max: 8 });
        profile
    }
    fn compile(&self, graph: &Graph, choices: &Choices) -> Result<Box<dyn Executable>, Error> {
        self.0.compiled.set(self.0.compiled.get() + 1);
        let lowered = lower_with(graph, &self.profile(), choices)?;
        let names = lowered.decisions.iter().map(name_of);
        if let Some(refused) = self.0.refuses
            && names.clone().any(|name| name.starts_with(refused))
        {
            return Err(Error::BackendCannot {
                backend: "made-up".to_owned(),
                what: format!("compile {refused}"),
            });
        }
        Ok(Box::new(MadeUpExecutable {
            device: Rc::clone(&self.0),
            cpu: CpuBackend.compile(graph, choices)?,
            decisions: lowered.decisions,
        }))
    }
    fn tuned(&self) -> Option<BTreeMap<String, Measured>> {
        let known = self.0.known.borrow();
        let known = known.iter();
        Some(
            known
                .map(|(key, m)| (key.clone(), m.measured().unwrap()))
                .collect(),
        )
    }
    fn keep(&self, found: BTreeMap<String, Measurement>) -> Option<PathBuf> {
        self.0.known.borrow_mut().extend(found);
        None
    }
}

fn name_of(decision: &Decision) -> String {
    decision.candidates[decision.chosen].name()
}

struct MadeUpExecutable {
    device: Rc<Device>,
    cpu: Box<dyn Executable>,
    decisions: Vec<Decision>,
}

impl Executable for MadeUpExecutable {
    fn run(&mut self, inputs: &BoundInputs) -> Result<Vec<TensorData>, Error> {
        self.cpu.run(inputs)
    }
    fn stats(&self) -> Stats {
        self.cpu.stats()
    }
    fn decisions(&self) -> &[Decision] {
        &self.decisions
    }
    /// One step a use; the kernel for one query has work where there is one, the other where there are more.
    fn time_steps(&mut self, inputs: &BoundInputs) -> Result<Vec<StepTime>, Error> {
        let single = inputs.dims.get("S") == Some(1);
        let idle = |d: &&Decision| {
            d.problem.starts_with("attention") && single != d.problem.contains("1 query")
        };
        let working = self.decisions.iter().filter(|d| !idle(d));
        let takes = |name: &str| {
            let takes = self.device.takes.iter();
            takes
                .filter(|(start, _)| name.starts_with(**start))
                .map(|(_, ms)| *ms)
                .next()
        };
        let time = |decision: &Decision| {
            let kernel = name_of(decision);
            let milliseconds = takes(&kernel).unwrap_or(1.0);
            let steps = decision.steps.iter().map(move |&step| StepTime {
                step,
                op: String::new(),
                kernel: kernel.clone(),
                milliseconds,
            });
            steps.collect::<Vec<_>>()
        };
        Ok(working.flat_map(time).collect())
    }
}

fn made_up(takes: &[(&'static str, f64)]) -> Rc<Device> {
    Rc::new(Device {
        takes: takes.iter().copied().collect(),
        ..Device::default()
    })
}

fn session(device: &Rc<Device>, tune: bool) -> Session {
    let mut backends = Backends::standard();
    let backend = MadeUp(Rc::clone(device));
    backends.register("made-up", move |_| {
        Ok(Opened::chosen(Box::new(backend.clone())))
    });
    let options = SessionOptions {
        backend: "made-up".to_owned(),
        tune,
        ..SessionOptions::default()
    };
    Session::of_model(&model(), &options, &backends).unwrap()
}

fn tune(session: &mut Session, queries: usize) -> Result<attnc::tune::Report, Error> {
    let bound = session
        .bind(&inputs(queries), &DimValues::default())
        .unwrap();
    let effort = &mut Effort {
        rounds: 2,
        watch: &mut |_| {},
    };
    session.tune(&bound, effort)
}

/// What the session has chosen for problems that begin so, and why.
fn chosen(session: &Session, problem: &str) -> Vec<(String, Why)> {
    let those = session
        .decisions()
        .iter()
        .filter(|d| d.problem.starts_with(problem));
    those.map(|d| (name_of(d), d.why)).collect()
}

fn fastest() {
    let device = made_up(&[("tiled.", 0.25)]);
    let mut first = session(&device, true);
    assert!(
        chosen(&first, "matmul")
            .iter()
            .all(|(name, _)| !name.starts_with("tiled."))
    );
    let report = tune(&mut first, 5).unwrap();
    assert_eq!((report.failed.len(), report.kept), (0, None));
    let matmul = &report.problems[0];
    assert_eq!((matmul.ratio, matmul.uses), (Some(0.25), 1), "{matmul:?}");
    assert!(matmul.chosen.starts_with("tiled."), "{matmul:?}");
    assert!(report.after_ms < report.before_ms);
    let taken = |session: &Session| {
        let found = chosen(session, "matmul");
        assert_eq!(found.len(), 1);
        assert!(found[0].0.starts_with("tiled."), "{found:?}");
        assert_eq!(found[0].1, Why::Measured { ratio: 0.25 });
    };
    taken(&first);
    taken(&session(&device, false));
    // What was asked for stands over what was measured.
    let mut backends = Backends::standard();
    backends.register("made-up", move |_| {
        Ok(Opened::chosen(Box::new(MadeUp(device.clone()))))
    });
    let options = SessionOptions {
        backend: "made-up".to_owned(),
        choices: Choices::forced(KernelShape::Subgroup),
        ..SessionOptions::default()
    };
    let forced = Session::of_model(&model(), &options, &backends).unwrap();
    assert!(chosen(&forced, "matmul")[0].0.starts_with("subgroup."));
}

fn first_run() {
    let device = made_up(&[("tiled.", 0.25)]);
    let mut tuned = session(&device, true);
    let expected = session(&device, false).run(&inputs(5)).unwrap();
    assert_eq!(tuned.run(&inputs(5)).unwrap(), expected);
    assert!(chosen(&tuned, "matmul")[0].0.starts_with("tiled."));
    let compiled = device.compiled.get();
    tuned.run(&inputs(5)).unwrap();
    assert_eq!(device.compiled.get(), compiled, "it is measured once");
    let mut again = session(&device, true);
    again.run(&inputs(5)).unwrap();
    let left = again.decisions().iter().filter(|d| d.why == Why::Cheapest);
    assert_eq!(left.count(), 1, "only that of one query");
    assert_eq!(
        device.compiled.get(),
        compiled + 1,
        "which has no work here"
    );
    // Nothing is faster than itself: what was measured anew says the same.
    tune(&mut again, 5).unwrap();
    assert!(chosen(&again, "matmul")[0].0.starts_with("tiled."));
}

fn without_work() {
    let device = made_up(&[("tiled.", 0.25)]);
    let mut tuned = session(&device, true);
    tuned.run(&inputs(5)).unwrap();
    let of = |session: &Session| chosen(session, "attention");
    let measured = |found: &[(String, Why)]| {
        found
            .iter()
            .filter(|(_, why)| matches!(why, Why::Measured { .. }))
            .count()
    };
    assert_eq!((of(&tuned).len(), measured(&of(&tuned))), (2, 1));
    tuned.run(&inputs(1)).unwrap();
    assert_eq!(measured(&of(&tuned)), 2);
    let compiled = device.compiled.get();
    tuned.run(&inputs(3)).unwrap();
    assert_eq!(
        device.compiled.get(),
        compiled,
        "nothing is left to measure"
    );
}

fn failing() {
    let device = Rc::new(Device {
        takes: [("tiled.", 0.25)].into(),
        refuses: Some("tiled."),
        ..Device::default()
    });
    let mut tuned = session(&device, true);
    let report = tune(&mut tuned, 5).unwrap();
    assert!(
        report
            .failed
            .iter()
            .any(|f| f.contains("tiled.") && f.contains("compile tiled.")),
        "{report:?}"
    );
    assert!(!chosen(&tuned, "matmul")[0].0.starts_with("tiled."));
    tuned.run(&inputs(5)).unwrap();
}

fn cannot() {
    let options = |backend: &str, tune| SessionOptions {
        backend: backend.to_owned(),
        tune,
        ..SessionOptions::default()
    };
    let mut cpu =
        Session::of_model(&model(), &options("cpu", true), &Backends::standard()).unwrap();
    assert!(cpu.run(&inputs(5)).is_ok(), "it just runs");
    let error = tune(&mut cpu, 5).unwrap_err();
    assert_eq!(error.exit_code(), 3);
    assert_eq!(
        error.to_string(),
        "backend `cpu` cannot be tuned: it has no kernels to choose from"
    );
    let error = tune(&mut session(&made_up(&[]), false), 5).unwrap_err();
    assert!(error.to_string().contains("`tune` set"), "{error}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let error = Session::open_with(folder, &options("gpu", true))
        .err()
        .unwrap();
    assert!(error.to_string().contains("is a bundle"), "{error}");
}

fn gpu(cache: Option<&Path>, choices: &Choices) -> Session {
    let options = SessionOptions {
        backend: "gpu".to_owned(),
        cache: cache.map(Path::to_owned),
        choices: choices.clone(),
        tune: true,
        ..SessionOptions::default()
    };
    Session::of_model(&model(), &options, &Backends::standard()).unwrap()
}

/// Every candidate that tuning could take, and every shape forced, against the model in f64.
fn any_choice() {
    let options = SessionOptions {
        backend: "gpu".to_owned(),
        ..SessionOptions::default()
    };
    let by_model = Session::of_model(&model(), &options, &Backends::standard()).unwrap();
    let decisions = by_model.decisions();
    let most = decisions.iter().map(|d| d.candidates.len()).max().unwrap();
    assert!(most > 1, "there is something to choose");
    let nth = |n: usize| {
        let mut choices = Choices::default();
        for decision in decisions {
            if let Some(candidate) = decision.candidates.get(n) {
                let candidate = candidate.name();
                choices.tuned.insert(
                    decision.key(),
                    Measured {
                        candidate,
                        ratio: 1.0,
                    },
                );
            }
        }
        choices
    };
    let forced = KernelShape::ALL.into_iter().map(Choices::forced);
    for choices in (0..most).map(nth).chain(forced) {
        let options = SessionOptions {
            choices: choices.clone(),
            ..options.clone()
        };
        let mut session = Session::of_model(&model(), &options, &Backends::standard()).unwrap();
        for queries in [1, 5, 70] {
            let expected = oracle::run(&model(), &inputs(queries), &DimValues::default()).unwrap();
            let found = session.run(&inputs(queries)).unwrap();
            let compared = compare_all(&expected, &found, &Tolerance::default()).unwrap();
            assert!(compared.passed, "{choices:?} at {queries}: {compared:?}");
        }
    }
}

fn file() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tuning");
    let _ = std::fs::remove_dir_all(&folder);
    let mut first = gpu(Some(&folder), &Choices::default());
    let report = match tune(&mut first, 5) {
        Ok(report) => report,
        // A device that cannot time its steps.
        Err(error) => return assert!(error.to_string().contains("no timestamps"), "{error}"),
    };
    let path = report.kept.clone().unwrap();
    let worked = report.problems.iter().filter(|p| p.ratio.is_some()).count();
    assert!(worked > 0, "{report:?}");
    let measured = |session: &Session| {
        let decisions = session.decisions().iter();
        decisions
            .filter(|d| matches!(d.why, Why::Measured { .. }))
            .count()
    };
    let again = gpu(Some(&folder), &Choices::default());
    assert_eq!(again.notes(), Vec::<String>::new());
    assert_eq!(measured(&again), worked);
    let names = |session: &Session| session.decisions().iter().map(name_of).collect::<Vec<_>>();
    let whole = std::fs::read_to_string(&path).unwrap();
    let other = DeviceKey {
        driver: "another".to_owned(),
        ..key(&whole)
    };
    let (other, note) = TuningCache::open(Some(&folder), other);
    assert_eq!((other.measurements().len(), note), (0, None));

    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let mut damaged = gpu(Some(&folder), &Choices::default());
    assert_eq!(damaged.notes().len(), 1, "{:?}", damaged.notes());
    assert_eq!(measured(&damaged), 0);
    let bare = gpu(None, &Choices::default());
    assert_eq!(names(&damaged), names(&bare), "as without measurements");
    damaged.run(&inputs(5)).unwrap();
    let rewritten = gpu(Some(&folder), &Choices::default());
    assert_eq!((measured(&rewritten), rewritten.notes().len()), (worked, 0));
}

/// The device that a file is for.
fn key(text: &str) -> DeviceKey {
    serde_json::from_str(text).unwrap()
}
