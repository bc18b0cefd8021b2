//! The register tile of `flash_attention_fwd_rows` and `flash_attention_fwd_two_walks`.

use std::fmt::Write as _;

use super::attention_part::{state_functions, walk};
use super::rows::{RowFunctions, RowTypes};
use super::{Access, Checks, Converter, MicroError, imports, lines};
use crate::Stored;

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

    fn row_functions(&self) -> String {
        let (with_row, row_of) = if self.rows == 1 {
            (
                "    return x;\n".to_owned(),
                "    return chunk;\n".to_owned(),
            )
        } else {
            let with = self.per_row("Chunk", |r| format!("select(chunk[{r}], x, r == {r}u)"));
            let of = lines(self.rows - 1, |r| {
                format!("    x = select(x, chunk[{0}], r == {0}u);", r + 1)
            });
            (
                format!("    return {with};\n"),
                format!("    var x = chunk[0];\n{of}    return x;\n"),
            )
        };
        format!(
            "\
fn with_row(chunk: Chunk, r: u32, x: vec4<f32>) -> Chunk {{
{with_row}}}

fn row_of(chunk: Chunk, r: u32) -> vec4<f32> {{
{row_of}}}

"
        )
    }

    fn q_functions(&self) -> String {
        let mut text =
            self.row_functions() + &load_functions("q", self.q, self.operands, self.qk_dim);
        if !self.holds_q() {
            text.push_str(
                "\
// The rows are too wide to hold: where they are.
fn tile_load_q(at: RowIndex, rows: u32, scale: f32) -> QTile {
    return QTile(at, scale);
}

",
            );
            return text;
        }
        let loads = lines(chunks(self.qk_dim), |c| {
            let load = format!("load_q{}(row, {}u)", tail_of(self.q, self.qk_dim, c), 4 * c);
            format!("        tile.c{c} = with_row(tile.c{c}, r, {load} * scale);")
        });
        text + &format!(
            "\
// Rows of Q times the scale, so that no product overflows before it is scaled.
fn tile_load_q(at: RowIndex, rows: u32, scale: f32) -> QTile {{
    var tile = QTile();
{}    return tile;
}}

",
            self.row_loop(&loads)
        )
    }

    fn k_functions(&self) -> String {
        let product = if self.rows == 1 {
            "dot(x, chunk)"
        } else {
            "x * chunk"
        };
        let (dots, sums, why) = if self.holds_q() {
            (String::new(), self.dots_held(), "")
        } else {
            (
                self.dot_functions(),
                self.dots_read(),
                "\n// Q is read again, and scaled before the product.",
            )
        };
        load_functions("k", self.k, self.operands, self.qk_dim)
            + &format!(
                "\
fn chunk_dot(chunk: Chunk, x: vec4<f32>) -> Rows {{
    return {product};
}}

{dots}// Every row of the tile times one row of K.{why}
fn tile_dot_k(tile: QTile, at: u32) -> Rows {{
    var sum = Rows(0.0);
{sums}    return sum;
}}

"
            )
    }

    /// One line for each chunk in registers.
    fn dots_held(&self) -> String {
        lines(chunks(self.qk_dim), |c| {
            let load = format!("load_k{}(at, {}u)", tail_of(self.k, self.qk_dim, c), 4 * c);
            format!("    sum += chunk_dot(tile.c{c}, {load});")
        })
    }

    /// A loop over the columns of a row, many a turn since drivers may count turns, then what is left.
    fn dots_read(&self) -> String {
        let whole = self.qk_dim / READ_COLUMNS * READ_COLUMNS;
        let many = lines(READ_COLUMNS / 4, |c| {
            format!("        sum += dot_at(tile, at, column + {}u);", 4 * c)
        });
        let mut text = format!(
            "    for (var column = 0u; column < {whole}u; column += {READ_COLUMNS}u) {{\n{many}    }}\n"
        );
        let last = self.qk_dim / 4;
        text += &lines(last - whole / 4, |c| {
            format!("    sum += dot_at(tile, at, {}u);", whole + 4 * c)
        });
        if !self.qk_dim.is_multiple_of(4) {
            text += &format!("    sum += dot_at_tail(tile, at, {}u);\n", 4 * last);
        }
        text
    }

    /// The functions that [`Self::dots_read`] calls.
    fn dot_functions(&self) -> String {
        let [q, k] = [self.q, self.k].map(|access| tail_of(access, self.qk_dim, self.qk_dim / 4));
        let tail = match self.qk_dim % 4 {
            0 => String::new(),
            _ => self.dot_function(q, k),
        };
        self.dot_function("", "") + &tail
    }

    /// `dot_at`, or `dot_at_tail`: four columns of a key times those of rows that are not held.
    fn dot_function(&self, tail_q: &str, tail_k: &str) -> String {
        let tail = if tail_q.is_empty() { tail_k } else { tail_q };
        let row = |r| {
            let at = self.row("tile.at", r);
            format!("load_q{tail_q}({at}, column) * tile.scale")
        };
        format!(
            "\
fn dot_at{tail}(tile: QTile, at: u32, column: u32) -> Rows {{
    let chunk = {};
    return chunk_dot(chunk, load_k{tail_k}(at, column));
}}

