//! The register tile of `matmul_rows` and `matmul_subgroup`.

use super::{Access, Checks, Converter, MicroError, imports, lines, list};
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
    /// Any strides.
    Scalar,
    /// From the function `b_element(b0, b1, k, n) -> f32` in `mods`, which may read the binding `b`.
    Element,
}

/// Outputs of one invocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MatmulTile {
    /// Rows, 1 to 16; up to 32 where lanes share them.
    pub rows: u32,
    /// Lanes that load a row of A each and hand it round, so that all of them have the same rows: 4 or 8, for
    /// `matmul_subgroup`. Every lane has rows of its own where there is no number, for `matmul_rows`.
    pub shared_by: Option<u32>,
    /// Columns: 4, 8, 12 or 16.
    pub columns: u32,
    /// How A is read.
    pub a: LeftLoad,
    /// How B is read.
    pub b: RightLoad,
    /// How C is written; vectors run along n. By vectors where it is packed, so that every word has one owner.
    pub c: Access,
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
        Ok([
            self.header(),
            self.types(),
            self.a_functions(),
            self.b_functions(),
            self.step(),
            self.pick(),
            self.store(),
        ]
        .concat())
    }

    fn blocks(&self) -> u32 {
        self.columns / 4
    }

    /// The kernel that the tile is for.
    #[must_use]
    pub fn kernel(&self) -> &'static str {
        match self.shared_by {
            Some(_) => "matmul_subgroup",
            None => "matmul_rows",
        }
    }

    /// Loads of a row of B.
    fn b_loads(&self) -> u32 {
        match self.b {
            RightLoad::NVec8 => self.blocks() / 2,
            _ => self.blocks(),
        }
    }

    /// Rows of A that a lane loads.
    fn loaded_rows(&self) -> u32 {
        self.rows.div_ceil(self.shared_by.unwrap_or(1))
    }

    fn check(&self) -> Result<(), MicroError> {
        let mut checks = Checks::default();
        let most = if self.shared_by.is_some() { 32 } else { 16 };
        checks.expect((1..=most).contains(&self.rows), || {
            format!("rows: expected 1 to {most}, found {}", self.rows)
        });
        let shares = self.shared_by.is_none_or(|n| [4, 8].contains(&n));
        checks.expect(
            shares && (self.shared_by.is_none() || self.a == LeftLoad::KVec4),
            || {
                format!(
                    "shared_by: expected 4 or 8 lanes that read A by vectors along k, found {:?}",
                    self.shared_by
                )
            },
        );
        checks.expect([4, 8, 12, 16].contains(&self.columns), || {
            format!("columns: expected 4, 8, 12 or 16, found {}", self.columns)
        });
        let by_k = self.a == LeftLoad::KVec4 || self.b == RightLoad::KVec4;
        checks.expect(!(by_k && self.k_tail), || {
            "k_tail: vectors along k need K in multiples of 4, found that it may not be".to_owned()
        });
        let eights = self.columns.is_multiple_of(8) && self.operands == Stored::F32Pairs;
        checks.expect(self.b != RightLoad::NVec8 || eights && !self.k_tail, || {
            format!(
                "b: by eights needs f32 by pairs, columns by eights and no tail of k, found {} and {} columns",
                self.operands, self.columns
            )
        });
        checks.expect(self.c == Access::Vec4 || !self.result.is_packed(), || {
            "c: words of two elements are written by vectors only".to_owned()
        });
        checks.finish()
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
            _ => self.operands.reader(self.b_access()),
        };
        let c = self.result.writer(self.c);
        [a, b, c].into_iter().flatten()
    }

    /// How the items of A are read, if any are.
    fn a_access(&self) -> Access {
        match self.a {
            LeftLoad::KVec4 => Access::Vec4,
            LeftLoad::Scalar | LeftLoad::Element => Access::Scalar,
        }
    }

    /// How the items of B are read, if any are.
    fn b_access(&self) -> Access {
        match self.b {
            RightLoad::NVec4 | RightLoad::NVec8 | RightLoad::KVec4 => Access::Vec4,
            RightLoad::Scalar | RightLoad::Element => Access::Scalar,
        }
    }

    fn header(&self) -> String {
        let Self { rows, columns, .. } = self;
        let a = if self.a == LeftLoad::Element {
            "a_element, "
        } else {
            ""
        };
        let b = if self.b == RightLoad::Element {
            "b_element, "
        } else {
            ""
        };
        // An operand given by its elements is read by `mods`, if at all.
        let a_binding = if self.a == LeftLoad::Element {
            ""
        } else {
            ", a"
        };
        let b_binding = if self.b == RightLoad::Element {
            ""
        } else {
            ", b"
        };
        format!(
            "\
// micro: matmul register tile of {rows} rows x {columns} columns (generated)
//
// Four steps of k at once: tile row += (4 x 4 block of B) * (4 elements of A's row).

import package::mods::{{{a}{b}epilogue}};
import package::kernels::{}::{{shape{a_binding}{b_binding}, c}};
{}
const ROWS: u32 = {rows}u;
const COLUMNS: u32 = {columns}u;
const COLUMN_BLOCKS: u32 = {}u;

",
            self.kernel(),
            imports(self.converters()),
            self.blocks(),
        )
    }

    fn types(&self) -> String {
        let batch = "    b0: u32,\n    b1: u32,\n";
        let (a_batch, a_what) = match self.a {
            LeftLoad::Element => (batch, "Rows of A, by m"),
            _ => ("", "Where the rows of A start"),
        };
        let (b_batch, b_what, b_start) = match self.b {
            RightLoad::NVec4 => ("", "Where the column blocks of B start", "u32"),
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

// Row r, columns 4 c to 4 c + 3.
struct Tile {{
{}}}

",
            self.a_access().item(self.operands),
            match self.b {
                RightLoad::NVec8 => self.operands.vec8(),
                _ => self.b_access().item(self.operands),
            },
            self.c.item(self.result),
            lines(self.loaded_rows(), |r| format!("    r{r}: u32,")),
            lines(self.b_loads(), |c| format!("    c{c}: {b_start},")),
            lines(self.rows * self.blocks(), |i| format!(
                "    r{}c{}: vec4<f32>,",
                i / self.blocks(),
                i % self.blocks()
            )),
        )
    }

    fn a_functions(&self) -> String {
        let row = |r| format!("min(m + {r}u, shape.m - 1u)");
        if self.a == LeftLoad::Element {
            let rows = lines(self.rows, |r| format!("        {},", row(r)));
            return format!(
                "fn a_rows(b0: u32, b1: u32, m: u32) -> ARows {{\n    return ARows(\n        b0,\n        b1,\n{rows}    );\n}}\n\n"
            ) + &self.scalar_a("rows: ARows, m: u32", "", |k| {
                format!("a_element(rows.b0, rows.b1, m, {k})")
            });
        }
        let lane = self.shared_by.map_or("", |_| ", lane: u32");
        let rows = lines(self.loaded_rows(), |r| {
            let row = match self.shared_by {
                Some(lanes) => format!("min(m + lane + {}u, shape.m - 1u)", r * lanes),
                None => row(r),
            };
            format!("        start + {row} * shape.a_m_stride,")
        });
        let starts = format!(
            "\
fn a_rows(b0: u32, b1: u32, m: u32{lane}) -> ARows {{
    let start = shape.a_offset + b0 * shape.a_b0_stride + b1 * shape.a_b1_stride;
    return ARows(
{rows}    );
}}

