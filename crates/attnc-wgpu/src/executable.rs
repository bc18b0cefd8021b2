//! A plan on a device: pipelines built, weights uploaded, ready for any lengths.

use crate::bind::Io;
use crate::counters::Counters;
use crate::pipeline::{self, Pipeline};
use crate::pool::Arena;
use crate::profile::ProfileExt as _;
use crate::weights::{self, DeviceWeights};
use crate::{Error, scope};
use attnc_plan::{
    CooperativeMatrix, DeviceProfile, DimBinding, DimValues, Plan, WeightSource,
    check_sizes_within, check_weights,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whether shaders run with wgpu's run-time checks (array bounds, loop bounds).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Checks {
    /// Off: the plan was compiled by attnc, whose kernels stay in bounds by construction.
    #[default]
    Off,
    /// On: the WGSL comes from somewhere else. Slower, and nothing it does can leave its buffers.
    On,
}

/// How an executable is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExecutableOptions<'a> {
    /// Whether shaders are checked at run time. `Checks::Off` is the caller's word that all kernels of the plan
    /// were written by attnc.
    pub checks: Checks,
    /// Where pipelines compiled before are looked for: the host's own cache, or that of a
    /// [`PipelineCache`](crate::PipelineCache).
    pub pipeline_cache: Option<&'a wgpu::PipelineCache>,
    /// The matrix shapes of the device, which it does not tell itself: those of [`Gpu`](crate::Gpu)'s profile, or of the
    /// adapter where the host opened the device with cooperative matrices.
    pub matrices: &'a [CooperativeMatrix],
}

/// What an executable has made so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Pipelines compiled: one for each distinct kernel, all of them by [`Executable::new`].
    pub pipelines_created: u64,
    /// Bind groups made; running at lengths and buffers seen before makes none.
    pub bind_groups_created: u64,
    /// Buffers and images made: of weights, of counters, of the arena, of uniforms, and those of a [`Runner`](crate::Runner).
    /// Running at lengths and buffers seen before makes none.
    pub buffers_created: u64,
    /// Those of the arena among them.
    pub arena_buffers_created: u64,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes of weights uploaded.
    pub weight_bytes: u64,
}

impl Stats {
    /// Objects made on the device: pipelines, bind groups and buffers.
    #[must_use]
    pub fn objects_created(&self) -> u64 {
        self.pipelines_created + self.bind_groups_created + self.buffers_created
    }
}

/// Bindings remembered for reuse. Each holds the host's buffers alive, hence few.
pub(crate) const REMEMBERED: usize = 8;

/// What changes as the executable is used.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) arena: Arena,
    /// The most recent bindings, latest last.
    pub(crate) recent: Vec<Arc<Io>>,
    pub(crate) bind_groups_created: u64,
    /// Buffers made since the weights, those of the arena aside.
    pub(crate) buffers_created: u64,
    /// Lengths lately found to be within the limits.
    pub(crate) fitting: Vec<DimValues>,
}

/// A plan on a device.
///
/// Pipelines are made once, here, and serve every batch size and length.
#[derive(Debug)]
pub struct Executable {
    pub(crate) plan: Arc<Plan>,
    pub(crate) device_profile: DeviceProfile,
    pub(crate) pipelines: Vec<Pipeline>,
    pub(crate) weights: DeviceWeights,
    pub(crate) counters: Counters,
    state: Mutex<State>,
}

impl Executable {
    /// Compiles the kernels and uploads the weights of a plan that attnc compiled.
    ///
    /// # Errors
    /// Where the plan is broken or does not fit the device, a kernel does not compile, or weights are
    /// missing, of the wrong size or too large.
    pub fn new(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        plan: &Plan,
        weights: &dyn WeightSource,
    ) -> Result<Self, Error> {
        Self::with_options(device, queue, plan, weights, &ExecutableOptions::default())
    }

