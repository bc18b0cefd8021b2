//! The GPU as if it had cooperative matrices, for adapters that have none: of the kernel of attention by matrices, the
//! two products are replaced by loops, and all the rest of it runs as it is.
//!
//! What this cannot tell is whether a device multiplies matrices as the text asks it to: where one has them, the trials
//! of each kernel shape do.

use crate::forced::{NOT_FOR_IT, occurs};
use attnc::backend::{Backend, Executable, GpuBackend};
use attnc::codegen::choice::{Choices, KernelShape};
use attnc::gpu::Gpu;
use attnc::ir::Graph;
use attnc::plan::{DeviceProfile, Feature, Plan, WeightSource};
use attnc::{Error, compile};

/// The site ([`crate::forced`]).
pub(crate) const MATRICES: &str = "gpu with emulated matrices";

const PRODUCTS: &str = include_str!("emulated.wgsl");
const MODULE: &str = "// ---- lib/matrix_products.wgsl";
const NEXT_MODULE: &str = "\n// ---- ";

pub(crate) struct Emulated(GpuBackend);

impl From<Gpu> for Emulated {
    fn from(gpu: Gpu) -> Self {
        Self(GpuBackend::from(gpu))
    }
}

impl Backend for Emulated {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn device(&self) -> String {
        self.0.device()
    }

    fn profile(&self) -> DeviceProfile {
        let mut profile = self.0.profile();
        profile.features.cooperative_matrix = DeviceProfile::matrix().features.cooperative_matrix;
        profile
    }

    fn compile(&self, graph: &Graph, _: &Choices) -> Result<Box<dyn Executable>, Error> {
        let choices = Choices::forced(KernelShape::Matrix);
        let mut compiled = compile::lower_with(graph, &self.profile(), &choices)?;
        let emulated = emulate(&mut compiled.plan);
        if !occurs(KernelShape::Matrix, &compiled.decisions) || !emulated {
            return Err(Error::BackendCannot {
                backend: MATRICES.to_owned(),
                what: NOT_FOR_IT.to_owned(),
            });
        }
        self.0.load(&compiled.plan, &compiled.weights)
    }

    fn load(&self, plan: &Plan, w: &dyn WeightSource) -> Result<Box<dyn Executable>, Error> {
        self.0.load(plan, w)
    }
}

/// Takes matrices out of all kernels, if their products are those that there are loops for.
fn emulate(plan: &mut Plan) -> bool {
    plan.profile.features.cooperative_matrix.clear();
    let mut kernels = plan.kernels.iter_mut();
    kernels.all(|kernel| {
        if !kernel.features.contains(&Feature::CooperativeMatrix) {
            return true;
        }
        kernel.features.retain(|f| *f != Feature::CooperativeMatrix);
        let Some(start) = kernel.wgsl.find(MODULE) else {
            return false;
        };
        let after = &kernel.wgsl[start..];
        let end = after.find(NEXT_MODULE).map_or(after.len(), |at| at + 1);
        let text = [&kernel.wgsl[..start], PRODUCTS, "\n", &after[end..]].concat();
        let of_matrices = |line: &&str| line.contains("coop_mat") || line.contains("enable wgpu");
        let lines = text.lines().filter(|line| !of_matrices(line));
        kernel.wgsl = lines.flat_map(|line| [line, "\n"]).collect();
        true
    })
}
