//! The GPU, through wgpu.

use super::{Backend, Executable, Output, Stats, StepTime};
use crate::Error;
use crate::codegen::choice::{Choices, Decision, Measured};
use crate::gpu::{
    self, AdapterChoice, Checks, ExecutableOptions, Gpu, HostTensorRef, PipelineCache, Runner,
};
use crate::inputs::BoundInputs;
use crate::ir::{Graph, TensorData};
use crate::plan::{DeviceProfile, Plan, WeightSource};
use crate::tune::{DeviceKey, Measurement, TuningCache};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Runs on a device of its own; a host that has one uses [`gpu::Executable`] instead.
pub struct GpuBackend {
    gpu: Gpu,
    cache: Option<PipelineCache>,
    tuning: RefCell<TuningCache>,
    notes: RefCell<Vec<String>>,
}

impl GpuBackend {
    /// Opens the best adapter, a software one if need be, or the first that `adapter` describes.
    ///
    /// # Errors
    /// Where there is none, or it gives no device.
    pub fn open(adapter: Option<&str>) -> Result<Self, gpu::Error> {
        let choice = adapter.map_or_else(AdapterChoice::any, AdapterChoice::named);
        Gpu::open(&choice).map(Self::from)
    }

    /// Opens a real GPU.
    ///
    /// # Errors
    /// Where there is none, or it gives no device.
    pub fn open_real() -> Result<Self, gpu::Error> {
        Gpu::open(&AdapterChoice::auto()).map(Self::from)
    }
}

impl From<Gpu> for GpuBackend {
    fn from(gpu: Gpu) -> Self {
        let (tuning, _) = TuningCache::open(None, device_key(&gpu));
        Self {
            gpu,
            cache: None,
            tuning: RefCell::new(tuning),
            notes: RefCell::default(),
        }
    }
}

/// What a measurement is good for.
fn device_key(gpu: &Gpu) -> DeviceKey {
    DeviceKey {
        adapter: gpu.description.name.clone(),
        api: gpu.description.backend.clone(),
        driver: gpu.description.driver.clone(),
    }
}

impl GpuBackend {
    /// Keeps compiled pipelines, where the device can give them, and what kernels were measured to take, in a
    /// folder that only its owner can write to.
    #[must_use]
    pub fn with_cache(mut self, folder: Option<&Path>) -> Self {
        self.cache = folder.and_then(|folder| PipelineCache::open(&self.gpu.device, folder));
        let (tuning, note) = TuningCache::open(folder, device_key(&self.gpu));
        self.tuning = RefCell::new(tuning);
        self.notes.borrow_mut().extend(note);
        self
    }

    fn save_cache(&self) {
        let Some(cache) = &self.cache else { return };
        if let Err(error) = cache.save() {
            let path = cache.path().display();
            let note = format!("compiled pipelines cannot be kept in {path}: {error}");
            self.notes.borrow_mut().push(note);
        }
    }
}

/// What `--backend gpu` would use: the software adapters that were left aside.
pub(super) fn instead(found: &str) -> String {
    if found == "none" {
        String::new()
    } else {
        format!(" (--backend gpu would use {found})")
    }
}

impl Backend for GpuBackend {
    fn name(&self) -> &str {
        "gpu"
    }

    fn device(&self) -> String {
        self.gpu.description.line()
    }

