//! Few blocks of rows and many keys: each block walks its keys in parts, and these are joined.
//!
//! Part `p` of a row comes to a maximum `m_p`, a sum `l_p` and an accumulator; together they come to `m = max m_p`,
//! `l = Σ exp(m_p - m) l_p`, and alike for the accumulator (Milakov and Gimelshein 2018, arXiv:1805.02867, §3.1;
//! Flash-Decoding). How long parts are depends on sizes only, so that a result is the same whatever threads there are.
//!
//! On entry: weights that need no sum of their row. On exit: what [`RowBlock::run`] gives, but for rounding. Where a
//! finite fill takes keys out, a part decides for itself whether it walks again: its maximum is no greater than the
//! row's, so it may do so in vain and never fails to.

use super::block::RowBlock;
use super::buffers::Buffers;
use super::{Attention, BLOCK_M, BLOCK_N, Rows, Sizes};
use crate::exec::math;
use crate::exec::scratch::Lanes;
use crate::lazy::OutOfRange;
use rayon::prelude::*;
use std::ops::Range;

/// Keys of a part at least: fewer are done before another thread has begun.
const PART: usize = 4 * BLOCK_N;
/// Parts of all blocks that are enough for any machine.
const ENOUGH: usize = 32;

impl Sizes {
    /// Keys of a part, where walking in parts pays.
    pub(super) fn part(&self) -> Option<usize> {
        if self.queries > BLOCK_M {
            return None;
        }
        let part = (self.keys * self.blocks()).div_ceil(ENOUGH);
        let part = part.next_multiple_of(BLOCK_N).max(PART);
        (part < self.keys).then_some(part)
    }

    /// Blocks of rows, where all queries of a head are in one.
    fn blocks(&self) -> usize {
        self.batch * self.heads / self.heads_together()
    }
}

/// What a part of a block comes to, in memory: accumulators, maxima, sums.
struct State<'a> {
    acc: &'a mut [f32],
    m: &'a mut [f32],
    l: &'a mut [f32],
}

impl<'a> State<'a> {
    fn of(memory: &'a mut [f32], rows: usize, width: usize) -> Self {
        let (acc, rest) = memory.split_at_mut(rows * width);
        let (m, l) = rest.split_at_mut(rows);
        Self { acc, m, l }
    }
}

impl Attention {
    /// Every block by parts of so many keys.
    pub(super) fn in_parts<'a>(
        &'a self,
        sizes: Sizes,
        part: usize,
        block: &(impl Fn(Rows, Range<usize>) -> RowBlock<'a> + Sync),
        out: &mut [f32],
    ) -> Result<(), OutOfRange> {
        let width = sizes.width;
        let rows = sizes.heads_together() * sizes.queries;
        let (state, parts) = (rows * (width + 2), sizes.keys.div_ceil(part));
        let mut memory = Lanes::take();
        memory.resize(sizes.blocks() * parts * state, 0);
        let memory: &mut [f32] = bytemuck::cast_slice_mut(&mut memory);
        let all = memory.par_chunks_exact_mut(state).enumerate();
        all.try_for_each(|(n, memory)| {
            let first = n % parts * part;
            let block = block(
                sizes.rows(n / parts, 0, rows),
                first..sizes.keys.min(first + part),
            );
            let state = State::of(memory, rows, width);
            self.with_buffers(sizes, |buffers| {
                block.run_part(state.acc, buffers)?;
                state.m.copy_from_slice(&buffers.m[..rows]);
                state.l.copy_from_slice(&buffers.l[..rows]);
                Ok(())
            })
        })?;
        let states = memory.chunks_exact_mut(parts * state);
        let mut blocks = out.chunks_exact_mut(rows * width).zip(states).enumerate();
        blocks.try_for_each(|(n, (out, states))| {
            let block = block(sizes.rows(n, 0, rows), 0..sizes.keys);
            self.with_buffers(sizes, |buffers| {
                out.fill(0.0);
                buffers.reset();
                for memory in states.chunks_exact_mut(state) {
                    join(State::of(memory, rows, width), width, out, buffers);
                }
                block.divide(out, buffers)
            })
        })
    }
}

/// Brings rows up to date with a part. A maximum that is NaN stays.
fn join(part: State<'_>, width: usize, out: &mut [f32], buffers: &mut Buffers) {
    let rows = out
        .chunks_exact_mut(width)
        .zip(part.acc.chunks_exact(width));
    for (n, (out, acc)) in rows.enumerate() {
        let (old, m) = (buffers.m[n], part.m[n]);
        if m == f32::NEG_INFINITY {
            continue;
        }
        let new = if m > old || m.is_nan() { m } else { old };
        let factor = |m: f32| if m == new { 1.0 } else { math::exp(m - new) };
        let [kept, added] = [factor(old), factor(m)];
        buffers.m[n] = new;
        buffers.l[n] = buffers.l[n] * kept + part.l[n] * added;
        for (out, acc) in out.iter_mut().zip(acc) {
            *out = *out * kept + acc * added;
        }
    }
}
