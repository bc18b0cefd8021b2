//! Counters: 0 when a run begins, however often and in however many ways a plan is run.

use super::{bytes, equal, storage};
use crate::plans::{grid, kernel, step};
use attnc_plan::{
    Access, Binding, Buffer, BufferKind, DType, DeviceProfile, Dim, DimValues, Plan, Port,
};
use attnc_wgpu::{Gpu, HostTensorRef, Runner};
use libtest_mimic::Failed;

/// Each invocation writes the number that it took of counter 1; those of the second step go on where the first ended.
const TAKE: &str = "
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<storage, read_write> counters: array<atomic<u32>>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let at = id.x * 64u + lane;
    if at >= arrayLength(&x) || at >= arrayLength(&y) { return; }
    y[at] = x[at] + atomicAdd(&counters[1], 1u);
}
";

const COUNT: u32 = 256;

fn plan() -> Plan {
    let mut plan = Plan::new("counters", DeviceProfile::webgpu());
    let shape = || vec![Dim::from(i64::from(COUNT))];
    let x = plan.add_input(Port::new("x", DType::U32, shape()));
    let outputs = ["y", "z"].map(|n| plan.add_output(Port::new(n, DType::U32, shape())));
    let counters = Buffer::new(
        "counters",
        BufferKind::Counters,
        DType::U32,
        vec![Dim::from(2)],
    );
    let counters = plan.add_buffer(counters);
    let bindings = [
        Binding::new(0, Access::Read, "x"),
        Binding::new(1, Access::ReadWrite, "y"),
        Binding::new(2, Access::ReadWrite, "counters"),
    ];
    let take = plan.add_kernel(kernel("take.u32", TAKE, bindings.to_vec()));
    for out in outputs {
        let grid = grid(&COUNT.to_string());
        plan.steps
            .push(step(take, "take", vec![x, out, counters], vec![], grid));
    }
    plan
}

/// Whether a result is the numbers from `first` on, in some order.
fn numbers_from(first: u32, found: &[u8]) -> Result<(), Failed> {
    let words = found.as_chunks::<4>().0.iter();
    let mut found: Vec<u32> = words.map(|w| u32::from_le_bytes(*w)).collect();
    found.sort_unstable();
    equal(&found, &(first..first + COUNT).collect())
}

pub(crate) fn counters_start_from_zero_in_each_run(gpu: &Gpu) -> Result<(), Failed> {
    let plan = plan();
    plan.check()?;
    let mut runner = Runner::new(&gpu.device, &gpu.queue, &plan, &())?;
    let raw = vec![0u8; COUNT as usize * 4];
    let tensor = HostTensorRef {
        dtype: DType::U32,
        shape: &[COUNT as usize],
        bytes: &raw,
    };
    let timed = gpu
        .device
        .features()
        .contains(wgpu::Features::TIMESTAMP_QUERY);
    for _ in 0..3 {
        let found = runner.run(&[("x", tensor)])?;
        numbers_from(0, &found[0].bytes)?;
        numbers_from(COUNT, &found[1].bytes)?;
        if timed {
            runner.profile(&[("x", tensor)], &DimValues::default())?;
        }
    }
    // One buffer for them, however many runs there are; beside it those of ports and their copies.
    let made = runner.executable().stats().buffers_created;
    runner.run(&[("x", tensor)])?;
    equal(&runner.executable().stats().buffers_created, &made)
}

/// Two runs that a host records into one encoder.
pub(crate) fn counters_start_from_zero_in_one_encoder(gpu: &Gpu) -> Result<(), Failed> {
    let exe = attnc_wgpu::Executable::new(&gpu.device, &gpu.queue, &plan(), &())?;
    let size = u64::from(COUNT) * 4;
    let [x, y, z, w] = [(); 4].map(|()| storage(gpu, size));
    let zeros = bytes(&[0.0; COUNT as usize]);
    gpu.queue.write_buffer(&x, 0, &zeros);
    let dims = DimValues::default();
    let first = exe.bind(&gpu.device, &dims, &[("x", &x), ("y", &y), ("z", &z)])?;
    let second = exe.bind(&gpu.device, &dims, &[("x", &x), ("y", &z), ("z", &w)])?;
    let staging = gpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = gpu
        .device
        .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    exe.encode(&mut encoder, &first);
    exe.encode(&mut encoder, &second);
    encoder.copy_buffer_to_buffer(&z, 0, &staging, 0, Some(size));
    gpu.queue.submit([encoder.finish()]);
    staging.map_async(wgpu::MapMode::Read, .., |_| {});
    gpu.wait()?;
    let found = staging
        .get_mapped_range(..)
        .map_err(|e| Failed::from(e.to_string()))?;
    numbers_from(0, &found)
}
