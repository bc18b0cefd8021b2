//! Which GPU: listing adapters, choosing one, opening it.
//!
//! ```no_run
//! use attnc_wgpu::{AdapterChoice, Gpu};
//! let gpu = Gpu::open(&AdapterChoice::any())?; // software adapters allowed
//! assert!(!gpu.description.name.is_empty());
//! # Ok::<(), attnc_wgpu::Error>(())
//! ```
//!
//! The choice is the same every time on the same machine: discrete before integrated before virtual
//! before others before software; then by API, name and bus address.

use crate::profile::{ProfileExt as _, cooperative_matrices};
use crate::{Error, scope};
use attnc_plan::{CooperativeMatrix, DeviceProfile};
use std::sync::{Arc, Mutex, PoisonError};

/// The features a device is opened with, where its adapter has them.
pub(crate) const USED_FEATURES: wgpu::Features = wgpu::Features::SHADER_F16
    .union(wgpu::Features::SUBGROUP)
    .union(wgpu::Features::SHADER_INT64)
    .union(wgpu::Features::TIMESTAMP_QUERY)
    .union(wgpu::Features::PIPELINE_CACHE);

/// What a device is opened with on this adapter: what kernels may use, and matrices where these are of a kind they know.
pub(crate) fn used_features(adapter: &wgpu::Adapter) -> wgpu::Features {
    let matrices = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
    let known = cooperative_matrices(adapter).iter().any(|m| m.is_used());
    let wanted = if known {
        USED_FEATURES | matrices
    } else {
        USED_FEATURES
    };
    adapter.features() & wanted
}

/// Which kinds of adapter may be chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Prefer {
    /// A real GPU: discrete, integrated or virtual.
    #[default]
    Auto,
    /// Whatever there is, a software rasteriser as the last resort.
    Any,
}

/// Which adapter to open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdapterChoice {
    /// Which kinds; not looked at where a text says which adapter is meant.
    pub prefer: Prefer,
    /// Text that must occur in the name, driver, API or kind, in any case.
    pub filter: Option<String>,
}

impl AdapterChoice {
    /// A real GPU.
    #[must_use]
    pub fn auto() -> Self {
        Self::default()
    }

    /// Whatever there is.
    #[must_use]
    pub fn any() -> Self {
        Self {
            prefer: Prefer::Any,
            filter: None,
        }
    }

    /// The first adapter in whose description `text` occurs.
    #[must_use]
    pub fn named(text: &str) -> Self {
        Self {
            prefer: Prefer::Any,
            filter: Some(text.to_owned()),
        }
    }

    fn admits(&self, adapter: &AdapterDescription) -> bool {
        match &self.filter {
            Some(text) => adapter.line().to_lowercase().contains(&text.to_lowercase()),
            None => self.prefer == Prefer::Any || adapter.is_real_gpu(),
        }
    }

    /// What is asked for, in words.
    fn wanted(&self) -> String {
        match (&self.filter, self.prefer) {
            (Some(text), _) => format!("adapter matches `{text}`"),
            (None, Prefer::Auto) => "GPU adapter".to_owned(),
            (None, Prefer::Any) => "adapter that can compute".to_owned(),
        }
    }
}

/// An adapter in words and numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterDescription {
    /// The adapter's name.
    pub name: String,
    /// The API: `vulkan`, `metal`, `dx12`, `gl`.
    pub backend: String,
    /// The driver and its version.
    pub driver: String,
    /// `discrete`, `integrated`, `virtual`, `other`, `software`.
    pub kind: &'static str,
    /// Limits and features as the compiler sees them.
    pub profile: DeviceProfile,
    /// Matrix shapes the hardware offers.
    pub cooperative_matrix: Vec<CooperativeMatrix>,
    /// Whether steps can be timed.
    pub timestamps: bool,
}

impl AdapterDescription {
    /// Whether this is hardware known to be a GPU.
    #[must_use]
    pub fn is_real_gpu(&self) -> bool {
        matches!(self.kind, "discrete" | "integrated" | "virtual")
    }

