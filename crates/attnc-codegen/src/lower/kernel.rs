//! Kernels: links the modules of one kernel, validates it, and keeps one copy of equal texts.
//!
//! On entry: module texts whose imports fit. On exit: the id of a kernel of the plan, whose text is valid,
//! fits the profile's limits, and occurs once in the plan.

use super::Lowerer;
use crate::Stored;
use crate::link::{Linked, Linker, SourceLine};
use crate::mods::{Field, Printed};
use crate::validate::{self, ENABLE_F16, Report, validate};
use attnc_ir::{Diagnostic, Dim, ValueId};
use attnc_plan::{
    Access, Binding, BufferId, Feature, KernelArtifact, KernelId, Precision, Step, Uniform,
};

/// Everything that makes a kernel and one dispatch of it.
pub(super) struct Dispatch {
    /// The file in `kernels/`.
    pub(super) kernel: &'static str,
    /// The readable key, without a number.
    pub(super) key: String,
    /// The text of `params`.
    pub(super) params: String,
    /// The text of `micro`, where the kernel takes one.
    pub(super) micro: Option<String>,
    /// The file for the slot `combine`, where the kernel takes one.
    pub(super) combine: Option<&'static str>,
    /// The file for the slot `store`, where the kernel takes one.
    pub(super) store: Option<&'static str>,
    /// Files that fill the slot that their folder is called as: `mods/mask_none`, `lanes/subgroup`, `schedule/static`.
    pub(super) mod_files: Vec<&'static str>,
    /// The printed part of `mods`.
    pub(super) mods: Printed,
    /// How the tile was chosen.
    pub(super) tile: String,
    /// The kernel's own uniform words, in the order of its `Shape`.
    pub(super) uniforms: Vec<Uniform>,
    /// Buffers of `@group(0)`, binding 1 first.
    pub(super) operands: Vec<BufferId>,
    /// The counters of `@group(2)`, where the slot `schedule` counts.
    pub(super) counters: Option<BufferId>,
    /// The variables of operands that are read through images.
    pub(super) images: Vec<&'static str>,
    /// The operation, where it is not the node's own.
    pub(super) op: Option<&'static str>,
    /// Workgroups.
    pub(super) workgroups: Dim,
    /// Floating-point operations.
    pub(super) flops: Dim,
    /// Turns of the loops of one invocation ([`super::turns`]).
    pub(super) turns: Dim,
}

/// What the text of a kernel is linked from. Equal parts make equal texts, so the layers of a model, which
/// share their kernels, cost one linking.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Parts {
    kernel: &'static str,
    key: String,
    params: String,
    micro: Option<String>,
    combine: Option<&'static str>,
    store: Option<&'static str>,
    /// Whether it binds f16 as the device knows it.
    f16: bool,
    images: Vec<&'static str>,
    mod_files: Vec<&'static str>,
    mods: String,
    /// Name and sign of the words that `mods` adds to `Shape`.
    fields: Vec<(String, bool)>,
}

impl Dispatch {
    fn parts(&self, f16: bool) -> Parts {
        let fields = self.mods.fields.iter();
        Parts {
            kernel: self.kernel,
            key: self.key.clone(),
            params: self.params.clone(),
            micro: self.micro.clone(),
            combine: self.combine,
            store: self.store,
            f16,
            images: self.images.clone(),
            mod_files: self.mod_files.clone(),
            mods: self.mods.text.clone(),
            fields: fields.map(|f| (f.name.clone(), f.signed)).collect(),
        }
    }
}

/// A kernel of the plan and the bindings that its text really uses.
#[derive(Clone)]
pub(super) struct Known {
    id: KernelId,
    bindings: Vec<Binding>,
}

impl Lowerer<'_> {
    /// Adds the step that computes `value` by one dispatch.
    pub(super) fn dispatch(
        &mut self,
        value: ValueId,
        dispatch: Dispatch,
    ) -> Result<(), Diagnostic> {
        let known = self.kernel(&dispatch)?;
        let mut bindings = Vec::new();
        for binding in known
            .bindings
            .iter()
            .filter(|b| b.access != Access::Uniform)
        {
            let at = binding.binding as usize;
            bindings.push(match binding.group {
                0 => dispatch.operands[at - 1],
                2 => dispatch.counters.expect("who counts has counters"),
                _ => self.buffer(dispatch.mods.captured[at])?,
            });
        }
        let mut uniforms = dispatch.uniforms;
        uniforms.extend(dispatch.mods.fields.into_iter().map(|f| {
            if f.signed {
                Uniform::I32(f.dim)
            } else {
                Uniform::U32(f.dim)
            }
        }));
        let node = self.graph.node(value);
        let nodes = if node.origin.is_empty() {
            vec![node.name().to_owned()]
        } else {
            node.origin.clone()
        };
        self.plan.steps.push(Step {
            kernel: known.id,
            bindings,
            uniforms,
            grid: [dispatch.workgroups, Dim::one(), Dim::one()],
            nodes,
            op: dispatch.op.unwrap_or(node.op.name()).to_owned(),
            flops: dispatch.flops,
            turns: dispatch.turns,
        });
        Ok(())
    }

    fn kernel(&mut self, dispatch: &Dispatch) -> Result<Known, Diagnostic> {
        let operands = dispatch.operands.iter().map(|&b| self.stored_in(b));
        let captured = dispatch.mods.captured.iter().map(|&v| self.stored(v));
        let f16 = operands.chain(captured).any(|s| s == Stored::F16);
        let parts = dispatch.parts(f16);
        if let Some(known) = self.kernels.get(&parts) {
            return Ok(known.clone());
        }
        let linked = link(dispatch, f16)?;
        let report = validate(&linked).map_err(|error| {
            Diagnostic::error(
                "invalid-kernel",
                format!("kernel `{}` is not valid: {error}", dispatch.key),
            )
            .note("this is a bug in attnc: please report it with the model")
        })?;
        let artifact = artifact(self.unique_name(&dispatch.key), dispatch, &linked, &report);
        let misfits = artifact.misfits(&self.plan.profile);
        if !misfits.is_empty() {
            let message = format!(
                "kernel `{}` does not fit: {}",
                artifact.name,
                misfits.join("; ")
            );
            return Err(Diagnostic::error("kernel-limits", message)
                .note("fuse less into it, or choose a profile with larger limits"));
        }
        let bindings = artifact.bindings.clone();
        let id = self.plan.add_kernel(artifact);
        let known = Known { id, bindings };
        self.kernels.insert(parts, known.clone());
        Ok(known)
    }

    /// The key, with a number where another kernel has it.
    fn unique_name(&mut self, key: &str) -> String {
        let count = self.keys.entry(key.to_owned()).or_insert(0);
        *count += 1;
        if *count == 1 {
            key.to_owned()
        } else {
            format!("{key}.{count}")
        }
    }
}

