//! The arena: device buffers behind the slots of the memory planner, and images.
//!
//! Slots are shared by everything an executable runs; submissions execute in order, so one run's
//! intermediates are never another's. A slot that is too small is replaced; what was bound to the old
//! one keeps it alive until it is dropped.

use crate::images::Image;
use crate::weights::storage_buffer;
use attnc_plan::MemoryPlan;

/// Device buffers for slots, kept between runs.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    slots: Vec<wgpu::Buffer>,
    images: Vec<Image>,
    /// Buffers and images made so far, replaced ones included.
    pub(crate) created: u64,
}

impl Arena {
    /// A buffer for each slot, at least as large; made only where none is large enough.
    ///
    /// The planner orders slots from large to small, so slot for slot is a good fit.
    pub(crate) fn take(&mut self, device: &wgpu::Device, memory: &MemoryPlan) -> Vec<wgpu::Buffer> {
        for (at, &bytes) in memory.slots.iter().enumerate() {
            if self.slots.get(at).is_some_and(|have| have.size() >= bytes) {
                continue;
            }
            let buffer = storage_buffer(device, &format!("attnc arena slot {at}"), bytes);
            self.created += 1;
            match self.slots.get_mut(at) {
                Some(slot) => *slot = buffer,
                None => self.slots.push(buffer),
            }
        }
        self.slots[..memory.slots.len()].to_vec()
    }

    /// The same for images.
    pub(crate) fn take_images(&mut self, device: &wgpu::Device, memory: &MemoryPlan) -> Vec<Image> {
        for (at, &size) in memory.images.iter().enumerate() {
            if self.images.get(at).is_some_and(|have| have.holds(size)) {
                continue;
            }
            let image = Image::new(device, &format!("attnc arena image {at}"), size);
            self.created += 1;
            match self.images.get_mut(at) {
                Some(slot) => *slot = image,
                None => self.images.push(image),
            }
        }
        self.images[..memory.images.len()].to_vec()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        let slots = self.slots.iter().map(wgpu::Buffer::size);
        slots.chain(self.images.iter().map(Image::bytes)).sum()
    }

    /// Lets go of all buffers.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.images.clear();
    }
}
