//! P V: what reads V, adds to O, scales and stores it.
//!
//! On entry: a tile that was checked. On exit: `tile_zero`, `tile_scale_add_v` and `tile_store_o`, and what they call.

use super::AttentionTile;
use super::loads::{chunks, load_functions, load_kinds, store_function, tail_of};
use crate::micro::lines;

impl AttentionTile {
    pub(super) fn v_functions(&self) -> String {
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

    pub(super) fn o_functions(&self) -> String {
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
