//! Images: buffers of f32 that a kernel reads through a storage texture ([`Access::Image`]).
//!
//! A software rasteriser takes four elements a lane out of an image by straight code for all lanes, while it walks the
//! lanes one by one for a storage buffer. An image holds the bytes of its buffer in their order, four elements a texel
//! and [`IMAGE_WIDTH`] texels a row, so that whatever index a kernel computes for four elements of the buffer finds them
//! in the image as well. Whoever runs a plan copies a buffer into its image after the buffer was written, and before the
//! next step that reads the image; weights are brought there once.
//!
//! ```
//! use attnc_plan::{IMAGE_WIDTH, ImageSize};
//! let few = ImageSize::of(64);
//! assert_eq!((few.width, few.height), (4, 1));
//! let more = ImageSize::of(16 * u64::from(IMAGE_WIDTH) + 16);
//! assert_eq!((more.width, more.height), (IMAGE_WIDTH, 2));
//! ```
//!
//! On entry: bytes of a buffer, a multiple of 16 at least 16. On exit: the smallest image that holds them.

use crate::{Access, Binding, BufferId, KernelArtifact, Limits, Plan, Step};
use std::collections::BTreeSet;

/// Texels of a full row, each four elements of f32: `IMAGE_WIDTH` of `lib/images.wgsl`.
pub const IMAGE_WIDTH: u32 = 4096;

/// Bytes of a texel.
pub(crate) const TEXEL_BYTES: u64 = 16;

/// Images one kernel may bind: what every WebGPU device has.
pub(crate) const MAX_IMAGES: usize = 4;

/// The extents of an image in texels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSize {
    /// Texels of a row: [`IMAGE_WIDTH`], or as many as there are.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl ImageSize {
    /// The size for so many bytes; one texel for none.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        let texels = bytes.div_ceil(TEXEL_BYTES).max(1);
        let width = u64::from(IMAGE_WIDTH);
        let fit = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            width: fit(texels.min(width)),
            height: fit(texels.div_ceil(width)),
        }
    }

    /// Bytes it takes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.width) * u64::from(self.height) * TEXEL_BYTES
    }
}

/// The most bytes of a buffer that an image on such a device holds.
#[must_use]
pub fn image_byte_limit(limits: &Limits) -> u64 {
    u64::from(limits.image_rows) * u64::from(IMAGE_WIDTH) * TEXEL_BYTES
}

impl Plan {
    /// The buffers that some step reads through images.
    #[must_use]
    pub fn image_sources(&self) -> BTreeSet<BufferId> {
        self.bound(|access| access == Access::Image)
    }

    /// The buffers that some step binds as such; of a weight that is none of them only the image is needed.
    #[must_use]
    pub fn buffers_bound(&self) -> BTreeSet<BufferId> {
        self.bound(|access| access != Access::Image)
    }

    fn bound(&self, wanted: impl Fn(Access) -> bool) -> BTreeSet<BufferId> {
        let mut found = BTreeSet::new();
        for step in &self.steps {
            let bound = self.step_bindings(step);
            found.extend(bound.filter(|(b, _)| wanted(b.access)).map(|(_, id)| id));
        }
        found
    }

    /// The storage bindings and images of a step's kernel, each with its buffer.
    pub fn step_bindings<'p>(
        &'p self,
        step: &'p Step,
    ) -> impl Iterator<Item = (&'p Binding, BufferId)> {
        let kernel = self.kernels.get(step.kernel.index());
        let bindings = kernel
            .into_iter()
            .flat_map(KernelArtifact::storage_bindings);
        bindings.zip(step.bindings.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_as_large_as_its_buffer_up_to_the_end_of_a_row() {
        let row = TEXEL_BYTES * u64::from(IMAGE_WIDTH);
        for (bytes, width, height, takes) in [
            (0, 1, 1, 16),
            (16, 1, 1, 16),
            (row - 16, IMAGE_WIDTH - 1, 1, row - 16),
            (row, IMAGE_WIDTH, 1, row),
            (row + 16, IMAGE_WIDTH, 2, 2 * row),
        ] {
            let size = ImageSize::of(bytes);
            assert_eq!(size, ImageSize { width, height }, "{bytes}");
            assert_eq!(size.bytes(), takes, "{bytes}");
        }
    }
}