"
        );
        starts
            + &if self.a == LeftLoad::KVec4 {
                format!(
                    "\
fn load_a(at: u32, k: u32) -> vec4<f32> {{
    return {};
}}

",
                    self.operands.load_vec4("a", "(at + k) / 4u")
                )
            } else {
                let stride = "    let stride = shape.a_k_stride;\n";
                self.scalar_a("at: u32", stride, |k| {
                    self.operands.load("a", &format!("at + {k} * stride"))
                })
            }
    }

    /// `load_a` from four single elements; past the end of k they are zeros, whatever stands there.
    fn scalar_a(&self, parameters: &str, setup: &str, element: impl Fn(&str) -> String) -> String {
        let index = |i: u32| match (i, self.k_tail) {
            (0, _) => "k".to_owned(),
            (_, false) => format!("(k + {i}u)"),
            (_, true) => format!("min(k + {i}u, last)"),
        };
        let elements = lines(4, |i| format!("        {},", element(&index(i))));
        if !self.k_tail {
            return format!(
                "fn load_a({parameters}, k: u32) -> vec4<f32> {{\n{setup}    return vec4<f32>(\n{elements}    );\n}}\n\n"
            );
        }
        format!(
            "\
fn load_a({parameters}, k: u32) -> vec4<f32> {{
    let last = shape.k - 1u;
{setup}    let x = vec4<f32>(
{elements}    );
    return select(vec4<f32>(), x, vec4<u32>(k, k + 1u, k + 2u, k + 3u) <= vec4<u32>(last));
}}

