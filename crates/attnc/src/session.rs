//! The simple road: a file, tensors in, tensors out.
//!
//! ```no_run
//! let mut session = attnc::Session::open("model.onnx")?;
//! println!("{}", session.why()); // no GPU adapter, running on the CPU
//! let inputs = attnc::npz::read("inputs.npz".as_ref())?;
//! for (name, output) in session.run(&inputs)? {
//!     println!("{name}: {}", output.type_text());
//! }
//! # Ok::<(), attnc::Error>(())
//! ```

use crate::backend::{Backends, Executable, Opened, Stats, StepTime, Wish};
use crate::codegen::choice::{Choices, Decision};
use crate::inputs::{self, BoundInputs};
use crate::onnx::DerivedInput;
use crate::opt::{self, AttentionReport, Optimised};
use crate::plan::DimValues;
use crate::plan::bundle::{self, BundleWeights, PLAN_FILE, WEIGHTS_FILE};
use crate::rules::Rules;
use crate::sources::{self, Source};
use crate::tune::{self, Effort, ROUNDS, Tuner};
use crate::{Error, HostTensor, Model, Port, Tensors, compile, derived, files, mapped};
use std::path::{Path, PathBuf};

/// How to run a model.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionOptions {
    /// `auto`, `gpu`, `cpu`, or the name of a registered backend.
    pub backend: String,
    /// Text that occurs in the description of the adapter to use.
    pub adapter: Option<String>,
    /// What the passes do.
    pub passes: opt::Options,
    /// Which kernels to prefer, where the cost model, and what was measured on the device before, are not to
    /// decide alone.
    pub choices: Choices,
    /// Whether the first run at some lengths measures those kernels on the device that were not measured before,
    /// and takes the fastest, see [`tune`]. It takes as long as some dozen runs and compilations, twice the
    /// model's memory on the device while it lasts, and keeps the weights on the host. Backends that do not
    /// choose among kernels just run.
    pub tune: bool,
    /// Whether an attention that does not fuse, or falling back to the CPU, is an error.
    pub require_fused: bool,
    /// A folder for what compiling and measuring leave behind, so that the next process starts sooner; it should be one that
    /// only its owner can write to. `None`: nothing is read or written.
    pub cache: Option<PathBuf>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            backend: "auto".to_owned(),
            adapter: None,
            passes: opt::Options::default(),
            choices: Choices::default(),
            tune: false,
            require_fused: false,
            cache: None,
        }
    }
}

/// A model on a backend.
pub struct Session {
    inputs: Vec<Port>,
    derived: Vec<DerivedInput>,
    outputs: Vec<Port>,
    rules: Rules,
    opened: Opened,
    executable: Box<dyn Executable>,
    /// Where it may be tuned.
    tuner: Option<Tuner>,
    attention: Option<AttentionReport>,
    /// What went wrong without keeping anything from running, beside what the backend says.
    notes: Vec<String>,
}

