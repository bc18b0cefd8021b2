//! Tiles whose sums are vectors in registers: one step of k, and how the finished tile is read.
//!
//! On entry: a tile that was checked. On exit: `Tile`, `tile_zero`, `tile_multiply_add`, `tile_row` and `row_block`.

use super::{Division, MatmulTile, RightLoad, Staged};
use crate::micro::{lines, list};

impl MatmulTile {
    /// The tile itself.
    pub(super) fn registers(&self) -> String {
        let blocks = self.blocks();
        format!(
            "\
const COLUMN_BLOCKS: u32 = {blocks}u;

// Row r, columns 4 c to 4 c + 3 of its own.
struct Tile {{
{}}}

fn tile_zero() -> Tile {{
    return Tile();
}}

",
            lines(self.rows * blocks, |i| format!(
                "    r{}c{}: vec4<f32>,",
                i / blocks,
                i % blocks
            )),
        )
    }

    /// A step that reads A and B from memory.
    pub(super) fn step(&self) -> String {
        let (a_rows, b_columns) = (self.a_argument(), self.b_argument());
        let loads = lines(self.b_loads(), |c| match self.b {
            RightLoad::NVec8 => format!(
                "    let blocks{c} = load_b(columns.c{c}, k);\n    let b{} = blocks{c}.low;\n    let b{} = blocks{c}.high;",
                2 * c,
                2 * c + 1
            ),
            _ => format!("    let b{c} = load_b({b_columns}columns.c{c}, k);"),
        });
        let shared = match self.division {
            Division::Subgroup { .. } => lines(self.loaded_rows(), |r| {
                format!("    let rows{r} = load_a(rows.r{r}, k);")
            }),
            _ => String::new(),
        };
        let a_row = |r: u32| match self.division {
            Division::Subgroup { lanes } => {
                format!("subgroupBroadcast(rows{}, {}u)", r / lanes, r % lanes)
            }
            _ => format!("load_a({a_rows}rows.r{r}, k)"),
        };
        let updates = lines(self.rows, |r| {
            format!("    let a{r} = {};\n", a_row(r))
                + &list(self.blocks(), "\n", |c| {
                    format!("    (*tile).r{r}c{c} += b{c} * a{r};")
                })
        });
        format!(
            "\
fn tile_multiply_add(tile: ptr<function, Tile>, rows: ARows, columns: BColumns, k: u32) {{
{shared}{loads}{updates}}}

"
        )
    }

    /// A step that reads A and B from the workgroup's tiles, a row of each.
    pub(super) fn staged_step(&self, staged: &Staged) -> String {
        let b_loads = lines(self.blocks(), |c| {
            format!("    let b{c} = b_tile[b_at + {}u];", c * staged.across)
        });
        let a_loads = lines(self.rows / 4, |r| {
            format!("    let a{r} = a_tile[a_at + {r}u];")
        });
        let updates: String = (0..self.rows)
            .map(|r| {
                let a = format!("a{}.{}", r / 4, ["x", "y", "z", "w"][r as usize % 4]);
                lines(self.blocks(), |c| {
                    format!("    (*tile).r{r}c{c} += {a} * b{c};")
                })
            })
            .collect();
        format!(
            "\
fn tile_multiply_add(tile: ptr<function, Tile>, a_at: u32, b_at: u32) {{
{b_loads}{a_loads}{updates}}}

"
        )
    }

    /// Access to the finished tile by run-time index: as selections, since an array would force the
    /// tile out of its registers (and take a software driver ten times as long to compile).
    pub(super) fn pick(&self) -> String {
        let blocks = self.blocks();
        let first = list(blocks, ", ", |c| format!("tile.r0c{c}"));
        let rows: String = (1..self.rows)
            .map(|r| {
                lines(blocks, |c| {
                    format!("    row.c{c} = select(row.c{c}, tile.r{r}c{c}, r == {r}u);")
                })
            })
            .collect();
        let picks = lines(blocks - 1, |c| {
            format!("    x = select(x, row.c{0}, block == {0}u);", c + 1)
        });
        format!(
            "\
struct TileRow {{
{}}}

fn tile_row(tile: Tile, r: u32) -> TileRow {{
    var row = TileRow({first});
{rows}    return row;
}}

fn row_block(row: TileRow, block: u32) -> vec4<f32> {{
    var x = row.c0;
{picks}    return x;
}}

",
            lines(blocks, |c| format!("    c{c}: vec4<f32>,"))
        )
    }
}
