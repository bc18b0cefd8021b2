//! From a kernel's WGSL to a pipeline.

use crate::executable::{Checks, ExecutableOptions};
use crate::{Error, scope};
use attnc_plan::{Access, Binding, KernelArtifact};
use rayon::prelude::*;

/// A kernel the device can run.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) pipeline: wgpu::ComputePipeline,
    /// By group number; `None` where the kernel has no such group.
    pub(crate) groups: Vec<Option<wgpu::BindGroupLayout>>,
}

/// Makes all pipelines, on all cores: driver compilers take most of a cold start.
pub(crate) fn build_all(
    device: &wgpu::Device,
    kernels: &[KernelArtifact],
    options: &ExecutableOptions<'_>,
) -> Result<Vec<Pipeline>, Error> {
    kernels
        .par_iter()
        .map(|kernel| build(device, kernel, options))
        .collect()
}

fn build(
    device: &wgpu::Device,
    kernel: &KernelArtifact,
    options: &ExecutableOptions<'_>,
) -> Result<Pipeline, Error> {
    let during = format_args!("compiling kernel `{}`", kernel.name);
    scope::guarded(device, &during, || {
        let label = Some(kernel.name.as_str());
        let module = shader_module(device, kernel, options.checks);
        let groups = group_layouts(device, kernel);
        let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &groups.iter().map(Option::as_ref).collect::<Vec<_>>(),
            immediate_size: 0,
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&layout),
            module: &module,
            entry_point: Some(&kernel.entry),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: options.pipeline_cache,
        });
        Ok(Pipeline { pipeline, groups })
    })
}

fn shader_module(
    device: &wgpu::Device,
    kernel: &KernelArtifact,
    checks: Checks,
) -> wgpu::ShaderModule {
    let descriptor = wgpu::ShaderModuleDescriptor {
        label: Some(&kernel.name),
        source: wgpu::ShaderSource::Wgsl(kernel.wgsl.as_str().into()),
    };
    match checks {
        Checks::On => device.create_shader_module(descriptor),
        // SAFETY: without run-time checks a shader must not index out of bounds or loop forever.
        // Kernels written by attnc-codegen index only what their uniforms bound: every loop counts to
        // a length, indices into buffers are guarded by the same lengths their sizes come from
        // (`bind` checks each buffer against its size), and indices read from data are clamped in the
        // kernel. `Checks::Off` is documented as a promise that the plan holds only such kernels. The
        // checks matter: the loop bound alone keeps drivers from unrolling, which costs the attention
        // and matmul kernels most of their speed.
        Checks::Off => unsafe {
            device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked())
        },
    }
}

fn group_layouts(
    device: &wgpu::Device,
    kernel: &KernelArtifact,
) -> Vec<Option<wgpu::BindGroupLayout>> {
    let count = kernel
        .bindings
        .iter()
        .map(|b| b.group as usize + 1)
        .max()
        .unwrap_or(0);
    (0..count)
        .map(|group| {
            let of_group = kernel.bindings.iter().filter(|b| b.group as usize == group);
            let entries: Vec<_> = of_group.map(layout_entry).collect();
            (!entries.is_empty()).then(|| {
                device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                    label: Some(&kernel.name),
                    entries: &entries,
                })
            })
        })
        .collect()
}

fn layout_entry(binding: &Binding) -> wgpu::BindGroupLayoutEntry {
    // The size is left to the dispatch, since it depends on the lengths.
    let buffer = |ty| wgpu::BindingType::Buffer {
        ty,
        has_dynamic_offset: false,
        min_binding_size: None,
    };
    let ty = match binding.access {
        Access::Uniform => buffer(wgpu::BufferBindingType::Uniform),
        Access::Read => buffer(wgpu::BufferBindingType::Storage { read_only: true }),
        Access::ReadWrite => buffer(wgpu::BufferBindingType::Storage { read_only: false }),
        Access::Image => wgpu::BindingType::StorageTexture {
            access: wgpu::StorageTextureAccess::ReadOnly,
            format: wgpu::TextureFormat::Rgba32Float,
            view_dimension: wgpu::TextureViewDimension::D2,
        },
    };
    wgpu::BindGroupLayoutEntry {
        binding: binding.binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty,
        count: None,
    }
}
