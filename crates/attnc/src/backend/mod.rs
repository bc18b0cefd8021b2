//! Backends: what runs an optimised graph.
//!
//! Two come with attnc, [`CpuBackend`] and [`GpuBackend`]; a host adds its own by implementing
//! [`Backend`] and registering it under a name:
//!
//! ```
//! use attnc::backend::{Backends, CpuBackend, Opened, Wish};
//! let mut backends = Backends::standard();
//! backends.register("mine", |_wish| Ok(Opened::chosen(Box::new(CpuBackend))));
//! let opened = backends.open("mine", &Wish::default())?;
//! assert_eq!(opened.why, "running on the CPU");
//! # Ok::<(), attnc::Error>(())
//! ```

mod cpu;
mod gpu;

pub use cpu::CpuBackend;
pub(crate) use cpu::{dims as cpu_dims, named as cpu_named};
pub use gpu::GpuBackend;

use crate::codegen::choice::{Choices, Decision, Measured};
use crate::ir::{DType, Graph, TensorData};
use crate::plan::{DeviceProfile, Plan};
use crate::tune::Measurement;
use crate::{Error, inputs::BoundInputs};
use indexmap::IndexMap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Something that runs graphs.
pub trait Backend {
    /// A short name: `cpu`, `gpu`.
    fn name(&self) -> &str;

    /// The device, for people: an adapter with its driver, or the CPU.
    fn device(&self) -> String;

    /// What the device can do, for the compiler.
    fn profile(&self) -> DeviceProfile;

    /// What went wrong without keeping anything from running, for people: a cache that cannot be written.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Makes an optimised graph ready to run, at any batch size and length. `choices` are for backends that
    /// run kernels: which of them to prefer.
    ///
    /// # Errors
    /// What it cannot compile, and trouble of the device.
    fn compile(&self, graph: &Graph, choices: &Choices) -> Result<Box<dyn Executable>, Error>;

    /// What kernels were measured to take on this device, by [`Decision::key`]; `None` where the backend does not
    /// choose among kernels, so that there is nothing to measure.
    fn tuned(&self) -> Option<BTreeMap<String, Measured>> {
        None
    }

    /// Remembers what was measured, and keeps it for other processes where there is a folder for that, which it
    /// gives the file of. What goes wrong is a note.
    fn keep(&self, found: BTreeMap<String, Measurement>) -> Option<PathBuf> {
        let _ = found;
        None
    }

    /// Makes a plan ready to run, as a bundle holds it.
    ///
    /// # Errors
    /// Where the backend runs graphs only, the plan does not fit, or the device is in trouble.
    fn load(
        &self,
        plan: &Plan,
        weights: &dyn crate::plan::WeightSource,
    ) -> Result<Box<dyn Executable>, Error> {
        let _ = (plan, weights);
        Err(Error::BackendCannot {
            backend: self.name().to_owned(),
            what: "run a compiled bundle, only a model".to_owned(),
        })
    }
}

/// A compiled graph. Running it at other lengths compiles nothing.
pub trait Executable {
    /// Runs on inputs that [`inputs::bind`](crate::inputs::bind) has checked; the results come in the
    /// order of the graph's outputs, in its types.
    ///
    /// # Errors
    /// Sizes beyond a limit, indices out of range, trouble of the device.
    fn run(&mut self, inputs: &BoundInputs) -> Result<Vec<TensorData>, Error>;

    /// As [`Executable::run`], handing each result to `each` where it lies, with its position: what is run
    /// again and again need not allocate for its results.
    ///
    /// # Errors
    /// As [`Executable::run`].
    fn run_each(
        &mut self,
        inputs: &BoundInputs,
        each: &mut dyn FnMut(usize, Output<'_>),
    ) -> Result<(), Error> {
        for (at, data) in self.run(inputs)?.iter().enumerate() {
            let bytes = data.bytes.as_deref().unwrap_or_default();
            each(at, Output::new(data.dtype, &data.shape, bytes));
        }
        Ok(())
    }

    /// What it has made and holds so far.
    fn stats(&self) -> Stats;

    /// Which kernel each problem got; nothing where there was no choice of kernels.
    fn decisions(&self) -> &[Decision] {
        &[]
    }

    /// Runs once more and says how long each step took; nothing where steps cannot be timed.
    ///
    /// # Errors
    /// As [`Executable::run`].
    fn time_steps(&mut self, inputs: &BoundInputs) -> Result<Vec<StepTime>, Error> {
        let _ = inputs;
        Ok(Vec::new())
    }
}

/// A result where it lies.
#[derive(Debug, Clone, Copy)]
pub struct Output<'a> {
    /// The element type, one of the graph's.
    pub dtype: DType,
    /// Sizes of the axes.
    pub shape: &'a [usize],
    /// Dense, row-major, little-endian; a truth value takes four bytes.
    pub bytes: &'a [u8],
}

