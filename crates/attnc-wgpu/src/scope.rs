//! Error scopes: what wgpu would otherwise panic about becomes an [`Error`].

use crate::Error;
use std::fmt::Display;

/// Runs `work` and turns what the device complains about meanwhile into an error.
///
/// `during` says what is being done; it is written out only where something went wrong.
///
/// Scopes belong to the thread that opens them, so work that is spread over threads opens one in each.
pub(crate) fn guarded<T>(
    device: &wgpu::Device,
    during: &dyn Display,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let result = work();
    // Every scope is popped before any is looked at: they form a stack.
    let pending = [
        pollster::block_on(validation.pop()),
        pollster::block_on(internal.pop()),
        pollster::block_on(memory.pop()),
    ];
    // Exhausted memory also invalidates what comes after it, so it is the cause to name.
    let mut errors: Vec<wgpu::Error> = pending.into_iter().flatten().collect();
    errors.sort_by_key(|e| !matches!(e, wgpu::Error::OutOfMemory { .. }));
    match errors.into_iter().next() {
        None => result,
        Some(error) => Err(device_error(device, during, error)),
    }
}

/// One device error as ours, with its chain of causes.
fn device_error(device: &wgpu::Device, during: &dyn Display, error: wgpu::Error) -> Error {
    let during = during.to_string();
    if is_lost(device) {
        return Error::DeviceLost {
            during,
            reason: error.to_string(),
        };
    }
    if matches!(error, wgpu::Error::OutOfMemory { .. }) {
        return Error::OutOfMemory { during };
    }
    Error::Gpu {
        during,
        message: error.to_string(),
    }
}

/// Asks for a few bytes: a lost device gives buffers that cannot be mapped.
///
/// A lost device otherwise shows only as objects that are invalid, and the callback that would tell
/// belongs to the host.
fn is_lost(device: &wgpu::Device) -> bool {
    let scope = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let probe = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("attnc probe"),
        size: 16,
        usage: wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: true,
    });
    let mapped = probe.get_mapped_range_mut(..).is_ok();
    let exhausted = pollster::block_on(scope.pop()).is_some();
    !mapped && !exhausted
}
