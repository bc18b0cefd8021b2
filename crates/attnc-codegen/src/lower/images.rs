//! Which operands are read through images ([`attnc_plan::ImageSize`]) instead of buffers.
//!
//! Where subgroups are the vector units of a CPU, a load from a buffer walks the lanes one by one, some 70 instructions
//! for four words of each; four elements of f32 come out of an image by some 60 for all lanes together (lavapipe,
//! Mesa 22.3, read from its machine code). What is computed has to be copied into its image first, which pays where
//! each element is read several times; a weight is brought there once. GPUs read buffers as well as images, and are
//! spared the copy.
//!
//! On entry: a device profile, and how often an operand is read. On exit: whether it is worth an image.

use crate::Stored;
use crate::choice::is_cpu;
use attnc_ir::Dim;
use attnc_plan::{DeviceProfile, image_byte_limit};

/// Rows that share what is read from a copy, from which on copying pays: two tiles of 32.
pub(super) const WORTH_ROWS: u32 = 64;

/// Columns that share what is read from a copy of A, from which on it pays: two tiles of 64.
pub(super) const WORTH_COLUMNS: u32 = 128;

/// Whether the device gains from images of operands that are stored so.
pub(super) fn suit(profile: &DeviceProfile, operands: Stored) -> bool {
    is_cpu(profile) && matches!(operands, Stored::F32 | Stored::F32Pairs)
}

/// Whether so many elements, which are known, fit into an image of the device.
pub(super) fn hold(profile: &DeviceProfile, elements: &Dim) -> bool {
    let elements = elements.as_const().and_then(|n| u64::try_from(n).ok());
    elements.is_some_and(|n| n.saturating_mul(4) <= image_byte_limit(&profile.limits))
}
