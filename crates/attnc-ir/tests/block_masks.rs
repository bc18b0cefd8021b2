//! Block masks against the mask itself, element by element: never wrong, and exact for the masks of the field.

use attnc_ir::scalar::block_mask::{BlockMask, reads_data};
use attnc_ir::scalar::eval::Env;
use attnc_ir::scalar::{ExprId, ScalarBuilder, ScalarExpr};
use attnc_ir::{BinaryOp, CompareOp, DType, Dim, Extents, Op, UnaryOp};
use proptest::prelude::*;

/// Lengths and tables of one run.
struct Run {
    queries: i64,
    keys: i64,
    /// Length `P`.
    past: i64,
    data: u64,
}

impl Run {
    /// Operand 3 holds small integers, 4 bools, 5 floats with every oddity, whatever the index.
    fn load(&self, operand: usize, index: &[i64]) -> f64 {
        let mixed = index.iter().fold(self.data + operand as u64, |h, &i| {
            (h ^ i.unsigned_abs())
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        });
        match operand {
            3 => (mixed % 40) as f64,
            4 => (mixed % 2) as f64,
            _ => [0.0, -3.5, 7.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY][(mixed % 6) as usize],
        }
    }

    fn eval(&self, expr: &ScalarExpr, index: &[i64]) -> bool {
        let lengths = |name: &str| match name {
            "M" => Some(self.queries),
            "N" => Some(self.keys),
            "P" => Some(self.past),
            _ => Some(2),
        };
        let load = |operand: usize, index: &[i64]| Some(self.load(operand, index));
        let env = Env {
            index,
            arg: 0.0,
            length: &lengths,
            load: &load,
        };
        expr.eval(&env).unwrap() != 0.0
    }

