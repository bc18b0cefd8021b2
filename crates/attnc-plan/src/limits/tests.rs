//! Messages of what does not fit, and what does.

use super::*;
use crate::{DType, DeviceProfile};

fn plan(shape: &[&str]) -> Plan {
    let mut plan = Plan::new("m", DeviceProfile::webgpu());
    let shape = shape.iter().map(|d| d.parse().unwrap()).collect();
    plan.add_buffer(Buffer::temp("scores", DType::F32, shape));
    plan
}

#[test]
fn the_message_names_buffer_shape_and_limit() {
    let error = check_sizes(
        &plan(&["B", "S", "1024"]),
        &DimValues::from([("B", 64), ("S", 1024)]),
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "buffer `scores` of type f32[B, S, 1024] would take 268435456 bytes; the limit of `webgpu` \
         is 134217728 (bytes of a storage binding): use smaller lengths or a device with a larger \
         limit"
    );
}

#[test]
fn a_weight_over_the_limit_is_named_with_what_to_do() {
    let mut plan = Plan::new("m", DeviceProfile::webgpu());
    let (rows, small) = (Dim::from(100_000), Dim::from(3));
    plan.add_buffer(Buffer::weight("bias", DType::F32, vec![small]));
    plan.add_buffer(Buffer::weight(
        "table",
        DType::F32,
        vec![rows, Dim::from(512)],
    ));
    let limits = &plan.profile.limits;
    let error = check_weights(&plan, "webgpu", limits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "weight `table` of type f32[100000, 512] takes 204800000 bytes; the limit of `webgpu` is \
         134217728 (bytes of a storage binding): store it in fewer bytes (f16 halves it), split it in the \
         model, or run on a device with a larger limit or on the CPU"
    );
    assert_eq!(check_sizes(&plan, &DimValues::default()), Ok(()));
}

#[test]
fn index_arithmetic_stays_below_two_to_the_31() {
    for (b, s) in [(1 << 20, 1 << 11), (1 << 40, 1 << 40)] {
        let error = check_sizes(&plan(&["B", "S"]), &DimValues::from([("B", b), ("S", s)]));
        assert!(
            matches!(
                error.unwrap_err().0[..],
                [SizeProblem::TooManyElements { .. }]
            ),
            "{b} {s}"
        );
    }
    let empty = DimValues::from([("B", 1 << 40), ("S", 0)]);
    assert_eq!(check_sizes(&plan(&["B", "S"]), &empty), Ok(()));
}

#[test]
fn negative_and_missing_lengths_are_errors() {
    let dims = DimValues::from([("B", 1)]);
    let negative = check_sizes(&plan(&["B - 2", "4"]), &dims)
        .unwrap_err()
        .to_string();
    assert!(negative.contains("length B - 2 is -1"), "{negative}");
    let missing = check_sizes(&plan(&["S", "4"]), &dims)
        .unwrap_err()
        .to_string();
    assert!(missing.contains("length `S` has no value"), "{missing}");
}

/// A plan of one step that takes `N + 1` turns, where `B` is not 0.
fn walk() -> Plan {
    let mut plan = plan(&["N"]);
    let kernel = plan.add_kernel(crate::KernelArtifact {
        name: "scan_rows.f32".into(),
        entry: "scan_rows".into(),
        wgsl: String::new(),
        bindings: Vec::new(),
        workgroup_size: [8, 1, 1],
        workgroup_bytes: 0,
        features: Vec::new(),
        precision: crate::Precision::F32,
        tile: String::new(),
    });
    plan.steps.push(crate::Step {
        kernel,
        bindings: Vec::new(),
        uniforms: Vec::new(),
        grid: [Dim::sym("B"), Dim::one(), Dim::one()],
        nodes: Vec::new(),
        op: "cumsum".into(),
        flops: Dim::zero(),
        turns: Dim::sym("N") + Dim::one(),
    });
    plan
}

#[test]
fn more_turns_than_the_device_takes_are_refused_with_what_to_do() {
    let at = |b, n, loop_turns| {
        let limits = Limits {
            loop_turns,
            ..DeviceProfile::webgpu().limits
        };
        let dims = DimValues::from([("B", b), ("N", n)]);
        check_sizes_within(&walk(), &dims, "llvmpipe (LLVM 15.0.6, 256 bits)", &limits)
    };
    let limit = Some(crate::LLVMPIPE_LOOP_TURNS);
    assert_eq!(at(1, 65534, limit), Ok(()));
    assert_eq!(
        at(1, 65535, limit).unwrap_err().to_string(),
        "step 0 (cumsum, kernel `scan_rows.f32`) would take 65536 turns of loops in one invocation; \
         `llvmpipe (LLVM 15.0.6, 256 bits)` leaves all loops after 65535, and results would be wrong \
         without a word: use smaller lengths, another GPU, or the CPU (`--backend cpu`)"
    );
    assert_eq!(at(1, 65535, None), Ok(()), "other devices count nothing");
    assert_eq!(
        at(0, 65535, limit),
        Ok(()),
        "what is not launched takes no turns"
    );
}

#[test]
fn plans_without_turns_load_and_are_not_held_to_them() {
    let mut json = serde_json::to_value(walk()).unwrap();
    let step = json["steps"][0].as_object_mut().unwrap();
    assert_eq!(step.remove("turns").unwrap(), "N + 1");
    let limits = json["profile"]["limits"].as_object().unwrap();
    assert!(
        !limits.contains_key("loop_turns"),
        "no limit is not written"
    );
    let old: Plan = serde_json::from_value(json).unwrap();
    assert!(old.steps[0].turns.is(0));
    let text = serde_json::to_string(&old.steps[0]).unwrap();
    assert!(!text.contains("turns"), "{text}");
}

#[test]
fn what_is_read_through_an_image_has_to_fit_into_one() {
    let mut plan = plan(&["B", "1024"]);
    let table = vec![Dim::from(1000), Dim::from(64)];
    plan.add_buffer(Buffer::weight("table", DType::F32, table));
    let kernel = plan.add_kernel(crate::KernelArtifact {
        bindings: vec![
            crate::Binding::new(0, crate::Access::Image, "a"),
            crate::Binding::new(1, crate::Access::Image, "b"),
        ],
        ..crate::KernelArtifact::default()
    });
    plan.steps.push(crate::Step {
        kernel,
        bindings: vec![BufferId(0), BufferId(1)],
        uniforms: vec![],
        grid: [Dim::one(), Dim::one(), Dim::one()],
        nodes: vec![],
        op: "test".into(),
        flops: Dim::zero(),
        turns: Dim::zero(),
    });
    let limits = Limits {
        image_rows: 3, // 196608 bytes
        ..plan.profile.limits
    };
    let at = |b: i64| check_sizes_within(&plan, &DimValues::from([("B", b)]), "small", &limits);
    assert_eq!(at(48), Ok(()));
    let text = at(49).unwrap_err().to_string();
    assert!(
        text.contains(
            "would take 200704 bytes; the limit of `small` is 196608 (bytes of an image)"
        ),
        "{text}"
    );
    let text = check_weights(&plan, "small", &limits)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("weight `table`") && text.contains("196608 (bytes of an image)"),
        "{text}"
    );
    // A weight that only its image is made of is no storage binding.
    let narrow = Limits {
        binding_bytes: 1024,
        ..plan.profile.limits
    };
    assert_eq!(check_weights(&plan, "small", &narrow), Ok(()));
}
