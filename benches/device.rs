//! Reading a buffer back, and running a kernel that is no plan.

use attnc::gpu::Gpu;

/// The bytes of a buffer made with `COPY_SRC`.
///
/// # Errors
/// Trouble of the device, in words.
pub fn read(gpu: &Gpu, buffer: &wgpu::Buffer) -> Result<Vec<u8>, String> {
    let Gpu { device, queue, .. } = gpu;
    let staging = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("readback"),
        size: buffer.size(),
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
    queue.submit([encoder.finish()]);
    staging.map_async(wgpu::MapMode::Read, .., |_| ());
    wait(gpu)?;
    let view = staging.get_mapped_range(..).map_err(|e| e.to_string())?;
    Ok(view.to_vec())
}

/// Waits until everything submitted is done.
///
/// # Errors
/// Trouble of the device, in words.
pub fn wait(gpu: &Gpu) -> Result<(), String> {
    let waited = gpu.device.poll(wgpu::PollType::wait_indefinitely());
    waited.map(drop).map_err(|e| e.to_string())
}
