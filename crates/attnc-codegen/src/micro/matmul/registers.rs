//! Tiles whose sums are vectors in registers: one step of k, and how the finished tile is read.
//!
//! On entry: a tile that was checked. On exit: `Tile`, `tile_zero`, `tile_multiply_add`, `tile_row` and `row_block`, and
//! `tile_group` where lanes share rows.

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
        let b_columns = self.b_argument();
        let loads = lines(self.b_loads(), |c| match self.b {
            RightLoad::NVec8 => format!(
                "    let blocks{c} = load_b({b_columns}columns.c{c}, k);\n    let b{} = blocks{c}.low;\n    let b{} = blocks{c}.high;",
                2 * c,
                2 * c + 1
            ),
            _ => format!("    let b{c} = load_b({b_columns}columns.c{c}, k);"),
        });
        let updates = match self.division {
            Division::Subgroup { lanes } => self.updates_by_columns(lanes),
            _ => self.updates_by_rows(),
        };
        format!(
            "\
fn tile_multiply_add(tile: ptr<function, Tile>, rows: ARows, columns: BColumns, k: u32) {{
{loads}{updates}}}

"
        )
    }

    /// Row by row, so that little of A is held at a time.
    fn updates_by_rows(&self) -> String {
        let a_rows = self.a_argument();
        lines(self.rows, |r| {
            let adds = list(self.blocks(), "\n", |c| add(r, c));
            format!("    let a{r} = load_a({a_rows}rows.r{r}, k);\n{adds}")
        })
    }

    /// Block by block of columns, so that one of B is held at a time; A comes from the lanes that hold its rows.
    fn updates_by_columns(&self, lanes: u32) -> String {
        let held = lines(self.loaded_rows(), |r| {
            format!("    let rows{r} = load_a(rows.r{r}, k);")
        });
        let handed = lines(self.rows, |r| {
            format!(
                "    let a{r} = subgroupBroadcast(rows{}, {}u);",
                r / lanes,
                r % lanes
            )
        });
        let adds: String = (0..self.blocks())
            .map(|c| lines(self.rows, |r| add(r, c)))
            .collect();
        held + &handed + &adds
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
    pub(super) fn pick_row(&self) -> String {
        let Division::Subgroup { lanes } = self.division else {
            return self.pick("Tile", "tile", self.rows);
        };
        // Of many rows in two steps, for which as many selections as rows a row would be too much.
        let rows = lanes.min(self.rows);
        self.pick_group(rows) + &self.pick("Group", "part", rows)
    }

    /// `tile_group`: so many neighbouring rows of the tile.
    fn pick_group(&self, rows: u32) -> String {
        let blocks = self.blocks();
        let cell = |i: u32| (i / blocks, i % blocks);
        let fields = lines(rows * blocks, |i| {
            let (r, c) = cell(i);
            format!("    r{r}c{c}: vec4<f32>,")
        });
        let first = lines(rows * blocks, |i| {
            let (r, c) = cell(i);
            format!("        tile.r{r}c{c},")
        });
        let others: String = (1..self.rows / rows)
            .map(|g| {
                lines(rows * blocks, |i| {
                    let (r, c) = cell(i);
                    let own = g * rows + r;
                    format!(
                        "    part.r{r}c{c} = select(part.r{r}c{c}, tile.r{own}c{c}, g == {g}u);"
                    )
                })
            })
            .collect();
        format!(
            "\
const GROUP: u32 = {rows}u;

// Rows g * GROUP to g * GROUP + GROUP - 1 of a tile.
struct Group {{
{fields}}}

fn tile_group(tile: Tile, g: u32) -> Group {{
    var part = Group(
{first}    );
{others}    return part;
}}

"
        )
    }

    /// `tile_row`: row r of a structure of so many; and what takes one vector of it.
    fn pick(&self, ty: &str, name: &str, count: u32) -> String {
        let blocks = self.blocks();
        let first = list(blocks, ", ", |c| format!("{name}.r0c{c}"));
        let rows: String = (1..count)
            .map(|r| {
                lines(blocks, |c| {
                    format!("    row.c{c} = select(row.c{c}, {name}.r{r}c{c}, r == {r}u);")
                })
            })
            .collect();
        format!(
            "\
struct TileRow {{
{}}}

fn tile_row({name}: {ty}, r: u32) -> TileRow {{
    var row = TileRow({first});
{rows}    return row;
}}

",
            lines(blocks, |c| format!("    c{c}: vec4<f32>,"))
        ) + &self.pick_block()
    }

    /// `row_block`: one vector of a row.
    fn pick_block(&self) -> String {
        if self.c_eights {
            return String::new();
        }
        let picks = lines(self.blocks() - 1, |c| {
            format!("    x = select(x, row.c{0}, block == {0}u);", c + 1)
        });
        format!(
            "\
fn row_block(row: TileRow, block: u32) -> vec4<f32> {{
    var x = row.c0;
{picks}    return x;
}}

"
        )
    }
}

/// A block of a row, by which four steps of k are added.
fn add(row: u32, block: u32) -> String {
    format!("    (*tile).r{row}c{block} += b{block} * a{row};")
}
