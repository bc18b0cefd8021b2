//! Fused attention: one pass over the keys for a block of queries, without a matrix of all scores.
//!
//! For each block of `BLOCK_M` queries and `BLOCK_N` keys: `S = scale Q Kᵀ`, `score_mod`, `mask_mod`, then
//! the running maximum `m`, sum `l` and `acc = Σ exp(S - m) V` are brought up to date; a new maximum scales
//! `l` and `acc` down. At the end `O = acc / l`. Online softmax: Milakov and Gimelshein 2018
//! (arXiv:1805.02867); blocks: Dao 2023 (arXiv:2307.08691), algorithm 1.
//!
//! A sink is one more score of the row, at its end. `prob_mod` is applied to the block before it meets V; where it is not
//! homogeneous it needs the final `m` and `l`, and the keys are walked twice.
//!
//! A key is there where `mask_mod` is true and its score is not -inf. A block of keys that is not there for
//! any query is skipped, unless `prob_mod` gives such keys a weight, and without a look at its mask where
//! intervals say so ([`blocks`]). So is a block that a finite fill takes out; if a row turns out to have no
//! greater score, its queries are done again literally. Where a value is not finite, keys that are not there are left out one by one
//! instead of being multiplied by 0. A row without a key gives zeros.

use super::blocks::{self, BlockMask, Blocks};
use super::gemm::{Mat, MatMut, Threads, gemm};
use super::tape::{Scratch, Tape};
use super::view::View;
use super::{math, rows};
use crate::lazy::OutOfRange;
use rayon::prelude::*;

/// Queries of a block.
pub(crate) const BLOCK_M: usize = 32;
/// Keys of a block.
pub(crate) const BLOCK_N: usize = 128;

/// Attention with its functions compiled over `b, h, q_idx, kv_idx`.
#[derive(Debug, Clone)]
pub(crate) struct Attention {
    /// Factor on the product.
    pub(crate) scale: f32,
    /// From the score and the index.
    pub(crate) score_mod: Option<Tape>,
    /// Whether the key is there.
    pub(crate) mask_mod: Option<Tape>,
    /// The logit of a key whose value is zero, from the largest score and `b, h, q_idx`.
    pub(crate) sink: Option<Tape>,
    /// What a value counts, from its probability and the index.
    pub(crate) prob_mod: Option<Tape>,
    /// Whether `prob_mod` may be applied before the sum is known.
    pub(crate) weighs_before_sum: bool,
    /// Whether keys that are not there have weight 0.
    pub(crate) skips_absent: bool,
    /// Which blocks are skipped, where that can be told.
    pub(crate) blocks: Option<Blocks>,
}

impl Attention {
    /// `q [B, H, M, D], k [B, H_kv, N, D], v [B, H_kv, N, Dv], captured..` to `out [B, H, M, Dv]`, packed.
    pub(crate) fn run(&self, operands: &[View<'_>], out: &mut [f32]) -> Result<(), OutOfRange> {
        let (q, v) = (&operands[0], &operands[2]);
        let (heads, queries) = (q.layout.shape[1], q.layout.shape[2]);
        let width = v.layout.shape[3];
        out.fill(0.0);
        if out.is_empty() || v.layout.shape[2] == 0 {
            return Ok(());
        }
        let call = Call {
            attention: self,
            operands,
            not_finite: self.blocks_not_finite(v),
        };
        out.par_chunks_mut(queries * width)
            .enumerate()
            .flat_map(|(head, out)| {
                let blocks = out.par_chunks_mut(BLOCK_M * width).enumerate();
                blocks.map(move |(block, out)| ([head / heads, head % heads, block * BLOCK_M], out))
            })
            .try_for_each_init(
                || Buffers::new(self, q.layout.shape[3]),
                |buffers, (at, out)| call.block(at, out, buffers),
            )
    }

    /// For each batch, key head and block of keys: whether a value is infinite or NaN. Empty where every key
    /// is there, since then all of them count.
    fn blocks_not_finite(&self, v: &View<'_>) -> Vec<bool> {
        if self.score_mod.is_none() && self.mask_mod.is_none() {
            return Vec::new();
        }
        let [batch, heads, keys, width] = shape(v);
        let blocks = keys.div_ceil(BLOCK_N);
        (0..batch * heads * blocks)
            .into_par_iter()
            .with_min_len(8)
            .map(|n| {
                let (head, first) = (n / blocks, n % blocks * BLOCK_N);
                (first..keys.min(first + BLOCK_N)).any(|key| {
                    let row = row(v, [head / heads, head % heads, key]);
                    !all_finite(row, v.layout.strides[3], width)
                })
            })
            .collect()
    }
}

fn shape(view: &View<'_>) -> [usize; 4] {
    view.layout.shape[..]
        .try_into()
        .expect("attention takes operands of 4 axes")
}

/// The elements from the first of a row on.
fn row<'a>(view: &View<'a>, [b, h, n]: [usize; 3]) -> (&'a [f32], usize) {
    (view.f32(), view.layout.position(&[b, h, n, 0]))
}

