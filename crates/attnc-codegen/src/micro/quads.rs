//! What the attention tiles have in common whose rows, by fours, eight invocations share: their columns of O in
//! registers, and how operands come in and O goes out.
//!
//! On entry: a tile of four rows. On exit: functions over `OTile`, and loads that give zeros past the last column.

use super::rows::{RowFunctions, RowTypes};
use super::{Access, AttentionTile, Checks, MAX_HELD, Weights, imports, lines};
use crate::params::BLOCK;

/// Invocations that share four rows; `LANES` in `lib/quads`.
pub(crate) const LANES: u32 = 8;

/// Four rows of a tile.
pub(super) struct Quad<'a>(pub(super) &'a AttentionTile);

impl Quad<'_> {
    /// Vectors of four columns that an invocation has of each of its rows of O.
    pub(super) fn chunks(&self) -> u32 {
        self.0.v_dim.div_ceil(4 * LANES)
    }

    /// Columns of O, and some behind the last so that all invocations have as many.
    pub(super) fn v_padded(&self) -> u32 {
        4 * LANES * self.chunks()
    }

    /// What is wrong with a workgroup of so many fours.
    pub(super) fn check(&self, quads: u32, checks: &mut Checks) {
        let of = self.0;
        checks.expect(of.rows == 4, || {
            format!("rows: expected 4, found {}", of.rows)
        });
        checks.expect(quads > 0 && BLOCK.is_multiple_of(4 * quads), || {
            format!("quads: expected a divisor of {}, found {quads}", BLOCK / 4)
        });
        checks.expect(of.qk_dim > 0, || {
            "qk_dim: expected at least 1, found 0".to_owned()
        });
        checks.expect((1..=MAX_HELD).contains(&of.v_dim), || {
            format!("v_dim: expected 1 to {MAX_HELD}, found {}", of.v_dim)
        });
        for (name, access, dim) in self.operands() {
            checks.expect(access == Access::Scalar || dim.is_multiple_of(4), || {
                format!("{name}: vector access needs columns in multiples of 4, found {dim}")
            });
        }
        checks.expect(of.o == Access::Vec4 || !of.result.is_packed(), || {
            "o: words of two elements are written by vectors only".to_owned()
        });
        let one_walk = !matches!(of.weights, Weights::AfterSum { .. });
        checks.expect(one_walk, || {
            "weights: expected none that need the sum of a row".to_owned()
        });
    }

    fn operands(&self) -> [(&'static str, Access, u32); 4] {
        let AttentionTile { qk_dim, v_dim, .. } = *self.0;
        [
            ("q", self.0.q, qk_dim),
            ("k", self.0.k, qk_dim),
            ("v", self.0.v, v_dim),
            ("o", self.0.o, v_dim),
        ]
    }

    /// The functions of `mods`, by rows.
    pub(super) fn functions(&self) -> RowFunctions {
        RowFunctions {
            rows: 4,
            heads: false,
            prob_mod: self.0.weights != Weights::Probabilities,
            sink: self.0.sink,
        }
    }

    /// Import lines for a kernel's bindings, for `mods` and for what reads and writes items.
    pub(super) fn imports(&self, kernel: &str) -> String {
        format!(
            "import package::mods::{{{}}};\nimport package::kernels::{kernel}::{{shape, q, k, v, o}};\n{}",
            self.functions().imports(),
            imports(self.0.converters())
        )
    }

    /// Constants that all of these kernels read.
    pub(super) fn constants(&self) -> String {
        format!(
            "const V_COLUMNS: u32 = {}u;\nconst IS_MASKED: bool = {};\nconst HAS_SINK: bool = {};\n",
            self.0.v_dim, self.0.masked, self.0.sink
        )
    }

    /// Items of memory, one number a row, and the columns of O.
    pub(super) fn types(&self) -> String {
        let of = self.0;
        let [q, k, v] = [of.q, of.k, of.v].map(|access| access.item(of.operands));
        let o = of.o.item(of.result);
        format!(
            "\
{}alias q_item = {q};
alias k_item = {k};
alias v_item = {v};
alias o_item = {o};

// Every LANES-th vector of columns of O.
struct OTile {{
{}}}

",
            RowTypes(4),
            self.fields(|r, c| format!("    r{r}c{c}: vec4<f32>,"))
        )
    }

    /// A line for each vector of O.
    pub(super) fn fields(&self, line: impl Fn(u32, u32) -> String) -> String {
        let chunks = self.chunks();
        lines(4 * chunks, |i| line(i / chunks, i % chunks))
    }

    /// `load_x(at, column)`: four columns of the row at `at`, zeros past the last. So many columns are asked for of Q
    /// and K, and `v_padded` of V.
    pub(super) fn loads(&self, qk_padded: u32) -> String {
        let [q, k, v, _] = self.operands();
        let asked = [qk_padded, qk_padded, self.v_padded()];
        let operands = [q, k, v].into_iter().zip(asked);
        let print = |((name, access, dim), asked)| match access {
            Access::Vec4 => self.vector_load(name, (dim != asked).then_some(dim)),
            Access::Scalar => self.scalar_load(name, dim),
        };
        operands.map(print).collect()
    }

    fn vector_load(&self, name: &str, guarded: Option<u32>) -> String {
        let guard = guarded.map_or(String::new(), |dim| {
            format!("    if column >= {dim}u {{\n        return vec4<f32>();\n    }}\n")
        });
        let load = self.0.operands.load_vec4(name, "(at + column) / 4u");
        format!(
            "fn load_{name}(at: u32, column: u32) -> vec4<f32> {{\n{guard}    return {load};\n}}\n\n"
        )
    }

    fn scalar_load(&self, name: &str, dim: u32) -> String {
        let load = self.0.operands.load(name, "i");
        let columns = lines(4, |i| {
            format!("        column_of_{name}(at, column + {i}u),")
        });
        let last = dim - 1;
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

"
        )
    }

    /// `tile_scale` and `tile_store_o`.
    pub(super) fn scale_and_store(&self) -> String {
        let chunks = self.chunks();
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
{}}}

{}fn tile_store_o(head: u32, row: RowIndex, lane: u32, tile: OTile, factor: Rows) {{
{stores}}}

",
            self.fields(|r, c| format!("    (*out).r{r}c{c} *= factor[{r}];")),
            self.store_function(),
        )
    }

    /// `store_o(at, column, x)`: four columns of the row at `at`, except those past the last.
    fn store_function(&self) -> String {
        let store = match self.0.o {
            Access::Vec4 => {
                let item = self.0.result.vec4_of("x");
                format!(
                    "    if column < V_COLUMNS {{\n        o[(at + column) / 4u] = {item};\n    }}\n"
                )
            }
            Access::Scalar => {
                let item = self.0.result.item_of("x[i]");
                format!(
                    "    for (var i = 0u; i < 4u && column + i < V_COLUMNS; i++) {{\n        \
                     o[at + (column + i) * shape.o_column_stride] = {item};\n    }}\n"
                )
            }
        };
        format!("fn store_o(at: u32, column: u32, x: vec4<f32>) {{\n{store}}}\n\n")
    }
}
