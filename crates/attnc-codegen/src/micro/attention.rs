//! The register tile of `flash_attention_fwd_rows` and `flash_attention_fwd_two_walks`.

pub(super) mod loads;
mod scores;
mod values;

use std::fmt::Write as _;

use super::attention_part::{state_functions, walk};
use super::rows::{RowFunctions, RowTypes};
use super::{Access, Checks, Converter, MicroError, imports, lines};
use crate::Stored;
use loads::chunks;

/// Columns that a tile holds in registers: they are straight-line code, some 6 lines for each 4 columns, and
/// drivers take more than twice the time over twice of it. Wider rows of Q are read again for each key,
/// wider rows of V are computed a block of columns at a time.
pub(crate) const MAX_HELD: u32 = 256;

/// Columns of a wider row of Q that are read in one turn of a loop.
pub(crate) const READ_COLUMNS: u32 = 64;

/// Query rows of one invocation, times the head's columns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttentionTile {
    /// Query rows, 1 to 4.
    pub rows: u32,
    /// Columns of Q and K, 1 or more.
    pub qk_dim: u32,
    /// Columns of V and O, 1 to 256.
    pub v_dim: u32,
    /// How Q is read.
    pub q: Access,
    /// How K is read.
    pub k: Access,
    /// How V is read.
    pub v: Access,
    /// How O is written. By vectors where it is packed, so that every word has one owner.
    pub o: Access,
    /// How Q, K and V are stored.
    pub operands: Stored,
    /// How O is stored.
    pub result: Stored,
    /// Whether `mask_mod` may be false or `score_mod` may be -inf. If not, rows of V need no selection.
    pub masked: bool,
    /// Whether `score_mod` may be -inf.
    pub scores_mask: bool,
    /// Whether `mods` has a `sink`.
    pub sink: bool,
    /// Whether `mods` has a `prob_mod`, and when it may be applied.
    pub weights: Weights,
    /// Whether invocations walk a part of the keys: O is then where parts are kept, f32 by vectors.
    pub part: bool,
}

/// What stands between a probability and the weight of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Weights {
    /// Nothing: the probability is the weight.
    Probabilities,
    /// A `prob_mod` that lets factors pass, so that it is applied before the sum is known.
    BeforeSum,
    /// Any other `prob_mod`; the kernel walks the keys twice.
    AfterSum {
        /// Whether a key that is not there has weight 0.
        skips_absent: bool,
    },
}

impl AttentionTile {
    /// A masked tile of equal head dims; vector loads where `dim` allows them.
    #[must_use]
    pub fn contiguous(rows: u32, dim: u32) -> Self {
        let access = if dim.is_multiple_of(4) {
            Access::Vec4
        } else {
            Access::Scalar
        };
        Self {
            rows,
            qk_dim: dim,
            v_dim: dim,
            q: access,
            k: access,
            v: access,
            o: access,
            operands: Stored::F32,
            result: Stored::F32,
            masked: true,
            scores_mask: true,
            sink: false,
            weights: Weights::Probabilities,
            part: false,
        }
    }

