//! The register tile of the `matmul_…` kernels.
//!
//! ```
//! use attnc_codegen::Stored;
//! use attnc_codegen::micro::{Access, Division, LeftLoad, MatmulTile, RightLoad, Staged};
//! let tile = MatmulTile {
//!     rows: 8,
//!     columns: 8,
//!     division: Division::Tiled(Staged { down: 8, across: 8, steps: 16 }),
//!     a: LeftLoad::KVec4,
//!     b: RightLoad::NVec4,
//!     a_image: false,
//!     b_image: false,
//!     c: Access::Vec4,
//!     c_eights: false,
//!     epilogue: Access::Vec4,
//!     operands: Stored::F32,
//!     result: Stored::F32,
//!     k_tail: false,
//! };
//! assert_eq!(tile.kernel(), "matmul_tiled");
//! assert!(tile.print().unwrap().contains("fn tile_multiply_add"));
//! ```
//!
//! On entry: any numbers. On exit: the module that the kernel imports, or every reason why there is none.

mod check;
mod loads;
mod matrices;
mod registers;
mod staged;
mod stores;

use super::{Access, Converter, MicroError, imports, lines};
use crate::Stored;

/// How A is read, four steps of k at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LeftLoad {
    /// Contiguous along k: K, the offset and the other strides are multiples of 4.
    KVec4,
    /// Any strides.
    Scalar,
    /// From the function `a_element(b0, b1, m, k) -> f32` in `mods`, which may read the binding `a`.
    Element,
}

/// How B is read, four steps of k and four columns at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RightLoad {
    /// Contiguous along n (row-major `[K, N]`): N, the offset and the other strides are multiples of 4.
    NVec4,
    /// The same by eights: all of them are multiples of 8, elements are f32 by pairs, and K has no tail.
    NVec8,
    /// Contiguous along k (weights `[N, K]`): K, the offset and the other strides are multiples of 4.
    KVec4,
    /// From panels of so many columns ([`attnc_plan::Panels`]), a multiple of 4: `b_k_stride` is that number, and
    /// `b_n_stride` is K. Four columns lie behind each other, so f32 by pairs is read by eights.
    Panels {
        /// See there.
        columns: u32,
    },
    /// Any strides.
    Scalar,
    /// From the function `b_element(b0, b1, k, n) -> f32` in `mods`, which may read the binding `b`.
    Element,
}

/// How the invocations of a workgroup divide the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Division {
    /// Every invocation has rows and columns of its own: `matmul_rows`.
    Rows,
    /// A workgroup has the tile, and each lane a part of every sum: `matmul_lanes`.
    Lanes {
        /// A power of two of at most 256.
        count: u32,
    },
    /// All lanes have the same rows, of which they load one each and hand it round, and columns of their own:
    /// `matmul_subgroup`.
    Subgroup {
        /// 4 or 8.
        lanes: u32,
    },
    /// Invocations share tiles of A and B in workgroup memory: `matmul_tiled`.
    Tiled(Staged),
    /// Subgroups do, and multiply matrices of 16 × 16 or 8 × 8 as a whole: `matmul_matrix`.
    Matrix {
        /// The tiles, each of a subgroup.
        staged: Staged,
        /// Rows and columns of a matrix: 8 or 16.
        size: u32,
        /// Lanes of the largest subgroup there may be. In smaller ones more lanes idle.
        lanes: u32,
    },
}

/// How a workgroup stages tiles of A and B in its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Staged {
    /// Register tiles below each other.
    pub down: u32,
    /// Register tiles beside each other.
    pub across: u32,
    /// Steps of k at a time, a multiple of 4.
    pub steps: u32,
}

/// Outputs of one invocation, or of a subgroup where that has matrices, and how they are come by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MatmulTile {
    /// Rows, 1 to 16; where lanes share them up to 32, by as many as there are lanes if there are more; 4 or 8 where
    /// tiles are staged; whole matrices where there are.
    pub rows: u32,
    /// Columns: 4, 8, 12 or 16, or whole matrices.
    pub columns: u32,
    /// Who has which rows and columns.
    pub division: Division,
    /// How A is read.
    pub a: LeftLoad,
    /// How B is read.
    pub b: RightLoad,
    /// Whether A is read through an image: f32, by vectors along k.
    pub a_image: bool,
    /// Whether B is: f32, by vectors.
    pub b_image: bool,
    /// How C is written; vectors run along n. By vectors where it is packed, so that every word has one owner.
    pub c: Access,
    /// Whether rows of C, of 8 columns each, are written as a whole: f32 by pairs, where all strides and N are multiples
    /// of 8.
    pub c_eights: bool,
    /// What `epilogue` computes: elements, or, where C is written so, vectors of four.
    pub epilogue: Access,
    /// How A and B are stored.
    pub operands: Stored,
    /// How C is stored.
    pub result: Stored,
    /// Whether K may be no multiple of 4. It cannot where an operand is read by vectors along k.
    pub k_tail: bool,
}

