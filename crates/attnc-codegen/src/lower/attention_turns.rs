//! How many turns the loops of an attention's kernels take ([`super::turns`]).
//!
//! A tile that is skipped counts one turn, so what counts is how many tiles are walked at most: all of them, or, under
//! a window, those that it reaches from anywhere. Two things only data tell. Where keys are skipped by a finite fill,
//! rows may be walked again in full, and that is counted. `flash_attention_fwd_subgroup` may have to scale O many
//! times, and to walk rows one by one beside an infinity or NaN of V; of these some are allowed for, and the kernel
//! gives NaN for rows whose keys it has not all seen.
//!
//! On entry: the kernel and what is known about its tiles. On exit: turns as an expression over the lengths.

use super::attention_kernel::AttentionKernel;
use super::attention_problem::Sizes;
use super::blocks::{Skipping, Tiles};
use super::div_ceil;
use super::turns::{loop_of, looped};
use crate::micro::{AttentionTile, LANES, MatrixAttentionTile, READ_COLUMNS, TiledAttentionTile};
use crate::params::BLOCK;
use attnc_ir::scalar::{ExprId, Scalar, ScalarExpr};
use attnc_ir::{BinaryOp, CompareOp, Dim, Extents};

/// Turns that scaling O takes beyond those of the walk, for each row of a tile: eight times two. A row that needs more
/// has scores over a range of more than 64.
const RESCALING: u32 = 16;

/// Columns, or keys, that `flash_attention_fwd_tiled` has in workgroup memory at a time.
const SLICE: u32 = 16;

/// Keys that `flash_attention_fwd_matrix` has in workgroup memory at a time, and columns of V it multiplies at once.
const KEYS: u32 = 32;

/// The turns of one invocation.
pub(super) fn of_attention(kernel: &AttentionKernel, sizes: &Sizes, tiles: &Tiles) -> Dim {
    let (kernel, kv_len) = match kernel {
        AttentionKernel::Split(of, keys) => (&**of, Dim::from(i64::from(*keys))),
        whole => (whole, sizes.kv_len.clone()),
    };
    let blocks = div_ceil(&kv_len, BLOCK);
    // What each tile that is walked takes, beyond the turn that finds it; and what the rest takes.
    let (each, around) = match kernel {
        AttentionKernel::Rows(tile) if tile.walk().is_none() => return two_walks(tile, &kv_len),
        AttentionKernel::Rows(tile) => (loop_of(BLOCK, dots(tile)), 2 * loop_of(tile.rows, 0)),
        AttentionKernel::Subgroup(tile) => (1 + loop_of(BLOCK / 2, 0), 1 + RESCALING * tile.rows()),
        AttentionKernel::Tiled(tile) => (tiled(tile), loop_of(LANES, 0) + loop_of(4, 0)),
        AttentionKernel::Matrix(tile) => (matrix(tile), matrix_around(tile)),
        AttentionKernel::Split(..) => unreachable!("parts have no parts"),
    };
    let walk = |walked: &Dim| {
        let tiles = blocks.clone() + walked.clone() * Dim::from(i64::from(each));
        tiles + Dim::from(2)
    };
    let first = walk(&walked(&blocks, tiles));
    let again = match tiles.settled_above {
        Some(_) => walk(&blocks),
        None => Dim::zero(),
    };
    first + again + Dim::from(i64::from(around))
}

/// Turns of the product of a key with rows that are too wide to be held.
fn dots(tile: &AttentionTile) -> u32 {
    if tile.holds_q() {
        0
    } else {
        loop_of(tile.qk_dim / READ_COLUMNS, 0)
    }
}

fn two_walks(tile: &AttentionTile, kv_len: &Dim) -> Dim {
    let walk = looped(kv_len, dots(tile));
    walk.clone() + walk + Dim::from(i64::from(2 * loop_of(tile.rows, 0)))
}

/// What a tile takes in `flash_attention_fwd_tiled`.
fn tiled(tile: &TiledAttentionTile) -> u32 {
    let size = tile.invocations();
    let stage_q = loop_of((tile.quads * SLICE / 4).div_ceil(size), 0);
    let stage_k = loop_of((BLOCK * SLICE / 4).div_ceil(size), 0);
    let stage_v = loop_of((SLICE * tile.chunks() * LANES).div_ceil(size), 0);
    let products = stage_q + stage_k + loop_of(SLICE / 4, 0);
    let weights = loop_of(SLICE / LANES, 0) + stage_v + loop_of(SLICE, 0);
    let slices = tile.of.qk_dim.div_ceil(SLICE);
    let maximum = loop_of(BLOCK / LANES, 0) + loop_of(LANES, 0);
    loop_of(slices, products) + maximum + loop_of(BLOCK / SLICE, weights)
}

/// What a tile takes in `flash_attention_fwd_matrix`, V without infinities or NaN and whole subgroups of any size.
fn matrix(tile: &MatrixAttentionTile) -> u32 {
    let (size, by_element) = (tile.invocations(), loop_of(4, 0));
    let (qk, v) = (tile.qk_padded(), tile.chunks() * KEYS);
    let stage = |columns: u32| loop_of((KEYS * columns / 4).div_ceil(size), by_element);
    // One subgroup may have all products, or as many as there are share them.
    let pairs = tile.rows() / (2 * tile.size) * (KEYS / tile.size);
    let product = |terms: u32| loop_of(pairs, loop_of(terms / tile.size, 0));
    let scores = 2 * loop_of(KEYS / LANES, by_element) + loop_of(LANES, 0);
    let odd = if tile.of.masked { loop_of(KEYS, 0) } else { 0 };
    let values = stage(v) + tile.chunks() * product(KEYS) + odd;
    loop_of(BLOCK / KEYS, stage(qk) + product(qk) + scores + values)
}

