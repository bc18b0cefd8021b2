//! What a plan needs in memory, as expressions over its lengths.

use crate::{Buffer, BufferId, Dim, Plan, image_lifetimes, lifetimes};
use attnc_ir::Extents;
use std::collections::BTreeSet;

/// The most bytes of intermediates and images alive at one step: `6144 * B * S`, or
/// `max(4 * B * S, 4096 * B)` where neither is the larger for all lengths. `0` without intermediates.
///
/// This is the bound the planner works towards; what it reaches at given lengths is
/// [`MemoryPlan::peak_bytes`](crate::MemoryPlan::peak_bytes).
#[must_use]
pub fn arena_peak_expression(plan: &Plan) -> String {
    let mut live = vec![Dim::zero(); plan.steps.len()];
    for (id, life) in lifetimes(plan).into_iter().chain(image_lifetimes(plan)) {
        let size = plan.buffer(id).size();
        for sum in &mut live[life.first..=life.last] {
            *sum = sum.clone() + size.clone();
        }
    }
    let candidates: BTreeSet<Dim> = live.into_iter().collect();
    let largest: Vec<_> = undominated(plan, candidates.iter())
        .iter()
        .map(|d| d.to_string())
        .collect();
    match largest.as_slice() {
        [] => "0".to_owned(),
        [one] => one.clone(),
        many => format!("max({})", many.join(", ")),
    }
}

/// The intermediates no other is larger than for all lengths; of equal sizes, the first.
#[must_use]
pub fn largest_intermediates(plan: &Plan) -> Vec<BufferId> {
    let sizes: BTreeSet<Dim> = plan.temps().map(|(_, b)| b.size()).collect();
    let largest = undominated(plan, sizes.iter());
    let first_of = |size: &Dim| {
        plan.temps()
            .find(|(_, b)| b.size() == *size)
            .map(|(id, _)| id)
    };
    largest.into_iter().filter_map(first_of).collect()
}

/// [`largest_intermediates`] for people: ``f32[B, S, 1536] `ffn.up` ``; `none` without intermediates.
#[must_use]
pub fn largest_intermediate(plan: &Plan) -> String {
    let text = |b: &Buffer| format!("{} `{}`", b.type_text(), b.name);
    let all: Vec<_> = largest_intermediates(plan)
        .into_iter()
        .map(|id| text(plan.buffer(id)))
        .collect();
    if all.is_empty() {
        "none".to_owned()
    } else {
        all.join(" or ")
    }
}

/// Those no other is at least as large as, whatever the lengths; these are taken to be at least 1,
/// since with an empty axis there is nothing to hold.
fn undominated<'a>(plan: &Plan, candidates: impl Iterator<Item = &'a Dim>) -> Vec<&'a Dim> {
    let lengths = Extents::new(plan.dims.iter().map(|name| Dim::sym(name)).collect());
    let mut kept: Vec<&Dim> = Vec::new();
    for candidate in candidates {
        let below = |a: &Dim, b: &Dim| (b.clone() - a.clone()).is_nonneg(&lengths);
        if kept.iter().any(|k| below(candidate, k)) {
            continue;
        }
        kept.retain(|k| !below(k, candidate));
        kept.push(candidate);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, DeviceProfile, KernelId, Step};

    fn plan(temps: &[(&str, &[&str], &[usize])], steps: usize) -> Plan {
        let mut plan = Plan::new("m", DeviceProfile::webgpu());
        plan.dims = vec!["B".into(), "S".into()];
        let mut bindings = vec![Vec::new(); steps];
        for (name, shape, uses) in temps {
            let shape = shape.iter().map(|d| d.parse().unwrap()).collect();
            let id = plan.add_buffer(Buffer::temp(name, DType::F32, shape));
            for &at in *uses {
                bindings[at].push(id);
            }
        }
        for bindings in bindings {
            plan.steps.push(Step {
                kernel: KernelId(0),
                bindings,
                uniforms: vec![],
                grid: [Dim::one(), Dim::one(), Dim::one()],
                nodes: vec![],
                op: "test".into(),
                flops: Dim::zero(),
                turns: Dim::zero(),
            });
        }
        plan
    }

    #[test]
    fn dominated_steps_drop_out() {
        let plan = plan(
            &[
                ("a", &["B", "S", "8"], &[0, 1]),
                ("b", &["B", "S", "32"], &[1, 2]),
                ("c", &["B"], &[3]),
            ],
            4,
        );
        assert_eq!(arena_peak_expression(&plan), "160 * B * S");
        assert_eq!(largest_intermediate(&plan), "f32[B, S, 32] `b`");
    }

    #[test]
    fn what_depends_on_the_lengths_stays_a_max() {
        let plan = plan(&[("a", &["S", "8"], &[0]), ("b", &["S", "S"], &[1])], 2);
        let text = arena_peak_expression(&plan);
        assert!(
            text == "max(32 * S, 4 * S * S)" || text == "max(4 * S * S, 32 * S)",
            "{text}"
        );
        assert_eq!(largest_intermediates(&plan).len(), 2);
    }

    #[test]
    fn nothing_needs_nothing() {
        let plan = plan(&[], 0);
        assert_eq!(
            (arena_peak_expression(&plan), largest_intermediate(&plan)),
            ("0".into(), "none".into())
        );
    }
}