    /// `llvmpipe (LLVM 15, 256 bits) [vulkan, software, llvmpipe Mesa 22.3.6]`.
    #[must_use]
    pub fn line(&self) -> String {
        format!(
            "{} [{}, {}, {}]",
            self.name, self.backend, self.kind, self.driver
        )
    }
}

/// Describes an adapter.
#[must_use]
pub fn describe(adapter: &wgpu::Adapter) -> AdapterDescription {
    let info = adapter.get_info();
    AdapterDescription {
        name: info.name.clone(),
        backend: info.backend.to_str().to_owned(),
        driver: format!("{} {}", info.driver, info.driver_info)
            .trim()
            .to_owned(),
        kind: kind(info.device_type).1,
        profile: DeviceProfile::from_adapter(adapter),
        cooperative_matrix: cooperative_matrices(adapter),
        timestamps: adapter.features().contains(wgpu::Features::TIMESTAMP_QUERY),
    }
}

/// Place in the order of preference, and the word for it.
fn kind(device_type: wgpu::DeviceType) -> (u8, &'static str) {
    match device_type {
        wgpu::DeviceType::DiscreteGpu => (0, "discrete"),
        wgpu::DeviceType::IntegratedGpu => (1, "integrated"),
        wgpu::DeviceType::VirtualGpu => (2, "virtual"),
        wgpu::DeviceType::Other => (3, "other"),
        wgpu::DeviceType::Cpu => (4, "software"),
    }
}

fn backend_rank(backend: wgpu::Backend) -> u8 {
    match backend {
        wgpu::Backend::Vulkan => 0,
        wgpu::Backend::Metal => 1,
        wgpu::Backend::Dx12 => 2,
        wgpu::Backend::BrowserWebGpu => 3,
        wgpu::Backend::Gl => 4,
        wgpu::Backend::Noop => 5,
    }
}

/// All adapters that can run compute shaders, best first.
///
/// Asks Vulkan, Metal and DX12, and OpenGL only where these have nothing, since it would show the same
/// hardware a second time. `WGPU_BACKEND` (`vulkan`, `gl`, …) says otherwise, as in every wgpu program.
#[must_use]
pub fn adapters() -> Vec<wgpu::Adapter> {
    if let Some(backends) = wgpu::Backends::from_env() {
        return adapters_of(backends);
    }
    let first = adapters_of(wgpu::Backends::PRIMARY);
    if first.is_empty() {
        adapters_of(wgpu::Backends::SECONDARY)
    } else {
        first
    }
}

fn adapters_of(backends: wgpu::Backends) -> Vec<wgpu::Adapter> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    descriptor.backends = backends;
    let instance = wgpu::Instance::new(descriptor);
    let mut found = pollster::block_on(instance.enumerate_adapters(backends));
    found.retain(|a| {
        let flags = a.get_downlevel_capabilities().flags;
        flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
    });
    found.sort_by_key(|a| {
        let info = a.get_info();
        let (kind, backend) = (kind(info.device_type).0, backend_rank(info.backend));
        (kind, backend, info.name, info.device_pci_bus_id)
    });
    found
}

