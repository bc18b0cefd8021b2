//! The GPU as other profiles say it is, and with one kernel shape forced.
//!
//! A profile may state a width of subgroups that the adapter does not have, as long as kernels are right for it: that
//! the smallest is *at least* so wide, that workgroups are to be as wide as the largest. So each backend here is the
//! adapter's own device under a profile that asks no more of it: [`PROFILES`].
//!
//! A *site* is the name of a backend: `gpu`, `gpu of 16 lanes`, `gpu of 16 lanes in shape rows`. With a shape, all
//! problems that have a candidate of that shape get it; a graph that has none is refused with [`NOT_FOR_IT`], since
//! what would run then is tested elsewhere. [`by_each_shape`] goes through `KernelShape::ALL`: a new shape needs no
//! test of its own to be held to all that is here.

use crate::emulated::{Emulated, MATRICES};
use crate::support::{Need, Outcome, trial};
use attnc::backend::{Backend, Executable, GpuBackend};
use attnc::codegen::choice::{Choices, Decision, KernelShape};
use attnc::gpu::Gpu;
use attnc::ir::Graph;
use attnc::plan::{DeviceProfile, Plan, SubgroupSizes, WeightSource};
use attnc::{Error, compile};
use libtest_mimic::Trial;

/// The GPU as if it had no f16: elements of 16 bits lie two a word.
pub(crate) const PACKED: &str = "gpu by words";

/// The GPU as if it had what every WebGPU has and no more: no subgroup operations, 16 KiB of workgroup memory.
pub(crate) const NO_SUBGROUPS: &str = "gpu without subgroups";

/// The GPU as if its subgroups had anything from 4 to 64 lanes.
pub(crate) const ANY_SUBGROUPS: &str = "gpu of any subgroups";

/// The GPU by its own cooperative matrices.
pub(crate) const OWN_MATRICES: &str = "gpu in shape matrix";

/// What profiles say of subgroups: the name, and the lanes of the largest.
const WIDTHS: [(&str, u32); 3] = [
    ("gpu of 4 lanes", 4),
    ("gpu of 16 lanes", 16),
    ("gpu of 32 lanes", 32),
];

/// The GPU under other profiles than its own.
pub(crate) const PROFILES: [&str; 6] = [
    PACKED,
    NO_SUBGROUPS,
    ANY_SUBGROUPS,
    WIDTHS[0].0,
    WIDTHS[1].0,
    WIDTHS[2].0,
];

/// Why a graph is refused where a shape is forced.
pub(crate) const NOT_FOR_IT: &str = "run what has no kernel of that shape";

const IN_SHAPE: &str = " in shape ";

/// What the adapter is said to be able to do.
fn profile(name: &str, own: &DeviceProfile) -> Option<DeviceProfile> {
    let mut profile = own.clone();
    let sizes = &mut profile.features.subgroups;
    let stated = |own: SubgroupSizes, min: u32, max: u32| SubgroupSizes {
        min: own.min.min(min),
        max,
    };
    match name {
        "gpu" => {}
        PACKED => profile.features.f16 = false,
        NO_SUBGROUPS => {
            *sizes = None;
            profile.limits.workgroup_bytes = DeviceProfile::webgpu().limits.workgroup_bytes;
        }
        ANY_SUBGROUPS => *sizes = sizes.map(|own| stated(own, 4, own.max.max(64))),
        _ => {
            let (_, lanes) = *WIDTHS.iter().find(|(known, _)| *known == name)?;
            *sizes = sizes.map(|own| stated(own, lanes, lanes));
        }
    }
    Some(profile)
}

/// The profile and the shape of a site.
fn parts(site: &str) -> (&str, Option<KernelShape>) {
    match site.split_once(IN_SHAPE) {
        Some((profile, shape)) => (profile, KernelShape::named(shape)),
        None => (site, None),
    }
}

/// The backend of a site of the GPU; `None` for the name of another.
pub(crate) fn backend(site: &str, gpu: &Gpu) -> Option<Box<dyn Backend>> {
    if site == MATRICES {
        return Some(Box::new(Emulated::from(gpu.clone())));
    }
    let (name, shape) = parts(site);
    let mut gpu = gpu.clone();
    gpu.profile = profile(name, &gpu.profile)?;
    let whole = GpuBackend::from(gpu);
    Some(match shape {
        Some(shape) => Box::new(Forced { gpu: whole, shape }),
        None => Box::new(whole),
    })
}

/// A GPU on which one shape is forced.
struct Forced {
    gpu: GpuBackend,
    shape: KernelShape,
}

/// Whether some problem got a kernel of the shape.
pub(crate) fn occurs(shape: KernelShape, decisions: &[Decision]) -> bool {
    let mut chosen = decisions.iter().map(|d| &d.candidates[d.chosen]);
    chosen.any(|candidate| candidate.shape == shape)
}

impl Backend for Forced {
    fn name(&self) -> &str {
        self.gpu.name()
    }

    fn device(&self) -> String {
        self.gpu.device()
    }

    fn profile(&self) -> DeviceProfile {
        self.gpu.profile()
    }

    fn compile(&self, graph: &Graph, _: &Choices) -> Result<Box<dyn Executable>, Error> {
        let choices = Choices::forced(self.shape);
        let compiled = compile::lower_with(graph, &self.profile(), &choices)?;
        if !occurs(self.shape, &compiled.decisions) {
            return Err(Error::BackendCannot {
                backend: self.shape.to_string(),
                what: NOT_FOR_IT.to_owned(),
            });
        }
        self.gpu.compile(graph, &choices)
    }

    fn load(&self, plan: &Plan, w: &dyn WeightSource) -> Result<Box<dyn Executable>, Error> {
        self.gpu.load(plan, w)
    }
}

/// The check under a profile with each shape forced that computes a part of what it runs; some must.
pub(crate) fn by_each_shape(
    name: &str,
    profile: &'static str,
    check: impl Fn(&str) -> Outcome + Send + 'static,
) -> Trial {
    trial(
        format!("{name} on {profile}, each shape"),
        &[Need::Gpu],
        move || {
            let mut ran = 0;
            for shape in KernelShape::ALL {
                match check(&format!("{profile}{IN_SHAPE}{shape}")) {
                    Ok(()) => ran += 1,
                    Err(why) => {
                        let why = why.message().unwrap_or_default();
                        if !why.contains(NOT_FOR_IT) {
                            return Err(format!("in shape {shape}: {why}").into());
                        }
                    }
                }
            }
            if ran == 0 {
                return Err("no kernel of any shape computes a part of this".into());
            }
            Ok(())
        },
    )
}

/// Whether a kernel of the shape computes a part of an optimised graph on the device of a profile.
pub(crate) fn is_for(
    shape: KernelShape,
    graph: &Graph,
    profile: &DeviceProfile,
) -> Result<bool, Error> {
    let compiled = compile::lower_with(graph, profile, &Choices::forced(shape))?;
    Ok(occurs(shape, &compiled.decisions))
}

/// The profile of each site of the GPU.
pub(crate) fn profiles(own: &DeviceProfile) -> Vec<DeviceProfile> {
    let names = ["gpu"].into_iter().chain(PROFILES);
    names.filter_map(|name| profile(name, own)).collect()
}
