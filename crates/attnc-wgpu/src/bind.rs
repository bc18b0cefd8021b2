//! Binding: the host's buffers, the arena and the uniforms of one set of lengths, as bind groups.
//!
//! Everything that depends on the lengths is decided here, so that [`Executable::encode`] only records.

use crate::executable::{REMEMBERED, State};
use crate::host_buffers::ports_of;
use crate::images::{Image, ImageCopy, TEXEL};
use crate::uniforms::Uniforms;
use crate::{Error, Executable};
use attnc_plan::{Access, BufferId, BufferKind, DimValues, MemoryPlan, Port, StepLaunch};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wgpu::BindingResource::{Buffer, TextureView};

/// A plan bound to lengths and buffers: ready to be recorded any number of times.
#[derive(Debug)]
pub struct Io {
    pub(crate) dims: DimValues,
    /// The host's buffers, by port: inputs, then outputs.
    pub(crate) host: Vec<wgpu::Buffer>,
    pub(crate) dispatches: Vec<Dispatch>,
    pub(crate) memory: MemoryPlan,
}

impl Io {
    /// The lengths.
    #[must_use]
    pub fn dims(&self) -> &DimValues {
        &self.dims
    }

    /// How intermediates share memory at these lengths.
    #[must_use]
    pub fn memory(&self) -> &MemoryPlan {
        &self.memory
    }
}

/// One step with all its objects made; empty steps have none.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) step: usize,
    pub(crate) kernel: usize,
    pub(crate) groups: Vec<(u32, wgpu::BindGroup)>,
    pub(crate) workgroups: [u32; 3],
    /// What is copied into images before it.
    pub(crate) copies: Vec<ImageCopy>,
}

/// A buffer and how many bytes of it a tensor takes.
struct Place {
    buffer: wgpu::Buffer,
    bytes: u64,
}

/// Where the buffers of a plan live, and their images.
struct Places {
    buffers: BTreeMap<BufferId, Place>,
    images: BTreeMap<BufferId, Image>,
}

impl Executable {
    /// Binds host buffers, by the names of inputs and outputs.
    ///
    /// Buffers need `STORAGE` usage and at least the bytes of the tensor, rounded up to 4; `COPY_SRC` usage as well, where
    /// a step reads them through an image ([`attnc_plan::Plan::image_sources`]). Where the
    /// same lengths and buffers were bound lately, that binding is returned and nothing is made, on the
    /// device or on the host.
    ///
    /// # Errors
    /// Every buffer that is missing, unknown, too small or bound in two roles; sizes over the device's
    /// limits; lengths without a value; exhausted memory.
    pub fn bind(
        &self,
        device: &wgpu::Device,
        dims: &DimValues,
        buffers: &[(&str, &wgpu::Buffer)],
    ) -> Result<Arc<Io>, Error> {
        let given = |name: &str| buffers.iter().find(|(n, _)| *n == name).map(|(_, b)| *b);
        // As many buffers as ports, and one for each port: then no name is unknown or given twice.
        if buffers.len() == ports_of(&self.plan).count()
            && let Some(io) = self.recall(dims, |_, port| given(&port.name))
        {
            return Ok(io);
        }
        let host = self.host_buffers(dims, buffers)?;
        let mut state = self.state();
        let io = self.guarded(device, "binding", || {
            self.build_io(device, dims, host, &mut state)
        })?;
        let io = Arc::new(io);
        state.recent.push(Arc::clone(&io));
        if state.recent.len() > REMEMBERED {
            state.recent.remove(0);
        }
        Ok(io)
    }

