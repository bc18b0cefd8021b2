//! What became of a model: what fused and what did not, which kernels run, what memory they need.
//!
//! ```
//! use attnc::{Model, explain, opt, plan::DeviceProfile};
//! let model = Model::from_text("double", "graph @double(%x: f32[B]) {
//!   %y = add %x, %x
//!   return %y
//! }")?;
//! let explained = explain::explain(&model, &opt::Options::default(), &DeviceProfile::webgpu())?;
//! assert_eq!(explained.report.dims, ["B"]);
//! assert_eq!(explained.report.steps, 1);
//! # Ok::<(), attnc::Error>(())
//! ```

mod choices;
mod draw;
mod text;
mod tiles;

pub use choices::{Choice, Costed, choices_text};
pub use draw::{dot, mermaid};
pub use text::{plural, text};
pub use tiles::Tiles;

use crate::codegen::choice::Choices;
use crate::compile::{self, Compiled};
use crate::opt::{self, AttentionReport, Optimised};
use crate::plan::{self, Access, DeviceProfile, DimValues, KernelArtifact, MemoryPlan, Plan};
use crate::{Error, Model, inputs};
use serde::Serialize;
use std::collections::BTreeSet;

/// The report, as `explain --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The model's name.
    pub model: String,
    /// The device profile it was compiled for.
    pub profile: String,
    /// Attention found, fused and declined.
    pub attention: Attention,
    /// What the passes had to say.
    pub remarks: Vec<Remark>,
    /// Rewrites made.
    pub rewrites: usize,
    /// Number of dispatches.
    pub steps: usize,
    /// The distinct kernels, in order of first use.
    pub kernels: Vec<Kernel>,
    /// Which kernel each problem got where there are several that could compute it, and why.
    pub choices: Vec<Choice>,
    /// What is kept in memory.
    pub buffers: Buffers,
    /// What of each distinct attention is skipped at the lengths given, if they were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiles: Vec<Tiles>,
    /// The symbolic lengths.
    pub dims: Vec<String>,
    /// Inputs with their types.
    pub inputs: Vec<String>,
    /// Outputs with their types.
    pub outputs: Vec<String>,
    /// What the importer and the compiler had to say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The count that people ask for first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Attention {
    /// Softmaxes over keys between two contractions, and attention ops, in the imported graph.
    pub found: usize,
    /// Attention in the compiled graph.
    pub fused: usize,
    /// The others, each with its reason.
    pub declined: Vec<Declined>,
}

/// An attention that did not fuse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Declined {
    /// Its softmax, or the attention op.
    pub node: String,
    /// Why.
    pub reason: String,
    /// The first node in the way.
    pub at: Option<String>,
}

/// Something a pass did or did not do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// The pass.
    pub pass: String,
    /// `fused`, `declined`, `recognised`, `note`.
    pub kind: String,
    /// The nodes of the source concerned.
    pub nodes: Vec<String>,
    /// The sentence.
    pub message: String,
    /// For a refusal, the first node in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// A distinct kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// Its key.
    pub name: String,
    /// How many steps run it.
    pub uses: usize,
    /// Bytes of workgroup memory.
    pub workgroup_bytes: u32,
    /// The operands that it reads through images, by their names in the shader.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// What it computes floats in, whatever they are stored as.
    pub precision: &'static str,
    /// The element types that its steps bind.
    pub storage: BTreeSet<&'static str>,
}

/// What is kept in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Buffers {
    /// Bytes of all weights.
    pub weights: u64,
    /// Bytes of intermediates alive at once, as an expression over the lengths.
    pub arena_peak: String,
    /// The largest intermediate with its type.
    pub largest_intermediate: String,
    /// Bytes the arena takes at the lengths given, if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena_peak_bytes: Option<u64>,
}

/// A report, with the graph and the plan it is about.
#[derive(Debug, Clone)]
pub struct Explained {
    /// The report.
    pub report: Report,
    /// The graph after the passes.
    pub optimised: Optimised,
    /// The plan and its weights.
    pub compiled: Compiled,
}

impl Explained {
    /// Adds what the arena takes and which tiles of attention are skipped at these lengths.
    ///
    /// # Errors
    /// Names that are no lengths, lengths without a value, and sizes beyond a limit.
    pub fn at(mut self, dims: &DimValues) -> Result<Self, Error> {
        let plan = &self.compiled.plan;
        let unknown = inputs::unknown_lengths(&plan.dims, dims);
        if !unknown.is_empty() {
            return Err(Error::Usage(unknown.join("\n")));
        }
        plan::check_sizes(plan, dims).map_err(crate::gpu::Error::from)?;
        let memory = MemoryPlan::new(plan, dims).map_err(crate::gpu::Error::from)?;
        self.report.buffers.arena_peak_bytes = Some(memory.peak_bytes);
        self.report.tiles = tiles::tiles(&self.optimised.graph, &plan.profile, dims);
        Ok(self)
    }
}

