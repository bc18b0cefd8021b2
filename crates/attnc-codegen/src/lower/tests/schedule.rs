//! Tiles that workgroups take as they come: how many they may, and where a workgroup has one.

use super::{cpu, f32s};
use crate::choice::{Choices, KernelShape};
use crate::lower::{Lowered, lower_with};
use attnc_ir::{Graph, Op};
use attnc_plan::{DeviceProfile, DimValues, LLVMPIPE_LOOP_TURNS, Step, SubgroupSizes, Uniform};

/// `y = x w`, twice: rows, terms and columns as lengths of the graph.
fn products(profile: &DeviceProfile) -> Lowered {
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&["M", "4 * K"]));
    for (name, columns) in [("w", "4 * N"), ("v", "8")] {
        let w = g.add_input(name, f32s(&["4 * K", columns]));
        let y = g.apply(Op::MatMul, &[x, w]).unwrap();
        g.add_output(&format!("{name}.y"), y);
    }
    lower_for(&g, profile)
}

fn lower_for(graph: &Graph, profile: &DeviceProfile) -> Lowered {
    let choices = Choices::forced(KernelShape::Subgroup);
    let lowered = lower_with(graph, profile, &choices).unwrap_or_else(|e| panic!("{e}"));
    lowered.plan.check().unwrap_or_else(|e| panic!("{e}"));
    lowered
}

/// Tiles, how many a workgroup takes, and the counter's number.
fn words(step: &Step, dims: &DimValues) -> [i64; 3] {
    let Some(words) = step.uniforms.last_chunk::<3>() else {
        panic!("{:?}", step.uniforms)
    };
    words.each_ref().map(|word| match word {
        Uniform::U32(dim) => dims.eval(dim).unwrap(),
        other => panic!("{other:?}"),
    })
}

#[test]
fn workgroups_may_take_more_tiles_than_there_are_and_no_more_turns_than_a_driver_has() {
    let plan = products(&cpu()).plan;
    let step = &plan.steps[0];
    for (m, k, n, tiles) in [
        (1, 4, 1, 1),
        (512, 128, 128, 256),
        (100, 20_000, 4, 7),
        (16 * 100, 1000, 64, 400),
        (16 * 300, 4000, 16, 300),
    ] {
        let dims = DimValues::from([("M", m), ("K", k), ("N", n)]);
        let [count, at_most, _] = words(step, &dims);
        assert_eq!(count, tiles);
        let workgroups = dims.eval(&step.grid[0]).unwrap();
        assert!(workgroups * at_most >= 2 * tiles, "{dims:?}");
        assert!(workgroups >= tiles.min(32), "{dims:?}");
        // What a tile takes, with the turns of a single row's sum at least.
        let turns = dims.eval(&step.turns).unwrap();
        assert!(turns >= at_most.min(tiles) * k, "{dims:?}");
        let limit = i64::from(LLVMPIPE_LOOP_TURNS);
        assert!(turns <= limit && at_most <= limit / k, "{dims:?}");
        assert!(
            (at_most + 1) * (turns / at_most.min(tiles) + 1) >= limit,
            "{dims:?}: {at_most}"
        );
    }
}

#[test]
fn a_device_of_many_cores_gets_a_workgroup_for_each() {
    let mut many = cpu();
    many.busy_workgroups = 96;
    let dims = DimValues::from([("M", 4096), ("K", 8), ("N", 128)]);
    let workgroups = |profile| dims.eval(&products(profile).plan.steps[0].grid[0]);
    assert_eq!([workgroups(&cpu()), workgroups(&many)], [Ok(32), Ok(96)]);
}

#[test]
fn every_step_has_a_counter_of_its_own() {
    let plan = products(&cpu()).plan;
    let dims = DimValues::from([("M", 9), ("K", 9), ("N", 9)]);
    let numbers: Vec<_> = plan.steps.iter().map(|s| words(s, &dims)[2]).collect();
    assert_eq!(numbers, [0, 1]);
    let counters: Vec<_> = plan.counters().collect();
    let [(id, buffer)] = counters[..] else {
        panic!("{counters:?}")
    };
    assert_eq!(buffer.type_text(), "u32[2]");
    assert!(plan.steps.iter().all(|step| step.bindings.contains(&id)));
}

/// Keys that data may make a workgroup walk once for each row: then it takes fewer tiles.
#[test]
fn a_tile_may_take_the_turns_that_its_data_ask_for() {
    let tiles = |mask: &str, s: i64| {
        let text = format!(
            "graph @g(%q: f32[1, 8, S, 64], %k: f32[1, 8, S, 64], %v: f32[1, 8, S, 64]) {{
  %o = attention %q, %k, %v, scale = 1.0{mask}
  return %o
}}"
        );
        let plan = lower_for(&attnc_ir::text::parse(&text).unwrap(), &cpu()).plan;
        words(plan.steps.last().unwrap(), &DimValues::from([("S", s)]))[1]
    };
    let causal = ", mask_mod = { kv_idx <= q_idx }";
    // 32 rows, two keys a turn: 33 walks of 512 turns leave room for three.
    assert_eq!([tiles("", 1024), tiles(causal, 1024)], [19, 3]);
    assert_eq!([tiles("", 8192), tiles(causal, 8192)], [2, 1]);
}

#[test]
fn elsewhere_a_workgroup_has_one_tile() {
    let mut wide = cpu();
    wide.features.subgroups = Some(SubgroupSizes { min: 32, max: 32 });
    // No room for the counters beside what the kernel binds.
    let mut few = cpu();
    few.limits.storage_buffers = 3;
    for profile in [wide, few] {
        let plan = products(&profile).plan;
        assert_eq!(plan.counters().count(), 0);
        let dims = DimValues::from([("M", 512), ("K", 128), ("N", 128)]);
        assert!(dims.eval(&plan.steps[0].grid[0]).unwrap() >= 64);
        assert!(plan.kernels[0].wgsl.contains("schedule/static.wgsl"));
    }
}
