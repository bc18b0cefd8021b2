//! What a plan must satisfy to be run; checked when a bundle is read and when an executable is made.

use crate::{
    Access, Buffer, BufferId, BufferKind, DType, Dim, PLAN_VERSION, Plan, Port, Step, Uniform,
};
use std::collections::BTreeSet;

/// One thing wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The plan was written by another version.
    #[error(
        "the plan has version {found}; this build reads version {PLAN_VERSION}: compile it again"
    )]
    Version {
        /// The version found.
        found: u32,
    },
    /// Something about a kernel.
    #[error("kernel `{kernel}`: {what}")]
    Kernel {
        /// The kernel's name.
        kernel: String,
        /// What is wrong.
        what: String,
    },
    /// Something about a buffer.
    #[error("buffer {id} `{buffer}`: {what}")]
    Buffer {
        /// Its position.
        id: u32,
        /// Its name.
        buffer: String,
        /// What is wrong.
        what: String,
    },
    /// Something about an input or output.
    #[error("port `{port}`: {what}")]
    Port {
        /// Its name.
        port: String,
        /// What is wrong.
        what: String,
    },
    /// Something about a step.
    #[error("step {step} ({op}): {what}")]
    Step {
        /// Its position.
        step: usize,
        /// The operation.
        op: String,
        /// What is wrong.
        what: String,
    },
}

/// Everything wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the plan is not valid:\n{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct PlanErrors(pub Vec<PlanError>);

impl Plan {
    /// Checks that the plan can be run: ids in range, bindings as the kernels ask, kernels within the
    /// profile, nothing read before it is written, every output written.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn check(&self) -> Result<(), PlanErrors> {
        if self.version != PLAN_VERSION {
            return Err(PlanErrors(vec![PlanError::Version {
                found: self.version,
            }]));
        }
        let mut check = Check {
            plan: self,
            errors: Vec::new(),
        };
        check.kernels();
        check.buffers();
        check.ports();
        check.steps();
        if check.errors.is_empty() {
            Ok(())
        } else {
            Err(PlanErrors(check.errors))
        }
    }
}

struct Check<'p> {
    plan: &'p Plan,
    errors: Vec<PlanError>,
}

