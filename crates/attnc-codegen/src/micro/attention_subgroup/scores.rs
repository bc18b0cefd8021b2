//! Q Kᵀ: what reads Q and K, and sums up products over the lanes that have their columns.
//!
//! On entry: a tile that was checked. On exit: `load_q`, `tile_load_q`, `load_k` and `tile_dot_k`.

use super::{SubgroupAttentionTile, row_at};
use crate::micro::lines;
use crate::micro::rows::RowTypes;

impl SubgroupAttentionTile {
    pub(super) fn q_functions(&self) -> String {
        let chunks = self.chunks(self.qk_dim);
        let load = self
            .columns()
            .load_by_fours("q", "KRow", self.operands, self.qk_dim); // Q and K have the same columns
        let rows = lines(self.rows(), |r| {
            let fields = (0..chunks).map(|c| format!("    tile.r{r}c{c} = row{r}.c{c} * scale;"));
            format!(
                "    let row{r} = load_q({}, lane);\n{}",
                self.of_row("at", r),
                fields.collect::<Vec<_>>().join("\n")
            )
        });
        format!(
            "\
{load}// Rows of Q times the scale, so that no product overflows before it is scaled.
fn tile_load_q(at: RowIndex, lane: u32, scale: f32) -> QTile {{
    var tile: QTile;
{rows}    return tile;
}}

"
        )
    }

    /// The sum over lanes of each of these rows' `dot`, two by two, so that few are held at a time.
    fn folded(&self, first: u32, end: u32, dot: &dyn Fn(u32) -> String) -> String {
        if end - first == 1 {
            return dot(first);
        }
        let half = (end - first) / 2;
        let (low, high) = (
            self.folded(first, first + half, dot),
            self.folded(first + half, end, dot),
        );
        format!("fold({low}, {high}, lane, {half}u)")
    }

    pub(super) fn k_functions(&self) -> String {
        let chunks = self.chunks(self.qk_dim);
        // Of lane i of a group's, before it is summed up.
        let dot = |g: u32, i: u32| {
            let (row, key) = (g * self.group + i % self.group, i / self.group);
            let terms = (0..chunks).map(|c| format!("dot(tile.r{row}c{c}, x{key}.c{c})"));
            terms.collect::<Vec<_>>().join(" + ")
        };
        let lanes = self.group * self.keys;
        let group = |g: u32| {
            let mut sum = self.folded(0, lanes, &|i| dot(g, i));
            // Every lane with the number of a row and key has a part of its sum.
            let mut distance = lanes;
            while distance < self.width {
                sum = format!("over_pairs({sum}, {distance}u)");
                distance *= 2;
            }
            sum
        };
        let sums = RowTypes(self.groups).per_row("Rows", group);
        let loads = lines(self.keys, |k| {
            let row = row_at("k", k);
            format!("    let x{k} = load_k({row}, lane);")
        });
        let pairs = if lanes < self.width {
            "\
fn over_pairs(x: f32, distance: u32) -> f32 {
    return x + subgroupShuffleXor(x, distance);
}

"
        } else {
            ""
        };
        format!(
            "\
{}{pairs}// Every row of the tile times the rows of K from `at` on, in the lane that has the row's softmax for that key.
fn tile_dot_k(tile: QTile, lane: u32, at: u32, last: u32) -> Rows {{
{loads}    return {sums};
}}

",
            self.columns().load("k", "KRow", self.kv_stored(), self.qk_dim)
        )
    }
}
