//! Block masks: what a mask does on a whole tile of queries and keys.
//!
//! From the mask of an attention, a bool over `b, h, q_idx, kv_idx`, come two bools over
//! `b, h, q_first, q_last, kv_first, kv_last`, where a tile is the queries `q_first..=q_last` and the keys
//! `kv_first..=kv_last`:
//!
//! * `some` is false only if the mask is false on the whole tile, which then is skipped;
//! * `all` is true only if the mask is true on the whole tile, which then needs no mask.
//!
//! Both are scalar expressions, so that the shader, the CPU and `explain` take the same answer from the same
//! text. They are the mask evaluated in interval arithmetic (Moore, Interval Analysis, 1966, chapter 2) on the
//! tiles of FlexAttention's `BlockMask` (arXiv:2412.05496, §4):
//!
//! ```
//! use attnc_ir::scalar::{BlockMask, ScalarBuilder};
//! use attnc_ir::{CompareOp, Dim, Extents};
//! let extents = Extents::new(["B", "H", "S", "S"].map(Dim::sym).to_vec());
//! let mut e = ScalarBuilder::new(extents.clone());
//! let (q_idx, kv_idx) = (e.index(2), e.index(3));
//! let causal = e.compare(CompareOp::Le, kv_idx, q_idx);
//! let tiles = BlockMask::of(&e.finish(causal), &extents);
//! assert_eq!(tiles.some.to_string(), "-d3 + d4 <= 0"); // kv_first <= q_last
//! assert_eq!(tiles.all.to_string(), "-d2 + d5 <= 0"); // kv_last <= q_first
//! ```
//!
//! On entry: a mask that does not read the score. On exit: never wrong, and where nothing is known (a load at
//! the query or key itself), `some` is true and `all` is false. Indices and lengths are taken not to wrap, as
//! everywhere. What [`reads_data`] names is better classified by looking.

mod fill;
mod interval;
mod length;
mod range;
mod truth;

pub use fill::{FILL, LiveKeys, live_keys};

use super::{ExprId, Scalar, ScalarBuilder, ScalarExpr};
use crate::{Atom, Attention, BinaryOp, Dim, Extents};
use interval::Intervals;

/// Index variables of a mask: query and key.
const QUERY: u32 = 2;
const KEY: u32 = 3;

/// What a mask does on a tile: see the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockMask {
    /// False only if the mask is false on the whole tile.
    pub some: ScalarExpr,
    /// True only if the mask is true on the whole tile.
    pub all: ScalarExpr,
}

impl BlockMask {
    /// The tiles of `mask`, whose index variables have the extents `B, H, M, N`.
    ///
    /// # Panics
    /// If `mask` is no bool.
    #[must_use]
    pub fn of(mask: &ScalarExpr, extents: &Extents) -> Self {
        // Simplified first: what was written out is seen as the polynomial it is.
        let mut e = ScalarBuilder::new(extents.clone());
        let indices = e.indices();
        let root = inline(&mut e, mask, &indices);
        let mask = e.finish(root);
        let mut intervals = Intervals::new(&mask, tile_extents(extents));
        let truth = intervals.truth(mask.root());
        Self {
            some: intervals.e.finish(truth.some),
            all: intervals.e.finish(truth.all),
        }
    }

    /// Whether a tile can be found to be empty.
    #[must_use]
    pub fn skips(&self) -> bool {
        *self.some.node(self.some.root()) != Scalar::Bool(true)
    }
}

/// `B, H, M, N` as the extents of `b, h, q_first, q_last, kv_first, kv_last`.
fn tile_extents(extents: &Extents) -> Extents {
    let [b, h, m, n] = extents.dims() else {
        panic!("an attention has four axes: {extents:?}");
    };
    Extents::new([b, h, m, m, n, n].map(Dim::clone).to_vec())
}

/// The keys of an attention that count.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// True where a key counts: bool over `b, h, q_idx, kv_idx`.
    pub mask: ScalarExpr,
    /// Set if a finite fill is why some do not: see [`LiveKeys::settled_above`].
    pub settled_above: Option<f32>,
}

