//! Uploading weights, once, straight from the bytes the source lends, those in panels a panel at a time.

use crate::{Error, readback, scope};
use attnc_plan::{Buffer, BufferId, Panels, Plan, WeightSource};
use std::collections::BTreeMap;

/// Weights are handed to the queue in pieces of this size…
const CHUNK: usize = 8 << 20;
/// …and sent off each time this much has gathered: the queue keeps a copy of its own until then, and what is
/// on its way at once adds to the peak of the host's memory.
const FLUSH: usize = 4 * CHUNK;

/// Weights in device memory.
#[derive(Debug, Default)]
pub(crate) struct DeviceWeights {
    pub(crate) buffers: BTreeMap<BufferId, wgpu::Buffer>,
    /// Bytes uploaded; a weight that several buffers name in one order counts once.
    pub(crate) bytes: u64,
    /// Buffers made.
    pub(crate) made: u64,
}

/// Uploads the weights of a plan, which the device can bind (`attnc_plan::check_weights`).
pub(crate) fn upload(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    plan: &Plan,
    source: &dyn WeightSource,
) -> Result<DeviceWeights, Error> {
    let found = collect(plan, source)?;
    let mut known: BTreeMap<(&str, Option<Panels>), wgpu::Buffer> = BTreeMap::new();
    let mut out = DeviceWeights::default();
    let mut staged = 0;
    for (id, name, bytes) in found {
        let order = plan.buffer(id).panels;
        let buffer = match known.get(&(name, order)) {
            Some(buffer) => buffer.clone(),
            None => {
                let during = format_args!("uploading weight `{name}` ({} bytes)", bytes.len());
                let buffer = scope::guarded(device, &during, || {
                    let size = (bytes.len() as u64).next_multiple_of(16).max(16);
                    let buffer = storage_buffer(device, name, size);
                    let written = |piece| {
                        staged += piece;
                        if staged < FLUSH {
                            return Ok(());
                        }
                        staged = 0;
                        queue.submit([]);
                        readback::wait(device, &during)
                    };
                    match order {
                        None => write(queue, &buffer, bytes, written),
                        Some(order) => {
                            write_panels(queue, &buffer, bytes, plan.buffer(id), order, written)
                        }
                    }?;
                    Ok(buffer)
                })?;
                out.bytes += bytes.len() as u64;
                out.made += 1;
                known.insert((name, order), buffer.clone());
                buffer
            }
        };
        out.buffers.insert(id, buffer);
    }
    Ok(out)
}

/// A storage buffer the queue can write.
pub(crate) fn storage_buffer(device: &wgpu::Device, label: &str, size: u64) -> wgpu::Buffer {
    device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(label),
        size,
        usage: wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: false,
    })
}

/// Writes bytes to the start of a buffer, piece by piece, and says how large each was; a tail that is no
/// multiple of 4 is filled up with zeros.
pub(crate) fn write(
    queue: &wgpu::Queue,
    buffer: &wgpu::Buffer,
    bytes: &[u8],
    mut written: impl FnMut(usize) -> Result<(), Error>,
) -> Result<(), Error> {
    let whole = bytes.len() / 4 * 4;
    for (n, chunk) in bytes[..whole].chunks(CHUNK).enumerate() {
        queue.write_buffer(buffer, (n * CHUNK) as u64, chunk);
        written(chunk.len())?;
    }
    if whole < bytes.len() {
        let mut tail = [0; 4];
        tail[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
        queue.write_buffer(buffer, whole as u64, &tail);
    }
    Ok(())
}

/// As [`write`], in panels.
fn write_panels(
    queue: &wgpu::Queue,
    buffer: &wgpu::Buffer,
    bytes: &[u8],
    weight: &Buffer,
    panels: Panels,
    mut written: impl FnMut(usize) -> Result<(), Error>,
) -> Result<(), Error> {
    let k = weight.shape[panels.k_axis as usize].as_const();
    let k = k.and_then(|k| usize::try_from(k).ok()).unwrap_or_default();
    let element = weight.dtype.bytes();
    let mut piece = vec![0; panels.elements(k) * element];
    if piece.is_empty() {
        return Ok(());
    }
    for number in 0..bytes.len() / piece.len() {
        panels.pack(bytes, k, element, number, &mut piece);
        queue.write_buffer(buffer, (number * piece.len()) as u64, &piece);
        written(piece.len())?;
    }
    Ok(())
}

/// A weight's buffer, name and bytes.
type Found<'a> = (BufferId, &'a str, &'a [u8]);

/// All weights with their bytes, or everything that is wrong with them.
fn collect<'a>(plan: &'a Plan, source: &'a dyn WeightSource) -> Result<Vec<Found<'a>>, Error> {
    let mut wrong = Vec::new();
    let mut found = Vec::new();
    for (id, name, buffer) in plan.weights() {
        match whole(buffer, source.bytes(name)) {
            Ok(bytes) => found.push((id, name, bytes)),
            Err(what) => wrong.push(format!(
                "weight `{name}` of type {}: {what}",
                buffer.type_text()
            )),
        }
    }
    if wrong.is_empty() {
        Ok(found)
    } else {
        Err(Error::Weights(wrong))
    }
}

fn whole<'a>(buffer: &Buffer, bytes: Option<&'a [u8]>) -> Result<&'a [u8], String> {
    let bytes = bytes.ok_or("the source does not have it")?;
    let expected = buffer
        .size()
        .as_const()
        .and_then(|n| usize::try_from(n).ok());
    if expected != Some(bytes.len()) {
        return Err(format!(
            "expected {} bytes, found {}",
            buffer.size(),
            bytes.len()
        ));
    }
    Ok(bytes)
}
