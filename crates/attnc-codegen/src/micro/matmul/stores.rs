//! How tiles of products write C: `c_row`, where a row of it starts, and what writes a row of a tile, `store_row`, or a
//! vector, `store_block`.
//!
//! On entry: a tile that was checked. On exit: functions that call `epilogue` for each element, or for four.

use super::{Access, Division, MatmulTile};
use crate::micro::lines;

impl MatmulTile {
    /// Whether the kernel writes a row of the tile at a time.
    pub(crate) fn writes_rows(&self) -> bool {
        matches!(self.division, Division::Rows | Division::Subgroup { .. })
    }

    pub(super) fn store(&self) -> String {
        let stores = match (self.c_eights, self.writes_rows()) {
            (true, _) => self.store_row_of_eight(),
            (false, true) => self.store_block() + STORE_ROW,
            (false, false) => self.store_block(),
        };
        C_ROW.to_owned() + &stores
    }

    /// `epilogue` of the vector `x`, the one number `block` from column n on.
    fn epilogue_of(&self, x: &str, block: u32) -> String {
        let plus = |offset: u32| match offset {
            0 => String::new(),
            some => format!(" + {some}u"),
        };
        if self.epilogue == Access::Vec4 {
            return format!("epilogue({x}, b0, b1, m, n / 4u{})", plus(block));
        }
        let each = lines(4, |i| {
            let component = ["x", "y", "z", "w"][i as usize];
            let n = plus(4 * block + i);
            format!("        epilogue({x}.{component}, b0, b1, m, n{n}),")
        });
        format!("vec4<f32>(\n{each}    )")
    }

    fn store_row_of_eight(&self) -> String {
        let eight = self.result.vec8_of("low", "high");
        format!(
            "\
// The columns from n on of the row of C at `row`, of which `blocks` are there: all, or none.
fn store_row(row: u32, b0: u32, b1: u32, m: u32, n: u32, blocks: u32, x: TileRow) {{
    if blocks == 0u {{
        return;
    }}
    let low = {};
    let high = {};
    c[(row + n) / 8u] = {eight};
}}
",
            self.epilogue_of("x.c0", 0),
            self.epilogue_of("x.c1", 1),
        )
    }

    fn store_block(&self) -> String {
        let signature = "fn store_block(row: u32, b0: u32, b1: u32, m: u32, n: u32, x: vec4<f32>)";
        match self.c {
            Access::Vec4 => format!(
                "\
{signature} {{
    c[(row + n) / 4u] = {};
}}
",
                self.result.vec4_of(&self.epilogue_of("x", 0))
            ),
            Access::Scalar => format!(
                "\
{signature} {{
    var values = x;
    for (var i = 0u; i < min(4u, shape.n - n); i++) {{
        c[row + (n + i) * shape.c_n_stride] = {};
    }}
}}
",
                self.result.item_of("epilogue(values[i], b0, b1, m, n + i)")
            ),
        }
    }
}

const C_ROW: &str = "\
// Where a row of C starts.
fn c_row(b0: u32, b1: u32, m: u32) -> u32 {
    return shape.c_offset + b0 * shape.c_b0_stride + b1 * shape.c_b1_stride + m * shape.c_m_stride;
}

";

/// The epilogue may be long, so it stands in a loop, not in as many copies as there are vectors.
const STORE_ROW: &str = "
// The columns from n on of the row of C at `row`, of which `blocks` vectors are there.
fn store_row(row: u32, b0: u32, b1: u32, m: u32, n: u32, blocks: u32, x: TileRow) {
    for (var block = 0u; block < blocks; block++) {
        store_block(row, b0, b1, m, n + 4u * block, row_block(x, block));
    }
}
";