    /// The kernel that the tile is for.
    #[must_use]
    pub fn kernel(&self) -> &'static str {
        match self.weights {
            Weights::AfterSum { .. } => "flash_attention_fwd_two_walks",
            _ => "flash_attention_fwd_rows",
        }
    }

    /// The file for the slot `walk`, where the kernel has one.
    #[must_use]
    pub fn walk(&self) -> Option<&'static str> {
        match self.weights {
            Weights::AfterSum { .. } => None,
            _ => Some(walk(self.part)),
        }
    }

    /// The text of the `micro` module.
    ///
    /// # Errors
    /// Rows or dims out of range, or vector access to a dim that is no multiple of 4.
    pub fn print(&self) -> Result<String, MicroError> {
        self.check()?;
        Ok([
            self.header(),
            self.types(),
            self.mods(),
            self.q_functions(),
            self.k_functions(),
        ]
        .concat()
            + &self.v_functions()
            + &self.o_functions()
            + &self.state_functions())
    }

    fn check(&self) -> Result<(), MicroError> {
        let mut checks = Checks::default();
        checks.expect((1..=4).contains(&self.rows), || {
            format!("rows: expected 1 to 4, found {}", self.rows)
        });
        checks.expect(self.qk_dim > 0, || {
            "qk_dim: expected at least 1, found 0".to_owned()
        });
        checks.expect((1..=MAX_HELD).contains(&self.v_dim), || {
            format!("v_dim: expected 1 to {MAX_HELD}, found {}", self.v_dim)
        });
        let operands = [("q", self.q, self.qk_dim), ("k", self.k, self.qk_dim)];
        for (name, access, dim) in operands
            .into_iter()
            .chain([("v", self.v, self.v_dim), ("o", self.o, self.v_dim)])
        {
            checks.expect(access == Access::Scalar || dim.is_multiple_of(4), || {
                format!("{name}: vector access needs columns in multiples of 4, found {dim}")
            });
        }
        checks.expect(self.o == Access::Vec4 || !self.result.is_packed(), || {
            "o: words of two elements are written by vectors only".to_owned()
        });
        let as_parts = self.o == Access::Vec4 && self.result == Stored::F32;
        let joined = !matches!(self.weights, Weights::AfterSum { .. });
        checks.expect(!self.part || (as_parts && joined), || {
            "part: needs O of f32 by vectors, and weights that are known before the sum".to_owned()
        });
        checks.finish()
    }

    fn state_functions(&self) -> String {
        match self.part {
            true => state_functions(RowTypes(self.rows), self.v_dim),
            false => String::new(),
        }
    }

    fn header(&self) -> String {
        let Self {
            rows,
            qk_dim,
            v_dim,
            ..
        } = self;
        let mut constants = format!(
            "const ROWS: u32 = {rows}u;\nconst HAS_SINK: bool = {};\n",
            self.sink
        );
        if let Weights::AfterSum { skips_absent } = self.weights {
            let _ = writeln!(constants, "const SKIPS_ABSENT: bool = {skips_absent};");
        }
        format!(
            "\
// micro: attention register tile of {rows} query rows; Q and K have {qk_dim} columns, V and O {v_dim} (generated)
//
// A Chunk is 4 columns of all rows: row r of the tile is column r of the matrix.

import package::mods::{{{}}};
import package::kernels::{}::{{shape, q, k, v, o}};
{}
{constants}
",
            self.functions().imports(),
            self.kernel(),
            imports(self.converters())
        )
    }

    /// What reads Q, K and V, and writes O.
    pub(super) fn converters(&self) -> impl Iterator<Item = Converter> {
        let read = [self.q, self.k, self.v].map(|access| self.operands.reader(access));
        let written = self.result.writer(self.o);
        read.into_iter().chain([written]).flatten()
    }

    fn types(&self) -> String {
        let chunk = if self.rows == 1 {
            "vec4<f32>".to_owned()
        } else {
            format!("mat{}x4<f32>", self.rows)
        };
        format!(
            "\
{}alias Chunk = {chunk};
alias q_item = {};
alias k_item = {};
alias v_item = {};
alias o_item = {};

{}struct OTile {{
{}}}

",
            RowTypes(self.rows),
            self.q.item(self.operands),
            self.k.item(self.operands),
            self.v.item(self.operands),
            self.o.item(self.result),
            self.q_tile(),
            lines(chunks(self.v_dim), |c| format!("    c{c}: Chunk,")),
        )
    }

    /// Whether rows of Q are held in registers.
    pub(crate) fn holds_q(&self) -> bool {
        self.qk_dim <= MAX_HELD
    }

    /// Columns of Q and O that a row has in registers.
    pub(crate) fn held_columns(&self) -> u32 {
        self.v_dim + if self.holds_q() { self.qk_dim } else { 0 }
    }

    fn q_tile(&self) -> String {
        let fields = if self.holds_q() {
            lines(chunks(self.qk_dim), |c| format!("    c{c}: Chunk,"))
        } else {
            "    at: RowIndex,\n    scale: f32,\n".to_owned()
        };
        format!("struct QTile {{\n{fields}}}\n\n")
    }

    /// `name` if there is one row, else `name[r]`.
    fn row(&self, name: &str, r: u32) -> String {
        RowTypes(self.rows).row(name, r)
    }

    /// A constructor with one argument a row.
    fn per_row(&self, of: &str, f: impl Fn(u32) -> String) -> String {
        RowTypes(self.rows).per_row(of, f)
    }

    fn functions(&self) -> RowFunctions {
        RowFunctions {
            rows: self.rows,
            heads: false,
            prob_mod: self.weights != Weights::Probabilities,
            sink: self.sink,
        }
    }

    fn mods(&self) -> String {
        let first = self.per_row("RowIndex", |r| format!("first + {r}u"));
        format!(
            "\
fn rows_from(first: u32) -> RowIndex {{
    return {first};
}}

{}",
            self.functions().print()
        )
    }

    /// `body` for each of the first `rows` rows, with `row` and `r` in scope. The trip count is not known
    /// to the compiler on purpose: unrolled, loading Q and storing O takes half of the compile time.
    fn row_loop(&self, body: &str) -> String {
        if self.rows == 1 {
            return format!(
                "    let r = 0u;\n    let row = at;\n{}",
                body.replace("        ", "    ")
            );
        }
        format!("    for (var r = 0u; r < rows; r++) {{\n        let row = at[r];\n{body}    }}\n")
    }
}
