//! Which slot of the arena each buffer gets: linear scan over the steps (Poletto and Sarkar 1999), the best
//! fitting free slot first.
//!
//! On entry a [`Source::Slot`] and a step's `out` name a buffer, on exit a slot. A slot is free again after
//! the last step that reads its buffer; those of outputs never are.

use super::plan::{Plan, Source};

/// Replaces buffer numbers by slot numbers; `buffers` has the elements of each buffer.
pub(crate) fn assign(plan: &mut Plan, buffers: &[usize]) {
    let mut last_use = vec![0; buffers.len()];
    for (at, step) in plan.steps.iter().enumerate() {
        last_use[step.out] = last_use[step.out].max(at);
        for operand in &step.operands {
            if let Source::Slot(buffer) = operand.source {
                last_use[buffer] = at;
            }
        }
    }
    for (_, _, place) in &plan.outputs {
        if let Source::Slot(buffer) = place.source {
            last_use[buffer] = usize::MAX;
        }
    }
    let mut slot_of = vec![usize::MAX; buffers.len()];
    let mut free: Vec<usize> = Vec::new();
    for (at, step) in plan.steps.iter_mut().enumerate() {
        let mut done = Vec::new();
        for operand in &mut step.operands {
            if let Source::Slot(buffer) = &mut operand.source {
                if last_use[*buffer] == at && !done.contains(&slot_of[*buffer]) {
                    done.push(slot_of[*buffer]);
                }
                *buffer = slot_of[*buffer];
            }
        }
        let slot = take_slot(&mut free, &mut plan.slots, step.len);
        slot_of[step.out] = slot;
        if last_use[step.out] == at {
            done.push(slot);
        }
        step.out = slot;
        free.extend(done);
    }
    for (_, _, place) in &mut plan.outputs {
        if let Source::Slot(buffer) = &mut place.source {
            *buffer = slot_of[*buffer];
        }
    }
}

/// The smallest free slot that is large enough, else the largest, grown, else a new one.
fn take_slot(free: &mut Vec<usize>, slots: &mut Vec<usize>, len: usize) -> usize {
    let fits = (0..free.len())
        .filter(|&f| slots[free[f]] >= len)
        .min_by_key(|&f| slots[free[f]]);
    let chosen = fits.or_else(|| (0..free.len()).max_by_key(|&f| slots[free[f]]));
    let Some(chosen) = chosen else {
        slots.push(len);
        return slots.len() - 1;
    };
    let slot = free.remove(chosen);
    slots[slot] = slots[slot].max(len);
    slot
}
