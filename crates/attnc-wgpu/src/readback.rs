//! Waiting for the device and copying results to the host.

use crate::Error;
use std::sync::mpsc;

/// Waits until everything submitted so far is done.
pub(crate) fn wait(device: &wgpu::Device, during: &str) -> Result<(), Error> {
    device
        .poll(wgpu::PollType::wait_indefinitely())
        .map(drop)
        .map_err(|error| Error::Gpu {
            during: during.to_owned(),
            message: error.to_string(),
        })
}

/// Maps the first `size` bytes of `staging`, hands them to `read`, and unmaps.
pub(crate) fn read<T>(
    device: &wgpu::Device,
    staging: &wgpu::Buffer,
    size: u64,
    during: &str,
    read: impl FnOnce(&[u8]) -> T,
) -> Result<T, Error> {
    let lost = |reason: &str| Error::DeviceLost {
        during: during.to_owned(),
        reason: reason.to_owned(),
    };
    let (sender, receiver) = mpsc::channel();
    staging.map_async(wgpu::MapMode::Read, ..size, move |result| {
        // The receiver is gone only if waiting failed, which has been reported then.
        let _ = sender.send(result);
    });
    wait(device, during)?;
    // Another thread that waits for the same device may be the one that answers, a moment later; the
    // sender is dropped where nobody will.
    let mapped = receiver.recv().map_err(|_| lost("results never arrived"))?;
    mapped.map_err(|_| lost("results cannot be mapped"))?;
    let view = staging
        .get_mapped_range(..size)
        .map_err(|error| Error::Gpu {
            during: during.to_owned(),
            message: error.to_string(),
        })?;
    let value = read(&view);
    drop(view);
    staging.unmap();
    Ok(value)
}