impl Check<'_> {
    fn kernels(&mut self) {
        let mut names = BTreeSet::new();
        for kernel in &self.plan.kernels {
            let mut wrong = kernel.misshapes();
            wrong.extend(kernel.misfits(&self.plan.profile));
            if !names.insert(&kernel.name) {
                wrong.push("another kernel has the same name".to_owned());
            }
            let kernel = &kernel.name;
            self.errors
                .extend(wrong.into_iter().map(|what| PlanError::Kernel {
                    kernel: kernel.clone(),
                    what,
                }));
        }
    }

    fn buffers(&mut self) {
        for (id, buffer) in self.plan.buffer_ids() {
            let mut wrong = self.unknown_lengths(buffer.shape.iter());
            if buffer
                .axes
                .as_ref()
                .is_some_and(|axes| axes.len() != buffer.shape.len())
            {
                wrong.push("`axes` and `shape` differ in length".to_owned());
            }
            let fixed = buffer
                .shape
                .iter()
                .all(|d| d.as_const().is_some_and(|n| n >= 0));
            let made_once = match buffer.kind {
                BufferKind::Weight { .. } => Some("a weight needs"),
                BufferKind::Counters => Some("counters need"),
                BufferKind::Input | BufferKind::Output | BufferKind::Temp => None,
            };
            if let (Some(needs), false) = (made_once, fixed) {
                let found = buffer.type_text();
                wrong.push(format!("{needs} constant lengths, not {found}"));
            }
            if buffer.kind == BufferKind::Counters && buffer.dtype != DType::U32 {
                wrong.push(format!("counters are u32, not {}", buffer.dtype));
            }
            if let Some(panels) = buffer.panels {
                wrong.extend(panels.check(&buffer.shape).err());
                if !matches!(buffer.kind, BufferKind::Weight { .. }) {
                    wrong.push("only a weight lies in panels".to_owned());
                }
            }
            let (id, buffer) = (id.0, &buffer.name);
            self.errors
                .extend(wrong.into_iter().map(|what| PlanError::Buffer {
                    id,
                    buffer: buffer.clone(),
                    what,
                }));
        }
    }

    fn ports(&mut self) {
        let plan = self.plan;
        let mut names = BTreeSet::new();
        let mut owned = BTreeSet::new();
        let inputs = plan.inputs.iter().map(|p| (p, BufferKind::Input));
        for (port, kind) in inputs.chain(plan.outputs.iter().map(|p| (p, BufferKind::Output))) {
            let mut wrong = self.port(port, &kind);
            if !names.insert(port.name.as_str()) {
                wrong.push("another input or output has the same name".to_owned());
            }
            if !owned.insert(port.buffer) {
                wrong.push("another input or output has the same buffer".to_owned());
            }
            let port = &port.name;
            self.errors
                .extend(wrong.into_iter().map(|what| PlanError::Port {
                    port: port.clone(),
                    what,
                }));
        }
        for (id, buffer) in plan.buffer_ids() {
            if matches!(buffer.kind, BufferKind::Input | BufferKind::Output) && !owned.contains(&id)
            {
                let what = "is no port's buffer".to_owned();
                self.errors.push(PlanError::Buffer {
                    id: id.0,
                    buffer: buffer.name.clone(),
                    what,
                });
            }
        }
    }

    fn port(&self, port: &Port, kind: &BufferKind) -> Vec<String> {
        let Some(buffer) = self.plan.buffers.get(port.buffer.index()) else {
            return vec![format!("buffer {} does not exist", port.buffer.0)];
        };
        let mut wrong = Vec::new();
        if buffer.kind != *kind {
            wrong.push(format!(
                "its buffer `{}` is of kind {:?}",
                buffer.name, buffer.kind
            ));
        }
        if buffer.dtype != port.dtype || buffer.shape != port.shape {
            wrong.push(format!(
                "it is {}, its buffer `{}` {}",
                port.type_text(),
                buffer.name,
                buffer.type_text()
            ));
        }
        wrong
    }

    fn steps(&mut self) {
        let mut written = BTreeSet::new();
        for (at, step) in self.plan.steps.iter().enumerate() {
            let wrong = self.step(step, &mut written);
            let op = &step.op;
            self.errors
                .extend(wrong.into_iter().map(|what| PlanError::Step {
                    step: at,
                    op: op.clone(),
                    what,
                }));
        }
        for port in &self.plan.outputs {
            if !written.contains(&port.buffer) {
                let what = "no step writes it".to_owned();
                self.errors.push(PlanError::Port {
                    port: port.name.clone(),
                    what,
                });
            }
        }
    }

    fn step(&self, step: &Step, written: &mut BTreeSet<BufferId>) -> Vec<String> {
        let Some(kernel) = self.plan.kernels.get(step.kernel.index()) else {
            return vec![format!("kernel {} does not exist", step.kernel.0)];
        };
        let words = step.uniforms.iter().filter_map(dim);
        let numbers = step.grid.iter().chain(words).chain([&step.turns]);
        let mut wrong = self.unknown_lengths(numbers);
        if kernel.uniform_binding().is_some() == step.uniforms.is_empty() {
            wrong.push(format!(
                "it has {} uniform words, kernel `{}` {}",
                step.uniforms.len(),
                kernel.name,
                if step.uniforms.is_empty() {
                    "binds a uniform struct"
                } else {
                    "binds none"
                }
            ));
        }
        if step.uniforms.len() * 4 > self.plan.profile.limits.uniform_bytes as usize {
            wrong.push(format!(
                "{} uniform words are over the limit",
                step.uniforms.len()
            ));
        }
        let count = kernel.storage_bindings().count();
        if count != step.bindings.len() {
            let have = step.bindings.len();
            wrong.push(format!(
                "it binds {have} buffers, kernel `{}` needs {count}",
                kernel.name
            ));
            return wrong;
        }
        let mut writes = Vec::new();
        for (binding, &id) in kernel.storage_bindings().zip(&step.bindings) {
            let Some(buffer) = self.plan.buffers.get(id.index()) else {
                wrong.push(format!("buffer {} does not exist", id.0));
                continue;
            };
            let what = access(step, binding.access, id, buffer, written.contains(&id));
            wrong.extend(
                what.map(|what| format!("`{}` <- `{}`: {what}", binding.name, buffer.name)),
            );
            if binding.access == Access::Image && buffer.dtype != DType::F32 {
                let dtype = buffer.dtype;
                wrong.push(format!(
                    "`{}` <- `{}`: an image holds f32, not {dtype}",
                    binding.name, buffer.name
                ));
            }
            if binding.access == Access::ReadWrite {
                writes.push(id);
            }
        }
        written.extend(writes);
        wrong
    }

    fn unknown_lengths<'a>(&self, dims: impl Iterator<Item = &'a Dim>) -> Vec<String> {
        let mut wrong = BTreeSet::new();
        for dim in dims {
            for name in dim.symbols() {
                if !self.plan.dims.iter().any(|d| **d == *name) {
                    wrong.insert(format!("length `{name}` is not one of the plan's"));
                }
            }
            if !dim.indices().is_empty() {
                wrong.insert(format!(
                    "`{dim}` has an index variable where only lengths may stand"
                ));
            }
        }
        wrong.into_iter().collect()
    }
}

fn dim(uniform: &Uniform) -> Option<&Dim> {
    match uniform {
        Uniform::U32(dim) | Uniform::I32(dim) => Some(dim),
        Uniform::F32(_) => None,
    }
}

/// Why `access` to a buffer is not allowed, if it is not.
fn access(
    step: &Step,
    access: Access,
    id: BufferId,
    buffer: &Buffer,
    written: bool,
) -> Option<String> {
    let host_filled = matches!(buffer.kind, BufferKind::Input | BufferKind::Weight { .. });
    if access == Access::ReadWrite {
        if host_filled {
            return Some("inputs and weights are never written".to_owned());
        }
        if step.bindings.iter().filter(|b| **b == id).count() > 1 {
            return Some("a buffer that is written may be bound only once in a step".to_owned());
        }
    } else if !host_filled && buffer.kind != BufferKind::Counters && !written {
        return Some("it is read before any step writes it".to_owned());
    }
    None
}

#[cfg(test)]
mod tests;
