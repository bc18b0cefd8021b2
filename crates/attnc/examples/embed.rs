//! Embedding attnc: the host owns the device, the buffers and the encoder.
//!
//! The host doubles Q in a pass of its own, lets attnc add causal attention to the same encoder, squares
//! the result in another pass of its own, submits once, and checks the numbers against the f64 oracle.
//!
//! ```text
//! cargo run --example embed
//! ```
//!
//! Without an adapter it says so and ends well, unless `ATTNC_REQUIRE_GPU` is set.
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use attnc::gpu::{Executable, ProfileExt as _};
use attnc::plan::{DeviceProfile, DimValues};
use attnc::verify::{Tolerance, compare};
use attnc::{HostTensor, Model, Tensors, compile, gpu, oracle};
use std::error::Error;

/// Causal attention: a query sees the keys up to its own place.
const MODEL: &str = r#"graph @causal(%q: f32[B, H, M, 32], %k: f32[B, H, M, 32], %v: f32[B, H, M, 32]) {
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  %scaled = mul %s, 0.17677669
  %row = iota i32[M, M], axis = 0, start = 0, step = 1
  %column = iota i32[M, M], axis = 1, start = 0, step = 1
  %seen = le %column, %row
  %masked = where %seen, %scaled, -inf
  %p = softmax %masked, axis = 3
  %o = matmul %p, %v
  return %o as "out"
}
"#;

/// A pass of the host's own, over a buffer in place.
const HOST_PASS: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(64)
fn double(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&x) { x[id.x] *= 2.0; }
}
@compute @workgroup_size(64)
fn square(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&x) { x[id.x] *= x[id.x]; }
}
";

const SHAPE: [usize; 4] = [2, 3, 45, 32];
const LEN: usize = SHAPE[0] * SHAPE[1] * SHAPE[2] * SHAPE[3];

fn main() -> Result<(), Box<dyn Error>> {
    match embed()? {
        Some(said) => println!("{said}"),
        None if std::env::var_os("ATTNC_REQUIRE_GPU").is_some() => {
            return Err("ATTNC_REQUIRE_GPU is set, and there is no adapter".into());
        }
        None => println!("no adapter: nothing was run"),
    }
    Ok(())
}

/// What came of it, in a sentence; `None` without an adapter.
pub(crate) fn embed() -> Result<Option<String>, Box<dyn Error>> {
    let Some(adapter) = gpu::adapters().into_iter().next() else {
        return Ok(None);
    };
    let request = wgpu::DeviceDescriptor {
        required_limits: adapter.limits(),
        ..wgpu::DeviceDescriptor::default()
    };
    let (device, queue) = pollster::block_on(adapter.request_device(&request))?;
    let host = Host { device, queue };

    // Compile for what the device was opened with, and make the pipelines: once.
    let model = Model::from_text("causal", MODEL)?;
    let profile = DeviceProfile::from_device(&host.device);
    let compiled = compile(&model.graph, &profile)?;
    let exe = Executable::new(&host.device, &host.queue, &compiled.plan, &compiled.weights)?;

    // The host's buffers; attnc allocates nothing for inputs and outputs.
    let inputs = ["q", "k", "v"].map(|name| (name, values(name)));
    let buffers = inputs.each_ref().map(|(_, data)| host.buffer(data));
    let out = host.buffer(&vec![0.0; LEN]);

    // Lengths follow from shapes; binding again at lengths and buffers seen before makes nothing.
    let dims = exe.dims(&[("q", &SHAPE), ("k", &SHAPE), ("v", &SHAPE)])?;
    let [q, k, v] = &buffers;
    let ports = [("q", q), ("k", k), ("v", v), ("out", &out)];
    let io = exe.bind(&host.device, &dims, &ports)?;

    // One encoder of the host: a pass of its own, the attention, another pass of its own.
    let mut encoder = host
        .device
        .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    host.pass(&mut encoder, "double", q);
    exe.encode(&mut encoder, &io);
    host.pass(&mut encoder, "square", &out);
    host.queue.submit([encoder.finish()]);

    let found = HostTensor::new(SHAPE.to_vec(), &host.read(&out)?)?;
    let report = compare(
        "out",
        &expected(&model, &inputs)?,
        &found,
        &Tolerance::default(),
    );
    if !report.passed {
        return Err(report.problem.into());
    }
    let name = adapter.get_info().name;
    let error = report.relative;
    Ok(Some(format!(
        "two host passes around attention on {name}: off by {error:.1e} of the range"
    )))
}

/// The same in f64 on the CPU.
fn expected(model: &Model, inputs: &[(&str, Vec<f32>); 3]) -> Result<HostTensor, Box<dyn Error>> {
    let mut given = Tensors::new();
    for (name, data) in inputs {
        let factor = if *name == "q" { 2.0 } else { 1.0 };
        let data: Vec<f32> = data.iter().map(|x| x * factor).collect();
        given.insert((*name).to_owned(), HostTensor::new(SHAPE.to_vec(), &data)?);
    }
    let outputs = oracle::run(model, &given, &DimValues::default())?;
    let squares: Vec<f64> = outputs["out"].to_f64().iter().map(|x| x * x).collect();
    Ok(HostTensor::new(SHAPE.to_vec(), &squares)?)
}

/// Smooth numbers in [-1, 1], other ones for each name.
fn values(name: &str) -> Vec<f32> {
    let phase = f32::from(name.as_bytes()[0]);
    (0..LEN).map(|i| (i as f32 * 0.37 + phase).sin()).collect()
}

struct Host {
    device: wgpu::Device,
    queue: wgpu::Queue,
}

impl Host {
    fn buffer(&self, data: &[f32]) -> wgpu::Buffer {
        let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes.len() as u64,
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_DST
                | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        self.queue.write_buffer(&buffer, 0, &bytes);
        buffer
    }

    fn pass(&self, encoder: &mut wgpu::CommandEncoder, entry: &str, buffer: &wgpu::Buffer) {
        let source = wgpu::ShaderSource::Wgsl(HOST_PASS.into());
        let module = self
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some("the host's"),
                source,
            });
        let pipeline = self
            .device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(entry),
                layout: None,
                module: &module,
                entry_point: Some(entry),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            });
        let bind_group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: buffer.as_entire_binding(),
            }],
        });
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &bind_group, &[]);
        pass.dispatch_workgroups(LEN.div_ceil(64) as u32, 1, 1);
    }

    fn read(&self, buffer: &wgpu::Buffer) -> Result<Vec<f32>, Box<dyn Error>> {
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: buffer.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
        self.queue.submit([encoder.finish()]);
        let (sender, receiver) = std::sync::mpsc::channel();
        staging
            .slice(..)
            .map_async(wgpu::MapMode::Read, move |result| {
                // Nobody listens where the host has given up already.
                let _ = sender.send(result);
            });
        self.device.poll(wgpu::PollType::wait_indefinitely())?;
        receiver.recv()??;
        let bytes = staging.slice(..).get_mapped_range()?;
        let words = bytes.chunks_exact(4);
        Ok(words
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect())
    }
}
