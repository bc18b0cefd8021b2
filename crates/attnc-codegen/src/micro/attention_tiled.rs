//! The register tile of `flash_attention_fwd_tiled`: a block of scores and a block of O.
//!
//! ```
//! use attnc_codegen::micro::{AttentionTile, TiledAttentionTile};
//! let tile = TiledAttentionTile { quads: 16, of: AttentionTile::contiguous(4, 64) };
//! assert_eq!((tile.rows(), tile.invocations()), (64, 128));
//! assert_eq!(tile.workgroup_bytes(), 16 * (16 * 17 + 64 * 5) + 8);
//! assert!(tile.print().unwrap().contains("fn scores_add_qk"));
//! ```
//!
//! On entry: any numbers. On exit: a module whose blocks are straight-line code over slices in workgroup memory, in
//! loops over a slice, or every reason why there is none.

use super::rows::{RowFunctions, RowTypes};
use super::{Access, AttentionTile, Checks, MAX_HELD, MicroError, Weights, imports, lines};
use crate::params::BLOCK;

/// Invocations that share four rows; `LANES` in `lib/quads`.
pub(crate) const LANES: u32 = 8;
/// Columns of Q and K, or keys of P and V, in workgroup memory at a time; `SLICE` in `lib/attention_slices`.
const SLICE: u32 = 16;
/// Keys of a tile of which an invocation has the scores.
const KEYS: u32 = BLOCK / LANES;

/// Query rows of one workgroup, by fours, whose scores and columns of O eight invocations share out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TiledAttentionTile {
    /// Fours of rows, which must divide the rows of a tile that is skipped.
    pub quads: u32,
    /// Dims, and how operands are read and stored; its rows are those of a quad, 4.
    pub of: AttentionTile,
}

impl TiledAttentionTile {
    /// The kernel that the tile is for.
    pub const KERNEL: &'static str = "flash_attention_fwd_tiled";

    /// Query rows of a workgroup.
    #[must_use]
    pub fn rows(&self) -> u32 {
        4 * self.quads
    }

    /// Invocations of a workgroup.
    #[must_use]
    pub fn invocations(&self) -> u32 {
        self.quads * LANES
    }

    /// Bytes of workgroup memory: a slice of the left operands, one of the right ones, and two words.
    #[must_use]
    pub fn workgroup_bytes(&self) -> u32 {
        let left = SLICE * (self.quads + 1);
        let right = (BLOCK * (SLICE / 4 + 1)).max(SLICE * self.v_vectors());
        16 * (left + right) + 8
    }

    /// Vectors of four columns that an invocation has of each of its rows of O.
    pub(crate) fn chunks(&self) -> u32 {
        self.of.v_dim.div_ceil(4 * LANES)
    }

    /// Vectors of a row of V in workgroup memory.
    fn v_vectors(&self) -> u32 {
        LANES * self.chunks()
    }

    /// Scores and elements of O in registers.
    pub(crate) fn held(&self) -> u32 {
        4 * (KEYS + 4 * self.chunks())
    }

    /// The text of the `micro` module.
    ///
    /// # Errors
    /// Rows or dims that it cannot have, or vector access to a dim that is no multiple of 4.
    pub fn print(&self) -> Result<String, MicroError> {
        self.check()?;
        Ok([
            self.header(),
            self.types(),
            self.functions().print(),
            self.loads(),
            scores(),
            self.o_functions(),
        ]
        .concat())
    }

    fn check(&self) -> Result<(), MicroError> {
        let mut checks = Checks::default();
        checks.expect(self.of.rows == 4, || {
            format!("rows: expected 4, found {}", self.of.rows)
        });
        checks.expect(self.quads > 0 && BLOCK.is_multiple_of(self.rows()), || {
            format!(
                "quads: expected a divisor of {}, found {}",
                BLOCK / 4,
                self.quads
            )
        });
        checks.expect(self.of.qk_dim > 0, || {
            "qk_dim: expected at least 1, found 0".to_owned()
        });
        checks.expect((1..=MAX_HELD).contains(&self.of.v_dim), || {
            format!("v_dim: expected 1 to {MAX_HELD}, found {}", self.of.v_dim)
        });
        for (name, access, dim) in self.operands() {
            checks.expect(access == Access::Scalar || dim.is_multiple_of(4), || {
                format!("{name}: vector access needs columns in multiples of 4, found {dim}")
            });
        }
        let words = self.of.o == Access::Scalar && self.of.result.is_packed();
        checks.expect(!words, || {
            "o: words of two elements are written by vectors only".to_owned()
        });
        let one_walk = !matches!(self.of.weights, Weights::AfterSum { .. });
        checks.expect(one_walk, || {
            "weights: expected none that need the sum of a row".to_owned()
        });
        checks.finish()
    }

