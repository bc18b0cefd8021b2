//! A plan of many tiny steps, and the same dispatches by hand: what wgpu itself costs.

use super::gpu::Gpu;
use super::plan::{
    Access, Binding, Buffer, DType, DeviceProfile, Dim, KernelArtifact, Plan, Port, Step, Uniform,
};

/// Twice, and half of it: two kernels in turn, so that each step sets its pipeline.
const FACTORS: [&str; 2] = ["2.0", "0.5"];

fn wgsl(factor: &str) -> String {
    format!(
        "struct Params {{ count: u32 }}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    if id.x < p.count {{ y[id.x] = x[id.x] * {factor}; }}
}}"
    )
}

/// `y[N] = x[N]` by `steps` steps, an even number.
pub(crate) fn plan(steps: usize) -> Plan {
    let n = || Dim::sym("N");
    let mut plan = Plan::new("chain", DeviceProfile::webgpu());
    plan.dims = vec!["N".into()];
    let mut from = plan.add_input(Port::new("x", DType::F32, vec![n()]));
    let kernels = FACTORS.map(|factor| {
        plan.add_kernel(KernelArtifact {
            name: format!("times_{factor}"),
            entry: "main".into(),
            wgsl: wgsl(factor),
            bindings: vec![
                Binding::new(0, Access::Uniform, "p"),
                Binding::new(1, Access::Read, "x"),
                Binding::new(2, Access::ReadWrite, "y"),
            ],
            workgroup_size: [64, 1, 1],
            ..KernelArtifact::default()
        })
    });
    for at in 0..steps {
        let to = if at + 1 == steps {
            plan.add_output(Port::new("y", DType::F32, vec![n()]))
        } else {
            plan.add_buffer(Buffer::temp(&format!("t{at}"), DType::F32, vec![n()]))
        };
        plan.steps.push(Step {
            kernel: kernels[at % 2],
            bindings: vec![from, to],
            uniforms: vec![Uniform::U32(n())],
            grid: [Dim::one(), Dim::one(), Dim::one()],
            nodes: vec![],
            op: "times".into(),
            flops: n(),
            turns: Dim::zero(),
        });
        from = to;
    }
    plan
}

/// The chain at one length, by hand.
pub(crate) struct Bare {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipelines: [wgpu::ComputePipeline; 2],
    groups: Vec<wgpu::BindGroup>,
    x: wgpu::Buffer,
    y: wgpu::Buffer,
    staging: wgpu::Buffer,
}

impl Bare {
    /// The chain of `steps` steps for `count` elements, at most 64.
    pub(crate) fn new(gpu: &Gpu, steps: usize, count: u32) -> Self {
        use wgpu::BufferUsages as Usage;
        let device = gpu.device.clone();
        let bytes = u64::from(count) * 4;
        let buffer = |size, usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        let storage = || buffer(bytes, Usage::STORAGE | Usage::COPY_DST | Usage::COPY_SRC);
        let uniform = buffer(16, Usage::UNIFORM | Usage::COPY_DST);
        gpu.queue.write_buffer(&uniform, 0, &count.to_le_bytes());
        let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &[
                entry(0, wgpu::BufferBindingType::Uniform),
                entry(1, wgpu::BufferBindingType::Storage { read_only: true }),
                entry(2, wgpu::BufferBindingType::Storage { read_only: false }),
            ],
        });
        let (x, y, temps) = (storage(), storage(), [storage(), storage()]);
        let place = |at: usize| match at {
            0 => &x,
            at if at == steps => &y,
            at => &temps[at % 2],
        };
        let bind = |at: usize| {
            let bound = [&uniform, place(at), place(at + 1)];
            let entries = [0, 1, 2].map(|n| wgpu::BindGroupEntry {
                binding: n,
                resource: bound[n as usize].as_entire_binding(),
            });
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &layout,
                entries: &entries,
            })
        };
        let groups = (0..steps).map(bind).collect();
        let pipelines = FACTORS.map(|factor| pipeline(&device, &layout, factor));
        let staging = buffer(bytes, Usage::MAP_READ | Usage::COPY_DST);
        Self {
            queue: gpu.queue.clone(),
            pipelines,
            groups,
            x,
            y,
            staging,
            device,
        }
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.device.create_command_encoder(&Default::default())
    }

    fn encode(&self, encoder: &mut wgpu::CommandEncoder) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            // As the plan has one: what is compared is the rest.
            label: Some("chain"),
            timestamp_writes: None,
        });
        for (at, group) in self.groups.iter().enumerate() {
            pass.set_pipeline(&self.pipelines[at % 2]);
            pass.set_bind_group(0, group, &[]);
            pass.dispatch_workgroups(1, 1, 1);
        }
    }

    /// Records and submits.
    pub(crate) fn submit(&self) {
        let mut encoder = self.encoder();
        self.encode(&mut encoder);
        self.queue.submit([encoder.finish()]);
    }

    /// As a host that wants to know of errors: uploads, records, submits, waits, and reads into `y`.
    pub(crate) fn run_in_scopes(&self, x: &[u8], y: &mut [u8]) {
        let scope = |filter| self.device.push_error_scope(filter);
        let memory = scope(wgpu::ErrorFilter::OutOfMemory);
        let internal = scope(wgpu::ErrorFilter::Internal);
        let validation = scope(wgpu::ErrorFilter::Validation);
        self.run(x, y);
        for scope in [validation, internal, memory] {
            assert!(pollster::block_on(scope.pop()).is_none());
        }
    }

    /// Uploads, records, submits, waits, and reads into `y`.
    pub(crate) fn run(&self, x: &[u8], y: &mut [u8]) {
        self.queue.write_buffer(&self.x, 0, x);
        let mut encoder = self.encoder();
        self.encode(&mut encoder);
        encoder.copy_buffer_to_buffer(&self.y, 0, &self.staging, 0, Some(self.staging.size()));
        self.queue.submit([encoder.finish()]);
        let mapped = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let told = mapped.clone();
        self.staging
            .map_async(wgpu::MapMode::Read, .., move |result| {
                told.store(result.is_ok(), std::sync::atomic::Ordering::Release);
            });
        let waited = self.device.poll(wgpu::PollType::wait_indefinitely());
        assert!(waited.is_ok() && mapped.load(std::sync::atomic::Ordering::Acquire));
        let view = self.staging.get_mapped_range(..).expect("it is mapped");
        y.copy_from_slice(&view);
        drop(view);
        self.staging.unmap();
    }
}

fn entry(binding: u32, ty: wgpu::BufferBindingType) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    }
}

fn pipeline(
    device: &wgpu::Device,
    layout: &wgpu::BindGroupLayout,
    factor: &str,
) -> wgpu::ComputePipeline {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(wgsl(factor).into()),
    });
    let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(layout)],
        immediate_size: 0,
    });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: Some(&layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: Default::default(),
        cache: None,
    })
}