",
            self.per_row("Chunk", row)
        )
    }

    fn v_functions(&self) -> String {
        let term = |r| {
            let product = format!("{} * x", self.row("p", r));
            let old = format!("{} * {}", self.row("chunk", r), self.row("shrink", r));
            if self.masked {
                format!(
                    "{old} + select(vec4<f32>(), {product}, {})",
                    self.row("live", r)
                )
            } else {
                format!("{old} + {product}")
            }
        };
        let steps = lines(chunks(self.v_dim), |c| {
            let load = format!("load_v{}(at, {}u)", tail_of(self.v, self.v_dim, c), 4 * c);
            format!("    (*out).c{c} = chunk_scale_add((*out).c{c}, shrink, p, live, {load});")
        });
        let why = if self.masked {
            "// A row for which the key is masked takes nothing of it, not even 0 * NaN.\n"
        } else {
            "// Every key is live for every row.\n"
        };
        load_functions("v", self.v, self.operands, self.v_dim)
            + &format!(
                "\
fn tile_zero() -> OTile {{
    return OTile();
}}

{why}fn chunk_scale_add(chunk: Chunk, shrink: Rows, p: Rows, live: RowMask, x: vec4<f32>) -> Chunk {{
    return {};
}}

// out = out * shrink + p * (one row of V)
fn tile_scale_add_v(out: ptr<function, OTile>, shrink: Rows, p: Rows, live: RowMask, at: u32) {{
{steps}}}

",
                self.per_row("Chunk", term)
            )
    }

    fn o_functions(&self) -> String {
        let mut text = String::new();
        for tail in load_kinds(self.o, self.v_dim) {
            let width = if tail.is_empty() { 4 } else { self.v_dim % 4 };
            let name = format!("store_o{tail}");
            text.push_str(&store_function(&name, self.o, self.result, width));
        }
        let factor = self.row("factor", 0).replace("[0]", "[r]");
        let stores = lines(chunks(self.v_dim), |c| {
            let tail = tail_of(self.o, self.v_dim, c);
            format!(
                "        store_o{tail}(row, {}u, row_of(tile.c{c}, r) * {factor});",
                4 * c
            )
        });
        text + &format!(
            "fn tile_store_o(at: RowIndex, rows: u32, tile: OTile, factor: Rows) {{\n{}}}\n",
            self.row_loop(&stores)
        )
    }
}

/// A function that stores the first `width` of four columns of the row of O at `at`.
pub(super) fn store_function(name: &str, access: Access, stored: Stored, width: u32) -> String {
    let stores = match access {
        Access::Vec4 => {
            format!("    o[(at + column) / 4u] = {};\n", stored.vec4_of("x"))
        }
        Access::Scalar => lines(width, |i| {
            let component = ["x.x", "x.y", "x.z", "x.w"][i as usize];
            let item = stored.item_of(component);
            format!("    o[at + (column + {i}u) * shape.o_column_stride] = {item};")
        }),
    };
    format!("fn {name}(at: u32, column: u32, x: vec4<f32>) {{\n{stores}}}\n\n")
}

fn chunks(dim: u32) -> u32 {
    dim.div_ceil(4)
}

/// Suffixes of the functions an operand needs: one for whole chunks, one for a last chunk in part.
fn load_kinds(access: Access, dim: u32) -> Vec<&'static str> {
    let whole = dim >= 4;
    let tail = access == Access::Scalar && !dim.is_multiple_of(4);
    [whole.then_some(""), tail.then_some("_tail")]
        .into_iter()
        .flatten()
        .collect()
}

/// Suffix of the function for chunk `c`.
fn tail_of(access: Access, dim: u32, c: u32) -> &'static str {
    if access == Access::Scalar && 4 * (c + 1) > dim {
        "_tail"
    } else {
        ""
    }
}

/// `load_q(at, column)`: four columns of the row that starts at `at`.
fn load_functions(operand: &str, access: Access, stored: Stored, dim: u32) -> String {
    if access == Access::Vec4 {
        return format!(
            "\
fn load_{operand}(at: u32, column: u32) -> vec4<f32> {{
    return {};
}}

",
            stored.load_vec4(operand, "(at + column) / 4u")
        );
    }
    let print = |tail: &&str| {
        let width = if tail.is_empty() { 4 } else { dim % 4 };
        let elements = lines(4, |i| {
            if i < width {
                let at = format!("i + {i}u * stride");
                format!("        {},", stored.load(operand, &at))
            } else {
                "        0.0,".to_owned()
            }
        });
        format!(
            "\
fn load_{operand}{tail}(at: u32, column: u32) -> vec4<f32> {{
    let stride = shape.{operand}_column_stride;
    let i = at + column * stride;
    return vec4<f32>(
{elements}    );
}}

"
        )
    };
    load_kinds(access, dim).iter().map(print).collect()
}
