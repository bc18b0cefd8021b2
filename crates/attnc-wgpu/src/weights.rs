//! Uploading weights, once, straight from the bytes the source lends, those in panels a panel at a time.

use crate::images::Image;
use crate::{Error, readback, scope};
use attnc_plan::{Buffer, BufferId, ImageSize, Panels, Plan, WeightSource};
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
    /// Those that are read through images, which need no buffer if nothing else reads them.
    pub(crate) images: BTreeMap<BufferId, Image>,
    /// Bytes uploaded; a weight that several buffers name in one order counts once, and another
    /// time where it is needed as an image too.
    pub(crate) bytes: u64,
    /// Buffers and images made.
    pub(crate) made: u64,
}

/// Where bytes of a weight go.
#[derive(Clone)]
enum Target {
    Buffer(wgpu::Buffer),
    Image(Image),
}

impl Target {
    fn new(device: &wgpu::Device, name: &str, bytes: u64, in_image: bool) -> Self {
        let size = bytes.next_multiple_of(16).max(16);
        match in_image {
            true => Self::Image(Image::new(device, name, ImageSize::of(size))),
            false => Self::Buffer(storage_buffer(device, name, size)),
        }
    }

    /// Hands bytes to the queue; they start and end at words, in an image at texels.
    fn write(&self, queue: &wgpu::Queue, start: u64, bytes: &[u8]) {
        match self {
            Self::Buffer(buffer) => queue.write_buffer(buffer, start, bytes),
            Self::Image(image) => image.write(queue, start, bytes),
        }
    }
}

/// Uploads the weights of a plan, which the device can bind (`attnc_plan::check_weights`).
pub(crate) fn upload(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    plan: &Plan,
    source: &dyn WeightSource,
) -> Result<DeviceWeights, Error> {
    let found = collect(plan, source)?;
    let (in_images, bound) = (plan.image_sources(), plan.buffers_bound());
    let mut known: BTreeMap<(&str, Option<Panels>, bool), Target> = BTreeMap::new();
    let mut out = DeviceWeights::default();
    let mut sent = Sent {
        device,
        queue,
        staged: 0,
    };
    for (id, name, bytes) in found {
        let weight = plan.buffer(id);
        let image = in_images.contains(&id);
        let wanted = [(true, image), (false, !image || bound.contains(&id))];
        for (image, _) in wanted.into_iter().filter(|(_, wanted)| *wanted) {
            let key = (name, weight.panels, image);
            let target = match known.get(&key) {
                Some(target) => target.clone(),
                None => {
                    let target = sent.send(weight, name, bytes, image)?;
                    out.bytes += bytes.len() as u64;
                    out.made += 1;
                    known.insert(key, target.clone());
                    target
                }
            };
            match target {
                Target::Buffer(buffer) => drop(out.buffers.insert(id, buffer)),
                Target::Image(image) => drop(out.images.insert(id, image)),
            }
        }
    }
    Ok(out)
}

/// What is on its way to the device.
struct Sent<'d> {
    device: &'d wgpu::Device,
    queue: &'d wgpu::Queue,
    /// Bytes that the queue keeps a copy of.
    staged: usize,
}

impl Sent<'_> {
    /// Brings one weight to the device.
    fn send(
        &mut self,
        weight: &Buffer,
        name: &str,
        bytes: &[u8],
        image: bool,
    ) -> Result<Target, Error> {
        let during = format_args!("uploading weight `{name}` ({} bytes)", bytes.len());
        let (device, queue) = (self.device, self.queue);
        scope::guarded(device, &during, || {
            let target = Target::new(device, name, bytes.len() as u64, image);
            let put = |start: u64, piece: &[u8]| {
                target.write(queue, start, piece);
                self.staged += piece.len();
                if self.staged < FLUSH {
                    return Ok(());
                }
                self.staged = 0;
                queue.submit([]);
                readback::wait(device, &during)
            };
            match weight.panels {
                None => in_pieces(bytes, put),
                Some(order) => in_panels(bytes, weight, order, put),
            }?;
            Ok(target)
        })
    }
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

/// Writes bytes to the start of a buffer.
pub(crate) fn write(queue: &wgpu::Queue, buffer: &wgpu::Buffer, bytes: &[u8]) -> Result<(), Error> {
    in_pieces(bytes, |start, piece| {
        queue.write_buffer(buffer, start, piece);
        Ok(())
    })
}

/// Hands out bytes piece by piece, with where each starts; a tail that is no multiple of 4 is filled up with zeros.
fn in_pieces(
    bytes: &[u8],
    mut put: impl FnMut(u64, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let whole = bytes.len() / 4 * 4;
    for (n, chunk) in bytes[..whole].chunks(CHUNK).enumerate() {
        put((n * CHUNK) as u64, chunk)?;
    }
    if whole < bytes.len() {
        let mut tail = [0; 4];
        tail[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
        put(whole as u64, &tail)?;
    }
    Ok(())
}

/// As [`in_pieces`], in panels.
fn in_panels(
    bytes: &[u8],
    weight: &Buffer,
    panels: Panels,
    mut put: impl FnMut(u64, &[u8]) -> Result<(), Error>,
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
        put((number * piece.len()) as u64, &piece)?;
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
