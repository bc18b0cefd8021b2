//! How tiles of products read A and B: `load_a`, four steps of k of a row, and `load_b`, a block of 4 × 4.
//!
//! Where rows and columns start is computed once, by `a_rows` and `b_columns`; past an end they repeat the last.
//!
//! On entry: a tile that was checked. On exit: functions whose every index is in bounds for k below `shape.k`.

use super::{Division, LeftLoad, MatmulTile, RightLoad};
use crate::micro::{lines, list};

impl MatmulTile {
    pub(super) fn a_functions(&self) -> String {
        let row = |r| format!("min(m + {r}u, shape.m - 1u)");
        if self.a == LeftLoad::Element {
            let rows = lines(self.loaded_rows(), |r| format!("        {},", row(r)));
            return format!(
                "fn a_rows(b0: u32, b1: u32, m: u32) -> ARows {{\n    return ARows(\n        b0,\n        b1,\n{rows}    );\n}}\n\n"
            ) + &self.scalar_a("rows: ARows, m: u32", "", |k| {
                format!("a_element(rows.b0, rows.b1, m, {k})")
            });
        }
        let shares = matches!(self.division, Division::Subgroup { .. });
        let lane = if shares { ", lane: u32" } else { "" };
        let rows = lines(self.loaded_rows(), |r| {
            let row = match self.division {
                Division::Subgroup { lanes } => {
                    format!("min(m + lane + {}u, shape.m - 1u)", r * lanes)
                }
                _ => row(r),
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
                    self.a_stored().load_vec4("a", "(at + k) / 4u")
                )
            } else {
                let stride = "    let stride = shape.a_k_stride;\n";
                self.scalar_a("at: u32", stride, |k| {
                    self.a_stored().load("a", &format!("at + {k} * stride"))
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

    pub(super) fn b_functions(&self) -> String {
        let column = |i: u32| format!("min(n + {i}u, shape.n - 1u)");
        let four = |c: u32, f: &dyn Fn(String) -> String| list(4, ", ", |i| f(column(4 * c + i)));
        let (head, entries) = match self.b {
            RightLoad::Element => {
                let entries = lines(self.b_loads(), |c| {
                    format!("        vec4<u32>({}),", four(c, &|n| n))
                });
                (
                    String::new(),
                    format!("        b0,\n        b1,\n{entries}"),
                )
            }
            RightLoad::NVec4 => (
                String::new(),
                lines(self.b_loads(), |c| {
                    format!("        start + min(n + {}u, shape.n - 4u),", 4 * c)
                }),
            ),
            RightLoad::NVec8 => (
                String::new(),
                lines(self.b_loads(), |c| {
                    format!("        start + min(n + {}u, shape.n - 8u),", 8 * c)
                }),
            ),
            RightLoad::Panels { columns } => {
                let entries = lines(self.b_loads(), |c| {
                    format!(
                        "        start + panel_start(min(n + {}u, shape.n - 4u)),",
                        4 * c
                    )
                });
                (panel_start(columns), entries)
            }
            _ => {
                let entry = |c| {
                    format!(
                        "        start + shape.b_n_stride * vec4<u32>({}),",
                        four(c, &|n| n)
                    )
                };
                (String::new(), lines(self.b_loads(), entry))
            }
        };
        let start = if self.b == RightLoad::Element {
            ""
        } else {
            "    let start = shape.b_offset + b0 * shape.b_b0_stride + b1 * shape.b_b1_stride;\n"
        };
        format!(
            "{head}fn b_columns(b0: u32, b1: u32, n: u32) -> BColumns {{\n{start}    return BColumns(\n{entries}{}    );\n}}\n\n",
            self.k_stride("        shape.b_k_stride,\n")
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
            let item = format!("(at + {row} * k_stride) / 8u");
            format!("    let r{i} = {};", self.operands.load_vec8("b", &item))
        });
        format!(
            "\
struct Blocks {{
    low: mat4x4<f32>,
    high: mat4x4<f32>,
}}

fn load_b(k_stride: u32, at: u32, k: u32) -> Blocks {{
{rows}    return Blocks(
        mat4x4<f32>(r0.low, r1.low, r2.low, r3.low),
        mat4x4<f32>(r0.high, r1.high, r2.high, r3.high),
    );
}}

"
        )
    }

    /// `load_b`: a matrix whose column i is row k + i of B, from four columns that lie behind each other.
    fn load_b_from_panels(&self, width: u32) -> String {
        let (setup, columns) = if self.panels_by_eights() {
            let pair = |i: u32| {
                let item = format!("(at + k * {width}u) / 8u + {i}u");
                format!("    let x{i} = {};", self.operands.load_vec8("b", &item))
            };
            (
                lines(2, pair),
                "x0.low, x0.high, x1.low, x1.high".to_owned(),
            )
        } else {
            let column = |i| self.b_stored().load_vec4("b", &format!("first + {i}u"));
            let setup = format!("    let first = (at + k * {width}u) / 4u;\n");
            (setup, list(4, ", ", column))
        };
        format!(
            "\
fn load_b(at: u32, k: u32) -> mat4x4<f32> {{
{setup}    return transpose(mat4x4<f32>({columns}));
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
                    format!("        {},\n", self.b_stored().load_vec4("b", &item))
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
            RightLoad::Panels { columns } => return self.load_b_from_panels(columns),
            RightLoad::NVec4 | RightLoad::NVec8 => (
                "k_stride: u32, at: u32",
                "k_stride, at",
                self.b_stored().load_vec4("b", "(at + K * k_stride) / 4u"),
            ),
            RightLoad::Scalar => ("k_stride: u32, at: vec4<u32>", "k_stride, at", {
                let element = |i: u32| {
                    self.b_stored()
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
            "    let i = at + K * k_stride;\n"
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
}

/// Where a column starts in panels of so many.
fn panel_start(columns: u32) -> String {
    format!(
        "\
fn panel_start(n: u32) -> u32 {{
    let column = n % {columns}u;
    return (n - column) * shape.b_n_stride + 4u * column;
}}

"
    )
}
