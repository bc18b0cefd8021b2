//! From a graph to a plan: passes, then lowering for a device profile.
//!
//! ```
//! use attnc::{Model, compile, plan::DeviceProfile};
//! let model = Model::from_text("double", "graph @double(%x: f32[B]) {
//!   %y = add %x, %x
//!   return %y
//! }")?;
//! let compiled = compile(&model.graph, &DeviceProfile::webgpu())?;
//! assert_eq!(compiled.plan.dims, ["B"]);
//! # Ok::<(), attnc::Error>(())
//! ```

use crate::codegen::choice::{Choices, Decision};
use crate::ir::{Graph, TensorData};
use crate::opt::{self, Optimised};
use crate::plan::{self, DeviceProfile, Plan, WeightSource};
use crate::{Error, Model, codegen, gpu};
use indexmap::IndexMap;

/// A plan and the weights it names.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// Kernels, steps and buffers.
    pub plan: Plan,
    /// The weights, by the names the plan knows them by.
    pub weights: Weights,
    /// Which kernel each problem got, where there was a choice.
    pub decisions: Vec<Decision>,
}

/// Weights by name, sharing the bytes of the model.
#[derive(Debug, Clone, Default)]
pub struct Weights(pub IndexMap<String, TensorData>);

impl WeightSource for Weights {
    fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name)?.bytes.as_deref()
    }
}

/// Optimises a graph and lowers it for a device.
///
/// # Errors
/// Where the graph is not valid, or something in it has no kernel that fits the profile.
pub fn compile(graph: &Graph, profile: &DeviceProfile) -> Result<Compiled, Error> {
    let optimised = optimise(graph, &opt::Options::default())?;
    lower(&optimised.graph, profile)
}

/// Runs the passes; what fused and what did not is in the result.
///
/// # Errors
/// Where the graph is not valid, or a pass broke it.
pub fn optimise(graph: &Graph, options: &opt::Options) -> Result<Optimised, Error> {
    Ok(opt::optimise(graph.clone(), options)?)
}

/// Lowers an optimised graph for a device.
///
/// # Errors
/// Everything in it that has no kernel that fits the profile.
pub fn lower(graph: &Graph, profile: &DeviceProfile) -> Result<Compiled, Error> {
    lower_with(graph, profile, &Choices::default())
}

/// As [`lower`], where `choices` may overrule the cost model.
///
/// # Errors
/// Everything in it that has no kernel that fits the profile.
pub fn lower_with(
    graph: &Graph,
    profile: &DeviceProfile,
    choices: &Choices,
) -> Result<Compiled, Error> {
    let lowered = codegen::lower_with(graph, profile, choices);
    let lowered = lowered.map_err(|diagnostics| Error::Lower {
        profile: profile.name.clone(),
        diagnostics,
    })?;
    Ok(Compiled {
        plan: lowered.plan,
        weights: Weights(lowered.weights),
        decisions: lowered.decisions,
    })
}

impl Compiled {
    /// Whether a device of the profile can hold the weights, whatever the lengths.
    ///
    /// # Errors
    /// Each weight that is over a limit.
    pub fn check_weights(&self) -> Result<(), Error> {
        let profile = &self.plan.profile;
        let checked = plan::check_weights(&self.plan, &profile.name, &profile.limits);
        Ok(checked.map_err(gpu::Error::from)?)
    }

    /// Notes in the plan what the model's file is called and which types it declares, so that a bundle
    /// can be run like the model.
    #[must_use]
    pub fn named_after(mut self, model: &Model) -> Self {
        self.plan.model.clone_from(&model.name);
        let sides = [
            (&mut self.plan.inputs, &model.inputs),
            (&mut self.plan.outputs, &model.outputs),
        ];
        for (ports, declared) in sides {
            for port in ports {
                let dtype = declared.iter().find(|p| p.name == port.name);
                let dtype = dtype.and_then(|p| p.declared);
                port.source_dtype = dtype.map(|dtype| dtype.name().to_owned());
            }
        }
        self
    }
}
