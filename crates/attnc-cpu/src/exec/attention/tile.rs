//! A block of rows and a tile of keys: which keys are there, the scores, their weights and the product with V.

use super::block::RowBlock;
use super::blocks::BlockMask;
use super::buffers::Buffers;
use super::{BLOCK_N, softmax};
use crate::exec::gemm::{Left, Right, product};
use crate::exec::mat::Mat;
use crate::exec::microkernel::Strided;
use crate::lazy::OutOfRange;
use std::ops::Range;

/// Keys for the rows of a block.
pub(super) struct Tile<'a> {
    pub(super) block: &'a RowBlock<'a>,
    pub(super) keys: Range<usize>,
}

/// Which keys of a tile are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Masks {
    /// None, for any row.
    None,
    /// Those that `live` says.
    Some,
    /// All, for every row.
    All,
}

impl Tile<'_> {
    /// What intervals say of the mask; nothing where they cannot tell.
    pub(super) fn known(&self, buffers: &mut Buffers) -> Result<BlockMask, OutOfRange> {
        let attention = self.block.attention;
        let (Some(blocks), Some(scratch)) = (&attention.blocks, &mut buffers.blocks) else {
            return Ok(BlockMask::Unknown);
        };
        let (b, queries) = (self.block.rows.b, self.block.queries());
        let [q_last, k_last] = [queries.end - 1, self.keys.end - 1];
        let mut all = None;
        for h in self.block.rows.heads.clone() {
            let corners = [b, h, queries.start, q_last, self.keys.start, k_last];
            let one = blocks.at(corners, self.block.operands, scratch)?;
            if all.is_some_and(|all| all != one) {
                return Ok(BlockMask::Unknown);
            }
            all = Some(one);
        }
        Ok(all.unwrap_or(BlockMask::Unknown))
    }

    /// Which keys are there, into `live` where some are and some are not.
    pub(super) fn masks(
        &self,
        known: BlockMask,
        buffers: &mut Buffers,
    ) -> Result<Masks, OutOfRange> {
        let (block, attention) = (self.block, self.block.attention);
        let (Some(mask), Some(scratch)) = (&attention.mask_mod, &mut buffers.mask_mod) else {
            return Ok(Masks::All);
        };
        if known == BlockMask::Full {
            return Ok(Masks::All);
        }
        // A padding mask is the same for every row.
        let distinct = if mask.varies_along(2) || mask.varies_along(1) {
            block.rows.len()
        } else {
            1
        };
        let (mut any, mut all) = (false, true);
        for (n, row) in buffers.live.chunks_mut(BLOCK_N).take(distinct).enumerate() {
            let row = &mut row[..self.keys.len()];
            mask.row(scratch, block.operands, &self.at(n), row, false)?;
            any |= row.iter().fold(0, |any, &x| any | x) != 0;
            all &= row.iter().fold(true, |all, &x| all & (x != 0));
        }
        if !any || all {
            return Ok(if any { Masks::All } else { Masks::None });
        }
        for n in distinct..block.rows.len() {
            buffers.live.copy_within(..self.keys.len(), n * BLOCK_N);
        }
        Ok(Masks::Some)
    }

    /// The index of a row and the first key.
    fn at(&self, row: usize) -> [usize; 4] {
        let [b, h, query] = self.block.rows.at(row);
        [b, h, query, self.keys.start]
    }

    /// The scores; -inf for keys that are not there.
    pub(super) fn scores(&self, masks: Masks, buffers: &mut Buffers) -> Result<(), OutOfRange> {
        let (block, keys) = (self.block, self.keys.len());
        let rows = block.rows.len();
        let depth = block.sizes.depth;
        let queries = Left::new(&buffers.q, [rows, depth], depth);
        let mut out = Strided::new(&mut buffers.scores, BLOCK_N, keys);
        if let Some(packed) = block.keys {
            let cols = self.keys.clone();
            product(queries, Right::Panels(packed), false, cols, &mut out);
        } else {
            let right = match Right::in_place(self.operand(1).transposed(), rows) {
                Some(right) => right,
                None => {
                    buffers.keys.pack(self.operand(1).transposed());
                    Right::Panels(&buffers.keys)
                }
            };
            product(queries, right, false, 0..keys, &mut out);
        }
        let scores = &mut buffers.scores[..rows * BLOCK_N];
        if let (Some(score_mod), Some(scratch)) =
            (&block.attention.score_mod, &mut buffers.score_mod)
        {
            for (n, row) in scores.chunks_mut(BLOCK_N).enumerate() {
                let lanes = bytemuck::cast_slice_mut(&mut row[..keys]);
                score_mod.row(scratch, block.operands, &self.at(n), lanes, true)?;
            }
        }
        match masks {
            Masks::All => {}
            Masks::Some => softmax::mask(scores, &buffers.live, keys),
            Masks::None => scores.fill(f32::NEG_INFINITY),
        }
        Ok(())
    }

    /// Keys or values of the tile, one a row.
    fn operand(&self, n: usize) -> Mat<'_> {
        let at = [self.block.rows.b, self.block.kv_head(), self.keys.start];
        super::matrix(&self.block.operands[n], at, self.keys.len())
    }

    /// Whether keys must be left out one by one, and then which are there, into `live`.
    pub(super) fn count_live(&self, buffers: &mut Buffers) -> bool {
        let values = self.operand(2);
        let finite = |key| (0..values.cols).all(|d| values.at(key, d).is_finite());
        if (0..values.rows).all(finite) {
            return false;
        }
        let skips = self.block.attention.skips_absent;
        for (live, score) in buffers.live.iter_mut().zip(&buffers.scores) {
            *live = u32::from(!skips || *score != f32::NEG_INFINITY);
        }
        true
    }

    /// The probabilities through `prob_mod`.
    pub(super) fn weigh(&self, buffers: &mut Buffers) -> Result<(), OutOfRange> {
        let (block, keys) = (self.block, self.keys.len());
        let (Some(prob_mod), Some(scratch)) = (&block.attention.prob_mod, &mut buffers.prob_mod)
        else {
            return Ok(());
        };
        let rows = buffers.scores.chunks_mut(BLOCK_N).take(block.rows.len());
        for (n, row) in rows.enumerate() {
            let row = &mut row[..keys];
            let mut p = [0.0; BLOCK_N];
            p[..keys].copy_from_slice(row);
            let lanes = bytemuck::cast_slice_mut(row);
            prob_mod.row(scratch, block.operands, &self.at(n), lanes, true)?;
            if block.attention.skips_absent {
                // Also where data that `prob_mod` reads is infinite.
                for (weight, p) in row.iter_mut().zip(p) {
                    *weight = if p == 0.0 { 0.0 } else { *weight };
                }
            }
        }
        Ok(())
    }

    /// `acc += weights V`, where `literal` over the keys that are there only. What is left out changes no bit of the
    /// rest: the product is the same one, with zeros in its place.
    pub(super) fn accumulate(&self, literal: bool, out: &mut [f32], buffers: &mut Buffers) {
        let values = self.operand(2);
        let (rows, width) = (self.block.rows.len(), values.cols);
        let mut in_place = Right::rows_in_place(values);
        let mut packed = values;
        if literal {
            take_odd_keys(values, out, buffers);
            packed = Mat::packed(&buffers.finite, [values.rows, width]);
            in_place = in_place.and_then(|_| Right::rows_in_place(packed));
        }
        let right = match in_place {
            Some(right) => right,
            None => {
                buffers.values.pack(packed);
                Right::Panels(&buffers.values)
            }
        };
        let weights = Left::new(&buffers.scores, [rows, self.keys.len()], BLOCK_N);
        let mut acc = Strided::new(out, width, width);
        product(weights, right, true, 0..width, &mut acc);
    }
}

/// Adds the keys whose values are not all finite to the rows that have them, and leaves the others in `finite`, with
/// zeros for these, whose weights become 0.
fn take_odd_keys(values: Mat<'_>, out: &mut [f32], buffers: &mut Buffers) {
    let width = values.cols;
    buffers.finite.clear();
    for key in 0..values.rows {
        let start = buffers.finite.len();
        let row = (0..width).map(|d| values.at(key, d));
        buffers.finite.extend(row);
        if buffers.finite[start..].iter().all(|x| x.is_finite()) {
            continue;
        }
        buffers.finite[start..].fill(0.0);
        for (n, acc) in out.chunks_exact_mut(width).enumerate() {
            let weight = std::mem::take(&mut buffers.scores[n * BLOCK_N + key]);
            if buffers.live[n * BLOCK_N + key] == 0 {
                continue;
            }
            for (d, o) in acc.iter_mut().enumerate() {
                *o += weight * values.at(key, d);
            }
        }
    }
}
