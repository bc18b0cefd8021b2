//! The uniforms of a binding: lengths and strides of every step, in one buffer that is written once.

use attnc_plan::StepLaunch;
use std::collections::BTreeMap;

/// All uniform structs of a binding in one buffer; equal ones are stored once.
pub(crate) struct Uniforms {
    buffer: Option<wgpu::Buffer>,
    offsets: BTreeMap<Vec<u8>, u64>,
}

impl Uniforms {
    /// The structs of all steps, each at a multiple of `alignment`.
    pub(crate) fn new(device: &wgpu::Device, launches: &[StepLaunch], alignment: u32) -> Self {
        let mut bytes: Vec<u8> = Vec::new();
        let mut offsets = BTreeMap::new();
        for launch in launches.iter().filter(|l| !l.uniforms.is_empty()) {
            if !offsets.contains_key(&launch.uniforms) {
                bytes.resize(bytes.len().next_multiple_of(alignment as usize), 0);
                offsets.insert(launch.uniforms.clone(), bytes.len() as u64);
                bytes.extend(&launch.uniforms);
            }
        }
        if bytes.is_empty() {
            return Self {
                buffer: None,
                offsets,
            };
        }
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("attnc uniforms"),
            size: bytes.len() as u64,
            usage: wgpu::BufferUsages::UNIFORM,
            mapped_at_creation: true,
        });
        // Not mapped only if making the buffer failed, which the error scope around this reports.
        if let Ok(mut view) = buffer.get_mapped_range_mut(..) {
            view.copy_from_slice(&bytes);
        }
        buffer.unmap();
        Self {
            buffer: Some(buffer),
            offsets,
        }
    }

    /// Where the struct of a step lies; `None` for a step without one.
    pub(crate) fn binding(&self, uniforms: &[u8]) -> Option<wgpu::BufferBinding<'_>> {
        let offset = *self.offsets.get(uniforms)?;
        let size = wgpu::BufferSize::new(uniforms.len() as u64);
        Some(wgpu::BufferBinding {
            buffer: self.buffer.as_ref()?,
            offset,
            size,
        })
    }

    /// Buffers made: one, or none where no step has uniforms.
    pub(crate) fn buffers(&self) -> u64 {
        u64::from(self.buffer.is_some())
    }
}
