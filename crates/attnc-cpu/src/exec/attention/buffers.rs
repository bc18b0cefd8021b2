//! What a thread works in while it is at a block, kept from run to run.

use super::{Attention, BLOCK_M, BLOCK_N, Sizes, blocks};
use crate::exec::panels::Panels;
use crate::exec::tape::Scratch;
use std::sync::{Mutex, PoisonError};

/// Buffers that no thread is using.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Vec<Buffers>>);

impl Pool {
    pub(super) fn take(&self, attention: &Attention, sizes: Sizes) -> Buffers {
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used = pool.pop();
        drop(pool);
        used.unwrap_or_else(|| Buffers::new(attention, sizes))
    }

    pub(super) fn put(&self, buffers: Buffers) {
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pool.push(buffers);
    }
}

/// Memory for the packed keys of each key head, kept from run to run.
#[derive(Debug, Default)]
pub(crate) struct PackedKeys(Mutex<Vec<Panels>>);

impl PackedKeys {
    pub(super) fn take(&self) -> Vec<Panels> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *keys)
    }

    pub(super) fn put(&self, used: Vec<Panels>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = used;
    }
}

impl Clone for PackedKeys {
    /// Keys are packed on every run.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Clone for Pool {
    /// Buffers are made again where they are missed.
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[derive(Debug)]
pub(super) struct Buffers {
    /// The queries, packed.
    pub(super) q: Vec<f32>,
    /// Keys and values of a tile, where they are packed.
    pub(super) keys: Panels,
    pub(super) values: Panels,
    /// Values of a tile with zeros for keys that are left out.
    pub(super) finite: Vec<f32>,
    /// Rows of [`BLOCK_N`] scores, then of probabilities, then of weights.
    pub(super) scores: Vec<f32>,
    /// Rows of [`BLOCK_N`] truth values: whether a key is there.
    pub(super) live: Vec<u32>,
    /// Running maximum and sum of each row, and what the last tile scaled its accumulator by.
    pub(super) m: [f32; BLOCK_M],
    pub(super) l: [f32; BLOCK_M],
    pub(super) shrink: [f32; BLOCK_M],
    pub(super) score_mod: Option<Scratch>,
    pub(super) mask_mod: Option<Scratch>,
    pub(super) sink: Option<Scratch>,
    pub(super) prob_mod: Option<Scratch>,
    pub(super) blocks: Option<blocks::Buffers>,
}

impl Buffers {
    fn new(attention: &Attention, sizes: Sizes) -> Self {
        let scratch = |tape: &Option<_>| tape.as_ref().map(Scratch::new);
        Self {
            q: vec![0.0; BLOCK_M * sizes.depth],
            keys: Panels::default(),
            values: Panels::default(),
            finite: Vec::new(),
            scores: vec![0.0; BLOCK_M * BLOCK_N],
            live: vec![0; BLOCK_M * BLOCK_N],
            m: [0.0; BLOCK_M],
            l: [0.0; BLOCK_M],
            shrink: [1.0; BLOCK_M],
            score_mod: scratch(&attention.score_mod),
            mask_mod: scratch(&attention.mask_mod),
            sink: scratch(&attention.sink),
            prob_mod: scratch(&attention.prob_mod),
            blocks: attention.blocks.as_ref().map(blocks::Buffers::new),
        }
    }

    /// No key has been seen.
    pub(super) fn reset(&mut self) {
        self.m.fill(f32::NEG_INFINITY);
        self.l.fill(0.0);
    }
}
