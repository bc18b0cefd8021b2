//! Counters: buffers that steps count in, from 0 in each run.
//!
//! They are few words for a whole plan, and shared by everything an executable runs, as the arena is: submissions
//! execute in order, and each run starts by setting them to 0.
//!
//! On entry: buffers of the kind [`Counters`](attnc_plan::BufferKind::Counters), whose lengths are constant. On exit: a
//! buffer of the device for each.

use crate::Error;
use crate::weights::storage_buffer;
use attnc_plan::{BufferId, DimValues, Plan};
use std::collections::BTreeMap;

/// The counters of a plan in device memory.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) buffers: BTreeMap<BufferId, wgpu::Buffer>,
}

impl Counters {
    pub(crate) fn new(device: &wgpu::Device, plan: &Plan) -> Result<Self, Error> {
        let mut buffers = BTreeMap::new();
        for (id, buffer) in plan.counters() {
            let bytes = buffer.allocated_bytes(&DimValues::default())?;
            buffers.insert(id, storage_buffer(device, &buffer.name, bytes));
        }
        Ok(Self { buffers })
    }

    /// Records what sets them to 0.
    pub(crate) fn reset(&self, encoder: &mut wgpu::CommandEncoder) {
        for buffer in self.buffers.values() {
            encoder.clear_buffer(buffer, 0, None);
        }
    }
}
