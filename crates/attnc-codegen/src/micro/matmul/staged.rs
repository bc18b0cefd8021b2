//! Tiles of A and B in workgroup memory, and how they come there.
//!
//! Both lie by rows of k, so that a step of k reads neighbours of either; A is transposed in registers on its way.
//! Invocations take blocks of 4 × 4, those whose elements lie behind each other in memory after each other. A row
//! is 16 bytes longer than the tile, so that neighbouring rows do not start in the same bank.
//!
//! On entry: a tile that was checked. On exit: `a_place`, `b_place`, `a_block`, `b_block`, `put_a` and `put_b`, which
//! leave zeros where k is past the end.

use super::{Division, MatmulTile, RightLoad, Staged};
use crate::micro::lines;

impl MatmulTile {
    /// Rows of C of a workgroup.
    #[must_use]
    pub fn block_rows(&self) -> u32 {
        self.rows * self.staged().map_or(1, |s| s.down)
    }

    /// Columns of C of a workgroup.
    #[must_use]
    pub fn block_columns(&self) -> u32 {
        self.columns * self.staged().map_or(1, |s| s.across)
    }

    /// Bytes of workgroup memory.
    #[must_use]
    pub fn workgroup_bytes(&self) -> u32 {
        let strides = self.stride(self.block_rows()) + self.stride(self.block_columns());
        match self.division {
            Division::Rows | Division::Lanes { .. } | Division::Subgroup { .. } => 0,
            Division::Tiled(staged) => 16 * staged.steps * strides,
            Division::Matrix { staged, size, .. } => {
                let matrices = staged.down * staged.across + 1;
                2 * staged.steps * strides + 4 * size * size * matrices
            }
        }
    }

    /// Items of a tile from one step of k to the next: vectors of four, or f16.
    fn stride(&self, elements: u32) -> u32 {
        match self.division {
            Division::Matrix { .. } => elements + 8,
            _ => elements / 4 + 1,
        }
    }

    /// The functions that fill the tiles.
    pub(super) fn stage(&self, staged: &Staged) -> String {
        let (a_rows, b_columns) = (self.a_argument(), self.b_argument());
        let b_by_k = self.b == RightLoad::KVec4;
        [
            self.constants(staged),
            place("a_place", "m", "BLOCK_M", true),
            place("b_place", "n", "BLOCK_N", b_by_k),
            format!(
                "\
// Four rows of A at four steps of k: a vector for each step.
fn a_block(b0: u32, b1: u32, m: u32, k: u32) -> mat4x4<f32> {{
    if k >= shape.k {{
        return mat4x4<f32>();
    }}
    let rows = a_rows(b0, b1, m);
    return transpose(mat4x4<f32>(
        load_a({a_rows}rows.r0, k),
        load_a({a_rows}rows.r1, k),
        load_a({a_rows}rows.r2, k),
        load_a({a_rows}rows.r3, k),
    ));
}}

// Four columns of B at four steps of k: a vector for each step.
fn b_block(b0: u32, b1: u32, n: u32, k: u32) -> mat4x4<f32> {{
    if k >= shape.k {{
        return mat4x4<f32>();
    }}
    let columns = b_columns(b0, b1, n);
    return load_b({b_columns}columns.c0, k);
}}

"
            ),
            self.put("a", "A", "m"),
            self.put("b", "B", "n"),
        ]
        .concat()
    }

    fn constants(&self, staged: &Staged) -> String {
        let Staged { across, steps, .. } = staged;
        let (block_m, block_n) = (self.block_rows(), self.block_columns());
        format!(
            "\
const ACROSS: u32 = {across}u;
const BLOCK_M: u32 = {block_m}u;
const BLOCK_N: u32 = {block_n}u;
const BLOCK_K: u32 = {steps}u;
const A_STRIDE: u32 = {}u;
const B_STRIDE: u32 = {}u;

",
            self.stride(block_m),
            self.stride(block_n),
        )
    }

    /// The function that writes a block to a tile: four vectors, or sixteen elements, which are exact in f16.
    fn put(&self, name: &str, stride: &str, axis: &str) -> String {
        let rows = match self.division {
            Division::Matrix { .. } => lines(16, |i| {
                let (k, other) = (i / 4, i % 4);
                format!(
                    "    {name}_tile[at + {k}u * {stride}_STRIDE + {other}u] = f16(block[{k}].{});",
                    ["x", "y", "z", "w"][other as usize]
                )
            }),
            _ => lines(4, |k| {
                format!("    {name}_tile[at + {k}u * {stride}_STRIDE] = block[{k}];")
            }),
        };
        let at = match self.division {
            Division::Matrix { .. } => axis.to_owned(),
            _ => format!("{axis} / 4u"),
        };
        format!(
            "\
fn put_{name}(k: u32, {axis}: u32, block: mat4x4<f32>) {{
    let at = k * {stride}_STRIDE + {at};
{rows}}}

"
        )
    }
}

/// Where block `i` of 4 × 4 starts in a tile: neighbours follow each other along k, or along the other axis.
fn place(name: &str, axis: &str, size: &str, by_k: bool) -> String {
    let (k, other) = if by_k {
        (
            "i % (BLOCK_K / 4u)".to_owned(),
            "i / (BLOCK_K / 4u)".to_owned(),
        )
    } else {
        (format!("i / ({size} / 4u)"), format!("i % ({size} / 4u)"))
    };
    format!(
        "\
// Where block i of a tile starts, as k and {axis}.
fn {name}(i: u32) -> vec2<u32> {{
    return 4u * vec2<u32>({k}, {other});
}}

"
    )
}