    /// As [`Executable::new`], with options.
    ///
    /// # Errors
    /// As [`Executable::new`].
    pub fn with_options(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        plan: &Plan,
        weights: &dyn WeightSource,
        options: &ExecutableOptions<'_>,
    ) -> Result<Self, Error> {
        plan.check()?;
        let mut profile = DeviceProfile::from_device(device);
        let matrices = options.matrices.iter().copied();
        let size = plan.profile.matrix_size();
        let same = matrices.filter(|m| m.is_used() && Some(m.m) == size);
        profile.features.cooperative_matrix = same.collect();
        fits(plan, &profile)?;
        check_weights(plan, &profile.name, &profile.limits)?;
        let pipelines = pipeline::build_all(device, &plan.kernels, options)?;
        let weights = weights::upload(device, queue, plan, weights)?;
        Ok(Self {
            plan: Arc::new(plan.clone()),
            device_profile: profile,
            pipelines,
            weights,
            counters: Counters::new(device, plan)?,
            state: Mutex::default(),
        })
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The lengths that follow from the shapes of the inputs.
    ///
    /// # Errors
    /// All shapes that do not fit, and lengths that stay without a value.
    pub fn dims(&self, shapes: &[(&str, &[usize])]) -> Result<DimValues, Error> {
        let binding = DimBinding::for_plan(&self.plan);
        let binding = shapes
            .iter()
            .fold(binding, |b, (name, shape)| b.shape(name, shape));
        Ok(binding.finish()?)
    }

    /// Checks sizes, indices and grids at these lengths against the device; what has passed lately is
    /// not computed again.
    ///
    /// # Errors
    /// Every buffer and step that does not fit.
    pub fn check_sizes(&self, dims: &DimValues) -> Result<(), Error> {
        if self.state().fitting.contains(dims) {
            return Ok(());
        }
        let profile = &self.device_profile;
        check_sizes_within(&self.plan, dims, &profile.name, &profile.limits)?;
        let mut state = self.state();
        if state.fitting.len() >= REMEMBERED {
            state.fitting.remove(0);
        }
        state.fitting.push(dims.clone());
        Ok(())
    }

    /// What has been made so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let state = self.state();
        Stats {
            pipelines_created: self.pipelines.len() as u64,
            bind_groups_created: state.bind_groups_created,
            buffers_created: self.weights.made
                + self.counters.buffers.len() as u64
                + state.arena.created
                + state.buffers_created,
            arena_buffers_created: state.arena.created,
            arena_bytes: state.arena.bytes(),
            weight_bytes: self.weights.bytes,
        }
    }

    /// Bytes of the arena at the lengths bound latest; 0 before.
    #[must_use]
    pub fn latest_arena_bytes(&self) -> u64 {
        let state = self.state();
        state.recent.last().map_or(0, |io| io.memory.peak_bytes)
    }

    /// Lets go of the arena and of remembered bindings (and so of the host's buffers in them). An
    /// [`Io`] that is still held stays usable.
    pub fn release_memory(&self) {
        let mut state = self.state();
        state.arena.clear();
        state.recent.clear();
    }

    /// A panic while the lock was held leaves counters and caches, which are valid at every moment.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with device errors turned into ours.
    pub(crate) fn guarded<T>(
        &self,
        device: &wgpu::Device,
        what: &str,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let during = format_args!("{what} `{}`", self.plan.model);
        scope::guarded(device, &during, work)
    }
}

/// Whether every kernel fits the device, which may be smaller than the profile compiled for.
fn fits(plan: &Plan, device: &DeviceProfile) -> Result<(), Error> {
    let wrong: Vec<_> = plan
        .kernels
        .iter()
        .flat_map(|k| {
            k.misfits(device)
                .into_iter()
                .map(move |w| format!("kernel `{}`: {w}", k.name))
        })
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let mut wrong = wrong;
    wrong.push(format!(
        "(compiled for profile `{}`: compile for `{}`)",
        plan.profile.name, device.name
    ));
    Err(Error::Unfit(wrong))
}
