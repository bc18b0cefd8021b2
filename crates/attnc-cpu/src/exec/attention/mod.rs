//! Fused attention: one pass over the keys for a block of rows, without a matrix of all scores.
//!
//! A row is a query of a head. For each block of [`BLOCK_M`] rows and each tile of [`BLOCK_N`] keys:
//! `S = scale Q Kᵀ`, `score_mod`, `mask_mod`, then the running maximum `m`, sum `l` and `acc = Σ exp(S - m) V` are
//! brought up to date; a new maximum scales `l` and `acc` down. At the end `O = acc / l`. Online softmax: Milakov
//! and Gimelshein 2018 (arXiv:1805.02867); blocks: Dao 2023 (arXiv:2307.08691), algorithm 1.
//!
//! Both products are those of [`super::gemm`]; a tile of scores and what it is made of stay in the second-level
//! cache. Blocks are shared among threads. Where heads share keys and have few queries, as in decoding, their
//! rows make one block, so that keys and values are read once.
//!
//! Where there are few blocks and many keys, as in decoding, each block walks its keys in parts, which threads share out.
//!
//! A sink is one more score of the row, at its end. `prob_mod` is applied to the block before it meets V; where it is not
//! homogeneous it needs the final `m` and `l`, and the keys are walked twice.
//!
//! A key is there where `mask_mod` is true and its score is not -inf. A tile of keys that is not there for
//! any row is skipped, unless `prob_mod` gives such keys a weight, and without a look at its mask where
//! intervals say so ([`Blocks`]). So is a tile that a finite fill takes out; if a row turns out to have no
//! greater score, its block is done again literally. So is a block whose result is not finite: then keys that are
//! not there are left out one by one instead of being multiplied by 0. A row without a key gives zeros.
//!
//! | file | what |
//! | --- | --- |
//! | `block.rs` | a block of rows: walks over the keys |
//! | `tile.rs` | a block of rows and a tile of keys: masks, scores, weights, the product with V |
//! | `parts.rs` | keys in parts, and what the parts come to together |
//! | `softmax.rs` | what is done to rows of scores, in vectors |
//! | `blocks.rs` | which tiles are skipped |
//! | `buffers.rs` | what a thread works in |

mod block;
mod blocks;
mod buffers;
mod parts;
mod softmax;
mod tile;

pub(crate) use blocks::Blocks;
pub(crate) use buffers::{PackedKeys, Pool};

use super::gemm::{Threads, threads_for};
use super::mat::Mat;
use super::panels::Panels;
use super::tape::Tape;
use super::view::View;
use crate::lazy::OutOfRange;
use block::RowBlock;
use buffers::Buffers;
use rayon::prelude::*;
use std::ops::Range;

/// Rows of a block.
const BLOCK_M: usize = 64;
/// Keys of a tile.
const BLOCK_N: usize = 128;

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
    /// Which tiles are skipped, where that can be told.
    pub(crate) blocks: Option<Blocks>,
    /// What threads work in, kept from run to run.
    pub(crate) pool: Pool,
    /// Keys that several blocks of rows meet, packed before all of them.
    pub(crate) packed_keys: PackedKeys,
}