"
        )
    }

    fn b_functions(&self) -> String {
        let column = |i: u32| format!("min(n + {i}u, shape.n - 1u)");
        let four = |c: u32, f: &dyn Fn(String) -> String| list(4, ", ", |i| f(column(4 * c + i)));
        let (head, entries) = match self.b {
            RightLoad::Element => {
                let entries = lines(self.blocks(), |c| {
                    format!("        vec4<u32>({}),", four(c, &|n| n))
                });
                ("", format!("        b0,\n        b1,\n{entries}"))
            }
            RightLoad::NVec4 => (
                "",
                lines(self.blocks(), |c| {
                    format!("        start + min(n + {}u, shape.n - 4u),", 4 * c)
                }),
            ),
            RightLoad::NVec8 => (
                "",
                lines(self.b_loads(), |c| {
                    format!("        start + min(n + {}u, shape.n - 8u),", 8 * c)
                }),
            ),
            _ => {
                let entry = |c| {
                    format!(
                        "        start + shape.b_n_stride * vec4<u32>({}),",
                        four(c, &|n| n)
                    )
                };
                ("", lines(self.blocks(), entry))
            }
        };
        let start = if self.b == RightLoad::Element {
            head
        } else {
            "    let start = shape.b_offset + b0 * shape.b_b0_stride + b1 * shape.b_b1_stride;\n"
        };
        format!(
            "fn b_columns(b0: u32, b1: u32, n: u32) -> BColumns {{\n{start}    return BColumns(\n{entries}    );\n}}\n\n"
        ) + &self.load_b()
    }

    /// `load_b`: two matrices whose columns i are row k + i of B.
    fn load_b_by_eights(&self) -> String {
        let rows = lines(4, |i| {
            let row = if i == 0 {
                "k".into()
            } else {
                format!("(k + {i}u)")
            };
            let item = format!("(at + {row} * shape.b_k_stride) / 8u");
            format!("    let r{i} = {};", self.operands.load_vec8("b", &item))
        });
        format!(
            "\
struct Blocks {{
    low: mat4x4<f32>,
    high: mat4x4<f32>,
}}

fn load_b(at: u32, k: u32) -> Blocks {{
{rows}    return Blocks(
        mat4x4<f32>(r0.low, r1.low, r2.low, r3.low),
        mat4x4<f32>(r0.high, r1.high, r2.high, r3.high),
    );
}}

"
        )
    }

    /// `load_b`: a matrix whose column i is row k + i of B.
    fn load_b(&self) -> String {
        if self.b == RightLoad::NVec8 {
            return self.load_b_by_eights();
        }
        let (parameters, arguments, row) = match self.b {
            RightLoad::KVec4 => {
                let columns = list(4, "", |i| {
                    let at = ["at.x", "at.y", "at.z", "at.w"][i as usize];
                    let item = format!("({at} + k) / 4u");
                    format!("        {},\n", self.operands.load_vec4("b", &item))
                });
                return format!(
                    "\
fn load_b(at: vec4<u32>, k: u32) -> mat4x4<f32> {{
    return transpose(mat4x4<f32>(
{columns}    ));
}}

"
                );
            }
            RightLoad::NVec4 | RightLoad::NVec8 => (
                "at: u32",
                "at",
                self.operands
                    .load_vec4("b", "(at + K * shape.b_k_stride) / 4u"),
            ),
            RightLoad::Scalar => ("at: vec4<u32>", "at", {
                let element = |i: u32| {
                    self.operands
                        .load("b", ["i.x", "i.y", "i.z", "i.w"][i as usize])
                };
                format!("vec4<f32>({})", list(4, ", ", element))
            }),
            RightLoad::Element => ("columns: BColumns, n: vec4<u32>", "columns, n", {
                let element = |i: u32| {
                    format!(
                        "        b_element(columns.b0, columns.b1, K, n.{}),\n",
                        ["x", "y", "z", "w"][i as usize]
                    )
                };
                format!("vec4<f32>(\n{}    )", list(4, "", element))
            }),
        };
        let setup = if self.b == RightLoad::Scalar {
            "    let i = at + K * shape.b_k_stride;\n"
        } else {
            ""
        };
        let body = if self.k_tail {
            format!(
                "    let last = shape.k - 1u;\n{}    let x = {};\n    return select(vec4<f32>(), x, k <= last);\n",
                setup.replace('K', "min(k, last)"),
                row.replace('K', "min(k, last)")
            )
        } else {
            format!(
                "{}    return {};\n",
                setup.replace('K', "k"),
                row.replace('K', "k")
            )
        };
        let rows = lines(4, |i| match i {
            0 => format!("        load_b_row({arguments}, k),"),
            _ => format!("        load_b_row({arguments}, k + {i}u),"),
        });
        format!(
            "\
fn load_b_row({parameters}, k: u32) -> vec4<f32> {{
{body}}}

