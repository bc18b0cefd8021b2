//! Buffers that are read through images: copied when they were written, uploaded when they are weights.

use super::{bytes, contains, equal, error, floats, storage};
use crate::plans::{add, grid, kernel, step};
use attnc_plan::{
    Access, Binding, Buffer, DType, DeviceProfile, Dim, DimValues, IMAGE_WIDTH, Plan, Port,
};
use attnc_wgpu::{Executable, Gpu, HostTensorRef, Runner};
use libtest_mimic::Failed;
use std::collections::BTreeMap;

/// `c = image + b`, by fours.
const ADD_IMAGE: &str = "
@group(0) @binding(0) var image: texture_storage_2d<rgba32float, read>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let at = id.x * 64u + lane;
    if at >= arrayLength(&b) || at >= arrayLength(&c) { return; }
    c[at] = textureLoad(image, vec2<u32>(at % 4096u, at / 4096u)) + b[at];
}
";

/// `t = x + x`, `y = t + x` with t in an image, `t = y + y`, `z = t + x` likewise, `u = w + z` with the weight w of `N`
/// elements in one: y = 3 x, z = 7 x, u = w + 7 x.
fn plan(elements: i64) -> Plan {
    let mut plan = Plan::new("images", DeviceProfile::webgpu());
    let shape = || vec![Dim::from(elements)];
    let x = plan.add_input(Port::new("x", DType::F32, shape()));
    let t = plan.add_buffer(Buffer::temp("t", DType::F32, shape()));
    let w = plan.add_buffer(Buffer::weight("w", DType::F32, shape()));
    let [y, z, u] = ["y", "z", "u"].map(|n| plan.add_output(Port::new(n, DType::F32, shape())));
    let sum = plan.add_kernel(add());
    let bindings = [
        Binding::new(0, Access::Image, "image"),
        Binding::new(1, Access::Read, "b"),
        Binding::new(2, Access::ReadWrite, "c"),
    ];
    let of_image = plan.add_kernel(kernel("add_image.f32", ADD_IMAGE, bindings.to_vec()));
    let steps = [
        (sum, [x, x, t]),
        (of_image, [t, x, y]),
        (sum, [y, y, t]),
        (of_image, [t, x, z]),
        (of_image, [w, z, u]),
    ];
    for (kernel, bound) in steps {
        let grid = grid(&elements.to_string());
        plan.steps
            .push(step(kernel, "add", bound.to_vec(), vec![], grid));
    }
    plan
}

fn weights(elements: i64) -> BTreeMap<String, Vec<u8>> {
    let values: Vec<f32> = (0..elements).map(|n| (n % 1013) as f32).collect();
    BTreeMap::from([("w".to_owned(), bytes(&values))])
}

pub(crate) fn what_was_written_is_copied_anew(gpu: &Gpu) -> Result<(), Failed> {
    let row = i64::from(IMAGE_WIDTH) * 4;
    for elements in [4, 68, row - 4, row, row + 4, 3 * row + 1000] {
        let (plan, weights) = (plan(elements), weights(elements));
        let mut runner = Runner::new(&gpu.device, &gpu.queue, &plan, &weights)?;
        for factor in [1.0, -2.0] {
            let x: Vec<f32> = (0..elements).map(|n| factor * (n % 997) as f32).collect();
            let raw = bytes(&x);
            let shape = [usize::try_from(elements).map_err(|e| e.to_string())?];
            let tensor = HostTensorRef {
                dtype: DType::F32,
                shape: &shape,
                bytes: &raw,
            };
            let found = runner.run(&[("x", tensor)])?;
            if gpu
                .device
                .features()
                .contains(wgpu::Features::TIMESTAMP_QUERY)
            {
                let times = runner.profile(&[("x", tensor)], &DimValues::default())?;
                let steps: Vec<_> = times.iter().map(|time| time.step).collect();
                equal(&steps, &vec![0, 1, 2, 3, 4])?;
                let plausible = |ns: f64| (0.0..1e10).contains(&ns);
                equal(&times.iter().all(|t| plausible(t.nanoseconds)), &true)?;
            }
            let w = floats(&weights["w"]);
            let expected = |f: &dyn Fn(usize) -> f32| (0..x.len()).map(f).collect::<Vec<_>>();
            let y = expected(&|n| 3.0 * x[n]);
            let z = expected(&|n| 7.0 * x[n]);
            let u = expected(&|n| w[n] + 7.0 * x[n]);
            for (output, expected) in found.iter().zip([y, z, u]) {
                let right = floats(&output.bytes) == expected;
                let at = format!("{} of {elements} elements", output.name);
                equal(&(at.as_str(), right), &(at.as_str(), true))?;
            }
        }
        // The weight has an image and no buffer: beside it there are uniforms, ports, results and one intermediate
        // with its image.
        let stats = runner.executable().stats();
        equal(&stats.weight_bytes, &(4 * elements.unsigned_abs()))?;
        equal(&stats.arena_buffers_created, &2)?;
    }
    Ok(())
}

pub(crate) fn a_port_that_cannot_be_copied_is_named(gpu: &Gpu) -> Result<(), Failed> {
    let mut of_input = plan(64);
    of_input.steps[4].bindings[0] = of_input.inputs[0].buffer;
    let exe = Executable::new(&gpu.device, &gpu.queue, &of_input, &weights(64))?;
    let uncopied = gpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 256,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    });
    let [y, z, u] = [(); 3].map(|()| storage(gpu, 256));
    let named = [("x", &uncopied), ("y", &y), ("z", &z), ("u", &u)];
    let result = exe.bind(&gpu.device, &DimValues::default(), &named);
    contains(
        &error(result)?.to_string(),
        &["`x`: its buffer was made without COPY_SRC usage, and is copied into an image"],
    )
}