fn element((data, start): (&[f32], usize), stride: isize, n: usize) -> f32 {
    data[start.wrapping_add_signed(stride * n as isize)]
}

fn all_finite((data, start): (&[f32], usize), stride: isize, width: usize) -> bool {
    if stride == 1 {
        // Vectorises: a NaN or infinity makes the sum of `x * 0` NaN.
        let zero: f32 = data[start..start + width].iter().map(|x| x * 0.0).sum();
        return zero == 0.0;
    }
    (0..width).all(|n| element((data, start), stride, n).is_finite())
}

/// What a thread works in.
struct Buffers {
    q: Vec<f32>,
    scores: Vec<f32>,
    live: Vec<u32>,
    /// Running maximum and sum of each query.
    m: [f32; BLOCK_M],
    l: [f32; BLOCK_M],
    score_mod: Option<Scratch>,
    mask_mod: Option<Scratch>,
    sink: Option<Scratch>,
    prob_mod: Option<Scratch>,
    blocks: Option<blocks::Buffers>,
}

impl Buffers {
    fn new(attention: &Attention, depth: usize) -> Self {
        Self {
            q: vec![0.0; BLOCK_M * depth],
            scores: vec![0.0; BLOCK_M * BLOCK_N],
            live: vec![0; BLOCK_M * BLOCK_N],
            m: [f32::NEG_INFINITY; BLOCK_M],
            l: [0.0; BLOCK_M],
            score_mod: attention.score_mod.as_ref().map(Scratch::new),
            mask_mod: attention.mask_mod.as_ref().map(Scratch::new),
            sink: attention.sink.as_ref().map(Scratch::new),
            prob_mod: attention.prob_mod.as_ref().map(Scratch::new),
            blocks: attention.blocks.as_ref().map(blocks::Buffers::new),
        }
    }

    /// [`online`] for the scores of a row.
    fn online(&mut self, row: usize, keys: usize) -> f32 {
        let scores = &mut self.scores[row * BLOCK_N..][..keys];
        online(scores, &mut self.m[row], &mut self.l[row])
    }

    /// Turns the scores of a row into probabilities; `m` and `l` are final.
    fn probabilities(&mut self, row: usize, keys: usize) {
        let scores = &mut self.scores[row * BLOCK_N..][..keys];
        let (m, l) = (self.m[row], self.l[row]);
        for score in scores {
            let live = *score != f32::NEG_INFINITY;
            *score = if live { math::exp(*score - m) / l } else { 0.0 };
        }
    }
}

/// A block of keys for a block of queries.
#[derive(Debug, Clone, Copy)]
struct Block {
    b: usize,
    h: usize,
    kv_head: usize,
    first_query: usize,
    queries: usize,
    first_key: usize,
    keys: usize,
}

struct Call<'a> {
    attention: &'a Attention,
    operands: &'a [View<'a>],
    not_finite: Vec<bool>,
}