    fn operands(&self) -> [(&'static str, Access, u32); 4] {
        let AttentionTile { qk_dim, v_dim, .. } = self.of;
        [
            ("q", self.of.q, qk_dim),
            ("k", self.of.k, qk_dim),
            ("v", self.of.v, v_dim),
            ("o", self.of.o, v_dim),
        ]
    }

    fn functions(&self) -> RowFunctions {
        RowFunctions {
            rows: 4,
            heads: false,
            prob_mod: self.of.weights != Weights::Probabilities,
            sink: self.of.sink,
        }
    }

    fn header(&self) -> String {
        let AttentionTile { qk_dim, v_dim, .. } = self.of;
        format!(
            "\
// micro: attention tile of {} query rows by {BLOCK} keys; Q and K have {qk_dim} columns, V and O {v_dim} (generated)
//
// A vec4 named after keys has one number for each row of a quad; one named after rows and columns, four columns.

import package::mods::{{{}}};
import package::kernels::{}::{{shape, q, k, v, o}};
import package::lib::quads::{{LANES, counts}};
import package::lib::attention_slices::{{left, right, SLICE, LEFT_LINE, K_LINE}};
{}
const QK_COLUMNS: u32 = {qk_dim}u;
const V_COLUMNS: u32 = {v_dim}u;
const V_VECTORS: u32 = {}u; // of a row in workgroup memory, zeros behind the last column
const IS_MASKED: bool = {};
const HAS_SINK: bool = {};

",
            self.rows(),
            self.functions().imports(),
            Self::KERNEL,
            imports(self.of.converters()),
            self.v_vectors(),
            self.of.masked,
            self.of.sink,
        )
    }

    fn types(&self) -> String {
        let [q, k, v] = [self.of.q, self.of.k, self.of.v].map(|a| a.item(self.of.operands));
        let o = self.of.o.item(self.of.result);
        let scores = lines(KEYS, |n| format!("    k{n}: Rows,"));
        let chunks = self.chunks();
        let fields = lines(4 * chunks, |i| {
            format!("    r{}c{}: vec4<f32>,", i / chunks, i % chunks)
        });
        format!(
            "\
{}alias q_item = {q};
alias k_item = {k};
alias v_item = {v};
alias o_item = {o};

// The scores of every LANES-th key.
struct Scores {{
{scores}}}

// Every LANES-th vector of columns of O.
struct OTile {{
{fields}}}

",
            RowTypes(4)
        )
    }

    /// `load_x(at, column)`: four columns of the row at `at`, zeros past the last.
    fn loads(&self) -> String {
        let [q, k, v, _] = self.operands();
        let staged = [self.of.qk_dim.next_multiple_of(SLICE); 2];
        let staged = [staged[0], staged[1], 4 * self.v_vectors()];
        let print = |((name, access, dim), staged): ((&str, Access, u32), u32)| match access {
            Access::Vec4 => {
                let guard = match dim == staged {
                    true => String::new(),
                    false => {
                        format!("    if column >= {dim}u {{\n        return vec4<f32>();\n    }}\n")
                    }
                };
                let load = self.of.operands.load_vec4(name, "(at + column) / 4u");
                format!(
                    "fn load_{name}(at: u32, column: u32) -> vec4<f32> {{\n{guard}    return {load};\n}}\n\n"
                )
            }
            Access::Scalar => {
                let load = self.of.operands.load(name, "i");
                let columns = lines(4, |i| {
                    format!("        column_of_{name}(at, column + {i}u),")
                });
                format!(
                    "\
fn column_of_{name}(at: u32, column: u32) -> f32 {{
    let i = at + min(column, {last}u) * shape.{name}_column_stride;
    return select(0.0, {load}, column <= {last}u);
}}

fn load_{name}(at: u32, column: u32) -> vec4<f32> {{
    return vec4<f32>(
{columns}    );
}}

",
                    last = dim - 1
                )
            }
        };
        [q, k, v].into_iter().zip(staged).map(print).collect()
    }

    fn o_functions(&self) -> String {
        let chunks = self.chunks();
        let fields =
            |line: &dyn Fn(u32, u32) -> String| lines(4 * chunks, |i| line(i / chunks, i % chunks));
        let scales = fields(&|r, c| format!("    (*out).r{r}c{c} *= factor[{r}];"));
        let stores = lines(4, |r| {
            let chunk = |c| {
                let column = format!("4u * (lane + {}u)", c * LANES);
                format!("        store_o(at, {column}, tile.r{r}c{c} * factor[{r}]);")
            };
            format!(
                "    if row[{r}] < shape.q_len {{\n        let at = head + row[{r}] * shape.o_row_stride;\n{}    }}",
                lines(chunks, chunk)
            )
        });
        format!(
            "\
fn tile_scale(out: ptr<function, OTile>, factor: Rows) {{
{scales}}}

