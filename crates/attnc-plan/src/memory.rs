//! The memory planner: which intermediates share a buffer.
//!
//! WebGPU tracks usage per *buffer*: one that is bound read-only and read-write in the same dispatch
//! is refused, however disjoint the ranges. So the arena is not one buffer with offsets but a few
//! *slots*, each a buffer of its own, and two intermediates share a slot only if they never live at
//! the same step.
//!
//! The assignment is the greedy-by-size strategy for shared objects of Pisarchyk and Lee, "Efficient
//! Memory Management for Deep Neural Net Inference" (arXiv:2001.03288), section 4.3: largest first,
//! into the smallest slot that is free for the whole lifetime. Placing the largest first means a slot
//! never has to grow.
//!
//! Entry: a plan [`Plan::check`] accepts. Exit: no two intermediates whose lifetimes meet share a
//! slot, and every slot holds its largest tenant. Images ([`ImageSize`]) are shared in the same way.

use crate::{Access, BufferId, BufferKind, DimError, DimValues, ImageSize, Plan};
use std::collections::BTreeMap;

/// The steps during which an intermediate holds a value, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// The step that writes it first.
    pub first: usize,
    /// The last step that touches it.
    pub last: usize,
}

impl Lifetime {
    /// Whether the two have a step in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Lifetimes of the intermediates that some step touches.
#[must_use]
pub fn lifetimes(plan: &Plan) -> BTreeMap<BufferId, Lifetime> {
    let mut out: BTreeMap<BufferId, Lifetime> = BTreeMap::new();
    for (at, step) in plan.steps.iter().enumerate() {
        for &id in &step.bindings {
            if plan.buffer(id).kind == BufferKind::Temp {
                out.entry(id)
                    .or_insert(Lifetime {
                        first: at,
                        last: at,
                    })
                    .last = at;
            }
        }
    }
    out
}

/// The steps during which buffers have to be in their images, weights aside, which always are.
#[must_use]
pub fn image_lifetimes(plan: &Plan) -> BTreeMap<BufferId, Lifetime> {
    let mut out: BTreeMap<BufferId, Lifetime> = BTreeMap::new();
    for (at, step) in plan.steps.iter().enumerate() {
        let bound = plan.step_bindings(step);
        for (_, id) in bound.filter(|(b, _)| b.access == Access::Image) {
            if !matches!(plan.buffer(id).kind, BufferKind::Weight { .. }) {
                let new = Lifetime {
                    first: at,
                    last: at,
                };
                out.entry(id).or_insert(new).last = at;
            }
        }
    }
    out
}

/// The arena of a plan at given lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Bytes of each slot, a multiple of 16.
    pub slots: Vec<u64>,
    /// The slot of each intermediate that is used.
    pub slot_of: BTreeMap<BufferId, usize>,
    /// The size of each image, shared as slots are.
    pub images: Vec<ImageSize>,
    /// The image of each buffer that has one, weights aside.
    pub image_of: BTreeMap<BufferId, usize>,
    /// Bytes of the whole arena: the sum of the slots and images.
    pub peak_bytes: u64,
    /// The most bytes alive at one step, which no planner can go below.
    pub live_peak_bytes: u64,
}

impl MemoryPlan {
    /// Assigns slots.
    ///
    /// # Errors
    /// Where a length has no value or a size does not fit 63 bits.
    pub fn new(plan: &Plan, dims: &DimValues) -> Result<Self, DimError> {
        let buffers = tenants(lifetimes(plan), |id| plan.buffer(id).allocated_bytes(dims))?;
        let images = tenants(image_lifetimes(plan), |id| {
            let bytes = plan.buffer(id).allocated_bytes(dims)?;
            Ok(ImageSize::of(bytes).bytes())
        })?;
        let all: Vec<_> = buffers.iter().chain(&images).collect();
        let live_peak_bytes = live_peak(&all, plan.steps.len());
        let (slots, slot_of) = assign(buffers);
        let (images, image_of) = assign(images);
        let peak_bytes = slots.iter().chain(&images).sum();
        Ok(Self {
            slots,
            slot_of,
            images: images.into_iter().map(ImageSize::of).collect(),
            image_of,
            peak_bytes,
            live_peak_bytes,
        })
    }
}

fn tenants(
    lives: BTreeMap<BufferId, Lifetime>,
    bytes: impl Fn(BufferId) -> Result<u64, DimError>,
) -> Result<Vec<Tenant>, DimError> {
    let tenant = |(id, life)| {
        let bytes = bytes(id)?;
        Ok(Tenant { id, life, bytes })
    };
    lives.into_iter().map(tenant).collect()
}

/// Bytes of each slot, and the slot of each tenant.
fn assign(mut tenants: Vec<Tenant>) -> (Vec<u64>, BTreeMap<BufferId, usize>) {
    // Largest first; of equal size, in the order they are written. Ids make the order total.
    tenants.sort_by_key(|t| (std::cmp::Reverse(t.bytes), t.life.first, t.id));
    let mut slots: Vec<Slot> = Vec::new();
    let mut slot_of = BTreeMap::new();
    for tenant in &tenants {
        let free = slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| !slot.tenants.iter().any(|l| l.overlaps(tenant.life)))
            .min_by_key(|(at, slot)| (slot.bytes, *at))
            .map(|(at, _)| at);
        let at = free.unwrap_or_else(|| {
            slots.push(Slot {
                bytes: tenant.bytes,
                tenants: Vec::new(),
            });
            slots.len() - 1
        });
        slots[at].tenants.push(tenant.life);
        slot_of.insert(tenant.id, at);
    }
    (slots.into_iter().map(|s| s.bytes).collect(), slot_of)
}

struct Tenant {
    id: BufferId,
    life: Lifetime,
    bytes: u64,
}