impl Session {
    /// Opens a model, or a bundle, on the best backend there is.
    ///
    /// # Errors
    /// Everything that is wrong with the model or unsupported in it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(path, &SessionOptions::default())
    }

    /// Opens a model or a bundle.
    ///
    /// # Errors
    /// As [`Session::open`], and where the backend asked for is not there.
    pub fn open_with(path: impl AsRef<Path>, options: &SessionOptions) -> Result<Self, Error> {
        let (path, backends) = (path.as_ref(), Backends::standard());
        if path.is_dir() {
            Self::of_bundle(path, options, &backends)
        } else {
            Self::of_model(&Model::open(path)?, options, &backends)
        }
    }

    /// Compiles a model for one of `backends`.
    ///
    /// # Errors
    /// What did not fuse where that is required, what cannot be compiled, trouble of the device.
    pub fn of_model(
        model: &Model,
        options: &SessionOptions,
        backends: &Backends,
    ) -> Result<Self, Error> {
        let optimised = compile::optimise(&model.graph, &options.passes)?;
        Self::of_optimised(model, &optimised, options, backends)
    }

    /// As [`Session::of_model`], with the passes done.
    ///
    /// # Errors
    /// As [`Session::of_model`].
    pub fn of_optimised(
        model: &Model,
        optimised: &Optimised,
        options: &SessionOptions,
        backends: &Backends,
    ) -> Result<Self, Error> {
        if options.require_fused {
            require_fused(&optimised.attention)?;
        }
        let opened = open(options, backends)?;
        let choices = tune::with_known(&options.choices, opened.backend.as_ref());
        let tuner = || Tuner::new(optimised.graph.clone(), options.choices.clone());
        Ok(Self {
            inputs: model.inputs.clone(),
            derived: model.derived.clone(),
            outputs: model.outputs.clone(),
            rules: model.rules.clone(),
            executable: opened.backend.compile(&optimised.graph, &choices)?,
            tuner: options.tune.then(tuner),
            attention: Some(optimised.attention.clone()),
            notes: Vec::new(),
            opened,
        })
    }

    /// Opens a compiled bundle.
    ///
    /// # Errors
    /// Where the bundle is damaged, does not fit the device, or the backend runs models only.
    pub fn of_bundle(
        dir: &Path,
        options: &SessionOptions,
        backends: &Backends,
    ) -> Result<Self, Error> {
        if options.tune {
            let dir = dir.display();
            return Err(Error::Usage(format!(
                "{dir} is a bundle, whose kernels are chosen already: tune the model itself"
            )));
        }
        let path = dir.join(PLAN_FILE);
        files::check(&path).map_err(|error| Error::Io { path, error })?;
        let plan = bundle::read_plan(dir)?;
        let path = dir.join(WEIGHTS_FILE);
        let bytes = mapped::map(&path).map_err(|error| Error::Io { path, error })?;
        let weights = BundleWeights::new(&bytes, &plan)?;
        let (inputs, outputs) = Port::of_plan(&plan);
        // A bundle holds kernels, so that a software adapter is better than none.
        let mut options = options.clone();
        if options.backend == "auto" {
            "gpu".clone_into(&mut options.backend);
        }
        let opened = open(&options, backends)?;
        Ok(Self {
            inputs,
            derived: Vec::new(),
            outputs,
            rules: Rules::default(),
            executable: opened.backend.load(&plan, &weights)?,
            tuner: None,
            attention: None,
            notes: Vec::new(),
            opened,
        })
    }

    /// Runs the model.
    ///
    /// # Errors
    /// Inputs that do not fit, sizes beyond a limit, trouble of the device.
    pub fn run(&mut self, given: &Tensors) -> Result<Tensors, Error> {
        let bound = self.bind(given, &DimValues::default())?;
        self.run_bound(&bound)
    }

    /// Reads inputs from files; large ones that do not fit are refused by their headers.
    ///
    /// # Errors
    /// Files that cannot be read, names given twice, large inputs that do not fit.
    pub fn read(&self, sources: &[Source], dims: &DimValues) -> Result<Tensors, Error> {
        sources::read_inputs(sources, &self.inputs, &self.rules, dims)
    }

    /// Checks inputs; `dims` has values for lengths.
    ///
    /// # Errors
    /// Everything that does not fit.
    pub fn bind(&self, given: &Tensors, dims: &DimValues) -> Result<BoundInputs, Error> {
        let mut bound = inputs::bind(&self.inputs, &self.rules, given, dims)?;
        derived::complete(&self.derived, &self.rules, &mut bound)?;
        Ok(bound)
    }

    /// Runs on inputs that are checked.
    ///
    /// # Errors
    /// Sizes beyond a limit, trouble of the device.
    pub fn run_bound(&mut self, bound: &BoundInputs) -> Result<Tensors, Error> {
        let mut outputs = Tensors::new();
        self.run_into(bound, &mut outputs)?;
        Ok(outputs)
    }

    /// As [`Session::run_bound`], into the outputs of an earlier run: their memory is used again, so that a run
    /// at the lengths of the run before it allocates nothing but what the device's interface does.
    ///
    /// # Errors
    /// As [`Session::run_bound`]; `outputs` are of no use then.
    pub fn run_into(&mut self, bound: &BoundInputs, outputs: &mut Tensors) -> Result<(), Error> {
        self.tune_where_unknown(bound)?;
        let ports = &self.outputs;
        if outputs.len() != ports.len() || !ports.iter().all(|p| outputs.contains_key(&p.name)) {
            let empty = |p: &Port| (p.name.clone(), HostTensor::empty(p.host_dtype()));
            *outputs = ports.iter().map(empty).collect();
        }
        self.executable.run_each(bound, &mut |at, output| {
            if let Some(tensor) = outputs.get_mut(&ports[at].name) {
                tensor.assign(output, ports[at].host_dtype());
            }
        })
    }

    /// Measures what was not measured before, where the host wants that. A device that cannot say how long steps
    /// take runs by the cost model.
    fn tune_where_unknown(&mut self, bound: &BoundInputs) -> Result<(), Error> {
        let Some(tuner) = &mut self.tuner else {
            return Ok(());
        };
        if !tuner.wants(self.executable.as_ref(), &bound.dims) {
            return Ok(());
        }
        let effort = &mut Effort {
            rounds: ROUNDS,
            watch: &mut |_| {},
        };
        let backend = self.opened.backend.as_ref();
        match tuner.tune(backend, &mut self.executable, bound, false, effort) {
            Err(error @ Error::BackendCannot { .. }) => {
                self.notes.push(error.to_string());
                self.tuner = None;
                Ok(())
            }
            tuned => tuned.map(drop),
        }
    }

    /// Measures the kernels that could compute the model's problems at these lengths, whatever was measured before,
    /// keeps what was found and goes on with the fastest. The session must have been opened to be tuned.
    ///
    /// # Errors
    /// Where the session cannot be tuned, or the backend does not choose among kernels or cannot time them; trouble of
    /// the device.
    pub fn tune(
        &mut self,
        bound: &BoundInputs,
        effort: &mut Effort<'_>,
    ) -> Result<tune::Report, Error> {
        let backend = self.opened.backend.as_ref();
        if backend.tuned().is_none() {
            return Err(Error::BackendCannot {
                backend: backend.name().to_owned(),
                what: "be tuned: it has no kernels to choose from".to_owned(),
            });
        }
        let Some(tuner) = &mut self.tuner else {
            return Err(Error::Usage(
                "this session keeps no graph to compile again: open it with `tune` set in its options".to_owned(),
            ));
        };
        tuner.tune(backend, &mut self.executable, bound, true, effort)
    }

    /// Runs once more and says how long each step took; nothing where the backend cannot tell.
    ///
    /// # Errors
    /// As [`Session::run_bound`].
    pub fn time_steps(&mut self, bound: &BoundInputs) -> Result<Vec<StepTime>, Error> {
        self.executable.time_steps(bound)
    }

    /// What the model takes.
    #[must_use]
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// What the model gives.
    #[must_use]
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// The backend's name.
    #[must_use]
    pub fn backend(&self) -> &str {
        self.opened.backend.name()
    }

    /// The device, for people.
    #[must_use]
    pub fn device(&self) -> String {
        self.opened.backend.device()
    }

    /// Where it runs and why: `no GPU adapter, running on the CPU`.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.opened.why
    }

    /// What went wrong without keeping anything from running, for people.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        [self.opened.backend.notes(), self.notes.clone()].concat()
    }

    /// Which kernel each problem got, and why; nothing for a bundle, and on backends that do not choose.
    #[must_use]
    pub fn decisions(&self) -> &[Decision] {
        self.executable.decisions()
    }

    /// Attention found, fused and declined; `None` for a bundle, which does not say.
    #[must_use]
    pub fn attention(&self) -> Option<&AttentionReport> {
        self.attention.as_ref()
    }

    /// What has been made and is held so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.executable.stats()
    }
}

fn open(options: &SessionOptions, backends: &Backends) -> Result<Opened, Error> {
    let wish = Wish {
        adapter: options.adapter.as_deref(),
        cache: options.cache.as_deref(),
    };
    let opened = backends.open(&options.backend, &wish)?;
    if options.require_fused && opened.fallback {
        return Err(Error::Fallback(opened.why));
    }
    Ok(opened)
}

/// Whether all attention fused.
///
/// # Errors
/// Each that did not, with its reason.
pub fn require_fused(report: &AttentionReport) -> Result<(), Error> {
    if report.declined.is_empty() && report.fused >= report.found {
        return Ok(());
    }
    Err(Error::NotFused {
        found: report.found,
        fused: report.fused,
        declined: report.declined.clone(),
    })
}