fn matrix_around(tile: &MatrixAttentionTile) -> u32 {
    let items = tile.rows() * tile.qk_padded() / 4;
    loop_of(items.div_ceil(tile.invocations()), loop_of(4, 0)) + loop_of(LANES, 0) + loop_of(4, 0)
}

/// Tiles of keys that a tile of queries walks at most.
fn walked(blocks: &Dim, tiles: &Tiles) -> Dim {
    let Skipping::Intervals(found) = &tiles.skipping else {
        return blocks.clone();
    };
    match reach(&found.some) {
        Some(reach) => {
            // First keys of tiles from one tile and what the window has before it, to as much behind it.
            let keys = reach + Dim::from(2 * (i64::from(BLOCK) - 1));
            let none = Extents::none();
            let block = Dim::from(i64::from(BLOCK));
            let most = keys.floor_div(&block, &none) + Dim::one();
            most.maximum(&Dim::zero(), &none).minimum(blocks, &none)
        }
        None => blocks.clone(),
    }
}

/// How far apart the first and the last key that a query sees can be, if `some` of a mask's tiles bounds it: the sum
/// of `a` and `b` where it asks for `kv_first <= q_last + a` and `q_first - b <= kv_last`.
fn reach(some: &ScalarExpr) -> Option<Dim> {
    let (mut after, mut before) = (None, None);
    let mut conjuncts = vec![some.root()];
    while let Some(id) = conjuncts.pop() {
        match some.node(id) {
            Scalar::Binary(BinaryOp::And, a, b) => conjuncts.extend([*a, *b]),
            Scalar::Compare(op, a, b) => {
                let at_most_0 = at_most_zero(some, *op, *a, *b);
                let [q_first, q_last, kv_first, kv_last] = [2, 3, 4, 5].map(Dim::index);
                let bound = |from: Dim, to: Dim| {
                    let rest = at_most_0.clone()? - from + to;
                    rest.indices().is_empty().then(|| Dim::zero() - rest)
                };
                after = after.or_else(|| bound(kv_first, q_last));
                before = before.or_else(|| bound(q_first, kv_last));
            }
            _ => {}
        }
    }
    Some(after? + before?)
}

/// What a comparison of integers says to be at most 0.
fn at_most_zero(expr: &ScalarExpr, op: CompareOp, a: ExprId, b: ExprId) -> Option<Dim> {
    let (Scalar::Int(a), Scalar::Int(b)) = (expr.node(a), expr.node(b)) else {
        return None;
    };
    let [less, more] = [a.clone() - b.clone(), b.clone() - a.clone()];
    match op {
        CompareOp::Le => Some(less),
        CompareOp::Lt => Some(less + Dim::one()),
        CompareOp::Ge => Some(more),
        CompareOp::Gt => Some(more + Dim::one()),
        CompareOp::Eq | CompareOp::Ne => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::lower;
    use attnc_ir::text::parse;
    use attnc_plan::DeviceProfile;

    /// The turns that a plan says an attention over `S` keys takes, under the rows kernel.
    fn turns(mask: &str, s: i64) -> i64 {
        let text = format!(
            "graph @g(%q: f32[1, 1, S, 8], %k: f32[1, 1, S, 8], %v: f32[1, 1, S, 8]) {{
  %o = attention %q, %k, %v, scale = 1.0{mask}
  return %o
}}"
        );
        let graph = parse(&text).unwrap();
        let choices = crate::choice::Choices::forced(crate::choice::KernelShape::Rows);
        let lowered = lower::lower_with(&graph, &DeviceProfile::webgpu(), &choices).unwrap();
        let dims = attnc_plan::DimValues::from([("S", s)]);
        dims.eval(&lowered.plan.steps[0].turns).unwrap()
    }

    const TILES: i64 = 1 << 16;

    #[test]
    fn a_window_bounds_what_is_walked_and_the_rest_is_one_turn_a_tile() {
        let (all, far) = (
            turns("", 64 * TILES),
            turns(", mask_mod = { kv_idx <= q_idx }", 64 * TILES),
        );
        assert_eq!((all, far), (66 * TILES + 12, 66 * TILES + 12));
        for window in [
            "kv_idx <= q_idx & q_idx - kv_idx < 256",
            "q_idx >= kv_idx & kv_idx > q_idx - 256",
            "q_idx - kv_idx < 200 & kv_idx - q_idx < 56",
        ] {
            let mask = format!(", mask_mod = {{ {window} }}");
            // Of 255 keys before a tile of 64, and the tile: first keys of tiles lie in (255 + 126) / 64 + 1.
            assert_eq!(turns(&mask, 64 * TILES), TILES + 6 * 65 + 12, "{window}");
            assert_eq!(turns(&mask, 64), 66 + 12, "{window}");
        }
    }

    #[test]
    fn what_a_fill_skips_may_be_walked_again() {
        let fill = ", score_mod = { score + select(kv_idx <= q_idx, 0.0, -3.4028234663852886e38) }";
        assert_eq!(turns(fill, 64 * TILES), 2 * (66 * TILES + 2) + 10);
    }

    #[test]
    fn what_is_no_window_is_walked_whole() {
        for mask in [
            "kv_idx <= q_idx | q_idx - kv_idx < 256",
            "q_idx - kv_idx < 256",
        ] {
            let mask = format!(", mask_mod = {{ {mask} }}");
            assert_eq!(turns(&mask, 64 * TILES), 66 * TILES + 12, "{mask}");
        }
    }
}