struct Slot {
    bytes: u64,
    tenants: Vec<Lifetime>,
}

fn live_peak(tenants: &[&Tenant], steps: usize) -> u64 {
    let (mut starts, mut ends) = (vec![0u64; steps + 1], vec![0u64; steps + 1]);
    for tenant in tenants {
        starts[tenant.life.first] += tenant.bytes;
        ends[tenant.life.last + 1] += tenant.bytes;
    }
    let mut live = 0;
    let mut peak = 0;
    for (start, end) in starts.iter().zip(&ends) {
        live = live + start - end;
        peak = peak.max(live);
    }
    peak
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Binding, Buffer, DType, DeviceProfile, Dim, KernelArtifact, KernelId, Step};
    use proptest::prelude::*;

    /// A plan whose temp `i` has `sizes[i]` elements and is touched by the steps `uses[i]`.
    fn plan(steps: usize, temps: &[(i64, Vec<usize>)]) -> Plan {
        let mut plan = Plan::new("m", DeviceProfile::webgpu());
        let mut bindings = vec![Vec::new(); steps];
        for (n, (size, uses)) in temps.iter().enumerate() {
            let buffer = Buffer::temp(&format!("t{n}"), DType::F32, vec![Dim::from(*size)]);
            let id = plan.add_buffer(buffer);
            for &at in uses {
                bindings[at].push(id);
            }
        }
        plan.steps = bindings
            .into_iter()
            .map(|bindings| Step {
                kernel: KernelId(0),
                bindings,
                uniforms: vec![],
                grid: [Dim::one(), Dim::one(), Dim::one()],
                nodes: vec![],
                op: "test".into(),
                flops: Dim::zero(),
                turns: Dim::zero(),
            })
            .collect();
        plan
    }

    #[test]
    fn a_chain_needs_two_slots() {
        // t0 -> t1 -> t2 -> t3: each lives at two steps.
        let temps: Vec<_> = (0..4).map(|n| (100, vec![n, n + 1])).collect();
        let memory = MemoryPlan::new(&plan(5, &temps), &DimValues::default()).unwrap();
        assert_eq!(memory.slots, [400, 400]);
        assert_eq!((memory.peak_bytes, memory.live_peak_bytes), (800, 800));
    }

    #[test]
    fn a_small_tenant_takes_the_smallest_free_slot() {
        let temps = [(100, vec![0, 1]), (10, vec![1, 2]), (8, vec![3, 3])];
        let memory = MemoryPlan::new(&plan(4, &temps), &DimValues::default()).unwrap();
        assert_eq!(memory.slots, [400, 48]);
        assert_eq!(memory.slot_of[&BufferId(2)], 1);
    }

    #[test]
    fn what_no_step_touches_takes_nothing() {
        let memory = MemoryPlan::new(&plan(1, &[(100, vec![])]), &DimValues::default()).unwrap();
        assert_eq!((memory.peak_bytes, memory.slot_of.len()), (0, 0));
    }

    #[test]
    fn images_are_shared_by_those_that_are_read_at_different_steps() {
        // Read through images: t0 at steps 1 and 2, t1 at 2, t2 at 3.
        let temps = [(100, vec![0, 1, 2]), (10, vec![1, 2]), (60, vec![2, 3])];
        let mut plan = plan(4, &temps);
        let binding = |n, access| Binding::new(n, access, "x");
        plan.kernels = (0..4)
            .map(|step: u32| KernelArtifact {
                name: step.to_string(),
                bindings: match step {
                    0 => vec![binding(0, Access::ReadWrite)],
                    1 => vec![binding(0, Access::Image), binding(1, Access::ReadWrite)],
                    2 => vec![
                        binding(0, Access::Image),
                        binding(1, Access::Image),
                        binding(2, Access::ReadWrite),
                    ],
                    _ => vec![binding(0, Access::Image)],
                },
                ..KernelArtifact::default()
            })
            .collect();
        for (at, step) in (0..).zip(&mut plan.steps) {
            step.kernel = KernelId(at);
        }
        let memory = MemoryPlan::new(&plan, &DimValues::default()).unwrap();
        assert_eq!(
            memory.images.iter().map(|i| i.bytes()).collect::<Vec<_>>(),
            [400, 48]
        );
        let images: Vec<_> = memory.image_of.values().copied().collect();
        assert_eq!(images, [0, 1, 0]);
        let buffers: u64 = memory.slots.iter().sum();
        assert_eq!(memory.peak_bytes, buffers + 448);
        // Step 2: all three buffers, and the images of two.
        assert_eq!(memory.live_peak_bytes, 400 + 48 + 240 + 448);
    }

    proptest! {
        #[test]
        fn tenants_of_a_slot_never_meet(
            temps in prop::collection::vec((1i64..500, prop::collection::vec(0usize..20, 1..4)), 0..40)
        ) {
            let plan = plan(20, &temps);
            let memory = MemoryPlan::new(&plan, &DimValues::default()).unwrap();
            let lives = lifetimes(&plan);
            for (a, life_a) in &lives {
                let bytes = plan.buffer(*a).allocated_bytes(&DimValues::default()).unwrap();
                prop_assert!(memory.slots[memory.slot_of[a]] >= bytes);
                for (b, life_b) in &lives {
                    if a != b && memory.slot_of[a] == memory.slot_of[b] {
                        prop_assert!(!life_a.overlaps(*life_b), "{a:?} {b:?} share a slot");
                    }
                }
            }
            prop_assert!(memory.live_peak_bytes <= memory.peak_bytes);
            prop_assert_eq!(memory.peak_bytes, memory.slots.iter().sum::<u64>());
            prop_assert_eq!(&memory, &MemoryPlan::new(&plan, &DimValues::default()).unwrap());
        }
    }
}