{}// The same, where V has infinities or NaN: a row for which a key is masked takes nothing of it.
{}{}fn tile_store_o(head: u32, row: RowIndex, lane: u32, tile: OTile, factor: Rows) {{
{stores}}}
",
            self.add_pv("tile_add_pv", "", &|_, c| format!("x{c}")),
            self.add_pv(
                "tile_add_pv_where",
                "        let live = counts(p);\n",
                &|r, c| format!("select(vec4<f32>(), x{c}, live[{r}])")
            ),
            self.store_function(),
        )
    }

    /// `out += P V` over a slice of keys; `value` is what row `r` takes of V's columns `c`.
    fn add_pv(&self, name: &str, first: &str, value: &dyn Fn(u32, u32) -> String) -> String {
        let chunks = self.chunks();
        let loads = lines(chunks, |c| {
            format!(
                "        let x{c} = right[n * V_VECTORS + lane + {}u];",
                c * LANES
            )
        });
        let adds = lines(4 * chunks, |i| {
            let (r, c) = (i / chunks, i % chunks);
            format!(
                "        (*out).r{r}c{c} = fma(vec4<f32>(p[{r}]), {}, (*out).r{r}c{c});",
                value(r, c)
            )
        });
        format!(
            "\
fn {name}(out: ptr<function, OTile>, quad: u32, lane: u32) {{
    for (var n = 0u; n < SLICE; n++) {{
        let p = left[n * LEFT_LINE + quad];
{first}{loads}{adds}    }}
}}

"
        )
    }

    /// `store_o(at, column, x)`: four columns of the row at `at`, except those past the last.
    fn store_function(&self) -> String {
        let store = match self.of.o {
            Access::Vec4 => {
                let item = self.of.result.vec4_of("x");
                format!(
                    "    if column < V_COLUMNS {{\n        o[(at + column) / 4u] = {item};\n    }}\n"
                )
            }
            Access::Scalar => {
                let item = self.of.result.item_of("x[i]");
                format!(
                    "    for (var i = 0u; i < 4u && column + i < V_COLUMNS; i++) {{\n        \
                     o[at + (column + i) * shape.o_column_stride] = {item};\n    }}\n"
                )
            }
        };
        format!("fn store_o(at: u32, column: u32, x: vec4<f32>) {{\n{store}}}\n\n")
    }
}

/// The product of slices of Q and K, and the order in which scores are looked at.
fn scores() -> String {
    let loads = lines(4, |i| {
        format!("        let q{i} = left[(column + {i}u) * LEFT_LINE + quad];")
    });
    let adds = lines(KEYS, |n| {
        let at = format!("(lane + {}u) * K_LINE + column / 4u", n * LANES);
        format!("        (*s).k{n} = add_dots((*s).k{n}, q0, q1, q2, q3, right[{at}]);")
    });
    let turned = lines(KEYS - 1, |n| format!("        s.k{},", n + 1));
    format!(
        "\
fn add_dots(sum: Rows, q0: Rows, q1: Rows, q2: Rows, q3: Rows, k: vec4<f32>) -> Rows {{
    return fma(q3, Rows(k.w), fma(q2, Rows(k.z), fma(q1, Rows(k.y), fma(q0, Rows(k.x), sum))));
}}

// s += Q K^T over a slice of columns
fn scores_add_qk(s: ptr<function, Scores>, quad: u32, lane: u32) {{
    for (var column = 0u; column < SLICE; column += 4u) {{
{loads}{adds}    }}
}}

// Scores in a ring, so that a loop takes the first of them, and puts what it comes to behind the last.
fn scores_turned(s: Scores, last: Rows) -> Scores {{
    return Scores(
{turned}        last,
    );
}}

"
    )
}