/// A device of our own, with its queue.
#[derive(Debug, Clone)]
pub struct Gpu {
    /// What was opened.
    pub description: AdapterDescription,
    /// The device.
    pub device: wgpu::Device,
    /// Its queue.
    pub queue: wgpu::Queue,
    /// What it can do.
    pub profile: DeviceProfile,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Gpu {
    /// Opens the best adapter of the choice, with all its limits and the features kernels may use.
    ///
    /// # Errors
    /// Where no adapter fits (the message lists those there are), or it gives no device.
    pub fn open(choice: &AdapterChoice) -> Result<Self, Error> {
        let all = adapters();
        let described: Vec<_> = all.iter().map(describe).collect();
        match described.iter().position(|d| choice.admits(d)) {
            Some(at) => Self::from_adapter(&all[at]),
            None => {
                let lines: Vec<_> = described.iter().map(AdapterDescription::line).collect();
                let found = if lines.is_empty() {
                    "none".to_owned()
                } else {
                    lines.join("; ")
                };
                Err(Error::NoAdapter {
                    wanted: choice.wanted(),
                    found,
                })
            }
        }
    }

    /// Opens an adapter.
    ///
    /// # Errors
    /// Where it gives no device.
    pub fn from_adapter(adapter: &wgpu::Adapter) -> Result<Self, Error> {
        let description = describe(adapter);
        let required_features = used_features(adapter);
        let experimental_features =
            if required_features.intersects(wgpu::Features::all_experimental_mask()) {
                // SAFETY: asks only to know that wgpu's work on these features is not finished. The one feature asked for
                // is cooperative matrices, and kernels load and store them whole, in arrays of workgroup memory whose
                // sizes are constants of the text; nothing else of a device changes by it.
                unsafe { wgpu::ExperimentalFeatures::enabled() }
            } else {
                wgpu::ExperimentalFeatures::disabled()
            };
        let request = adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("attnc"),
            required_features,
            experimental_features,
            required_limits: adapter.limits(),
            ..wgpu::DeviceDescriptor::default()
        });
        let (device, queue) = pollster::block_on(request).map_err(|error| Error::Device {
            adapter: description.name.clone(),
            error,
        })?;
        // A device does not say which matrices it has.
        let mut profile = DeviceProfile::from_device(&device);
        let of_adapter = &description.profile.features;
        profile.features.cooperative_matrix = of_adapter.cooperative_matrix.clone();
        let gpu = Self {
            description,
            device,
            queue,
            profile,
            trouble: Arc::default(),
        };
        gpu.listen();
        Ok(gpu)
    }

    /// Without a handler wgpu panics on errors outside any scope; with one they are remembered.
    fn listen(&self) {
        let note = |trouble: &Mutex<Option<String>>, text: String| {
            trouble
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(text);
        };
        let trouble = Arc::clone(&self.trouble);
        self.device
            .on_uncaptured_error(Arc::new(move |error| note(&trouble, error.to_string())));
        let trouble = Arc::clone(&self.trouble);
        self.device
            .set_device_lost_callback(move |reason, message| {
                note(
                    &trouble,
                    format!("device lost: {reason:?} {message}")
                        .trim_end()
                        .to_owned(),
                );
            });
    }

    /// The first thing the device reported outside of any call, such as that it was lost.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until all submitted work is done.
    ///
    /// # Errors
    /// Where the device is lost.
    pub fn wait(&self) -> Result<(), Error> {
        scope::guarded(&self.device, &"waiting for the device", || {
            crate::readback::wait(&self.device, &"waiting for the device")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(name: &str, kind: &'static str) -> AdapterDescription {
        AdapterDescription {
            name: name.into(),
            backend: "vulkan".into(),
            driver: "Mesa".into(),
            kind,
            profile: DeviceProfile::webgpu(),
            cooperative_matrix: vec![],
            timestamps: false,
        }
    }

    #[test]
    fn software_is_taken_only_when_allowed_or_named() {
        let software = adapter("llvmpipe", "software");
        assert!(!AdapterChoice::auto().admits(&software));
        assert!(!AdapterChoice::auto().admits(&adapter("thing", "other")));
        assert!(AdapterChoice::auto().admits(&adapter("RTX", "discrete")));
        assert!(AdapterChoice::any().admits(&software));
        assert!(AdapterChoice::named("LLVM").admits(&software));
        assert!(!AdapterChoice::named("radeon").admits(&software));
    }

    #[test]
    fn an_adapter_that_is_not_there_is_named_in_the_error() {
        let error = Gpu::open(&AdapterChoice::named("no such adapter"))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("no adapter matches `no such adapter`; adapters found: "),
            "{error}"
        );
    }
}