fn load_b({parameters}, k: u32) -> mat4x4<f32> {{
    return mat4x4<f32>(
{rows}    );
}}

"
        )
    }

    fn step(&self) -> String {
        let a_rows = if self.a == LeftLoad::Element {
            "rows, "
        } else {
            ""
        };
        let b_columns = if self.b == RightLoad::Element {
            "columns, "
        } else {
            ""
        };
        let loads = lines(self.b_loads(), |c| match self.b {
            RightLoad::NVec8 => format!(
                "    let blocks{c} = load_b(columns.c{c}, k);\n    let b{} = blocks{c}.low;\n    let b{} = blocks{c}.high;",
                2 * c,
                2 * c + 1
            ),
            _ => format!("    let b{c} = load_b({b_columns}columns.c{c}, k);"),
        });
        let shared = match self.shared_by {
            Some(_) => lines(self.loaded_rows(), |r| {
                format!("    let rows{r} = load_a(rows.r{r}, k);")
            }),
            None => String::new(),
        };
        let a_row = |r: u32| match self.shared_by {
            Some(lanes) => format!("subgroupBroadcast(rows{}, {}u)", r / lanes, r % lanes),
            None => format!("load_a({a_rows}rows.r{r}, k)"),
        };
        let updates = lines(self.rows, |r| {
            format!("    let a{r} = {};\n", a_row(r))
                + &list(self.blocks(), "\n", |c| {
                    format!("    (*tile).r{r}c{c} += b{c} * a{r};")
                })
        });
        format!(
            "\
fn tile_zero() -> Tile {{
    return Tile();
}}

fn tile_multiply_add(tile: ptr<function, Tile>, rows: ARows, columns: BColumns, k: u32) {{
{shared}{loads}{updates}}}

"
        )
    }

    /// Access to the finished tile by run-time index: as selections, since an array would force the
    /// tile out of its registers (and take a software driver ten times as long to compile).
    fn pick(&self) -> String {
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

    fn store(&self) -> String {
        let start = "shape.c_offset + b0 * shape.c_b0_stride + b1 * shape.c_b1_stride + m * shape.c_m_stride";
        let signature = "fn store_block(b0: u32, b1: u32, m: u32, n: u32, x: vec4<f32>)";
        if self.c == Access::Vec4 {
            let x = "vec4<f32>(
        epilogue(x.x, b0, b1, m, n),
        epilogue(x.y, b0, b1, m, n + 1u),
        epilogue(x.z, b0, b1, m, n + 2u),
        epilogue(x.w, b0, b1, m, n + 3u),
    )";
            return format!(
                "\
{signature} {{
    let at = {start} + n;
    c[at / 4u] = {};
}}
",
                self.result.vec4_of(x)
            );
        }
        let item = self.result.item_of("epilogue(values[i], b0, b1, m, n + i)");
        format!(
            "\
{signature} {{
    let start = {start};
    var values = x;
    for (var i = 0u; i < min(4u, shape.n - n); i++) {{
        c[start + (n + i) * shape.c_n_stride] = {item};
    }}
}}
"
        )
    }
}