fn link(dispatch: &Dispatch, f16: bool) -> Result<Linked, Diagnostic> {
    let mut linker = Linker::new(dispatch.kernel)
        .header(&format!(
            "{}\n\nLinked by attnc; generated, do not edit.",
            dispatch.key
        ))
        .module("params", &dispatch.params);
    if f16 {
        linker = linker.module("prelude", &format!("{ENABLE_F16}\n"));
    }
    if let Some(micro) = &dispatch.micro {
        linker = linker.module("micro", micro);
    }
    for file in &dispatch.mod_files {
        let slot = file.split('/').next().unwrap_or("mods");
        linker = linker.module_file(slot, file);
    }
    if !dispatch.mods.text.is_empty() {
        linker = linker.module("mods", &dispatch.mods.text);
    }
    if let Some(file) = dispatch.combine {
        linker = linker.module_file("combine", file);
    }
    if let Some(file) = dispatch.store {
        linker = linker.module_file("store", file);
    }
    let mut linked = linker.link().map_err(|error| {
        Diagnostic::error("invalid-kernel", error.to_string())
            .note("this is a bug in attnc: please report it with the model")
    })?;
    extend_shape(&mut linked, &dispatch.mods.fields);
    for operand in &dispatch.images {
        linked.bind_image(operand);
    }
    Ok(linked)
}

/// Appends fields to the kernel's `struct Shape`: a kernel has one uniform buffer, and the lengths that
/// `mods` reads travel in it.
fn extend_shape(linked: &mut Linked, fields: &[Field]) {
    if fields.is_empty() {
        return;
    }
    let lines: Vec<&str> = linked.source.lines().collect();
    let start = lines
        .iter()
        .position(|line| line.starts_with("struct Shape"));
    let end = start.and_then(|start| lines[start..].iter().position(|line| *line == "}"));
    let (Some(start), Some(end)) = (start, end) else {
        return; // validation names the first field that is missing
    };
    let at = start + end;
    let mut text: Vec<String> = lines[..at].iter().map(|l| (*l).to_owned()).collect();
    let added = fields.iter().map(|field| {
        let ty = if field.signed { "i32" } else { "u32" };
        format!("    {}: {ty},", field.name)
    });
    text.extend(added);
    text.extend(lines[at..].iter().map(|l| (*l).to_owned()));
    linked.source = text.join("\n") + "\n";
    let origin = (1..).take(fields.len()).map(|line| {
        Some(SourceLine {
            file: "shape fields (generated)".to_owned(),
            line,
        })
    });
    linked.line_map.splice(at..at, origin);
}

fn artifact(name: String, dispatch: &Dispatch, linked: &Linked, report: &Report) -> KernelArtifact {
    let bindings = report.bindings.iter().map(|b| Binding {
        group: b.group,
        binding: b.binding,
        access: match b.access {
            validate::Access::Uniform => Access::Uniform,
            validate::Access::ReadOnly => Access::Read,
            validate::Access::ReadWrite => Access::ReadWrite,
            validate::Access::Image => Access::Image,
        },
        name: b.name.clone(),
    });
    KernelArtifact {
        name,
        entry: report.entry_point.clone(),
        wgsl: linked.source.clone(),
        bindings: bindings.collect(),
        workgroup_size: report.workgroup_size,
        workgroup_bytes: report.workgroup_bytes,
        features: features(report),
        precision: Precision::F32,
        tile: dispatch.tile.clone(),
    }
}

/// What a text needs beyond core WebGPU.
fn features(report: &Report) -> Vec<Feature> {
    let used = [
        (report.f16, Feature::F16),
        (report.subgroups, Feature::Subgroups),
        (report.int64, Feature::Int64),
        (report.matrices, Feature::CooperativeMatrix),
    ];
    let used = used.into_iter().filter(|(used, _)| *used);
    used.map(|(_, feature)| feature).collect()
}
