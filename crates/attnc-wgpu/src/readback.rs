//! Waiting for the device and copying results to the host.

use crate::Error;
use std::fmt::Display;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Waits until everything submitted so far is done.
pub(crate) fn wait(device: &wgpu::Device, during: &dyn Display) -> Result<(), Error> {
    device
        .poll(wgpu::PollType::wait_indefinitely())
        .map(drop)
        .map_err(|error| Error::Gpu {
            during: during.to_string(),
            message: error.to_string(),
        })
}

/// A buffer that results are read through, again and again.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(crate) buffer: wgpu::Buffer,
    answer: Arc<Answer>,
}

impl Staging {
    /// A buffer of that many bytes.
    pub(crate) fn new(device: &wgpu::Device, label: &str, size: u64) -> Self {
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        Self {
            buffer,
            answer: Arc::default(),
        }
    }

    /// Maps the first `size` bytes, hands them to `read`, and unmaps.
    pub(crate) fn read<T>(
        &self,
        device: &wgpu::Device,
        size: u64,
        during: &dyn Display,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Error> {
        let lost = |reason: &str| Error::DeviceLost {
            during: during.to_string(),
            reason: reason.to_owned(),
        };
        let asked = Asked {
            answer: Arc::clone(&self.answer),
            mapped: false,
        };
        self.buffer
            .map_async(wgpu::MapMode::Read, ..size, move |result| {
                asked.settle(result.is_ok());
            });
        wait(device, during)?;
        // Another thread that waits for the same device may be the one that answers, a moment later.
        if !self.answer.take() {
            return Err(lost("results cannot be mapped"));
        }
        let view = self
            .buffer
            .get_mapped_range(..size)
            .map_err(|error| Error::Gpu {
                during: during.to_string(),
                message: error.to_string(),
            })?;
        let value = read(&view);
        drop(view);
        self.buffer.unmap();
        Ok(value)
    }
}

/// Whether the buffer was mapped, once that is known.
#[derive(Debug, Default)]
struct Answer {
    mapped: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Answer {
    fn lock(&self) -> MutexGuard<'_, Option<bool>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer, and forgets it.
    fn take(&self) -> bool {
        let mut mapped = self.lock();
        loop {
            if let Some(mapped) = mapped.take() {
                return mapped;
            }
            let woken = self.changed.wait(mapped);
            mapped = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A question to the device, answered as it is dropped: also where the device never calls back, so that
/// nobody waits forever.
struct Asked {
    answer: Arc<Answer>,
    mapped: bool,
}

impl Asked {
    fn settle(mut self, mapped: bool) {
        self.mapped = mapped;
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        *self.answer.lock() = Some(self.mapped);
        self.answer.changed.notify_all();
    }
}