    fn profile(&self) -> DeviceProfile {
        self.gpu.profile.clone()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    fn compile(&self, graph: &Graph, choices: &Choices) -> Result<Box<dyn Executable>, Error> {
        let compiled = crate::compile::lower_with(graph, &self.gpu.profile, choices)?;
        let mut executable = self.executable(&compiled.plan, &compiled.weights, Checks::Off)?;
        executable.decisions = compiled.decisions;
        Ok(Box::new(executable))
    }

    fn tuned(&self) -> Option<BTreeMap<String, Measured>> {
        let tuning = self.tuning.borrow();
        let known = tuning.measurements().iter();
        Some(
            known
                .filter_map(|(key, m)| Some((key.clone(), m.measured()?)))
                .collect(),
        )
    }

    fn keep(&self, found: BTreeMap<String, Measurement>) -> Option<PathBuf> {
        let mut tuning = self.tuning.borrow_mut();
        let written = tuning.add(found);
        let path = tuning.path()?;
        match written {
            Ok(()) => Some(path.to_owned()),
            Err(error) => {
                let path = path.display();
                let note = format!("what was measured cannot be kept in {path}: {error}");
                self.notes.borrow_mut().push(note);
                None
            }
        }
    }

    /// A plan that comes from a file is anybody's word, so its shaders keep their run-time checks.
    fn load(&self, plan: &Plan, weights: &dyn WeightSource) -> Result<Box<dyn Executable>, Error> {
        Ok(Box::new(self.executable(plan, weights, Checks::On)?))
    }
}

impl GpuBackend {
    fn executable(
        &self,
        plan: &Plan,
        weights: &dyn WeightSource,
        checks: Checks,
    ) -> Result<GpuExecutable, Error> {
        let Gpu { device, queue, .. } = &self.gpu;
        let options = ExecutableOptions {
            checks,
            pipeline_cache: self.cache.as_ref().map(PipelineCache::handle),
            matrices: &self.gpu.profile.features.cooperative_matrix,
        };
        let executable = gpu::Executable::with_options(device, queue, plan, weights, &options)?;
        self.save_cache();
        let runner = Runner::from_executable(device, queue, executable);
        Ok(GpuExecutable {
            names: plan.inputs.iter().map(|port| port.name.clone()).collect(),
            runner,
            decisions: Vec::new(),
        })
    }
}

struct GpuExecutable {
    names: Vec<String>,
    runner: Runner,
    decisions: Vec<Decision>,
}

/// Tensors of the graph under the names of the plan's inputs.
struct Named<'a> {
    names: &'a [String],
    tensors: &'a [TensorData],
}

impl gpu::Inputs for Named<'_> {
    fn len(&self) -> usize {
        self.tensors.len()
    }

    fn at(&self, n: usize) -> (&str, HostTensorRef<'_>) {
        let tensor = &self.tensors[n];
        let borrowed = HostTensorRef {
            dtype: tensor.dtype,
            shape: &tensor.shape,
            bytes: tensor.bytes.as_deref().unwrap_or_default(),
        };
        (self.names.get(n).map_or("", String::as_str), borrowed)
    }
}

impl Executable for GpuExecutable {
    fn run(&mut self, inputs: &BoundInputs) -> Result<Vec<TensorData>, Error> {
        super::collect(self, inputs)
    }

    fn run_each(
        &mut self,
        inputs: &BoundInputs,
        each: &mut dyn FnMut(usize, Output<'_>),
    ) -> Result<(), Error> {
        let named = Named {
            names: &self.names,
            tensors: &inputs.tensors,
        };
        let output =
            &mut |at, t: HostTensorRef<'_>| each(at, Output::new(t.dtype, t.shape, t.bytes));
        Ok(self.runner.run_each(&named, &inputs.dims, output)?)
    }

    fn stats(&self) -> Stats {
        let stats = self.runner.executable().stats();
        Stats {
            pipelines_created: stats.pipelines_created,
            objects_created: stats.objects_created(),
            arena_peak_bytes: self.runner.executable().latest_arena_bytes(),
            weights_bytes: stats.weight_bytes,
        }
    }

    fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    fn time_steps(&mut self, inputs: &BoundInputs) -> Result<Vec<StepTime>, Error> {
        let named = Named {
            names: &self.names,
            tensors: &inputs.tensors,
        };
        let times = match self.runner.profile(&named, &inputs.dims) {
            Err(gpu::Error::NoTimestamps) => return Ok(Vec::new()),
            times => times?,
        };
        let plan = self.runner.executable().plan();
        let named = |time: gpu::StepTime| {
            let step = &plan.steps[time.step];
            StepTime {
                step: time.step,
                op: step.op.clone(),
                kernel: plan.kernel(step.kernel).name.clone(),
                milliseconds: time.nanoseconds / 1e6,
            }
        };
        Ok(times.into_iter().map(named).collect())
    }
}