impl Counted {
    /// What happens on tiles: `some` where a key may count, `all` where `mask_mod` need not be asked, since a
    /// score that is filled says so by itself.
    #[must_use]
    pub fn tiles(&self, attention: &Attention, extents: &Extents) -> BlockMask {
        let mut tiles = BlockMask::of(&self.mask, extents);
        if let (Some(mask), Some(_)) = (&attention.mask_mod, self.settled_above) {
            tiles.all = BlockMask::of(mask, extents).all;
        }
        tiles
    }
}

/// The keys that count in an attention: those of its `mask_mod` that its `score_mod` does not fill, where it is
/// `worth` knowing which ones it does. `None` if all count, as far as that.
#[must_use]
pub fn counted(
    attention: &Attention,
    extents: &Extents,
    worth: &dyn Fn(&ScalarExpr) -> bool,
) -> Option<Counted> {
    if !(attention.skips_absent_keys() && attention.weighs_before_sum()) {
        return None; // a key counts by its value even where its probability is 0, or is walked twice
    }
    let score_mod = attention.score_mod.as_ref();
    let fill = score_mod.and_then(|s| live_keys(s, extents));
    let fill = fill.filter(|fill| worth(&fill.mask));
    let settled_above = fill.as_ref().map(|fill| fill.settled_above);
    let mask = match (&attention.mask_mod, fill) {
        (None, None) => return None,
        (Some(mask), None) => mask.clone(),
        (None, Some(fill)) => fill.mask,
        (Some(mask), Some(fill)) => {
            let mut e = ScalarBuilder::new(extents.clone());
            let indices = e.indices();
            let [a, b] = [mask, &fill.mask].map(|m| inline(&mut e, m, &indices));
            let both = e.binary(BinaryOp::And, a, b);
            e.finish(both)
        }
    };
    Some(Counted {
        mask,
        settled_above,
    })
}

fn inline(e: &mut ScalarBuilder, expr: &ScalarExpr, indices: &[ExprId]) -> ExprId {
    e.inline(expr, indices, None, &mut |e, operand, dtype, index| {
        e.load(operand, dtype, index)
    })
}

/// Whether the mask reads data that differ from query to query and within tiles of `block` × `block`: then
/// intervals say nothing, and looking at every element once pays, since every layer and head gains by it.
///
/// Not so for data by key alone, as a padding mask: a key that no query sees costs its mask and nothing else.
/// Nor for an element that is the same on a whole tile (`table[q_idx / 64, kv_idx / 64]`), which is looked up.
#[must_use]
pub fn reads_data(mask: &ScalarExpr, block: i64) -> bool {
    let mut by_query = vec![false; mask.nodes().len()];
    let mut within = vec![false; mask.nodes().len()];
    let mut found = false;
    for id in mask.ids() {
        let node = mask.node(id);
        let at = id.index();
        if let Scalar::Int(dim) = node {
            by_query[at] = dim.indices().contains(&QUERY);
            within[at] = !whole_tiles(dim, block);
        }
        for operand in node.operands() {
            by_query[at] |= by_query[operand.index()];
            within[at] |= within[operand.index()];
        }
        found |= matches!(node, Scalar::Load { .. }) && by_query[at] && within[at];
    }
    found
}

/// Whether query and key occur only as `floordiv(q_idx, n * block)`, so that a tile has one value.
fn whole_tiles(dim: &Dim, block: i64) -> bool {
    let in_tile = |d: &Dim| d.indices().iter().any(|n| [QUERY, KEY].contains(n));
    dim.terms()
        .flat_map(|(_, mono)| mono)
        .all(|(atom, _)| match atom {
            Atom::Sym(_) => true,
            Atom::Index(n) => ![QUERY, KEY].contains(n),
            Atom::FloorDiv(a, b) => {
                let aligned =
                    a.as_index().is_some() && b.as_const().is_some_and(|n| n % block == 0);
                aligned || !in_tile(a) && !in_tile(b)
            }
            Atom::Max(a, b) | Atom::Min(a, b) => whole_tiles(a, block) && whole_tiles(b, block),
        })
}