impl<'a> Output<'a> {
    /// A result of that type and shape.
    #[must_use]
    pub fn new(dtype: DType, shape: &'a [usize], bytes: &'a [u8]) -> Self {
        Self {
            dtype,
            shape,
            bytes,
        }
    }
}

/// Runs and keeps the results, for backends whose own way is [`Executable::run_each`].
fn collect(
    executable: &mut dyn Executable,
    inputs: &BoundInputs,
) -> Result<Vec<TensorData>, Error> {
    let mut results = Vec::new();
    executable.run_each(inputs, &mut |_, output| {
        let bytes = output.bytes.to_vec();
        results.push(TensorData::new(
            output.dtype,
            output.shape.to_vec(),
            bytes.into(),
        ));
    })?;
    Ok(results)
}

/// What an executable has made and holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stats {
    /// Pipelines compiled so far; 0 where there are none, as on the CPU.
    pub pipelines_created: u64,
    /// Objects made on the device so far: pipelines, buffers, bind groups. A run at the lengths of an earlier
    /// one makes none.
    pub objects_created: u64,
    /// The most bytes of intermediates held at once in the latest run.
    pub arena_peak_bytes: u64,
    /// Bytes of weights on the device; on the CPU, of those packed beside the model's own.
    pub weights_bytes: u64,
}

/// How long one step took.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct StepTime {
    /// Its position in the plan.
    pub step: usize,
    /// The operation.
    pub op: String,
    /// The kernel.
    pub kernel: String,
    /// Milliseconds on the device.
    pub milliseconds: f64,
}

/// An opened backend, and the sentence that says why it is this one.
pub struct Opened {
    /// The backend.
    pub backend: Box<dyn Backend>,
    /// `no GPU adapter, running on the CPU`.
    pub why: String,
    /// Whether it stands in for a GPU that was looked for and not found.
    pub fallback: bool,
}

impl Opened {
    /// A backend that was asked for by name.
    #[must_use]
    pub fn chosen(backend: Box<dyn Backend>) -> Self {
        let device = backend.device();
        Self {
            why: format!("running on {device}"),
            backend,
            fallback: false,
        }
    }
}

/// What a host wants of a backend, its name aside.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish<'a> {
    /// Text that chooses among adapters, where there are several.
    pub adapter: Option<&'a str>,
    /// A folder for what compiling leaves behind, so that the next process starts sooner.
    pub cache: Option<&'a Path>,
}

type Open = Box<dyn Fn(&Wish<'_>) -> Result<Opened, Error>>;

/// The backends there are, by name.
pub struct Backends {
    open: IndexMap<String, Open>,
}

impl Backends {
    /// `gpu` and `cpu`.
    #[must_use]
    pub fn standard() -> Self {
        let mut backends = Self {
            open: IndexMap::new(),
        };
        backends.register("gpu", |wish| {
            let gpu = GpuBackend::open(wish.adapter)?.with_cache(wish.cache);
            Ok(Opened::chosen(Box::new(gpu)))
        });
        backends.register("cpu", |wish| match wish.adapter {
            None => Ok(Opened::chosen(Box::new(CpuBackend))),
            Some(text) => Err(Error::Usage(format!(
                "--adapter `{text}` chooses a GPU, and --backend cpu uses none; give one of them"
            ))),
        });
        backends
    }

    /// Adds a backend, or replaces the one of that name.
    pub fn register(
        &mut self,
        name: &str,
        open: impl Fn(&Wish<'_>) -> Result<Opened, Error> + 'static,
    ) {
        self.open.insert(name.to_owned(), Box::new(open));
    }

    /// The names, `auto` aside.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.open.keys().map(String::as_str)
    }

    /// Opens a backend by name. `auto` is a real GPU if there is one, else the CPU; a software adapter is
    /// used only by `gpu`, or where the wish names it.
    ///
    /// # Errors
    /// Where there is no such backend, or it has no device.
    pub fn open(&self, name: &str, wish: &Wish<'_>) -> Result<Opened, Error> {
        if let Some(open) = self.open.get(name) {
            return open(wish);
        }
        match (name, wish.adapter) {
            ("auto", Some(_)) => self.open("gpu", wish),
            ("auto", None) => self.open_auto(wish),
            _ => Err(Error::UnknownBackend {
                name: name.to_owned(),
                known: self.names().map(str::to_owned).collect(),
            }),
        }
    }

    fn open_auto(&self, wish: &Wish<'_>) -> Result<Opened, Error> {
        let (why, instead) = match GpuBackend::open_real() {
            Ok(gpu) => return Ok(Opened::chosen(Box::new(gpu.with_cache(wish.cache)))),
            Err(crate::gpu::Error::NoAdapter { found, .. }) => {
                ("no GPU adapter".to_owned(), gpu::instead(&found))
            }
            Err(error) => (format!("the GPU cannot be used ({error})"), String::new()),
        };
        let cpu = self.open("cpu", &Wish::default())?;
        Ok(Opened {
            why: format!("{why}, {}{instead}", cpu.why),
            fallback: true,
            ..cpu
        })
    }
}
