//! Kernels whose workgroups take tiles as they come.

use crate::languages::translated;
use attnc_codegen::lower;
use attnc_ir::text::parse;
use attnc_plan::{DeviceProfile, SubgroupSizes};

const GRAPH: &str =
    "graph @g(%q: f32[1, 2, S, 64], %k: f32[1, 2, S, 64], %v: f32[1, 2, S, 64], %w: f32[64, 64]) {
  %o = attention %q, %k, %v, scale = 0.125, mask_mod = { kv_idx <= q_idx }
  %y = matmul %o, %w
  return %y
}";

#[test]
fn every_language_counts() {
    let mut profile = DeviceProfile::webgpu();
    profile.busy_workgroups = 2;
    profile.features.subgroups = Some(SubgroupSizes { min: 8, max: 8 });
    let plan = lower(&parse(GRAPH).unwrap(), &profile).unwrap().plan;
    let scheduled = |text: &str| text.contains("schedule/dynamic.wgsl");
    let kernels: Vec<_> = plan.kernels.iter().filter(|k| scheduled(&k.wgsl)).collect();
    let entries: Vec<_> = kernels.iter().map(|k| k.entry.as_str()).collect();
    assert_eq!(entries, ["flash_attention_fwd_subgroup", "matmul_subgroup"]);
    for kernel in kernels {
        let counters = kernel.bindings.iter().find(|b| b.group == 2).unwrap();
        assert_eq!(counters.name, "counters");
        let adds = ["atomic_fetch_add", "InterlockedAdd", "atomicAdd"];
        for (text, add) in translated(&kernel.wgsl, &kernel.entry).iter().zip(adds) {
            assert!(text.contains(add), "{text}");
        }
    }
}