    /// Calls `check` with what the mask does on each tile of `m` by `n` and what is derived.
    fn tiles(
        &self,
        mask: &ScalarExpr,
        [m, n]: [i64; 2],
        mut check: impl FnMut([i64; 4], Tile, Tile),
    ) {
        let tiles = BlockMask::of(mask, &extents());
        for q_first in (0..self.queries).step_by(m as usize) {
            for kv_first in (0..self.keys).step_by(n as usize) {
                let (q_last, kv_last) = (
                    (q_first + m).min(self.queries) - 1,
                    (kv_first + n).min(self.keys) - 1,
                );
                let element = |q, kv| self.eval(mask, &[1, 1, q, kv]);
                let mut elements =
                    (q_first..=q_last).flat_map(|q| (kv_first..=kv_last).map(move |kv| (q, kv)));
                let true_ = Tile {
                    some: elements.clone().any(|(q, kv)| element(q, kv)),
                    all: elements.all(|(q, kv)| element(q, kv)),
                };
                let at = [1, 1, q_first, q_last, kv_first, kv_last];
                let derived = Tile {
                    some: self.eval(&tiles.some, &at),
                    all: self.eval(&tiles.all, &at),
                };
                check([q_first, q_last, kv_first, kv_last], true_, derived);
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Tile {
    some: bool,
    all: bool,
}

fn extents() -> Extents {
    Extents::new(["B", "H", "M", "N"].map(Dim::sym).to_vec())
}

/// A `mask_mod` in text form; operands are %i: i32[N], %t: bool[N, N], %f: f32[N].
fn mask(text: &str) -> ScalarExpr {
    let graph = format!(
        "graph @g(%q: f32[B, H, M, 4], %k: f32[B, H, N, 4], %i: i32[N], %t: bool[N, N], %f: f32[N], %p: i32[P]) {{
  %o = attention %q, %k, %k, %i, %t, %f, scale = 1.0, mask_mod = {{ {text} }}
  return %o
}}"
    );
    let graph = attnc_ir::text::parse(&graph).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    let node = graph.node(graph.outputs()[0].1);
    match &node.op {
        Op::Attention(attention) => attention.mask_mod.clone().unwrap(),
        op => panic!("{op:?}"),
    }
}

const LENGTHS: [(i64, i64); 4] = [(1, 1), (16, 16), (37, 37), (13, 45)];

fn exact(text: &str) {
    let mask = mask(text);
    for (queries, keys) in LENGTHS {
        let run = Run {
            queries,
            keys,
            past: keys - queries,
            data: 7,
        };
        for tile in [[1, 1], [4, 8], [8, 4], [16, 16]] {
            run.tiles(&mask, tile, |at, wanted, derived| {
                assert_eq!(derived, wanted, "{text} on {at:?} of {queries} x {keys}");
            });
        }
    }
}

#[test]
fn causal_masks_are_exact_in_both_corners() {
    exact("kv_idx <= q_idx");
    exact("kv_idx <= q_idx + N - M");
    exact("kv_idx <= q_idx + P");
    exact("not(kv_idx > q_idx)");
    exact("f32(kv_idx) <= f32(q_idx)");
}

#[test]
fn windows_and_prefixes_are_exact() {
    exact("kv_idx <= q_idx & q_idx - kv_idx < 5");
    exact("abs(q_idx - kv_idx) <= 3");
    exact("kv_idx < 6");
    exact("q_idx >= 4 & kv_idx < 6");
    exact("kv_idx < %i[b]");
}

/// Where two parts of a mask meet in a tile, the tile may be full without either part filling it.
fn empty_is_exact(text: &str) {
    let mask = mask(text);
    for (queries, keys) in LENGTHS {
        let run = Run {
            queries,
            keys,
            past: keys - queries,
            data: 7,
        };
        for tile in [[4, 8], [8, 4], [8, 8]] {
            run.tiles(&mask, tile, |at, wanted, derived| {
                assert_eq!(
                    derived.some, wanted.some,
                    "{text} on {at:?} of {queries} x {keys}"
                );
                assert!(wanted.all || !derived.all, "{text} on {at:?}");
            });
        }
    }
}

#[test]
fn joined_masks_are_exact_about_empty_tiles() {
    empty_is_exact("kv_idx < 6 | kv_idx <= q_idx");
    empty_is_exact("abs(q_idx - kv_idx) <= 3 | kv_idx < 2 | q_idx < 2");
    empty_is_exact("kv_idx < %i[b] & kv_idx <= q_idx");
}

#[test]
fn masks_by_blocks_are_exact_on_aligned_tiles() {
    let local = "abs(floordiv(q_idx, 8) - floordiv(kv_idx, 8)) <= 1";
    let global = "floordiv(q_idx, 8) == 0 | floordiv(kv_idx, 8) == 0";
    let random = "floordiv(kv_idx, 8) == %i[floordiv(q_idx, 8)] | %t[floordiv(q_idx, 8), floordiv(kv_idx, 8)]";
    let text = format!("{local} | {global} | {random}");
    let mask = mask(&text);
    assert!(!reads_data(&mask, 8) && reads_data(&mask, 16));
    let run = Run {
        queries: 61,
        keys: 61,
        past: 0,
        data: 3,
    };
    for tile in [[8, 8], [4, 8], [2, 2]] {
        run.tiles(&mask, tile, |at, wanted, derived| {
            assert_eq!(derived, wanted, "{at:?}");
        });
    }
}

#[test]
fn shifted_windows_are_exact_where_a_tile_lies_in_a_window() {
    // Windows of 16 in a ring shifted by 8, whose two halves do not see each other.
    exact_on(
        "floordiv(q_idx, 16) == floordiv(kv_idx, 16) & (mod(q_idx, 16) < 8) == (mod(kv_idx, 16) < 8)",
        [8, 8],
    );
    exact_on("mod(q_idx, 16) == mod(kv_idx, 16)", [1, 4]);
}

fn exact_on(text: &str, tile: [i64; 2]) {
    let run = Run {
        queries: 45,
        keys: 50,
        past: 0,
        data: 3,
    };
    run.tiles(&mask(text), tile, |at, wanted, derived| {
        assert_eq!(derived, wanted, "{text} {at:?}");
    });
}

#[test]
fn data_by_query_is_for_looking_at() {
    assert!(reads_data(&mask("%i[q_idx] == %i[kv_idx]"), 64));
    assert!(reads_data(&mask("%t[q_idx, kv_idx] & kv_idx <= q_idx"), 64));
    assert!(reads_data(&mask("%i[%i[q_idx]] == 1"), 64));
    assert!(!reads_data(&mask("kv_idx < %i[b] & kv_idx <= q_idx"), 64));
    assert!(!reads_data(&mask("%i[kv_idx] != 0"), 64), "by key alone");
    assert!(!reads_data(
        &mask("%t[floordiv(q_idx, 128), floordiv(kv_idx, 64)]"),
        64
    ));
    assert!(reads_data(
        &mask("%t[floordiv(q_idx + 1, 128), floordiv(kv_idx, 64)]"),
        64
    ));
}

/// A source of decisions that proptest can shrink.
struct Choices(std::vec::IntoIter<u32>);

impl Choices {
    /// A number below `n`; 0 when the decisions run out.
    fn below(&mut self, n: usize) -> usize {
        self.0.next().unwrap_or(0) as usize % n
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == one_in - 1
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

/// Random masks.
struct Masks<'a> {
    choices: &'a mut Choices,
    e: ScalarBuilder,
}

impl Masks<'_> {
    fn truth(&mut self, depth: usize) -> ExprId {
        let (op, next) = (
            self.choices.below(if depth == 0 { 3 } else { 9 }),
            depth.saturating_sub(1),
        );
        match op {
            0 | 7 | 8 => {
                let (a, b) = (self.int(next), self.int(next));
                let op = self.choices.pick(CompareOp::ALL);
                self.e.compare(op, a, b)
            }
            1 => {
                let (a, b) = (self.float(next), self.float(next));
                let op = self.choices.pick(CompareOp::ALL);
                self.e.compare(op, a, b)
            }
            2 => {
                let index = vec![self.int(0), self.int(0)];
                self.e.load(4, DType::Bool, index)
            }
            3 => {
                let a = self.truth(next);
                self.e.unary(UnaryOp::Not, a)
            }
            4 => {
                let (a, b) = (self.truth(next), self.truth(next));
                let op = self
                    .choices
                    .pick(&[BinaryOp::And, BinaryOp::Or, BinaryOp::Xor]);
                self.e.binary(op, a, b)
            }
            5 => {
                let (c, a, b) = (self.truth(next), self.truth(next), self.truth(next));
                self.e.select(c, a, b)
            }
            _ => {
                let a = if self.choices.chance(2) {
                    self.int(next)
                } else {
                    self.float(next)
                };
                self.e.cast(DType::Bool, a)
            }
        }
    }

    fn int(&mut self, depth: usize) -> ExprId {
        let (op, next) = (
            self.choices.below(if depth == 0 { 2 } else { 8 }),
            depth.saturating_sub(1),
        );
        match op {
            0 | 6 => {
                let text = self.choices.pick(&[
                    "d2",
                    "d3",
                    "d2 - d3",
                    "3",
                    "d3 - P",
                    "2 * d2 - 1",
                    "P - d3",
                    "floordiv(d2, 4)",
                    "floordiv(d3 + 3, 8)",
                    "d3 - 4 * floordiv(d3, 4)",
                    "P * d2 - d3",
                    "d0 + d2",
                    "floordiv(d2 - d3, 4)",
                    "2 * d2 - 10 * floordiv(d2, 5) - d3",
                    "max(d2, d3)",
                    "min(d2 - 3, d3)",
                    "d2 * d3",
                ]);
                self.e.int(text.parse::<Dim>().unwrap())
            }
            1 => {
                let index = if self.choices.chance(2) {
                    self.e.int(0)
                } else {
                    self.int(next)
                };
                self.e.load(3, DType::I32, vec![index])
            }
            2 => {
                let a = self.int(next);
                let op =
                    self.choices
                        .pick(&[UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sign, UnaryOp::Relu]);
                self.e.unary(op, a)
            }
            3 => {
                let a = self.int(next);
                let n = self.choices.below(7) as i64 + 1;
                let n = self.e.int(n);
                let op = self.choices.pick(&[
                    BinaryOp::Mul,
                    BinaryOp::Div,
                    BinaryOp::Mod,
                    BinaryOp::Rem,
                ]);
                self.e.binary(op, a, n)
            }
            4 => {
                let (a, b) = (self.int(next), self.int(next));
                let op = self.choices.pick(&[
                    BinaryOp::Add,
                    BinaryOp::Sub,
                    BinaryOp::Min,
                    BinaryOp::Max,
                    BinaryOp::Mul,
                ]);
                self.e.binary(op, a, b)
            }
            5 => {
                let (c, a, b) = (self.truth(next), self.int(next), self.int(next));
                self.e.select(c, a, b)
            }
            _ => {
                // Infinite data saturate, and sums of these wrap, which masks are taken not to.
                let a = if self.choices.chance(2) {
                    self.truth(next)
                } else {
                    let (a, half) = (self.int(next), self.e.float(-2.5));
                    let a = self.e.cast(DType::F32, a);
                    self.e.binary(BinaryOp::Add, a, half)
                };
                self.e.cast(DType::I32, a)
            }
        }
    }

    fn float(&mut self, depth: usize) -> ExprId {
        let (op, next) = (
            self.choices.below(if depth == 0 { 2 } else { 6 }),
            depth.saturating_sub(1),
        );
        match op {
            0 => {
                let value = self.choices.pick(&[
                    0.0,
                    2.5,
                    -7.0,
                    f32::NAN,
                    f32::INFINITY,
                    f32::NEG_INFINITY,
                    3e38,
                ]);
                self.e.float(value)
            }
            1 => {
                let index = self.int(next.min(1));
                self.e.load(5, DType::F32, vec![index])
            }
            2 | 3 => {
                let a = self.int(next);
                self.e.cast(DType::F32, a)
            }
            4 => {
                let (a, b) = (self.float(next), self.float(next));
                let op = self.choices.pick(&[
                    BinaryOp::Add,
                    BinaryOp::Sub,
                    BinaryOp::Min,
                    BinaryOp::Max,
                    BinaryOp::Mul,
                ]);
                self.e.binary(op, a, b)
            }
            _ => {
                let (c, a, b) = (self.truth(next), self.float(next), self.float(next));
                self.e.select(c, a, b)
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]
    #[test]
    fn a_block_mask_is_never_wrong(
        numbers in prop::collection::vec(any::<u32>(), 4..60),
        (queries, keys) in (1i64..14, 1i64..14),
        past in 0i64..5,
        data in any::<u16>(),
        tile in (1i64..6, 1i64..6),
    ) {
        let mut choices = Choices(numbers.into_iter());
        let mut masks = Masks { choices: &mut choices, e: ScalarBuilder::new(extents()) };
        let root = masks.truth(4);
        let mask = masks.e.finish(root);
        let run = Run { queries, keys, past, data: u64::from(data) };
        let mut wrong = None;
        run.tiles(&mask, [tile.0, tile.1], |at, wanted, derived| {
            if (wanted.some && !derived.some) || (derived.all && !wanted.all) {
                wrong = Some(at);
            }
        });
        prop_assert!(wrong.is_none(), "{mask} on {wrong:?}: {:?}", BlockMask::of(&mask, &extents()));
    }
}