impl MatmulTile {
    /// The text of the `micro` module.
    ///
    /// # Errors
    /// Rows or columns out of range, or a tail along k where an operand is read by vectors along k.
    pub fn print(&self) -> Result<String, MicroError> {
        self.check()?;
        let tile = match self.division {
            Division::Rows | Division::Lanes { .. } | Division::Subgroup { .. } => {
                [self.registers(), self.step(), self.pick_row()]
            }
            Division::Tiled(staged) => [
                self.registers() + &self.stage(&staged),
                self.staged_step(&staged),
                self.pick_row(),
            ],
            Division::Matrix { staged, size, .. } => [
                self.matrices(size),
                self.stage(&staged),
                self.matrix_step(size),
            ],
        };
        Ok([
            self.header(),
            self.types(),
            self.a_functions(),
            self.b_functions(),
            tile.concat(),
            self.store(),
        ]
        .concat())
    }

    /// The kernel that the tile is for.
    #[must_use]
    pub fn kernel(&self) -> &'static str {
        match self.division {
            Division::Rows => "matmul_rows",
            Division::Lanes { .. } => "matmul_lanes",
            Division::Subgroup { .. } => "matmul_subgroup",
            Division::Tiled(_) => "matmul_tiled",
            Division::Matrix { .. } => "matmul_matrix",
        }
    }

    /// Invocations of a workgroup, where the kernel is not indifferent to that.
    #[must_use]
    pub fn invocations(&self) -> Option<u32> {
        match self.division {
            Division::Rows => None,
            Division::Lanes { count: lanes } | Division::Subgroup { lanes } => Some(lanes),
            Division::Tiled(staged) => Some(staged.down * staged.across),
            Division::Matrix { staged, lanes, .. } => Some(staged.down * staged.across * lanes),
        }
    }

    /// How tiles are staged, where they are.
    #[must_use]
    pub fn staged(&self) -> Option<&Staged> {
        match &self.division {
            Division::Tiled(staged) | Division::Matrix { staged, .. } => Some(staged),
            Division::Rows | Division::Lanes { .. } | Division::Subgroup { .. } => None,
        }
    }

    /// Vectors of four columns.
    fn blocks(&self) -> u32 {
        self.columns / 4
    }

    /// Loads of a row of B, of the vectors of columns that an invocation reads at a time.
    fn b_loads(&self) -> u32 {
        match (self.staged(), self.b) {
            (Some(_), _) => 1,
            (None, RightLoad::NVec8) => self.blocks() / 2,
            (None, _) => self.blocks(),
        }
    }

    /// Rows of A that an invocation loads at a time.
    fn loaded_rows(&self) -> u32 {
        match self.division {
            Division::Rows | Division::Lanes { .. } => self.rows,
            Division::Subgroup { lanes } => self.rows.div_ceil(lanes),
            Division::Tiled(_) | Division::Matrix { .. } => 4,
        }
    }

    /// The functions that this module reads and writes bindings by.
    fn converters(&self) -> impl Iterator<Item = Converter> {
        let a = match self.a {
            LeftLoad::Element => None,
            _ => self.a_stored().reader(self.a_access()),
        };
        let b = match self.b {
            RightLoad::Element => None,
            RightLoad::NVec8 => self.operands.reader_of_eights(),
            RightLoad::Panels { .. } if self.panels_by_eights() => self.operands.reader_of_eights(),
            _ => self.b_stored().reader(self.b_access()),
        };
        let c = match self.c_eights {
            true => self.result.writer_of_eights(),
            false => self.result.writer(self.c),
        };
        [a, b, c].into_iter().flatten()
    }

    /// The variables that are bound as images.
    #[must_use]
    pub fn images(&self) -> Vec<&'static str> {
        let operands = [(self.a_image, "a"), (self.b_image, "b")].into_iter();
        operands
            .filter(|(is, _)| *is)
            .map(|(_, name)| name)
            .collect()
    }

    /// How A is stored, as the kernel sees it.
    fn a_stored(&self) -> Stored {
        match self.a_image {
            true => Stored::F32Image,
            false => self.operands,
        }
    }

    /// How B is.
    fn b_stored(&self) -> Stored {
        match self.b_image {
            true => Stored::F32Image,
            false => self.operands,
        }
    }

    /// How the items of A are read, if any are.
    fn a_access(&self) -> Access {
        match self.a {
            LeftLoad::KVec4 => Access::Vec4,
            LeftLoad::Scalar | LeftLoad::Element => Access::Scalar,
        }
    }

    /// Whether two columns of a panel are one item.
    fn panels_by_eights(&self) -> bool {
        self.b_stored() == Stored::F32Pairs
    }

    /// How the items of B are read, if any are.
    fn b_access(&self) -> Access {
        match self.b {
            RightLoad::NVec4 | RightLoad::NVec8 | RightLoad::KVec4 | RightLoad::Panels { .. } => {
                Access::Vec4
            }
            RightLoad::Scalar | RightLoad::Element => Access::Scalar,
        }
    }

    /// What `load_a` needs beside where a row starts.
    fn a_argument(&self) -> &'static str {
        match self.a {
            LeftLoad::Element => "rows, ",
            LeftLoad::KVec4 | LeftLoad::Scalar => "",
        }
    }

    /// What `load_b` needs beside where columns start: how far apart steps of k are is looked up once for all.
    fn b_argument(&self) -> &'static str {
        match self.b {
            RightLoad::Element => "columns, ",
            RightLoad::NVec4 | RightLoad::NVec8 | RightLoad::Scalar => "columns.k_stride, ",
            RightLoad::KVec4 | RightLoad::Panels { .. } => "",
        }
    }

    /// `text` where B is read by the distance between its steps of k.
    fn k_stride<'t>(&self, text: &'t str) -> &'t str {
        match self.b {
            RightLoad::NVec4 | RightLoad::NVec8 | RightLoad::Scalar => text,
            RightLoad::KVec4 | RightLoad::Panels { .. } | RightLoad::Element => "",
        }
    }

    fn header(&self) -> String {
        let Self { rows, columns, .. } = self;
        // An operand given by its elements is read by `mods`, if at all.
        let (a_function, a) = match self.a {
            LeftLoad::Element => ("a_element, ", ""),
            LeftLoad::KVec4 | LeftLoad::Scalar => ("", ", a"),
        };
        let (b_function, b) = match self.b {
            RightLoad::Element => ("b_element, ", ""),
            _ => ("", ", b"),
        };
        let (tiles, what) = match self.division {
            Division::Rows | Division::Lanes { .. } | Division::Subgroup { .. } => (
                "",
                "Four steps of k at once: tile row += (4 x 4 block of B) * (4 elements of A's row).",
            ),
            Division::Tiled(_) => (
                ", a_tile, b_tile",
                "One step of k at once: tile row += element of A * row of B.",
            ),
            Division::Matrix { .. } => (
                ", a_tile, b_tile, c_tile",
                "A matrix of steps of k at once: C += A * B, by all lanes of a subgroup.",
            ),
        };
        format!(
            "\
// micro: matmul register tile of {rows} rows x {columns} columns (generated)
//
// {what}

import package::mods::{{{a_function}{b_function}epilogue}};
import package::kernels::{}::{{shape{a}{b}, c{tiles}}};
{}
const ROWS: u32 = {rows}u;
const COLUMNS: u32 = {columns}u;

",
            self.kernel(),
            imports(self.converters()),
        )
    }

    fn types(&self) -> String {
        let batch = "    b0: u32,\n    b1: u32,\n";
        let (a_batch, a_what) = match self.a {
            LeftLoad::Element => (batch, "Rows of A, by m"),
            _ => ("", "Where the rows of A start"),
        };
        let (b_batch, b_what, b_start) = match self.b {
            RightLoad::NVec4 | RightLoad::Panels { .. } => {
                ("", "Where the column blocks of B start", "u32")
            }
            RightLoad::NVec8 => ("", "Where every other column block of B starts", "u32"),
            RightLoad::Element => (batch, "Columns of B, by n", "vec4<u32>"),
            _ => ("", "Where the columns of B start", "vec4<u32>"),
        };
        format!(
            "\
alias a_item = {};
alias b_item = {};
alias c_item = {};

// {a_what}; a row past the end repeats the last.
struct ARows {{
{a_batch}{}}}

// {b_what}; a column past the end repeats the last.
struct BColumns {{
{b_batch}{}}}

",
            self.a_access().item(self.a_stored()),
            match self.b {
                RightLoad::NVec8 => self.operands.vec8(),
                RightLoad::Panels { .. } if self.panels_by_eights() => self.operands.vec8(),
                _ => self.b_access().item(self.b_stored()),
            },
            match self.c_eights {
                true => self.result.vec8(),
                false => self.c.item(self.result),
            },
            lines(self.loaded_rows(), |r| format!("    r{r}: u32,")),
            lines(self.b_loads(), |c| format!("    c{c}: {b_start},"))
                + self.k_stride("    k_stride: u32,\n"),
        )
    }
}