/// Optimises and compiles a model, and reports on it.
///
/// # Errors
/// What is wrong with the graph, or has no kernel that fits the profile.
pub fn explain(
    model: &Model,
    options: &opt::Options,
    profile: &DeviceProfile,
) -> Result<Explained, Error> {
    explain_with(model, options, profile, &Choices::default())
}

/// As [`explain`], where `choices` may overrule the cost model.
///
/// # Errors
/// As [`explain`].
pub fn explain_with(
    model: &Model,
    options: &opt::Options,
    profile: &DeviceProfile,
    choices: &Choices,
) -> Result<Explained, Error> {
    let optimised = compile::optimise(&model.graph, options)?;
    let compiled = compile::lower_with(&optimised.graph, profile, choices)?.named_after(model);
    Ok(Explained {
        report: report(model, &optimised, &compiled),
        optimised,
        compiled,
    })
}

fn report(model: &Model, optimised: &Optimised, compiled: &Compiled) -> Report {
    let plan = &compiled.plan;
    let port = |p: &crate::Port| format!("{}: {}", p.name, p.type_text());
    let mut notes = model.notes.clone();
    notes.extend(plan.notes.iter().cloned());
    let profile = &plan.profile;
    if let Err(too_large) = plan::check_weights(plan, &profile.name, &profile.limits) {
        notes.extend(too_large.0.iter().map(ToString::to_string));
    }
    Report {
        model: model.name.clone(),
        profile: plan.profile.name.clone(),
        attention: Attention::from(&optimised.attention),
        remarks: optimised.remarks.iter().map(Remark::from).collect(),
        rewrites: optimised.rewrites,
        steps: plan.steps.len(),
        kernels: kernels(plan),
        choices: Choice::of(&compiled.decisions),
        buffers: Buffers {
            weights: plan.weight_bytes(),
            arena_peak: plan::arena_peak_expression(plan),
            largest_intermediate: plan::largest_intermediate(plan),
            arena_peak_bytes: None,
        },
        tiles: Vec::new(),
        dims: plan.dims.clone(),
        inputs: model.inputs.iter().map(port).collect(),
        outputs: model.outputs.iter().map(port).collect(),
        notes,
    }
}

fn images(kernel: &KernelArtifact) -> Vec<String> {
    let bindings = kernel.storage_bindings();
    let images = bindings.filter(|binding| binding.access == Access::Image);
    images.map(|binding| binding.name.clone()).collect()
}

fn kernels(plan: &Plan) -> Vec<Kernel> {
    let uses = |at: usize| plan.steps.iter().filter(|s| s.kernel.index() == at).count();
    let kernels = plan.kernels.iter().enumerate();
    kernels
        .map(|(at, kernel)| Kernel {
            name: kernel.name.clone(),
            uses: uses(at),
            workgroup_bytes: kernel.workgroup_bytes,
            images: images(kernel),
            precision: kernel.precision.name(),
            storage: storage(plan, at),
        })
        .collect()
}

/// The element types of the buffers that the steps of a kernel bind.
fn storage(plan: &Plan, kernel: usize) -> BTreeSet<&'static str> {
    let steps = plan.steps.iter().filter(|s| s.kernel.index() == kernel);
    let bound = steps.flat_map(|step| &step.bindings);
    bound.map(|&id| plan.buffer(id).dtype.name()).collect()
}

impl From<&AttentionReport> for Attention {
    fn from(report: &AttentionReport) -> Self {
        let declined = report.declined.iter().map(|d| Declined {
            node: d.node.clone(),
            reason: d.reason.clone(),
            at: d.at.clone(),
        });
        Self {
            found: report.found,
            fused: report.fused,
            declined: declined.collect(),
        }
    }
}

impl From<&opt::Remark> for Remark {
    fn from(remark: &opt::Remark) -> Self {
        Self {
            pass: remark.pass.to_owned(),
            kind: remark.kind.name().to_owned(),
            nodes: remark.nodes.clone(),
            message: remark.message.clone(),
            at: remark.at.clone(),
        }
    }
}
