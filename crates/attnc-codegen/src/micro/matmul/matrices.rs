//! Tiles whose sums are cooperative matrices: their products, and how they come back to memory.
//!
//! The tiles of A and B lie by steps of k, so that A is loaded by columns and B by rows. Nobody can reach into a
//! matrix: it is stored to `c_tile` as a whole, where lanes find its elements.
//!
//! Matrices in WGSL are an extension of wgpu's (`wgpu_cooperative_matrix`), after SPV_KHR_cooperative_matrix.
//!
//! On entry: a tile that was checked. On exit: `Tile`, `tile_zero`, `tile_multiply_add` and `put_matrix`.

use super::MatmulTile;
use crate::micro::lines;

impl MatmulTile {
    /// The tile itself.
    pub(super) fn matrices(&self, size: u32) -> String {
        let (down, across) = (self.rows / size, self.columns / size);
        format!(
            "\
const SIZE: u32 = {size}u;
const SUBGROUPS: u32 = {}u;
const MATRICES_ACROSS: u32 = {across}u;
const MATRICES: u32 = {}u;

alias a_matrix = coop_mat{size}x{size}<f16, A>;
alias b_matrix = coop_mat{size}x{size}<f16, B>;
alias c_matrix = coop_mat{size}x{size}<f32, C>;

struct Tile {{
{}}}

fn tile_zero() -> Tile {{
    return Tile();
}}

",
            self.staged().map_or(1, |s| s.down * s.across),
            down * across,
            lines(down * across, |i| format!("    c{i}: c_matrix,")),
        )
    }

    /// A step of `size`, and a finished matrix to where lanes can read it.
    pub(super) fn matrix_step(&self, size: u32) -> String {
        let (down, across) = (self.rows / size, self.columns / size);
        let b_loads = lines(across, |c| {
            format!(
                "    let b{c} = coopLoadT<b_matrix>(&b_tile[b_at + {}u], B_STRIDE);",
                c * size
            )
        });
        let rows: String = (0..down)
            .map(|r| {
                let at = r * size;
                format!("    let a{r} = coopLoad<a_matrix>(&a_tile[a_at + {at}u], A_STRIDE);\n")
                    + &lines(across, |c| {
                        let i = r * across + c;
                        format!("    (*tile).c{i} = coopMultiplyAdd(a{r}, b{c}, (*tile).c{i});")
                    })
            })
            .collect();
        let cases = lines(down * across, |i| {
            format!(
                "        case {i}u: {{\n            coopStoreT(tile.c{i}, &c_tile[at], SIZE);\n        }}"
            )
        });
        format!(
            "\
fn tile_multiply_add(tile: ptr<function, Tile>, a_at: u32, b_at: u32) {{
{b_loads}{rows}}}

fn put_matrix(tile: Tile, i: u32, at: u32) {{
    switch i {{
{cases}        default: {{
        }}
    }}
}}

"
        )
    }
}
