//! How many turns the loops of an invocation take: the formulas of [`Step::turns`](attnc_plan::Step::turns).
//!
//! llvmpipe (of Mesa 22.3 at least) counts the turns of all loops together, nested or not, and when there have been
//! 65535 it leaves every loop without a word (`LP_MAX_TGSI_LOOP_ITERATIONS` in Mesa's `lp_bld_limits.h`, counted down in
//! `lp_exec_endloop`). A loop of n rounds counts n + 1 turns, since the test by which it ends is one more. And as no
//! branch is taken but at the end of a loop, code that no lane takes part in is walked all the same, a loop in it once:
//! behind the test by which the outer loop ends, behind a `continue`, in an `if` that is false.
//!
//! ```text
//! for each of n blocks { for each of 8 steps { … } }        n · (1 + 9) + 1 + 1 turns
//! if false { for each of 8 steps { … } }                    1 turn
//! ```
//!
//! On entry: the numbers that a kernel's text has. On exit: at least what any of its invocations takes at any data,
//! except where [`super::attention_turns`] says so. Compilers unroll some loops; they are counted all the same.

use super::div_ceil;
use crate::micro::{Access, Division, MatmulTile, Staged};
use attnc_ir::Dim;

/// Turns of loops that stand one after the other.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    /// What they take.
    pub(super) taken: Dim,
    /// What they take where no lane takes part in them.
    pub(super) idle: u32,
}

/// A loop of so many rounds, without others in it.
pub(super) fn loop_of(rounds: u32) -> Turns {
    Turns::none().times(rounds)
}

/// The same, where the rounds are an expression.
pub(super) fn looped(rounds: &Dim) -> Turns {
    Turns::none().repeated(rounds)
}

impl Turns {
    /// No loops.
    pub(super) fn none() -> Self {
        Self {
            taken: Dim::zero(),
            idle: 0,
        }
    }

    /// A loop of so many rounds, with these in it.
    pub(super) fn repeated(&self, rounds: &Dim) -> Self {
        self.skipping(rounds, rounds)
    }

    /// The same, where the rounds are a constant.
    pub(super) fn times(&self, rounds: u32) -> Self {
        self.repeated(&number(rounds))
    }

    /// A loop of `all` rounds, of which `walked` at most do something and the others are left at once.
    pub(super) fn skipping(&self, all: &Dim, walked: &Dim) -> Self {
        let idle = number(1 + self.idle);
        let more = self.taken.clone() - number(self.idle);
        Self {
            taken: all.clone() * idle.clone() + walked.clone() * more + idle,
            idle: 1 + self.idle,
        }
    }

    /// These, then others.
    pub(super) fn then(&self, next: &Self) -> Self {
        Self {
            taken: self.taken.clone() + next.taken.clone(),
            idle: self.idle + next.idle,
        }
    }
}

/// A constant.
pub(super) fn number(n: u32) -> Dim {
    Dim::from(i64::from(n))
}

/// The turns of a matrix product whose sums have `k` terms.
pub(super) fn of_matmul(tile: &MatmulTile, k: &Dim) -> Turns {
    let store = match tile.c {
        Access::Vec4 => Turns::none(),
        Access::Scalar => loop_of(4),
    };
    let of_row = match tile.c_eights {
        true => Turns::none(),
        false => store.times(tile.columns / 4),
    };
    let stores = of_row.times(tile.rows);
    // Blocks of 4 x 4 elements of A and B, taken in turns.
    let staging = |staged: &Staged| {
        let size = tile.invocations().unwrap_or(1);
        let rounds = |length: u32| (length * staged.steps / 16).div_ceil(size);
        loop_of(rounds(tile.block_rows())).then(&loop_of(rounds(tile.block_columns())))
    };
    let (walk, stores) = match tile.division {
        Division::Rows => (looped(&div_ceil(k, 4)), stores),
        Division::Subgroup { lanes } => {
            let group = lanes.min(tile.rows);
            let stores = of_row.times(group).times(tile.rows / group);
            (looped(&div_ceil(k, 4)), stores)
        }
        Division::Lanes { count } => (looped(&div_ceil(k, 4 * count)), stores),
        Division::Tiled(staged) => {
            let inside = staging(&staged).then(&loop_of(staged.steps));
            (inside.repeated(&div_ceil(k, staged.steps)), stores)
        }
        Division::Matrix {
            staged,
            size,
            lanes,
        } => {
            let inside = staging(&staged).then(&loop_of(staged.steps / size));
            let matrices = tile.rows / size * (tile.columns / size);
            let of_each = (size * size).div_ceil(4 * lanes);
            let stores = store.times(of_each).times(matrices);
            (inside.repeated(&div_ceil(k, staged.steps)), stores)
        }
    };
    walk.then(&stores)
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
        of_matmul(&tile, &(Dim::from(32) * Dim::sym("K")))
            .taken
            .to_string()
    }

    #[test]
    fn inner_loops_count_and_so_do_the_turns_in_which_loops_end() {
        let n = Dim::sym("N");
        assert_eq!(looped(&n).taken.to_string(), "N + 1");
        let nested = loop_of(8).repeated(&n);
        assert_eq!(
            (nested.taken.to_string(), nested.idle),
            ("10 * N + 2".into(), 2)
        );
        // Of N rounds, 3 have eight turns.
        let skipping = loop_of(8).skipping(&n, &Dim::from(3));
        assert_eq!(skipping.taken.to_string(), "2 * N + 26");
        // Four rows of two vectors are stored.
        assert_eq!(matmul(Division::Rows), "8 * K + 19");
        assert_eq!(matmul(Division::Subgroup { lanes: 8 }), "8 * K + 23");
        assert_eq!(matmul(Division::Lanes { count: 8 }), "K + 19");
        let staged = Staged {
            down: 8,
            across: 8,
            steps: 16,
        };
        // A block of 32 rows takes one round, one of 64 columns too, and each of 16 steps a turn.
        assert_eq!(matmul(Division::Tiled(staged)), "44 * K + 22");
    }
}
