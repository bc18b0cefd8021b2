//! How many turns the loops of an invocation take: the formulas of [`Step::turns`](attnc_plan::Step::turns).
//!
//! llvmpipe (of Mesa 22.3 at least) counts the turns of all loops together, nested or not, and when there have been 65535 it leaves every loop
//! without a word (`LP_MAX_TGSI_LOOP_ITERATIONS` in Mesa's `lp_bld_limits.h`, counted down in `lp_exec_endloop`). A
//! loop of n rounds counts n + 1 turns, since the test by which it ends is one more:
//!
//! ```text
//! for each of ⌈K / 8⌉ blocks { for each of 8 steps { … } }        ⌈K / 8⌉ · (1 + 9) + 1 turns
//! ```
//!
//! On entry: the numbers that a kernel's text has. On exit: at least what any of its invocations takes at any data,
//! except where [`super::attention_turns`] says so. Compilers unroll some loops; they are counted all the same.

use super::div_ceil;
use crate::micro::{Access, Division, MatmulTile, Staged};
use attnc_ir::Dim;

/// Turns of a loop of so many rounds, of which each has loops of `inside` turns in it.
pub(super) fn looped(rounds: &Dim, inside: u32) -> Dim {
    looped_over(rounds, &Dim::from(i64::from(inside)))
}

/// The same, where what is inside is an expression.
pub(super) fn looped_over(rounds: &Dim, inside: &Dim) -> Dim {
    rounds.clone() * (inside.clone() + Dim::one()) + Dim::one()
}

/// The same, where all is constant.
pub(super) fn loop_of(rounds: u32, inside: u32) -> u32 {
    rounds * (1 + inside) + 1
}

/// The turns of a matrix product whose sums have `k` terms.
pub(super) fn of_matmul(tile: &MatmulTile, k: &Dim) -> Dim {
    let store = match tile.c {
        Access::Vec4 => 0,
        Access::Scalar => loop_of(4, 0),
    };
    let of_row = match tile.c_eights {
        true => 0,
        false => loop_of(tile.columns / 4, store),
    };
    let of_rows = |rows| loop_of(rows, of_row);
    let stores = of_rows(tile.rows);
    // Blocks of 4 x 4 elements of A and B, taken in turns.
    let staging = |staged: &Staged| {
        let size = tile.invocations().unwrap_or(1);
        let rounds = |length: u32| (length * staged.steps / 16).div_ceil(size);
        loop_of(rounds(tile.block_rows()), 0) + loop_of(rounds(tile.block_columns()), 0)
    };
    let (walk, stores) = match tile.division {
        Division::Rows => (looped(&div_ceil(k, 4), 0), stores),
        Division::Subgroup { lanes } => {
            let group = lanes.min(tile.rows);
            let stores = loop_of(tile.rows / group, of_rows(group));
            (looped(&div_ceil(k, 4), 0), stores)
        }
        Division::Lanes { count } => (looped(&div_ceil(k, 4 * count), 0), stores),
        Division::Tiled(staged) => {
            let inside = staging(&staged) + loop_of(staged.steps, 0);
            (looped(&div_ceil(k, staged.steps), inside), stores)
        }
        Division::Matrix {
            staged,
            size,
            lanes,
        } => {
            let inside = staging(&staged) + loop_of(staged.steps / size, 0);
            let matrices = tile.rows / size * (tile.columns / size);
            let of_each = (size * size).div_ceil(4 * lanes);
            let stores = loop_of(matrices, loop_of(of_each, store));
            (looped(&div_ceil(k, staged.steps), inside), stores)
        }
    };
    walk + Dim::from(i64::from(stores))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stored;
    use crate::micro::{LeftLoad, RightLoad};

    fn matmul(division: Division) -> String {
        let tile = MatmulTile {
            rows: 4,
            columns: 8,
            division,
            a: LeftLoad::KVec4,
            b: RightLoad::NVec4,
            c: Access::Vec4,
            a_image: false,
            b_image: false,
            c_eights: false,
            epilogue: Access::Vec4,
            operands: Stored::F32,
            result: Stored::F32,
            k_tail: false,
        };
        of_matmul(&tile, &(Dim::from(32) * Dim::sym("K"))).to_string()
    }

    #[test]
    fn inner_loops_count_and_so_do_the_turns_in_which_loops_end() {
        assert_eq!(looped(&Dim::sym("N"), 0).to_string(), "N + 1");
        assert_eq!(
            looped(&Dim::sym("N"), loop_of(8, 0)).to_string(),
            "10 * N + 1"
        );
        // Four rows of two vectors are stored.
        assert_eq!(matmul(Division::Rows), "8 * K + 18");
        assert_eq!(matmul(Division::Subgroup { lanes: 8 }), "8 * K + 20");
        assert_eq!(matmul(Division::Lanes { count: 8 }), "K + 18");
        let staged = Staged {
            down: 8,
            across: 8,
            steps: 16,
        };
        // A block of 32 rows takes one round, one of 64 columns too, and each of 16 steps a turn.
        assert_eq!(matmul(Division::Tiled(staged)), "44 * K + 18");
    }
}