impl Attention {
    /// `q [B, H, M, D], k [B, H_kv, N, D], v [B, H_kv, N, Dv], captured..` to `out [B, H, M, Dv]`, packed.
    pub(crate) fn run(&self, operands: &[View<'_>], out: &mut [f32]) -> Result<(), OutOfRange> {
        let sizes = Sizes::new(operands);
        if out.is_empty() || sizes.keys == 0 {
            out.fill(0.0);
            return Ok(());
        }
        let threads = threads_for(sizes.multiplications());
        let mut keys = self.packed_keys.take();
        self.pack_keys(operands, sizes, threads, &mut keys);
        let block = |rows: Rows, span| RowBlock {
            attention: self,
            operands,
            sizes,
            keys: keys.get(rows.b * sizes.kv_heads + rows.heads.start / sizes.group()),
            rows,
            span,
        };
        let result = match sizes.part() {
            Some(part) if threads == Threads::All && self.weighs_before_sum => {
                self.in_parts(sizes, part, &block, out)
            }
            _ => self.whole(sizes, threads, &block, out),
        };
        self.packed_keys.put(keys);
        result
    }

    /// Every block over all keys.
    fn whole<'a>(
        &'a self,
        sizes: Sizes,
        threads: Threads,
        block: &(impl Fn(Rows, Range<usize>) -> RowBlock<'a> + Sync),
        out: &mut [f32],
    ) -> Result<(), OutOfRange> {
        let run = |(rows, out): (Rows, &mut [f32])| {
            self.with_buffers(sizes, |buffers| {
                block(rows, 0..sizes.keys).run(out, buffers)
            })
        };
        let heads = sizes.heads_together() * sizes.queries * sizes.width;
        let rows = BLOCK_M * sizes.width;
        match threads {
            Threads::One => out.chunks_mut(heads).enumerate().try_for_each(|(n, out)| {
                let mut blocks = out.chunks_mut(rows).enumerate();
                blocks
                    .try_for_each(|(m, out)| run((sizes.rows(n, m, out.len() / sizes.width), out)))
            }),
            Threads::All => out
                .par_chunks_mut(heads)
                .enumerate()
                .flat_map(|(n, out)| {
                    let blocks = out.par_chunks_mut(rows).enumerate();
                    blocks.map(move |(m, out)| (sizes.rows(n, m, out.len() / sizes.width), out))
                })
                .try_for_each(run),
        }
    }

    /// Lends what a thread works in.
    fn with_buffers<R>(&self, sizes: Sizes, f: impl FnOnce(&mut Buffers) -> R) -> R {
        let mut buffers = self.pool.take(self, sizes);
        let result = f(&mut buffers);
        self.pool.put(buffers);
        result
    }

    /// The keys of each head, packed; nothing where no two blocks of rows meet the same.
    fn pack_keys(
        &self,
        operands: &[View<'_>],
        sizes: Sizes,
        threads: Threads,
        keys: &mut Vec<Panels>,
    ) {
        if sizes.group() * sizes.queries <= BLOCK_M {
            keys.clear();
            return;
        }
        keys.resize_with(sizes.batch * sizes.kv_heads, Panels::default);
        let pack = |(n, panels): (usize, &mut Panels)| {
            let at = [n / sizes.kv_heads, n % sizes.kv_heads, 0];
            panels.pack(matrix(&operands[1], at, sizes.keys).transposed());
        };
        match threads {
            Threads::One => keys.iter_mut().enumerate().for_each(pack),
            Threads::All => keys.par_iter_mut().enumerate().for_each(pack),
        }
    }
}

/// Keys or values of a head from key `at[2]` on, one a row.
fn matrix<'a>(view: &View<'a>, at: [usize; 3], keys: usize) -> Mat<'a> {
    let width = view.layout.shape[3];
    let start = if width == 0 {
        0
    } else {
        view.layout.position(&[at[0], at[1], at[2], 0])
    };
    let strides = [view.layout.strides[2], view.layout.strides[3]];
    Mat::new(view.f32(), start, [keys, width], strides)
}

/// Sizes of the axes.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    /// Of queries and keys.
    depth: usize,
    /// Of values.
    width: usize,
}

impl Sizes {
    fn new(operands: &[View<'_>]) -> Self {
        let shape = |n: usize| -> [usize; 4] {
            let shape = &operands[n].layout.shape[..];
            shape
                .try_into()
                .expect("attention takes operands of 4 axes")
        };
        let [batch, heads, queries, depth] = shape(0);
        let [_, kv_heads, keys, width] = shape(2);
        Self {
            batch,
            heads,
            kv_heads,
            queries,
            keys,
            depth,
            width,
        }
    }

    /// Query heads that share a key head.
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// How many heads that share keys make one block: as many as fit, if all queries of one do.
    fn heads_together(&self) -> usize {
        let fit = (BLOCK_M / self.queries).clamp(1, self.group());
        let divides = |n: &usize| self.group().is_multiple_of(*n);
        (1..=fit).rev().find(divides).unwrap_or(1)
    }

    /// The rows of block `m` of the `n`th of those heads, which are so many.
    fn rows(&self, n: usize, m: usize, rows: usize) -> Rows {
        let together = self.heads_together();
        let (b, first) = (n * together / self.heads, n * together % self.heads);
        let queries = match together {
            1 => m * BLOCK_M..m * BLOCK_M + rows,
            _ => 0..self.queries,
        };
        Rows {
            b,
            heads: first..first + together,
            queries,
        }
    }

    fn multiplications(&self) -> usize {
        let scores = self.batch * self.heads * self.queries * self.keys;
        scores.saturating_mul(self.depth + self.width)
    }
}

/// The rows of a block: queries of one head, or all queries of some heads that share keys.
#[derive(Debug, Clone)]
struct Rows {
    b: usize,
    heads: Range<usize>,
    queries: Range<usize>,
}

impl Rows {
    fn len(&self) -> usize {
        self.heads.len() * self.queries.len()
    }

    /// Batch, head and query of a row.
    fn at(&self, row: usize) -> [usize; 3] {
        let (head, query) = (row / self.queries.len(), row % self.queries.len());
        [self.b, self.heads.start + head, self.queries.start + query]
    }
}
