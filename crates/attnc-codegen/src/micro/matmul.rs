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

mod loads;
mod matrices;
mod registers;
mod staged;

use super::{Access, Checks, Converter, MicroError, imports, lines};
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

impl Staged {
    fn check(&self, steps: u32, checks: &mut Checks) {
        let some = self.down > 0 && self.across > 0 && self.steps > 0;
        checks.expect(some && self.steps.is_multiple_of(steps.max(1)), || {
            format!("staged: expected tiles, and steps in {steps}s, found {self:?}")
        });
    }
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
            c_row(),
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

    fn check(&self) -> Result<(), MicroError> {
        let mut checks = Checks::default();
        self.check_division(&mut checks);
        let b_by_k = matches!(self.b, RightLoad::KVec4 | RightLoad::Panels { .. });
        let by_k = self.a == LeftLoad::KVec4 || b_by_k;
        checks.expect(!(by_k && self.k_tail), || {
            "k_tail: vectors along k need K in multiples of 4, found that it may not be".to_owned()
        });
        let eights = self.columns.is_multiple_of(8) && self.operands == Stored::F32Pairs;
        let eights = eights && self.staged().is_none() && !self.k_tail;
        checks.expect(self.b != RightLoad::NVec8 || eights, || {
            format!(
                "b: by eights needs f32 by pairs, columns by eights and no tail of k, found {} and {} columns",
                self.operands, self.columns
            )
        });
        checks.expect(self.c == Access::Vec4 || !self.result.is_packed(), || {
            "c: words of two elements are written by vectors only".to_owned()
        });
        let eights = self.columns == 8 && self.result == Stored::F32Pairs;
        let eights = eights && self.c == Access::Vec4 && self.writes_rows();
        checks.expect(!self.c_eights || eights, || {
            format!(
                "c_eights: needs rows of 8 columns of f32 by pairs, found {} of {}",
                self.columns, self.result
            )
        });
        let alike = self.c == Access::Vec4 || self.epilogue == Access::Scalar;
        checks.expect(alike, || {
            "epilogue: vectors are computed only where C is written by vectors".to_owned()
        });
        checks.finish()
    }

    fn check_division(&self, checks: &mut Checks) {
        let Self { rows, columns, .. } = *self;
        let in_fours = [4, 8, 12, 16].contains(&columns);
        let mut vectors = |most: u32, some: bool| {
            checks.expect((1..=most).contains(&rows) && some, || {
                format!("rows: expected 1 to {most}, found {rows}")
            });
            checks.expect(in_fours, || {
                format!("columns: expected 4, 8, 12 or 16, found {columns}")
            });
        };
        match self.division {
            Division::Rows => vectors(16, true),
            Division::Lanes { count } => {
                vectors(16, true);
                checks.expect(count.is_power_of_two() && count <= 256, || {
                    format!("lanes: expected a power of two of at most 256, found {count}")
                });
            }
            Division::Subgroup { lanes } => {
                vectors(32, true);
                checks.expect(rows <= lanes || rows.is_multiple_of(lanes), || {
                    format!(
                        "rows: expected a row or as many a lane, found {rows} for {lanes} lanes"
                    )
                });
                let by_vectors = self.a == LeftLoad::KVec4;
                checks.expect([4, 8].contains(&lanes) && by_vectors, || {
                    format!("lanes: expected 4 or 8 that read A by vectors along k, found {lanes}")
                });
            }
            Division::Tiled(staged) => {
                vectors(8, rows % 4 == 0);
                staged.check(4, checks);
            }
            Division::Matrix {
                staged,
                size,
                lanes,
            } => {
                let whole = [8, 16].contains(&size) && rows % size == 0 && columns % size == 0;
                checks.expect(whole && rows > 0 && columns > 0 && lanes > 0, || {
                    format!("matrices: expected whole ones, found {rows} x {columns} by {size}")
                });
                checks.expect(self.operands == Stored::F16, || {
                    format!("operands: expected f16, found {}", self.operands)
                });
                staged.check(size, checks);
            }
        }
    }

    /// The functions that this module reads and writes bindings by.
    fn converters(&self) -> impl Iterator<Item = Converter> {
        let a = match self.a {
            LeftLoad::Element => None,
            _ => self.operands.reader(self.a_access()),
        };
        let b = match self.b {
            RightLoad::Element => None,
            RightLoad::NVec8 => self.operands.reader_of_eights(),
            RightLoad::Panels { .. } if self.panels_by_eights() => self.operands.reader_of_eights(),
            _ => self.operands.reader(self.b_access()),
        };
        let c = match self.c_eights {
            true => self.result.writer_of_eights(),
            false => self.result.writer(self.c),
        };
        [a, b, c].into_iter().flatten()
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
        self.operands == Stored::F32Pairs
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
            self.a_access().item(self.operands),
            match self.b {
                RightLoad::NVec8 => self.operands.vec8(),
                RightLoad::Panels { .. } if self.panels_by_eights() => self.operands.vec8(),
                _ => self.b_access().item(self.operands),
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

    /// Whether the kernel writes a row of the tile at a time.
    pub(crate) fn writes_rows(&self) -> bool {
        matches!(self.division, Division::Rows | Division::Subgroup { .. })
    }

    fn store(&self) -> String {
        match (self.c_eights, self.writes_rows()) {
            (true, _) => self.store_row_of_eight(),
            (false, true) => self.store_block() + STORE_ROW,
            (false, false) => self.store_block(),
        }
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

fn c_row() -> String {
    "\
// Where a row of C starts.
fn c_row(b0: u32, b1: u32, m: u32) -> u32 {
    return shape.c_offset + b0 * shape.c_b0_stride + b1 * shape.c_b1_stride + m * shape.c_m_stride;
}

"
    .to_owned()
}

/// The epilogue may be long, so it stands in a loop, not in as many copies as there are vectors.
const STORE_ROW: &str = "
// The columns from n on of the row of C at `row`, of which `blocks` vectors are there.
fn store_row(row: u32, b0: u32, b1: u32, m: u32, n: u32, blocks: u32, x: TileRow) {
    for (var block = 0u; block < blocks; block++) {
        store_block(row, b0, b1, m, n + 4u * block, row_block(x, block));
    }
}
";
