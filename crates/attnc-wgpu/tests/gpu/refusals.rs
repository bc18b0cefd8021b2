//! What is wrong is named, all at once, and nothing panics.

use crate::{contains, equal, error, plans, run, runner, storage, weights};
use attnc_plan::{DType, DeviceProfile, DimValues, Limits, Plan};
use attnc_wgpu::{AdapterChoice, Executable, Gpu, HostTensorRef};
use libtest_mimic::Failed;
use std::collections::BTreeMap;

pub(crate) fn wrong_inputs_are_all_named(gpu: &Gpu) -> Result<(), Failed> {
    let mut runner = runner(gpu)?;
    let raw = [0u8; 12];
    let tensor = |dtype, shape| HostTensorRef {
        dtype,
        shape,
        bytes: &raw,
    };
    let result = runner.run(&[
        ("z", tensor(DType::F32, &[3])),
        ("x", tensor(DType::I32, &[1, 4])),
    ]);
    contains(
        &error(result)?.to_string(),
        &[
            "no input is named `z`; there are `x`",
            "input `x`: 12 bytes are not a i32 tensor of shape [1, 4]",
            "input `x`: expected f32, found i32",
        ],
    )?;
    let result = runner.run(&[]);
    contains(
        &error(result)?.to_string(),
        &["input `x` of type f32[B, 3] is missing"],
    )?;
    let result = runner.run(&[("x", tensor(DType::F32, &[3, 1]))]);
    contains(
        &error(result)?.to_string(),
        &["input `x`, axis 1: expected 3, found 1"],
    )
}

pub(crate) fn wrong_buffers_are_all_named(gpu: &Gpu) -> Result<(), Failed> {
    let exe = Executable::new(&gpu.device, &gpu.queue, &plans::model(), &weights())?;
    let dims = DimValues::from([("B", 4)]);
    let (small, large) = (storage(gpu, 16), storage(gpu, 1024));
    let copy_only = gpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 1024,
        usage: wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let result = exe.bind(
        &gpu.device,
        &dims,
        &[("x", &small), ("x", &small), ("q", &large)],
    );
    contains(
        &error(result)?.to_string(),
        &[
            "`x` is given twice",
            "no input or output is named `q`; there are `x`, `y`",
            "`x` of type f32[B, 3] needs 48 bytes, its buffer has 16",
            "`y` of type f32[B, 4] is missing",
        ],
    )?;
    let result = exe.bind(&gpu.device, &dims, &[("x", &large), ("y", &large)]);
    contains(
        &error(result)?.to_string(),
        &["`x` and `y` share a buffer; an output needs its own"],
    )?;
    let result = exe.bind(&gpu.device, &dims, &[("x", &large), ("y", &copy_only)]);
    contains(
        &error(result)?.to_string(),
        &["`y`: its buffer was made without STORAGE usage"],
    )?;
    let result = exe.bind(
        &gpu.device,
        &DimValues::default(),
        &[("x", &large), ("y", &small)],
    );
    contains(&error(result)?.to_string(), &["length `B` has no value"])
}

pub(crate) fn wrong_weights_are_all_named(gpu: &Gpu) -> Result<(), Failed> {
    let build = |plan: &Plan, bytes: Option<Vec<u8>>| {
        let source: BTreeMap<String, Vec<u8>> =
            bytes.map(|b| ("w".to_owned(), b)).into_iter().collect();
        Executable::new(&gpu.device, &gpu.queue, plan, &source)
    };
    let missing = error(build(&plans::model(), None))?.to_string();
    contains(
        &missing,
        &["weight `w` of type f32[3, 4]: the source does not have it"],
    )?;
    let short = error(build(&plans::model(), Some(vec![0; 47])))?.to_string();
    contains(
        &short,
        &["weight `w` of type f32[3, 4]: expected 48 bytes, found 47"],
    )?;
    // Refused before anything is read or compiled.
    let mut large = plans::model();
    let rows = gpu.profile.limits.binding_bytes.min(1 << 40) / 4 + 1;
    let rows = i64::try_from(rows).map_err(|e| e.to_string())?;
    let table = attnc_plan::Buffer::weight("table", DType::F32, vec![rows.into()]);
    large.add_buffer(table);
    contains(
        &error(build(&large, None))?.to_string(),
        &[
            "weight `table` of type f32[",
            "run on a device with a larger limit or on the CPU",
        ],
    )
}

pub(crate) fn a_kernel_that_does_not_compile_is_an_error(gpu: &Gpu) -> Result<(), Failed> {
    let mut plan = plans::model();
    plan.kernels[1].wgsl = plan.kernels[1].wgsl.replace("p.slope", "p.slop");
    let result = Executable::new(&gpu.device, &gpu.queue, &plan, &weights());
    contains(
        &error(result)?.to_string(),
        &["compiling kernel `relu.f32`", "slop"],
    )?;
    // The bindings the plan tells of are held against the shader's.
    let mut plan = plans::model();
    plan.kernels[0].bindings[1].access = attnc_plan::Access::Uniform;
    let result = Executable::new(&gpu.device, &gpu.queue, &plan, &weights());
    contains(
        &error(result)?.to_string(),
        &["kernel `matmul.f32`: it binds more than one uniform struct"],
    )
}

pub(crate) fn a_small_device_refuses_a_big_plan(gpu: &Gpu) -> Result<(), Failed> {
    let mut plan = plans::model();
    let limits = Limits {
        workgroup_bytes: 1 << 30,
        ..plan.profile.limits
    };
    plan.profile = DeviceProfile {
        name: "giant".into(),
        limits,
        ..plan.profile
    };
    plan.kernels[2].workgroup_bytes = 1 << 29;
    let result = Executable::new(&gpu.device, &gpu.queue, &plan, &weights());
    let found = error(result)?.to_string();
    contains(
        &found,
        &[
            "kernel `add.f32`: 536870912 bytes of workgroup memory",
            "profile `giant`",
        ],
    )
}

pub(crate) fn sizes_over_the_limit_are_refused(gpu: &Gpu) -> Result<(), Failed> {
    let exe = Executable::new(&gpu.device, &gpu.queue, &plans::model(), &weights())?;
    let x = storage(gpu, 64);
    for (rows, part) in [
        (1i64 << 40, "at most 2147483647 can be indexed"),
        (1 << 28, "the limit of"),
    ] {
        let result = exe.bind(
            &gpu.device,
            &DimValues::from([("B", rows)]),
            &[("x", &x), ("y", &x)],
        );
        contains(
            &error(result)?.to_string(),
            &["buffer `y` of type f32[B, 4]", part],
        )?;
    }
    equal(&exe.stats().arena_buffers_created, &0)
}

pub(crate) fn a_lost_device_is_an_error(_: &Gpu) -> Result<(), Failed> {
    let gpu = Gpu::open(&AdapterChoice::any())?;
    let mut runner = runner(&gpu)?;
    run(&mut runner, 3)?;
    gpu.device.destroy();
    let found = error(run(&mut runner, 3))?.to_string();
    contains(&found, &["lost"])?;
    contains(&error(run(&mut runner, 300))?.to_string(), &["lost"])
}
