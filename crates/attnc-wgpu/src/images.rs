//! Images: the storage textures that buffers are read through, and what brings bytes there.
//!
//! How bytes lie in an image is [`ImageSize`]'s to say. A range of them is up to three rectangles: the rest of a row,
//! whole rows, the beginning of one.
//!
//! On entry: ranges that start and end at texels, within the image. On exit: every byte of them in its place.

use attnc_plan::{IMAGE_WIDTH, ImageSize};

/// Bytes of a texel: four f32.
pub(crate) const TEXEL: u64 = 16;

/// A texture of f32 by fours, and the view that kernels bind.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    texture: wgpu::Texture,
    pub(crate) view: wgpu::TextureView,
    size: ImageSize,
}

impl Image {
    pub(crate) fn new(device: &wgpu::Device, label: &str, size: ImageSize) -> Self {
        let texture = device.create_texture(&wgpu::TextureDescriptor {
            label: Some(label),
            size: extent(size.width, size.height),
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: wgpu::TextureFormat::Rgba32Float,
            usage: wgpu::TextureUsages::STORAGE_BINDING | wgpu::TextureUsages::COPY_DST,
            view_formats: &[],
        });
        let view = texture.create_view(&wgpu::TextureViewDescriptor::default());
        Self {
            texture,
            view,
            size,
        }
    }

    /// Whether what fits into an image of that size fits into this one.
    pub(crate) fn holds(&self, size: ImageSize) -> bool {
        self.size.width >= size.width && self.size.height >= size.height
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.size.bytes()
    }

    /// Hands bytes that start at byte `start` of the image to the queue.
    pub(crate) fn write(&self, queue: &wgpu::Queue, start: u64, bytes: &[u8]) {
        for part in rectangles(start / TEXEL, bytes.len() as u64 / TEXEL) {
            queue.write_texture(self.place(&part), bytes, part.layout(), part.extent());
        }
    }

    fn place(&self, part: &Rectangle) -> wgpu::TexelCopyTextureInfo<'_> {
        wgpu::TexelCopyTextureInfo {
            origin: wgpu::Origin3d {
                x: part.x,
                y: part.y,
                z: 0,
            },
            ..self.texture.as_image_copy()
        }
    }
}

/// What brings a buffer into its image before a step.
#[derive(Debug)]
pub(crate) struct ImageCopy {
    pub(crate) from: wgpu::Buffer,
    pub(crate) to: Image,
    /// Texels.
    pub(crate) count: u64,
}

impl ImageCopy {
    pub(crate) fn record(&self, encoder: &mut wgpu::CommandEncoder) {
        for part in rectangles(0, self.count) {
            let from = wgpu::TexelCopyBufferInfo {
                buffer: &self.from,
                layout: part.layout(),
            };
            encoder.copy_buffer_to_texture(from, self.to.place(&part), part.extent());
        }
    }
}

/// A rectangle of an image, and where its bytes start in those of the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rectangle {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
    offset: u64,
}

impl Rectangle {
    fn layout(&self) -> wgpu::TexelCopyBufferLayout {
        // wgpu wants no distance between rows where there is one.
        let row = (self.height > 1).then_some(IMAGE_WIDTH * TEXEL as u32);
        wgpu::TexelCopyBufferLayout {
            offset: self.offset,
            bytes_per_row: row,
            rows_per_image: None,
        }
    }

    fn extent(&self) -> wgpu::Extent3d {
        extent(self.width, self.height)
    }
}

fn extent(width: u32, height: u32) -> wgpu::Extent3d {
    wgpu::Extent3d {
        width,
        height,
        depth_or_array_layers: 1,
    }
}

/// The rectangles of the texels `start` to `start + count - 1`.
fn rectangles(start: u64, count: u64) -> impl Iterator<Item = Rectangle> {
    let row = u64::from(IMAGE_WIDTH);
    let mut next = start;
    std::iter::from_fn(move || {
        let left = start + count - next;
        let (x, y) = (next % row, next / row);
        let (width, height) = match x == 0 && left >= row {
            true => (row, left / row),
            false => (left.min(row - x), 1),
        };
        let offset = (next - start) * TEXEL;
        next += width * height;
        // Of an image that a device has, so that all of them fit.
        let fit = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        (width > 0).then(|| Rectangle {
            x: fit(x),
            y: fit(y),
            width: fit(width),
            height: fit(height),
            offset,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(start: u64, count: u64) -> Vec<(u32, u32, u32, u32, u64)> {
        let parts = rectangles(start, count);
        let numbers = |r: Rectangle| (r.x, r.y, r.width, r.height, r.offset / TEXEL);
        parts.map(numbers).collect()
    }

    #[test]
    fn a_range_is_the_rest_of_a_row_whole_rows_and_the_start_of_one() {
        let w = IMAGE_WIDTH;
        let row = u64::from(w);
        assert_eq!(parts(0, 0), []);
        assert_eq!(parts(3, 5), [(3, 0, 5, 1, 0)]);
        assert_eq!(parts(0, row), [(0, 0, w, 1, 0)]);
        assert_eq!(
            parts(0, 2 * row + 1),
            [(0, 0, w, 2, 0), (0, 2, 1, 1, 2 * row)]
        );
        assert_eq!(
            parts(row - 1, 3 * row + 2),
            [
                (w - 1, 0, 1, 1, 0),
                (0, 1, w, 3, 1),
                (0, 4, 1, 1, 3 * row + 1)
            ]
        );
        assert_eq!(parts(row + 7, row - 7), [(7, 1, w - 7, 1, 0)]);
    }
}
