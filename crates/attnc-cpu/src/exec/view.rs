//! A value while a step runs: a buffer of 32-bit lanes and where its elements lie in it.
//!
//! Every element takes one lane whatever its type: the bits of f32, i32 and u32, and 0 or not for truth
//! values. So views, copies and look-ups are the same for all types.

use super::layout::Layout;

/// A value that a step reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    /// The buffer.
    pub(crate) lanes: &'a [u32],
    /// Where the elements lie in it.
    pub(crate) layout: &'a Layout,
}

impl<'a> View<'a> {
    /// The buffer of an f32 value.
    pub(crate) fn f32(&self) -> &'a [f32] {
        bytemuck::cast_slice(self.lanes)
    }
}
