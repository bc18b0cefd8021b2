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
use attnc_plan::DeviceProfile;

/// Turns that scaling O takes beyond those of the walk, for each row of a tile: eight times two. A row that needs more
/// has scores over a range of more than 64.
const RESCALING: u32 = 16;

/// Turns of a run of tiles beyond those of its tiles: its own, and those in which the loops over its keys, over what is
/// skipped before it and over its tiles end.
const RUN: u32 = 4;

/// Runs of a band: its full tiles, and those on either side.
const FEW_RUNS: u32 = 3;

/// Columns, or keys, that `flash_attention_fwd_tiled` has in workgroup memory at a time.
const SLICE: u32 = 16;

/// Keys that `flash_attention_fwd_matrix` has in workgroup memory at a time, and columns of V it multiplies at once.
const KEYS: u32 = 32;

/// The turns of one invocation.
pub(super) struct Turns {
    /// As far as lengths tell, and what is allowed for.
    pub(super) foreseen: Dim,
    /// Where data make the most of it: O is scaled at every turn of a walk, which takes two more, and each row is walked
    /// by itself.
    pub(super) at_worst: Dim,
}

/// The turns on a device of this profile.
pub(super) fn of_attention(
    kernel: &AttentionKernel,
    sizes: &Sizes,
    tiles: &Tiles,
    profile: &DeviceProfile,
) -> Turns {
    let (kernel, kv_len) = match kernel {
        AttentionKernel::Split(of, keys) => (&**of, Dim::from(i64::from(*keys))),
        whole => (whole, sizes.kv_len.clone()),
    };
    let blocks = |rows, keys| Blocks { rows, keys };
    // What each tile of keys that is walked takes beyond the turn that finds it, and what all the rest takes.
    let (blocks, each, around) = match kernel {
        AttentionKernel::Rows(tile) if tile.walk().is_none() => {
            let foreseen = two_walks(tile, &kv_len);
            let at_worst = foreseen.clone();
            return Turns { foreseen, at_worst };
        }
        AttentionKernel::Rows(tile) => {
            let each = loop_of(BLOCK, dots(tile));
            (blocks(BLOCK, BLOCK), each, 2 * loop_of(tile.rows, 0))
        }
        AttentionKernel::Subgroup(tile) => {
            let of_run = if tiles.are_in_few_runs() { 0 } else { RUN };
            let around = 1 + RESCALING * tile.rows() + 2 * FEW_RUNS * RUN;
            let each = BLOCK / 4 / tile.keys + of_run;
            (blocks(tile.rows(), BLOCK / 2), each, around)
        }
        AttentionKernel::Tiled(tile) => {
            let around = loop_of(LANES, 0) + loop_of(4, 0);
            (blocks(BLOCK, BLOCK), tiled(tile), around)
        }
        AttentionKernel::Matrix(tile) => (
            blocks(BLOCK, BLOCK),
            matrix(tile, profile),
            matrix_around(tile),
        ),
        AttentionKernel::Split(..) => unreachable!("parts have no parts"),
    };
    let all = div_ceil(&kv_len, blocks.keys);
    let walk = |walked: &Dim| {
        let tiles = all.clone() + walked.clone() * Dim::from(i64::from(each));
        tiles + Dim::from(2)
    };
    let first = walk(&tiles.walked(&all, &blocks));
    let again = match tiles.settled_above {
        Some(_) => walk(&all),
        None => Dim::zero(),
    };
    let more = match kernel {
        AttentionKernel::Subgroup(tile) if tile.masked => 2 + tile.rows(),
        AttentionKernel::Subgroup(_) => 2,
        _ => 0,
    };
    let walks = first + again;
    let foreseen = walks.clone() + Dim::from(i64::from(around));
    let at_worst = foreseen.clone() + walks * Dim::from(i64::from(more));
    Turns { foreseen, at_worst }
}

/// Queries and keys of what is skipped as a whole.
struct Blocks {
    rows: u32,
    keys: u32,
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

/// What a tile takes in `flash_attention_fwd_matrix`.
fn matrix(tile: &MatrixAttentionTile, profile: &DeviceProfile) -> u32 {
    let (size, by_element) = (tile.invocations(), loop_of(4, 0));
    let (qk, v) = (tile.qk_padded(), tile.chunks() * KEYS);
    let stage = |columns: u32| loop_of((KEYS * columns / 4).div_ceil(size), by_element);
    // Subgroups share the products, as many as there are at least.
    let widest = profile.features.subgroups.map_or(size, |sizes| sizes.max);
    let pairs = tile.rows() / (2 * tile.size) * (KEYS / tile.size);
    let pairs = pairs.div_ceil((size / widest).max(1));
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

impl Tiles {
    /// Tiles of keys that a tile of queries walks at most, of `all` that there are.
    fn walked(&self, all: &Dim, blocks: &Blocks) -> Dim {
        let Some(Band {
            after: Some(after),
            before: Some(before),
            ..
        }) = self.band()
        else {
            return all.clone();
        };
        // First keys of tiles from one tile and what the window has before it, to the last row and as much behind it.
        let keys = after + before + Dim::from(i64::from(blocks.rows + blocks.keys) - 2);
        let none = Extents::none();
        let most = keys.floor_div(&Dim::from(i64::from(blocks.keys)), &none) + Dim::one();
        most.maximum(&Dim::zero(), &none).minimum(all, &none)
    }

    /// Whether at most [`FEW_RUNS`] runs of tiles are walked: where nothing is skipped, or nothing but a band is left,
    /// whose full tiles have some that are not full on either side.
    fn are_in_few_runs(&self) -> bool {
        match &self.skipping {
            Skipping::None => true,
            Skipping::Intervals(_) => self.band().is_some_and(|band| band.is_all),
            Skipping::Table(_) => false,
        }
    }

    fn band(&self) -> Option<Band> {
        match &self.skipping {
            Skipping::Intervals(found) => Some(Band::of(&found.some)),
            Skipping::None | Skipping::Table(_) => None,
        }
    }
}

/// The keys that a query may see, as far as a mask bounds them by where the query is.
struct Band {
    /// `a`, where `kv_first <= q_last + a` is asked for.
    after: Option<Dim>,
    /// `b`, where `q_first - b <= kv_last` is.
    before: Option<Dim>,
    /// Whether nothing else is asked for.
    is_all: bool,
}

impl Band {
    /// The band that `some` of a mask's tiles asks for.
    fn of(some: &ScalarExpr) -> Self {
        let mut band = Self {
            after: None,
            before: None,
            is_all: true,
        };
        let [q_first, q_last, kv_first, kv_last] = [2, 3, 4, 5].map(Dim::index);
        let mut conjuncts = vec![some.root()];
        while let Some(id) = conjuncts.pop() {
            let at_most_0 = match some.node(id) {
                Scalar::Binary(BinaryOp::And, a, b) => {
                    conjuncts.extend([*a, *b]);
                    continue;
                }
                Scalar::Compare(op, a, b) => at_most_zero(some, *op, *a, *b),
                _ => None,
            };
            let bound = |from: &Dim, to: &Dim| {
                let rest = at_most_0.clone()? - from.clone() + to.clone();
                rest.indices().is_empty().then(|| Dim::zero() - rest)
            };
            match (bound(&kv_first, &q_last), bound(&q_first, &kv_last)) {
                (Some(after), _) => band.after = Some(after),
                (None, Some(before)) => band.before = Some(before),
                (None, None) => band.is_all = false,
            }
        }
        band
    }
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
