//! Q Kᵀ: what reads Q and K, and multiplies rows by a row of K.
//!
//! On entry: a tile that was checked. On exit: `tile_load_q` and `tile_dot_k`, and what they call.

use super::loads::{chunks, load_functions, tail_of};
use super::{AttentionTile, READ_COLUMNS};
use crate::micro::lines;

impl AttentionTile {
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

    pub(super) fn q_functions(&self) -> String {
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

    pub(super) fn k_functions(&self) -> String {
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
}