impl Call<'_> {
    /// The queries from `first_query` on that `out`, which is zero, has rows for.
    fn block(
        &self,
        [b, h, first_query]: [usize; 3],
        out: &mut [f32],
        buffers: &mut Buffers,
    ) -> Result<(), OutOfRange> {
        let [_, heads, _, depth] = shape(&self.operands[0]);
        let [_, kv_heads, keys, width] = shape(&self.operands[2]);
        let queries = out.len() / width;
        self.load_queries([b, h, first_query], queries, depth, &mut buffers.q);
        buffers.m.fill(f32::NEG_INFINITY);
        buffers.l.fill(0.0);
        let blocks = (0..keys).step_by(BLOCK_N).map(|first_key| Block {
            b,
            h,
            kv_head: h / (heads / kv_heads),
            first_query,
            queries,
            first_key,
            keys: BLOCK_N.min(keys - first_key),
        });
        if !self.attention.weighs_before_sum {
            return self.two_walks(blocks, [b, h, first_query], depth, out, buffers);
        }
        self.one_walk(blocks.clone(), true, depth, out, buffers)?;
        if !self.settled(&buffers.m[..queries]) {
            out.fill(0.0);
            buffers.m.fill(f32::NEG_INFINITY);
            buffers.l.fill(0.0);
            self.one_walk(blocks, false, depth, out, buffers)?;
        }
        let shrink = self.sinks([b, h, first_query], queries, buffers)?;
        for ((row, l), shrink) in out.chunks_exact_mut(width).zip(buffers.l).zip(shrink) {
            // A row without a key has neither sum nor accumulator.
            let scale = if l == 0.0 { 0.0 } else { shrink / l };
            row.iter_mut().for_each(|o| *o *= scale);
        }
        Ok(())
    }

    /// The sinks, keys without a value, into `m` and `l`, and into `shrink` by what the accumulators change.
    fn sinks(
        &self,
        first: [usize; 3],
        queries: usize,
        buffers: &mut Buffers,
    ) -> Result<[f32; BLOCK_M], OutOfRange> {
        let mut shrink = [1.0; BLOCK_M];
        let (Some(sink), Some(scratch)) = (&self.attention.sink, &mut buffers.sink) else {
            return Ok(shrink);
        };
        let mut sinks = buffers.m;
        let lanes = bytemuck::cast_slice_mut(&mut sinks[..queries]);
        sink.row(scratch, self.operands, &first, lanes, true)?;
        for n in 0..queries {
            shrink[n] = online(&mut sinks[n..=n], &mut buffers.m[n], &mut buffers.l[n]);
        }
        Ok(shrink)
    }

    /// Maximum, sum and accumulator of each row; `out` is zero.
    fn one_walk(
        &self,
        blocks: impl Iterator<Item = Block>,
        skips: bool,
        depth: usize,
        out: &mut [f32],
        buffers: &mut Buffers,
    ) -> Result<(), OutOfRange> {
        let width = self.operands[2].layout.shape[3];
        for block in blocks {
            if skips && self.block_mask(block, buffers)? == BlockMask::Empty {
                continue;
            }
            if self.masks(block, buffers)? {
                self.scores(block, depth, buffers)?;
                let literal = self.count_live(block, buffers);
                for (n, acc) in out.chunks_exact_mut(width).enumerate() {
                    let shrink = buffers.online(n, block.keys);
                    if shrink != 1.0 {
                        acc.iter_mut().for_each(|o| *o *= shrink);
                    }
                }
                self.weigh(block, buffers)?;
                self.accumulate(block, literal, out, buffers);
            }
        }
        Ok(())
    }

    /// Whether every key that a finite fill took out adds exactly 0.
    fn settled(&self, maxima: &[f32]) -> bool {
        let blocks = self.attention.blocks.as_ref();
        blocks.is_none_or(|blocks| blocks.settled(maxima))
    }

    /// What the mask is known to do on a block; nothing where it cannot be told.
    fn block_mask(&self, block: Block, buffers: &mut Buffers) -> Result<BlockMask, OutOfRange> {
        let (Some(blocks), Some(scratch)) = (&self.attention.blocks, &mut buffers.blocks) else {
            return Ok(BlockMask::Unknown);
        };
        let corners = [
            block.b,
            block.h,
            block.first_query,
            block.first_query + block.queries - 1,
            block.first_key,
            block.first_key + block.keys - 1,
        ];
        blocks.at(corners, self.operands, scratch)
    }

    /// First the maximum and sum of each row, then the probabilities, their weights and the product with V.
    fn two_walks(
        &self,
        blocks: impl Iterator<Item = Block> + Clone,
        first: [usize; 3],
        depth: usize,
        out: &mut [f32],
        buffers: &mut Buffers,
    ) -> Result<(), OutOfRange> {
        for block in blocks.clone() {
            if self.masks(block, buffers)? {
                self.scores(block, depth, buffers)?;
                for n in 0..block.queries {
                    buffers.online(n, block.keys);
                }
            }
        }
        self.sinks(first, out.len() / shape(&self.operands[2])[3], buffers)?;
        for block in blocks {
            if self.masks(block, buffers)? || !self.attention.skips_absent {
                self.scores(block, depth, buffers)?;
                let literal = self.count_live(block, buffers);
                for n in 0..block.queries {
                    buffers.probabilities(n, block.keys);
                }
                self.weigh(block, buffers)?;
                self.accumulate(block, literal, out, buffers);
            }
        }
        Ok(())
    }

    /// The queries of a block, packed, times the scale: before the product, so that it does not overflow.
    fn load_queries(&self, first: [usize; 3], queries: usize, depth: usize, out: &mut [f32]) {
        let q = &self.operands[0];
        let stride = q.layout.strides[3];
        for (n, out) in out.chunks_exact_mut(depth.max(1)).take(queries).enumerate() {
            if depth == 0 {
                return;
            }
            let row = row(q, [first[0], first[1], first[2] + n]);
            for (d, x) in out.iter_mut().enumerate() {
                *x = element(row, stride, d) * self.attention.scale;
            }
        }
    }

    /// Which keys are there, into `live`; false where none is.
    fn masks(&self, block: Block, buffers: &mut Buffers) -> Result<bool, OutOfRange> {
        if self.attention.mask_mod.is_some() && self.block_mask(block, buffers)? == BlockMask::Full
        {
            let rows = buffers.live.chunks_mut(BLOCK_N).take(block.queries);
            rows.for_each(|row| row[..block.keys].fill(1));
            return Ok(true);
        }
        let (Some(mask), Some(scratch)) = (&self.attention.mask_mod, &mut buffers.mask_mod) else {
            return Ok(true);
        };
        // A padding mask is the same for every query.
        let rows = if mask.varies_along(2) {
            block.queries
        } else {
            1
        };
        let mut any = 0;
        for (n, row) in buffers.live.chunks_mut(BLOCK_N).take(rows).enumerate() {
            let row = &mut row[..block.keys];
            let index = [block.b, block.h, block.first_query + n, block.first_key];
            mask.row(scratch, self.operands, &index, row, false)?;
            any |= row.iter().fold(0, |any, &x| any | x);
        }
        for n in rows..block.queries {
            buffers.live.copy_within(..block.keys, n * BLOCK_N);
        }
        Ok(any != 0)
    }

    /// The scores of a block; -inf for keys that are not there.
    fn scores(&self, block: Block, depth: usize, buffers: &mut Buffers) -> Result<(), OutOfRange> {
        let k = &self.operands[1];
        let at = [block.b, block.kv_head, block.first_key, 0];
        let strides = [k.layout.strides[2], k.layout.strides[3]];
        let start = if depth == 0 {
            0
        } else {
            k.layout.position(&at)
        };
        let keys = Mat::new(k.f32(), start, [block.keys, depth], strides);
        let queries = Mat::packed(&buffers.q[..block.queries * depth], [block.queries, depth]);
        let out = MatMut::new(&mut buffers.scores, [block.queries, block.keys], BLOCK_N);
        gemm(out, false, queries, keys.transposed(), Threads::One);
        let rows = buffers.scores.chunks_mut(BLOCK_N).take(block.queries);
        for (n, row) in rows.enumerate() {
            let row = &mut row[..block.keys];
            if let (Some(score_mod), Some(scratch)) =
                (&self.attention.score_mod, &mut buffers.score_mod)
            {
                let index = [block.b, block.h, block.first_query + n, block.first_key];
                let lanes = bytemuck::cast_slice_mut(row);
                score_mod.row(scratch, self.operands, &index, lanes, true)?;
            }
            if self.attention.mask_mod.is_some() {
                for (score, &live) in row.iter_mut().zip(&buffers.live[n * BLOCK_N..]) {
                    *score = if live != 0 { *score } else { f32::NEG_INFINITY };
                }
            }
        }
        Ok(())
    }

    /// Whether keys of the block must be left out one by one, and then which are there, into `live`.
    fn count_live(&self, block: Block, buffers: &mut Buffers) -> bool {
        let [_, kv_heads, keys, _] = shape(&self.operands[2]);
        let v_block = (block.b * kv_heads + block.kv_head) * keys.div_ceil(BLOCK_N)
            + block.first_key / BLOCK_N;
        let literal = self.not_finite.get(v_block).copied().unwrap_or(false);
        if literal {
            let skips = self.attention.skips_absent;
            for (live, score) in buffers.live.iter_mut().zip(&buffers.scores) {
                *live = u32::from(!skips || *score != f32::NEG_INFINITY);
            }
        }
        literal
    }

    /// The probabilities of a block through `prob_mod`.
    fn weigh(&self, block: Block, buffers: &mut Buffers) -> Result<(), OutOfRange> {
        let (Some(prob_mod), Some(scratch)) = (&self.attention.prob_mod, &mut buffers.prob_mod)
        else {
            return Ok(());
        };
        let rows = buffers.scores.chunks_mut(BLOCK_N).take(block.queries);
        for (n, row) in rows.enumerate() {
            let row = &mut row[..block.keys];
            let mut p = [0.0; BLOCK_N];
            p[..block.keys].copy_from_slice(row);
            let index = [block.b, block.h, block.first_query + n, block.first_key];
            let lanes = bytemuck::cast_slice_mut(row);
            prob_mod.row(scratch, self.operands, &index, lanes, true)?;
            if self.attention.skips_absent {
                // Also where data that `prob_mod` reads is infinite.
                for (weight, p) in row.iter_mut().zip(p) {
                    *weight = if p == 0.0 { 0.0 } else { *weight };
                }
            }
        }
        Ok(())
    }

    /// `acc += weights V` over the keys of a block.
    fn accumulate(&self, block: Block, literal: bool, out: &mut [f32], buffers: &Buffers) {
        if literal {
            return self.accumulate_literally(block, out, buffers);
        }
        let v = &self.operands[2];
        let width = v.layout.shape[3];
        let at = [block.b, block.kv_head, block.first_key, 0];
        let strides = [v.layout.strides[2], v.layout.strides[3]];
        let values = Mat::new(
            v.f32(),
            v.layout.position(&at),
            [block.keys, width],
            strides,
        );
        let p = Mat::new(
            &buffers.scores,
            0,
            [block.queries, block.keys],
            [BLOCK_N as isize, 1],
        );
        let acc = MatMut::new(out, [block.queries, width], width);
        gemm(acc, true, p, values, Threads::One);
    }

    /// `acc += weights V` over the keys that are there only.
    fn accumulate_literally(&self, block: Block, out: &mut [f32], buffers: &Buffers) {
        let v = &self.operands[2];
        let stride = v.layout.strides[3];
        let width = out.len() / block.queries;
        for (n, acc) in out.chunks_exact_mut(width).enumerate() {
            for key in 0..block.keys {
                let at = n * BLOCK_N + key;
                if buffers.live[at] == 0 {
                    continue;
                }
                let row = row(v, [block.b, block.kv_head, block.first_key + key]);
                for (d, o) in acc.iter_mut().enumerate() {
                    *o += buffers.scores[at] * element(row, stride, d);
                }
            }
        }
    }
}

/// Turns scores of a row into `exp(score - m)` with the new running maximum, and gives the factor by which
/// what was accumulated before counts.
fn online(scores: &mut [f32], m: &mut f32, l: &mut f32) -> f32 {
    let block_max = rows::max(scores);
    let new = if block_max > *m || block_max.is_nan() {
        block_max
    } else {
        *m
    };
    if new == f32::NEG_INFINITY {
        scores.fill(0.0);
        return 1.0;
    }
    let factor = if new == *m { 1.0 } else { math::exp(*m - new) };
    for score in scores.iter_mut() {
        *score = math::exp(*score - new);
    }
    *l = *l * factor + rows::sum(scores, |p| p);
    *m = new;
    factor
}
