//! Fused attention: one pass over the keys for a block of queries, without a matrix of all scores.
//!
//! For each block of `BLOCK_M` queries and `BLOCK_N` keys: `S = scale Q Kᵀ`, `score_mod`, `mask_mod`, then
//! the running maximum `m`, sum `l` and `acc = Σ exp(S - m) V` are brought up to date; a new maximum scales
//! `l` and `acc` down. At the end `O = acc / l`. Online softmax: Milakov and Gimelshein 2018
//! (arXiv:1805.02867); blocks: Dao 2023 (arXiv:2307.08691), algorithm 1.
//!
//! A key is there where `mask_mod` is true and its score is not -inf. A block of keys that is not there for
//! any query is skipped. Where a value is not finite, keys that are not there are left out one by one
//! instead of being multiplied by 0. A row without a key gives zeros.

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
        for first_key in (0..keys).step_by(BLOCK_N) {
            let block = Block {
                b,
                h,
                kv_head: h / (heads / kv_heads),
                first_query,
                queries,
                first_key,
                keys: BLOCK_N.min(keys - first_key),
            };
            if self.masks(block, buffers)? {
                self.scores(block, depth, buffers)?;
                self.accumulate(block, out, buffers);
            }
        }
        for (row, l) in out.chunks_exact_mut(width).zip(buffers.l) {
            // A row without a key has neither sum nor accumulator.
            let scale = if l == 0.0 { 0.0 } else { 1.0 / l };
            row.iter_mut().for_each(|o| *o *= scale);
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

    /// Brings `m`, `l` and the accumulator in `out` up to date with the scores of a block.
    fn accumulate(&self, block: Block, out: &mut [f32], buffers: &mut Buffers) {
        let v = &self.operands[2];
        let [_, kv_heads, keys, width] = shape(v);
        let v_block = (block.b * kv_heads + block.kv_head) * keys.div_ceil(BLOCK_N)
            + block.first_key / BLOCK_N;
        let literal = self.not_finite.get(v_block).copied().unwrap_or(false);
        for n in 0..block.queries {
            let row = &mut buffers.scores[n * BLOCK_N..][..block.keys];
            if literal {
                for (live, score) in buffers.live[n * BLOCK_N..].iter_mut().zip(&*row) {
                    *live = u32::from(*score != f32::NEG_INFINITY);
                }
            }
            let m = online(row, &mut buffers.m[n], &mut buffers.l[n]);
            if m != 1.0 {
                let acc = &mut out[n * width..(n + 1) * width];
                acc.iter_mut().for_each(|o| *o *= m);
            }
        }
        if literal {
            self.accumulate_literally(block, out, buffers);
            return;
        }
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

    /// `acc += P V` over the keys that are there only.
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

/// Turns the scores of a row into `exp(score - m)` with the new running maximum, and gives the factor by
/// which what was accumulated before counts.
fn online(row: &mut [f32], m: &mut f32, l: &mut f32) -> f32 {
    let block_max = rows::max(row);
    let new = if block_max > *m || block_max.is_nan() {
        block_max
    } else {
        *m
    };
    if new == f32::NEG_INFINITY {
        row.fill(0.0);
        return 1.0;
    }
    let factor = if new == *m { 1.0 } else { math::exp(*m - new) };
    for score in row.iter_mut() {
        *score = math::exp(*score - new);
    }
    *l = *l * factor + rows::sum(row, |p| p);
    *m = new;
    factor
}
