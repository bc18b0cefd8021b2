//! The plan: everything needed to run a model but its weights.

use crate::buffer::type_text;
use crate::{
    Buffer, BufferId, BufferKind, DType, DeviceProfile, Dim, KernelArtifact, KernelId, Step,
};

/// The version of the plan format this crate reads and writes.
pub const PLAN_VERSION: u32 = 4;

/// An input or output of the model.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Port {
    /// The name in the model.
    pub name: String,
    /// The element type as stored on the device (`i32` where the model says `int64`).
    pub dtype: DType,
    /// The lengths.
    pub shape: Vec<Dim>,
    /// Where it lives.
    pub buffer: BufferId,
    /// What the model file calls the element type, where that differs: `"int64"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_dtype: Option<String>,
}

impl Port {
    /// A port whose buffer is still to be made by [`Plan::add_input`] or [`Plan::add_output`].
    #[must_use]
    pub fn new(name: &str, dtype: DType, shape: Vec<Dim>) -> Self {
        let buffer = BufferId(u32::MAX);
        Self {
            name: name.to_owned(),
            dtype,
            shape,
            buffer,
            source_dtype: None,
        }
    }

    /// `f32[B, S, 384]`.
    #[must_use]
    pub fn type_text(&self) -> String {
        type_text(self.dtype, &self.shape)
    }
}

/// Kernels, buffers and dispatches of a compiled model.
///
/// A plan that [`Plan::check`] accepts can be run: every id is in range, every step binds what its
/// kernel asks for, nothing is read before it is written.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Plan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// The model's name.
    pub model: String,
    /// The device it was compiled for; every kernel fits it.
    pub profile: DeviceProfile,
    /// The symbolic lengths, in order of first appearance.
    pub dims: Vec<String>,
    /// What the host provides.
    pub inputs: Vec<Port>,
    /// What the host gets.
    pub outputs: Vec<Port>,
    /// All buffers; a [`BufferId`] is a position here.
    pub buffers: Vec<Buffer>,
    /// The distinct kernels; a [`KernelId`] is a position here.
    pub kernels: Vec<KernelArtifact>,
    /// The dispatches, in an order in which they may run.
    pub steps: Vec<Step>,
    /// Remarks for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Plan {
    /// An empty plan.
    #[must_use]
    pub fn new(model: &str, profile: DeviceProfile) -> Self {
        Self {
            version: PLAN_VERSION,
            model: model.to_owned(),
            profile,
            dims: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            buffers: Vec::new(),
            kernels: Vec::new(),
            steps: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a buffer.
    pub fn add_buffer(&mut self, buffer: Buffer) -> BufferId {
        self.buffers.push(buffer);
        BufferId(last(self.buffers.len()))
    }

    /// Adds an input and its buffer.
    pub fn add_input(&mut self, mut port: Port) -> BufferId {
        port.buffer = self.add_port_buffer(&port, BufferKind::Input);
        self.inputs.push(port);
        BufferId(last(self.buffers.len()))
    }

    /// Adds an output and its buffer.
    pub fn add_output(&mut self, mut port: Port) -> BufferId {
        port.buffer = self.add_port_buffer(&port, BufferKind::Output);
        self.outputs.push(port);
        BufferId(last(self.buffers.len()))
    }

    fn add_port_buffer(&mut self, port: &Port, kind: BufferKind) -> BufferId {
        self.add_buffer(Buffer::new(
            &port.name,
            kind,
            port.dtype,
            port.shape.clone(),
        ))
    }

    /// Adds a kernel, or finds the equal one that is already there.
    ///
    /// Two different kernels of one name are both kept, and refused by [`Plan::check`].
    pub fn add_kernel(&mut self, kernel: KernelArtifact) -> KernelId {
        let at = self
            .kernels
            .iter()
            .position(|k| *k == kernel)
            .unwrap_or_else(|| {
                self.kernels.push(kernel);
                self.kernels.len() - 1
            });
        KernelId(last(at + 1))
    }

    /// The buffer of that id.
    ///
    /// # Panics
    /// Where the id is not of this plan; [`Plan::check`] finds such ids.
    #[must_use]
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.index()]
    }

    /// The kernel of that id.
    ///
    /// # Panics
    /// Where the id is not of this plan; [`Plan::check`] finds such ids.
    #[must_use]
    pub fn kernel(&self, id: KernelId) -> &KernelArtifact {
        &self.kernels[id.index()]
    }

    /// Buffers with their ids.
    pub fn buffer_ids(&self) -> impl Iterator<Item = (BufferId, &Buffer)> {
        self.buffers
            .iter()
            .enumerate()
            .map(|(i, b)| (BufferId(last(i + 1)), b))
    }

    /// The intermediates.
    pub fn temps(&self) -> impl Iterator<Item = (BufferId, &Buffer)> {
        self.buffer_ids()
            .filter(|(_, b)| b.kind == BufferKind::Temp)
    }

    /// What is set to 0 before each run.
    pub fn counters(&self) -> impl Iterator<Item = (BufferId, &Buffer)> {
        self.buffer_ids()
            .filter(|(_, b)| b.kind == BufferKind::Counters)
    }

    /// The weights, each with the name its source knows it by.
    pub fn weights(&self) -> impl Iterator<Item = (BufferId, &str, &Buffer)> {
        self.buffer_ids().filter_map(|(id, b)| match &b.kind {
            BufferKind::Weight { name } => Some((id, name.as_str(), b)),
            _ => None,
        })
    }

    /// Buffers whose named axes include all of `axes`; what the "no N×N" test asks with `["M", "N"]`.
    #[must_use]
    pub fn buffers_with_axes(&self, axes: &[&str]) -> Vec<BufferId> {
        let has_all = |b: &Buffer| {
            b.axes
                .as_ref()
                .is_some_and(|have| axes.iter().all(|a| have.iter().any(|h| h == a)))
        };
        self.buffer_ids()
            .filter(|(_, b)| has_all(b))
            .map(|(id, _)| id)
            .collect()
    }

    /// The input of that name.
    #[must_use]
    pub fn input(&self, name: &str) -> Option<&Port> {
        self.inputs.iter().find(|p| p.name == name)
    }

    /// The output of that name.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<&Port> {
        self.outputs.iter().find(|p| p.name == name)
    }

    /// The sum of all weights in bytes; weights have constant shapes.
    #[must_use]
    pub fn weight_bytes(&self) -> u64 {
        let bytes = |b: &Buffer| u64::try_from(b.size().as_const().unwrap_or(0)).unwrap_or(0);
        self.weights()
            .map(|(_, _, b)| bytes(b))
            .fold(0, u64::saturating_add)
    }
}

/// The position of the last of `len` things. Plans hold thousands of things, not billions.
fn last(len: usize) -> u32 {
    u32::try_from(len - 1).expect("a plan holds fewer than 2^32 buffers and kernels")
}
