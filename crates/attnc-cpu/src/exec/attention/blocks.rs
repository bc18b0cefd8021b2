//! Which blocks of an attention are skipped, and which need no mask: the mask in interval arithmetic
//! ([`attnc_ir::scalar::block_mask`]), compiled over the corners of a block.
//!
//! On exit never wrong: a block is empty only if no key of it counts for any of its queries, and full only if all
//! are there for all.

use crate::exec::tape::{Scratch, Tape};
use crate::exec::view::View;
use crate::lazy::OutOfRange;

/// The two functions, over `b, h, q_first, q_last, kv_first, kv_last`.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    /// Whether a key may count.
    pub(crate) some: Tape,
    /// Whether all are there.
    pub(crate) all: Tape,
    /// A row whose maximum is no greater must not have skipped keys with a finite fill.
    pub(crate) settled_above: Option<f32>,
}

/// What a mask does on a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockMask {
    Empty,
    Full,
    Unknown,
}

/// What a thread evaluates them in.
#[derive(Debug)]
pub(crate) struct Buffers {
    some: Scratch,
    all: Scratch,
}

impl Buffers {
    pub(crate) fn new(blocks: &Blocks) -> Self {
        Self {
            some: Scratch::new(&blocks.some),
            all: Scratch::new(&blocks.all),
        }
    }
}

impl Blocks {
    /// What the mask does on the block with these corners.
    pub(crate) fn at(
        &self,
        corners: [usize; 6],
        operands: &[View<'_>],
        buffers: &mut Buffers,
    ) -> Result<BlockMask, OutOfRange> {
        let mut value = [0];
        self.some
            .row(&mut buffers.some, operands, &corners, &mut value, false)?;
        if value[0] == 0 {
            return Ok(BlockMask::Empty);
        }
        self.all
            .row(&mut buffers.all, operands, &corners, &mut value, false)?;
        Ok(match value[0] {
            0 => BlockMask::Unknown,
            _ => BlockMask::Full,
        })
    }

    /// Whether every key that a finite fill took out adds exactly 0. A maximum that is NaN settles nothing.
    pub(crate) fn settled(&self, maxima: &[f32]) -> bool {
        let above = self.settled_above;
        above.is_none_or(|above| maxima.iter().all(|&m| m > above))
    }
}
