//! How many turns the loops of an attention's kernels take ([`super::turns`]).
//!
//! A tile that is skipped takes a turn, and one for each loop that it would have had, so what counts is how many tiles
//! are walked at most: all of them, or, under a window, those that it reaches from anywhere. Two things only data tell.
//! Where keys are skipped by a finite fill, rows may be walked again in full, and that is counted.
//! `flash_attention_fwd_subgroup` may have to scale O many times, and to walk rows one by one beside an infinity or NaN
//! of V; of these some are allowed for, and the kernel gives NaN for rows whose keys it has not all seen.
//!
//! On entry: the kernel and what is known about its tiles. On exit: turns as an expression over the lengths.

use super::attention_kernel::AttentionKernel;
use super::attention_problem::Sizes;
use super::blocks::{Skipping, Tiles};
use super::div_ceil;
use super::turns::{Turns, loop_of, number};
use crate::micro::{
    AttentionTile, LANES, MatrixAttentionTile, READ_COLUMNS, SubgroupAttentionTile,
    TiledAttentionTile,
};
use crate::params::BLOCK;
use attnc_ir::scalar::{ExprId, Scalar, ScalarExpr};
use attnc_ir::{BinaryOp, CompareOp, Dim, Extents};
use attnc_plan::DeviceProfile;

/// Turns that scaling O takes beyond those of the walk, for each row of a tile: four times four. A row that needs more
/// has scores over a range of more than 32.
const RESCALING: u32 = 16;

/// Turns that scaling O once takes: of the loop over keys that is left, of that over runs, and of the two that look for
/// the next run, which no lane takes part in.
const RESCALED: u32 = 4;

/// Turns of a run of tiles beyond those of its tiles: its own, and those in which the loops over its keys, over what is
/// skipped before it and over its tiles end.
const RUN: u32 = 4;

/// Runs of a band: its full tiles, and those on either side.
const FEW_RUNS: u32 = 3;

/// Turns of a walk of a subgroup beyond those of its runs: its own, those in which the loops end that look for the first
/// run, and the last of the loop over runs with what is in it.
const WALK: u32 = 1 + 2 + 4;

/// Columns, or keys, that `flash_attention_fwd_tiled` has in workgroup memory at a time.
const SLICE: u32 = 16;

/// Keys that `flash_attention_fwd_matrix` has in workgroup memory at a time, and columns of V it multiplies at once.
const KEYS: u32 = 32;

/// The turns of one invocation.
pub(super) struct AttentionTurns {
    /// As far as lengths tell, and what is allowed for.
    pub(super) foreseen: Dim,
    /// Where data make the most of it: O is scaled at every turn of a walk, or each row is walked by itself.
    pub(super) at_worst: Turns,
}

/// The turns on a device of this profile.
pub(super) fn of_attention(
    kernel: &AttentionKernel,
    sizes: &Sizes,
    tiles: &Tiles,
    profile: &DeviceProfile,
) -> AttentionTurns {
    let (kernel, kv_len) = match kernel {
        AttentionKernel::Split(of, keys) => (&**of, number(*keys)),
        whole => (whole, sizes.kv_len.clone()),
    };
    let walks = |tile: &Turns, rows| tiles.walks(&kv_len, &Blocks { rows, keys: BLOCK }, tile);
    let turns = match kernel {
        AttentionKernel::Subgroup(tile) => return of_subgroup(tile, &kv_len, tiles),
        AttentionKernel::Rows(tile) => {
            let rows = loop_of(tile.rows).then(&loop_of(tile.rows));
            let walks = match tile.walk() {
                Some(_) => walks(&dots(tile).times(BLOCK), BLOCK),
                None => {
                    let walk = dots(tile).repeated(&kv_len);
                    walk.then(&walk)
                }
            };
            walks.then(&rows)
        }
        AttentionKernel::Tiled(tile) => walks(&tiled(tile), BLOCK)
            .then(&loop_of(LANES))
            .then(&loop_of(4)),
        AttentionKernel::Matrix(tile) => {
            walks(&matrix(tile, profile), BLOCK).then(&matrix_around(tile))
        }
        AttentionKernel::Split(..) => unreachable!("parts have no parts"),
    };
    AttentionTurns {
        foreseen: turns.taken.clone(),
        at_worst: turns,
    }
}

/// Queries and keys of what is skipped as a whole.
struct Blocks {
    rows: u32,
    keys: u32,
}

/// The turns of `flash_attention_fwd_subgroup`, which walks runs of tiles of half a block of keys.
fn of_subgroup(tile: &SubgroupAttentionTile, kv_len: &Dim, tiles: &Tiles) -> AttentionTurns {
    let rows = tile.rows();
    let blocks = Blocks {
        rows,
        keys: BLOCK / 2,
    };
    let of_run = if tiles.are_in_few_runs() { 0 } else { RUN };
    let each = number(BLOCK / 4 / tile.keys + of_run);
    let all = div_ceil(kv_len, blocks.keys);
    let around = number(WALK + FEW_RUNS * RUN);
    // A tile takes a turn to be found, and those of its keys if it is walked.
    let walk = |walked: &Dim| all.clone() + walked.clone() * each.clone() + around.clone();
    let first = walk(&tiles.walked(&all, &blocks));
    let again = match tiles.settled_above {
        Some(_) => walk(&all),
        None => Dim::zero(),
    };
    let walks = first + again;
    // The last turn of the loop over walks, with what a walk has.
    let idle = WALK;
    let foreseen = walks.clone() + number(idle + RESCALING * rows);
    let one_by_one = if tile.masked { rows } else { 0 };
    AttentionTurns {
        at_worst: Turns {
            taken: foreseen.clone() + walks * number(RESCALED + one_by_one),
            idle,
        },
        foreseen,
    }
}

