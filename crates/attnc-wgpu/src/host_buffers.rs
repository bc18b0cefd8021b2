//! The host's buffers: whether they are what the ports of a plan need.
//!
//! On entry: buffers by the names of inputs and outputs. On exit: one for each port, in their order, or everything that
//! is wrong with them.

use crate::{Error, Executable};
use attnc_plan::{DimValues, Plan, Port};

impl Executable {
    /// The host's buffers in the order of the ports, or everything that is wrong with them.
    pub(crate) fn host_buffers(
        &self,
        dims: &DimValues,
        given: &[(&str, &wgpu::Buffer)],
    ) -> Result<Vec<wgpu::Buffer>, Error> {
        self.check_sizes(dims)?;
        let mut wrong = unknown_names(&self.plan, given);
        let copied = self.plan.image_sources();
        let mut host = Vec::new();
        for port in ports_of(&self.plan) {
            let Some((_, buffer)) = given.iter().find(|(name, _)| *name == port.name) else {
                wrong.push(format!(
                    "`{}` of type {} is missing",
                    port.name,
                    port.type_text()
                ));
                continue;
            };
            wrong.extend(self.unfit(port, dims, buffer)?);
            let copies = copied.contains(&port.buffer);
            if copies && !buffer.usage().contains(wgpu::BufferUsages::COPY_SRC) {
                wrong.push(format!(
                    "`{}`: its buffer was made without COPY_SRC usage, and is copied into an image",
                    port.name
                ));
            }
            host.push((*buffer).clone());
        }
        if wrong.is_empty() {
            wrong.extend(shared_outputs(&self.plan, &host));
        }
        if wrong.is_empty() {
            Ok(host)
        } else {
            Err(Error::Buffers(wrong))
        }
    }

    fn unfit(
        &self,
        port: &Port,
        dims: &DimValues,
        buffer: &wgpu::Buffer,
    ) -> Result<Vec<String>, Error> {
        let mut wrong = Vec::new();
        let bytes = self.plan.buffer(port.buffer).bytes(dims)?;
        let needed = bytes.next_multiple_of(4).max(4);
        // Kernels read and write whole words, also where the last holds one element of 16 bits.
        let rounded = if needed > bytes {
            format!(" ({bytes}, rounded up to whole words)")
        } else {
            String::new()
        };
        if buffer.size() < needed {
            wrong.push(format!(
                "`{}` of type {} needs {needed} bytes{rounded}, its buffer has {}",
                port.name,
                port.type_text(),
                buffer.size()
            ));
        }
        if !buffer.usage().contains(wgpu::BufferUsages::STORAGE) {
            wrong.push(format!(
                "`{}`: its buffer was made without STORAGE usage",
                port.name
            ));
        }
        Ok(wrong)
    }
}

pub(crate) fn ports_of(plan: &Plan) -> impl Iterator<Item = &Port> {
    plan.inputs.iter().chain(&plan.outputs)
}

fn unknown_names(plan: &Plan, given: &[(&str, &wgpu::Buffer)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, (name, _)) in given.iter().enumerate() {
        if !ports_of(plan).any(|p| p.name == *name) {
            let known: Vec<_> = ports_of(plan).map(|p| format!("`{}`", p.name)).collect();
            wrong.push(format!(
                "no input or output is named `{name}`; there are {}",
                known.join(", ")
            ));
        } else if given[..at].iter().any(|(earlier, _)| earlier == name) {
            wrong.push(format!("`{name}` is given twice"));
        }
    }
    wrong
}

/// WebGPU lets a buffer that is written serve nothing else in a dispatch.
fn shared_outputs(plan: &Plan, host: &[wgpu::Buffer]) -> Vec<String> {
    let names: Vec<_> = ports_of(plan).map(|p| p.name.as_str()).collect();
    let mut wrong = Vec::new();
    for output in plan.inputs.len()..host.len() {
        for other in 0..output {
            if host[other] == host[output] {
                let (a, b) = (names[other], names[output]);
                wrong.push(format!(
                    "`{a}` and `{b}` share a buffer; an output needs its own"
                ));
            }
        }
    }
    wrong
}