    /// The binding of these lengths and buffers, if it was made lately; nothing is allocated.
    pub(crate) fn recall<'b>(
        &self,
        dims: &DimValues,
        given: impl Fn(usize, &Port) -> Option<&'b wgpu::Buffer>,
    ) -> Option<Arc<Io>> {
        let mut state = self.state();
        let at = state.recent.iter().position(|io| {
            let mut ports = ports_of(&self.plan).zip(&io.host).enumerate();
            io.dims == *dims && ports.all(|(at, (port, known))| given(at, port) == Some(known))
        })?;
        // The latest is last.
        state.recent[at..].rotate_left(1);
        state.recent.last().cloned()
    }

    fn build_io(
        &self,
        device: &wgpu::Device,
        dims: &DimValues,
        host: Vec<wgpu::Buffer>,
        state: &mut State,
    ) -> Result<Io, Error> {
        let limits = &self.device_profile.limits;
        let memory = MemoryPlan::new(&self.plan, dims)?;
        let made = state.arena.created;
        let arena = state.arena.take(device, &memory);
        let images = state.arena.take_images(device, &memory);
        if state.arena.created != made {
            // Older bindings hold on to the slots that were just replaced.
            state.recent.clear();
        }
        let places = Places {
            buffers: self.places(dims, &host, &arena, &memory)?,
            images: self.images(&images, &memory),
        };
        let launches: Vec<StepLaunch> = self
            .plan
            .steps
            .iter()
            .map(|step| step.launch(dims, limits.workgroups_per_dimension))
            .collect::<Result<_, _>>()?;
        let uniforms = Uniforms::new(device, &launches, limits.uniform_offset_alignment);
        state.buffers_created += uniforms.buffers();
        let mut dispatches = Vec::new();
        // Buffers that their images have the latest contents of.
        let mut copied = BTreeSet::new();
        for (step, launch) in launches.iter().enumerate() {
            if launch.workgroups == [0; 3] {
                continue;
            }
            let groups = self.bind_groups(device, step, launch, &places, &uniforms);
            state.bind_groups_created += groups.len() as u64;
            let kernel = self.plan.steps[step].kernel.index();
            dispatches.push(Dispatch {
                step,
                kernel,
                groups,
                workgroups: launch.workgroups,
                copies: self.copies(step, &places, &mut copied),
            });
        }
        Ok(Io {
            dims: dims.clone(),
            host,
            dispatches,
            memory,
        })
    }

    /// Where each buffer of the plan lives; an intermediate nothing touches lives nowhere.
    fn places(
        &self,
        dims: &DimValues,
        host: &[wgpu::Buffer],
        arena: &[wgpu::Buffer],
        memory: &MemoryPlan,
    ) -> Result<BTreeMap<BufferId, Place>, Error> {
        let mut ports = BTreeMap::new();
        for (port, buffer) in ports_of(&self.plan).zip(host) {
            ports.insert(port.buffer, buffer);
        }
        let mut places = BTreeMap::new();
        for (id, buffer) in self.plan.buffer_ids() {
            let bytes = buffer.allocated_bytes(dims)?;
            let found = match &buffer.kind {
                BufferKind::Input | BufferKind::Output => ports.get(&id).copied(),
                BufferKind::Weight { .. } => self.weights.buffers.get(&id),
                BufferKind::Counters => self.counters.buffers.get(&id),
                BufferKind::Temp => memory.slot_of.get(&id).map(|&slot| &arena[slot]),
            };
            if let Some(buffer) = found {
                // A host's buffer may end before the rounding does.
                let bytes = bytes.min(buffer.size() / 4 * 4);
                places.insert(
                    id,
                    Place {
                        buffer: buffer.clone(),
                        bytes,
                    },
                );
            }
        }
        Ok(places)
    }

    /// The image of each buffer that has one.
    fn images(&self, arena: &[Image], memory: &MemoryPlan) -> BTreeMap<BufferId, Image> {
        let of_weights = self.weights.images.iter();
        let of_weights = of_weights.map(|(id, image)| (*id, image.clone()));
        let others = memory.image_of.iter();
        of_weights
            .chain(others.map(|(id, &slot)| (*id, arena[slot].clone())))
            .collect()
    }

    /// What has to be copied into images before the step, since it was written after it was copied last or never
    /// copied; what the step writes has to be copied anew.
    fn copies(
        &self,
        step: usize,
        places: &Places,
        copied: &mut BTreeSet<BufferId>,
    ) -> Vec<ImageCopy> {
        let mut copies = Vec::new();
        let bindings = self.plan.step_bindings(&self.plan.steps[step]);
        let (read, other): (Vec<_>, Vec<_>) =
            bindings.partition(|(b, _)| b.access == Access::Image);
        for (_, id) in read {
            let is_weight = self.weights.images.contains_key(&id);
            let (buffer, image) = (places.buffers.get(&id), places.images.get(&id));
            if let (false, Some(buffer), Some(image)) = (is_weight, buffer, image)
                && copied.insert(id)
            {
                copies.push(ImageCopy {
                    from: buffer.buffer.clone(),
                    to: image.clone(),
                    // Nothing reads the last elements where they are no whole texel: kernels read by fours.
                    count: buffer.bytes / TEXEL,
                });
            }
        }
        for (_, id) in other
            .into_iter()
            .filter(|(b, _)| b.access == Access::ReadWrite)
        {
            copied.remove(&id);
        }
        copies
    }

    fn bind_groups(
        &self,
        device: &wgpu::Device,
        step: usize,
        launch: &StepLaunch,
        places: &Places,
        uniforms: &Uniforms,
    ) -> Vec<(u32, wgpu::BindGroup)> {
        let step = &self.plan.steps[step];
        let kernel = self.plan.kernel(step.kernel);
        let pipeline = &self.pipelines[step.kernel.index()];
        let mut storage = step.bindings.iter();
        let mut entries: BTreeMap<u32, Vec<wgpu::BindGroupEntry<'_>>> = BTreeMap::new();
        for binding in &kernel.bindings {
            let mut next = || storage.next();
            let resource = match binding.access {
                Access::Uniform => uniforms.binding(&launch.uniforms).map(Buffer),
                Access::Read | Access::ReadWrite => {
                    let place = next().and_then(|id| places.buffers.get(id));
                    place.map(|place| {
                        Buffer(wgpu::BufferBinding {
                            buffer: &place.buffer,
                            offset: 0,
                            size: wgpu::BufferSize::new(place.bytes),
                        })
                    })
                }
                Access::Image => {
                    let image = next().and_then(|id| places.images.get(id));
                    image.map(|image| TextureView(&image.view))
                }
            };
            // `Plan::check` has seen that all are there; were one not, wgpu would refuse the group.
            if let Some(resource) = resource {
                let entry = wgpu::BindGroupEntry {
                    binding: binding.binding,
                    resource,
                };
                entries.entry(binding.group).or_default().push(entry);
            }
        }
        let layouts = pipeline.groups.iter().enumerate();
        layouts
            .filter_map(|(group, layout)| {
                let group = u32::try_from(group).ok()?;
                let descriptor = wgpu::BindGroupDescriptor {
                    label: Some(&kernel.name),
                    layout: layout.as_ref()?,
                    entries: entries.get(&group).map_or(&[], Vec::as_slice),
                };
                Some((group, device.create_bind_group(&descriptor)))
            })
            .collect()
    }
}
