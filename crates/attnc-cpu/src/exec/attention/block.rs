//! A block of rows: walks over the keys, tile by tile.

use super::blocks::BlockMask;
use super::buffers::Buffers;
use super::softmax::{self, Online, Probabilities};
use super::tile::{Masks, Tile};
use super::{Attention, BLOCK_M, BLOCK_N, Rows, Sizes};
use crate::exec::panels::Panels;
use crate::exec::view::View;
use crate::lazy::OutOfRange;
use std::ops::Range;

/// Some rows of an attention.
pub(super) struct RowBlock<'a> {
    pub(super) attention: &'a Attention,
    pub(super) operands: &'a [View<'a>],
    pub(super) sizes: Sizes,
    /// The packed keys of the head, where they are.
    pub(super) keys: Option<&'a Panels>,
    pub(super) rows: Rows,
    /// The keys that it walks over.
    pub(super) span: Range<usize>,
}

/// How a walk goes.
#[derive(Debug, Clone, Copy)]
struct Walk {
    /// Tiles that a finite fill takes out are left out.
    skips: bool,
    /// Where a value is not finite, keys are left out one by one.
    literal: bool,
}

impl RowBlock<'_> {
    /// The rows of the result.
    pub(super) fn run(&self, out: &mut [f32], buffers: &mut Buffers) -> Result<(), OutOfRange> {
        self.until_settled(out, buffers, |walk, out, buffers| {
            self.walk(walk, out, buffers)
        })
    }

    /// Maximum, sum and accumulator of each row over its keys, as if there were no others: into `buffers` and `out`.
    pub(super) fn run_part(
        &self,
        out: &mut [f32],
        buffers: &mut Buffers,
    ) -> Result<(), OutOfRange> {
        self.until_settled(out, buffers, |walk, out, buffers| {
            self.bring_up_to_date(walk, out, buffers)
        })
    }

    /// Walks, and again where the first walk took for granted what did not hold.
    fn until_settled(
        &self,
        out: &mut [f32],
        buffers: &mut Buffers,
        go: impl Fn(Walk, &mut [f32], &mut Buffers) -> Result<(), OutOfRange>,
    ) -> Result<(), OutOfRange> {
        self.load_queries(&mut buffers.q);
        let rows = self.rows.len();
        let masks = self.attention.score_mod.is_some() || self.attention.mask_mod.is_some();
        let mut walk = Walk {
            skips: true,
            literal: false,
        };
        loop {
            out.fill(0.0);
            buffers.reset();
            go(walk, out, buffers)?;
            if walk.skips && !self.settled(&buffers.m[..rows]) {
                walk.skips = false;
            } else if masks && !walk.literal && !softmax::all_finite(out) {
                walk.literal = true;
            } else {
                return Ok(());
            }
        }
    }

    fn walk(&self, walk: Walk, out: &mut [f32], buffers: &mut Buffers) -> Result<(), OutOfRange> {
        if self.attention.weighs_before_sum {
            self.bring_up_to_date(walk, out, buffers)?;
            self.divide(out, buffers)
        } else {
            self.two_walks(walk, out, buffers)
        }
    }

    /// Brings maximum, sum and accumulator of each row up to date, tile by tile.
    fn bring_up_to_date(
        &self,
        walk: Walk,
        out: &mut [f32],
        buffers: &mut Buffers,
    ) -> Result<(), OutOfRange> {
        let (rows, width) = (self.rows.len(), self.sizes.width);
        for tile in self.tiles() {
            let known = tile.known(buffers)?;
            if walk.skips && known == BlockMask::Empty {
                continue;
            }
            let masks = tile.masks(known, buffers)?;
            if masks == Masks::None {
                continue;
            }
            tile.scores(masks, buffers)?;
            let literal = walk.literal && tile.count_live(buffers);
            online(rows, tile.keys.len(), buffers);
            softmax::scale(out, width, &buffers.shrink[..rows]);
            tile.weigh(buffers)?;
            tile.accumulate(literal, out, buffers);
        }
        Ok(())
    }

    /// Accumulators of all keys into the result.
    pub(super) fn divide(&self, out: &mut [f32], buffers: &mut Buffers) -> Result<(), OutOfRange> {
        let (rows, width) = (self.rows.len(), self.sizes.width);
        self.sinks(buffers)?;
        // A row without a key has neither sum nor accumulator.
        let sums = buffers.l.iter().zip(buffers.shrink);
        let factors = sums.map(|(&l, shrink)| if l == 0.0 { 0.0 } else { shrink / l });
        let factors: [f32; BLOCK_M] = array(factors);
        softmax::scale(out, width, &factors[..rows]);
        Ok(())
    }

    /// First the maximum and sum of each row, then the probabilities, their weights and the product with V.
    fn two_walks(
        &self,
        walk: Walk,
        out: &mut [f32],
        buffers: &mut Buffers,
    ) -> Result<(), OutOfRange> {
        let rows = self.rows.len();
        for tile in self.tiles() {
            let known = tile.known(buffers)?;
            let masks = tile.masks(known, buffers)?;
            if masks != Masks::None {
                tile.scores(masks, buffers)?;
                online(rows, tile.keys.len(), buffers);
            }
        }
        self.sinks(buffers)?;
        for tile in self.tiles() {
            let known = tile.known(buffers)?;
            let masks = tile.masks(known, buffers)?;
            if masks == Masks::None && self.attention.skips_absent {
                continue;
            }
            tile.scores(masks, buffers)?;
            let literal = walk.literal && tile.count_live(buffers);
            Probabilities {
                scores: &mut buffers.scores,
                keys: tile.keys.len(),
                m: &buffers.m[..rows],
                l: &buffers.l[..rows],
            }
            .run();
            tile.weigh(buffers)?;
            tile.accumulate(literal, out, buffers);
        }
        Ok(())
    }

    fn tiles(&self) -> impl Iterator<Item = Tile<'_>> {
        let (first, end) = (self.span.start, self.span.end);
        (first..end).step_by(BLOCK_N).map(move |first| Tile {
            block: self,
            keys: first..end.min(first + BLOCK_N),
        })
    }

    /// The key head of all rows.
    pub(super) fn kv_head(&self) -> usize {
        self.rows.heads.start / self.sizes.group()
    }

    /// The first and last query, of which every head of the block has all.
    pub(super) fn queries(&self) -> Range<usize> {
        self.rows.queries.clone()
    }

    /// The queries, packed, times the scale: before the product, so that it does not overflow.
    fn load_queries(&self, out: &mut [f32]) {
        let q = &self.operands[0];
        if self.sizes.depth == 0 {
            return;
        }
        let (data, stride) = (q.f32(), q.layout.strides[3]);
        for (n, out) in out
            .chunks_exact_mut(self.sizes.depth)
            .take(self.rows.len())
            .enumerate()
        {
            let [b, h, query] = self.rows.at(n);
            let start = q.layout.position(&[b, h, query, 0]);
            for (d, x) in out.iter_mut().enumerate() {
                *x = data[start.wrapping_add_signed(stride * d as isize)] * self.attention.scale;
            }
        }
    }

    /// The sinks, keys without a value, into `m` and `l`, and into `shrink` what the accumulators change by.
    fn sinks(&self, buffers: &mut Buffers) -> Result<(), OutOfRange> {
        buffers.shrink.fill(1.0);
        let (Some(sink), Some(scratch)) = (&self.attention.sink, &mut buffers.sink) else {
            return Ok(());
        };
        let mut sinks = buffers.m;
        let queries = self.rows.queries.len();
        for (head, sinks) in sinks[..self.rows.len()].chunks_mut(queries).enumerate() {
            let first = self.rows.at(head * queries);
            sink.row(
                scratch,
                self.operands,
                &first,
                bytemuck::cast_slice_mut(sinks),
                true,
            )?;
        }
        // One more tile, of one key.
        for (row, sink) in buffers.scores.chunks_exact_mut(BLOCK_N).zip(sinks) {
            row[0] = sink;
        }
        online(self.rows.len(), 1, buffers);
        Ok(())
    }

    /// Whether every key that a finite fill took out adds exactly 0.
    fn settled(&self, maxima: &[f32]) -> bool {
        let blocks = self.attention.blocks.as_ref();
        blocks.is_none_or(|blocks| blocks.settled(maxima))
    }
}

/// [`Online`] for the scores of a tile.
fn online(rows: usize, keys: usize, buffers: &mut Buffers) {
    Online {
        scores: &mut buffers.scores,
        keys,
        m: &mut buffers.m[..rows],
        l: &mut buffers.l[..rows],
        shrink: &mut buffers.shrink[..rows],
    }
    .run();
}

fn array<const N: usize>(values: impl Iterator<Item = f32>) -> [f32; N] {
    let mut out = [0.0; N];
    out.iter_mut().zip(values).for_each(|(o, x)| *o = x);
    out
}