/// Turns of the product of a key with rows that are too wide to be held.
fn dots(tile: &AttentionTile) -> Turns {
    if tile.holds_q() {
        Turns::none()
    } else {
        loop_of(tile.qk_dim / READ_COLUMNS)
    }
}

/// What a tile takes in `flash_attention_fwd_tiled`.
fn tiled(tile: &TiledAttentionTile) -> Turns {
    let size = tile.invocations();
    let stage_q = loop_of((tile.quads * SLICE / 4).div_ceil(size));
    let stage_k = loop_of((BLOCK * SLICE / 4).div_ceil(size));
    let stage_v = loop_of((SLICE * tile.chunks() * LANES).div_ceil(size));
    let products = stage_q.then(&stage_k).then(&loop_of(SLICE / 4));
    let weights = loop_of(SLICE / LANES).then(&stage_v);
    // Of the two products with V one is not computed.
    let weights = weights.then(&loop_of(SLICE)).then(&loop_of(0));
    let maximum = loop_of(BLOCK / LANES).then(&loop_of(LANES));
    let scores = products.times(tile.of.qk_dim.div_ceil(SLICE));
    scores.then(&maximum).then(&weights.times(BLOCK / SLICE))
}

/// What a tile takes in `flash_attention_fwd_matrix`.
fn matrix(tile: &MatrixAttentionTile, profile: &DeviceProfile) -> Turns {
    let (size, by_element) = (tile.invocations(), loop_of(4));
    let (qk, v) = (tile.qk_padded(), tile.chunks() * KEYS);
    let stage = |columns: u32| by_element.times((KEYS * columns / 4).div_ceil(size));
    // Subgroups share the products, as many as there are at least.
    let widest = profile.features.subgroups.map_or(size, |sizes| sizes.max);
    let pairs = tile.rows() / (2 * tile.size) * (KEYS / tile.size);
    let pairs = pairs.div_ceil((size / widest).max(1));
    let product = |terms: u32| loop_of(terms / tile.size).times(pairs);
    let own = by_element.times(KEYS / LANES);
    let scores = own.then(&loop_of(LANES)).then(&own);
    let odd = match tile.of.masked {
        true => loop_of(KEYS),
        false => Turns::none(),
    };
    let products = (0..tile.chunks()).fold(Turns::none(), |t, _| t.then(&product(KEYS)));
    let values = stage(v).then(&products).then(&odd);
    let all = stage(qk).then(&product(qk)).then(&scores).then(&values);
    all.times(BLOCK / KEYS)
}

fn matrix_around(tile: &MatrixAttentionTile) -> Turns {
    let items = tile.rows() * tile.qk_padded() / 4;
    let staged = loop_of(4).times(items.div_ceil(tile.invocations()));
    staged.then(&loop_of(LANES)).then(&loop_of(4))
}

impl Tiles {
    /// One walk over all tiles of keys, or two where rows may have to be walked again, of tiles that take so many turns.
    fn walks(&self, kv_len: &Dim, blocks: &Blocks, tile: &Turns) -> Turns {
        let all = div_ceil(kv_len, blocks.keys);
        let first = tile.skipping(&all, &self.walked(&all, blocks));
        // The loop over walks takes a turn for each; it ends without a test.
        match self.settled_above {
            Some(_) => first.then(&tile.repeated(&all)).then(&loop_of(1)),
            None => first.then(&loop_of(0)),
        }
    }

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
        let keys = after + before + number(blocks.rows + blocks.keys - 2);
        let none = Extents::none();
        let most = keys.floor_div(&number(blocks.keys), &none) + Dim::one();
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
    fn a_window_bounds_what_is_walked_and_the_rest_is_two_turns_a_tile() {
        let (all, far) = (
            turns("", 64 * TILES),
            turns(", mask_mod = { kv_idx <= q_idx }", 64 * TILES),
        );
        assert_eq!((all, far), (66 * TILES + 13, 66 * TILES + 13));
        for window in [
            "kv_idx <= q_idx & q_idx - kv_idx < 256",
            "q_idx >= kv_idx & kv_idx > q_idx - 256",
            "q_idx - kv_idx < 200 & kv_idx - q_idx < 56",
        ] {
            let mask = format!(", mask_mod = {{ {window} }}");
            // Of 255 keys before a tile of 64, and the tile: first keys of tiles lie in (255 + 126) / 64 + 1.
            assert_eq!(
                turns(&mask, 64 * TILES),
                2 * TILES + 6 * 64 + 13,
                "{window}"
            );
            assert_eq!(turns(&mask, 64), 66 + 13, "{window}");
        }
    }

    #[test]
    fn what_a_fill_skips_may_be_walked_again() {
        let fill = ", score_mod = { score + select(kv_idx <= q_idx, 0.0, -3.4028234663852886e38) }";
        assert_eq!(turns(fill, 64 * TILES), 2 * (66 * TILES + 2) + 12);
    }

    #[test]
    fn what_is_no_window_is_walked_whole() {
        for mask in [
            "kv_idx <= q_idx | q_idx - kv_idx < 256",
            "q_idx - kv_idx < 256",
        ] {
            let mask = format!(", mask_mod = {{ {mask} }}");
            assert_eq!(turns(&mask, 64 * TILES), 66 * TILES + 13, "{mask}");
        }
    }
}
