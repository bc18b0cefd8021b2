//! Plans that are refused, with every reason, and one that is not.

use super::*;
use crate::{Binding, DeviceProfile, Feature, KernelArtifact, KernelId};

/// `y = twice(x)` over one intermediate.
fn plan() -> Plan {
    let mut plan = Plan::new("m", DeviceProfile::webgpu());
    plan.dims = vec!["B".into()];
    let shape = vec![Dim::sym("B")];
    let x = plan.add_input(Port::new("x", DType::F32, shape.clone()));
    let t = plan.add_buffer(Buffer::temp("t", DType::F32, shape.clone()));
    let y = plan.add_output(Port::new("y", DType::F32, shape));
    let kernel = plan.add_kernel(KernelArtifact {
        name: "twice.f32".into(),
        entry: "main".into(),
        wgsl: "…".into(),
        bindings: vec![
            Binding::new(0, Access::Uniform, "p"),
            Binding::new(1, Access::Read, "src"),
            Binding::new(2, Access::ReadWrite, "dst"),
        ],
        workgroup_size: [64, 1, 1],
        ..KernelArtifact::default()
    });
    for (from, to) in [(x, t), (t, y)] {
        plan.steps.push(Step {
            kernel,
            bindings: vec![from, to],
            uniforms: vec![Uniform::U32(Dim::sym("B"))],
            grid: [Dim::sym("B"), Dim::one(), Dim::one()],
            nodes: vec![],
            op: "twice".into(),
            flops: Dim::sym("B"),
            turns: Dim::zero(),
        });
    }
    plan
}

fn wrong(change: impl FnOnce(&mut Plan)) -> String {
    let mut plan = plan();
    change(&mut plan);
    plan.check().unwrap_err().to_string()
}

#[test]
fn groups_and_bindings_past_what_devices_have_are_refused() {
    for (group, binding) in [(4, 0), (u32::MAX, 0), (0, 1000)] {
        let text = wrong(|p| {
            p.kernels[0].bindings[1].group = group;
            p.kernels[0].bindings[1].binding = binding;
        });
        assert!(
            text.contains("is past the 4 groups of 1000 bindings"),
            "{text}"
        );
    }
}

#[test]
fn a_good_plan_passes() {
    assert_eq!(plan().check(), Ok(()));
}

#[test]
fn order_and_aliasing_are_checked() {
    let text = wrong(|p| p.steps.swap(0, 1));
    assert!(
        text.contains("step 0 (twice): `src` <- `t`: it is read before any step writes it"),
        "{text}"
    );
    let text = wrong(|p| p.steps[1].bindings[0] = p.steps[1].bindings[1]);
    assert!(text.contains("bound only once"), "{text}");
    let text = wrong(|p| p.steps[0].bindings[1] = BufferId(0));
    assert!(text.contains("never written"), "{text}");
    let text = wrong(|p| p.steps.truncate(1));
    assert!(text.contains("port `y`: no step writes it"), "{text}");
}

#[test]
fn ids_and_counts_are_checked() {
    let text = wrong(|p| {
        p.steps[0].kernel = KernelId(9);
        p.steps[1].bindings[0] = BufferId(99);
        p.inputs[0].buffer = BufferId(77);
    });
    for part in [
        "kernel 9 does not exist",
        "buffer 99 does not exist",
        "buffer 77 does not exist",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let text = wrong(|p| p.steps[0].bindings.truncate(1));
    assert!(
        text.contains("it binds 1 buffers, kernel `twice.f32` needs 2"),
        "{text}"
    );
    let text = wrong(|p| p.steps[0].uniforms.clear());
    assert!(text.contains("binds a uniform struct"), "{text}");
    let text = wrong(|p| p.dims.clear());
    assert!(
        text.contains("length `B` is not one of the plan's"),
        "{text}"
    );
}

#[test]
fn kernels_must_fit_the_profile_and_be_nameable() {
    let text = wrong(|p| {
        let kernel = &mut p.kernels[0];
        kernel.name = "../twice".into();
        kernel.workgroup_bytes = 20000;
        kernel.workgroup_size = [512, 1, 1];
        kernel.features = vec![Feature::F16];
    });
    for part in [
        "letters, digits",
        "20000 bytes of workgroup memory; `webgpu` has at most 16384",
        "512 invocations;",
        "512 invocations along x;",
        "it needs `F16`",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn only_a_weight_that_divides_into_them_lies_in_panels() {
    let panels = |columns| Some(crate::Panels { columns, k_axis: 0 });
    let mut good = plan();
    good.add_buffer(Buffer::weight("w", DType::F32, vec![Dim::from(8); 2]));
    good.buffers.last_mut().unwrap().panels = panels(4);
    assert_eq!(good.check(), Ok(()));
    good.buffers.last_mut().unwrap().panels = panels(3);
    let text = good.check().unwrap_err().to_string();
    assert!(
        text.contains("k by fours and columns by 3, found 8 and 8"),
        "{text}"
    );
    let text = wrong(|p| p.buffers[0].panels = panels(4));
    assert!(text.contains("only a weight lies in panels"), "{text}");
}

#[test]
fn images_are_of_f32_and_no_more_than_devices_have() {
    let image = |p: &mut Plan| p.kernels[0].bindings[1].access = Access::Image;
    let mut good = plan();
    image(&mut good);
    assert_eq!(good.check(), Ok(()));
    let text = wrong(|p| {
        image(p);
        p.buffers[1].dtype = DType::F16;
    });
    assert!(
        text.contains("step 1 (twice): `src` <- `t`: an image holds f32, not f16"),
        "{text}"
    );
    let text = wrong(|p| {
        for n in 3..7 {
            let binding = Binding::new(n, Access::Image, "more");
            p.kernels[0].bindings.push(binding);
        }
        image(p);
    });
    assert!(text.contains("5 images; `webgpu` has at most 4"), "{text}");
}

#[test]
fn another_version_is_refused_before_anything_else() {
    let text = wrong(|p| p.version = 7);
    assert!(
        text.contains("version 7; this build reads version 4"),
        "{text}"
    );
}

/// The plan with counters that its first step counts with.
fn counting(change: impl FnOnce(&mut Plan, BufferId)) -> Result<(), PlanErrors> {
    let mut plan = plan();
    let counters = Buffer::new("c", BufferKind::Counters, DType::U32, vec![Dim::from(3)]);
    let id = plan.add_buffer(counters);
    let counter = Binding::new(3, Access::ReadWrite, "counter");
    plan.kernels[0].bindings.push(counter);
    for step in &mut plan.steps {
        step.bindings.push(id);
    }
    change(&mut plan, id);
    plan.check()
}

#[test]
fn counters_are_there_before_any_step_and_steps_share_them() {
    assert_eq!(counting(|_, _| {}), Ok(()));
    // Also where a step only reads them.
    let read = counting(|p, _| p.kernels[0].bindings[3].access = Access::Read);
    assert_eq!(read, Ok(()));
    let wrong = |change: fn(&mut Plan, BufferId)| counting(change).unwrap_err().to_string();
    let text = wrong(|p, id| {
        p.buffers[id.index()].dtype = DType::F32;
        p.buffers[id.index()].shape = vec![Dim::sym("B")];
    });
    for part in [
        "counters are u32, not f32",
        "counters need constant lengths, not f32[B]",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let text = wrong(|p, id| p.outputs[0].buffer = id);
    assert!(
        text.contains("its buffer `c` is of kind Counters"),
        "{text}"
    );
}
