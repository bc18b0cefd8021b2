//! The register tile of `flash_attention_fwd_matrix`: a block of O, to which products by matrices are added.
//!
//! ```
//! use attnc_codegen::Stored;
//! use attnc_codegen::micro::{AttentionTile, MatrixAttentionTile};
//! let of = AttentionTile { operands: Stored::F16, ..AttentionTile::contiguous(4, 64) };
//! let tile = MatrixAttentionTile { quads: 16, size: 16, of };
//! assert_eq!((tile.rows(), tile.invocations()), (64, 128));
//! assert!(tile.workgroup_bytes() <= 32 << 10);
//! assert!(tile.print().unwrap().contains("coop_mat16x16<f16, A>"));
//! ```
//!
//! Matrices in WGSL are an extension of wgpu's (`wgpu_cooperative_matrix`), after SPV_KHR_cooperative_matrix.
//!
//! On entry: any numbers. On exit: a module whose kernel multiplies matrices of f16 only, or every reason why there
//! is none.

use super::quads::{LANES, Quad};
use super::{AttentionTile, Checks, MicroError, Weights, lines};
use crate::Stored;

/// Keys in workgroup memory at a time, and columns of V that are multiplied at once; `KEYS` in `lib/matrix_slices`.
const KEYS: u32 = 32;

/// Query rows of one workgroup, by fours, whose products are made by matrices, and whose columns of O eight
/// invocations share out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MatrixAttentionTile {
    /// Fours of rows, which must divide the rows of a tile that is skipped, and be two matrices high.
    pub quads: u32,
    /// Rows and columns of a matrix, 8 or 16.
    pub size: u32,
    /// Dims, and how operands are read and stored; its rows are those of a quad, 4.
    pub of: AttentionTile,
}

impl MatrixAttentionTile {
    /// The kernel that the tile is for.
    pub const KERNEL: &'static str = "flash_attention_fwd_matrix";

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

    /// Bytes of workgroup memory: lines of Q, of K or V, of P, of sums, numbers of lanes, and two words.
    #[must_use]
    pub fn workgroup_bytes(&self) -> u32 {
        let q_line = self.qk_padded() + 8;
        let kv_line = self.qk_padded().max(self.quad().v_padded()) + 8;
        let halves = self.rows() * q_line + KEYS * kv_line + self.rows() * (KEYS + 8);
        let sums = self.rows() * (KEYS + 4);
        2 * halves + 4 * sums + 16 * LANES * (self.quads + 1) + 8
    }

    /// Elements of O in registers.
    pub(crate) fn held(&self) -> u32 {
        16 * self.quad().chunks()
    }

    /// The text of the `micro` module.
    ///
    /// # Errors
    /// Rows or dims that it cannot have, operands that are no f16, weights that f16 may not hold.
    pub fn print(&self) -> Result<String, MicroError> {
        let mut checks = Checks::default();
        self.quad().check(self.quads, &mut checks);
        checks.expect([8, 16].contains(&self.size), || {
            format!("size: expected 8 or 16, found {}", self.size)
        });
        checks.expect(self.rows().is_multiple_of(2 * self.size), || {
            let (size, rows) = (self.size, self.rows());
            format!("quads: expected whole pairs of matrices of {size} rows, found {rows} rows")
        });
        checks.expect(self.of.operands == Stored::F16, || {
            format!("operands: expected f16, found {}", self.of.operands)
        });
        checks.expect(self.of.weights == Weights::Probabilities, || {
            "weights: expected probabilities, which f16 holds".to_owned()
        });
        checks.finish()?;
        Ok([
            self.header(),
            self.quad().types(),
            self.quad().functions().print(),
            self.quad().loads(self.qk_padded()),
            self.quad().scale_and_store(),
            self.add_pv(),
            self.add_odd(),
        ]
        .concat())
    }

    fn quad(&self) -> Quad<'_> {
        Quad(&self.of)
    }

    /// Vectors of four columns that an invocation has of each of its rows of O.
    pub(crate) fn chunks(&self) -> u32 {
        self.quad().chunks()
    }

    /// Columns of Q and K in workgroup memory.
    pub(crate) fn qk_padded(&self) -> u32 {
        self.of.qk_dim.next_multiple_of(16)
    }

    fn header(&self) -> String {
        let AttentionTile { qk_dim, v_dim, .. } = self.of;
        format!(
            "\
// micro: attention tile of {rows} query rows by {KEYS} keys; Q and K have {qk_dim} columns, V and O {v_dim} (generated)

{imports}import package::lib::quads::{{LANES, odd, counts}};
import package::lib::matrix_slices::{{KEYS, P_LINE, p_tile, quad_of_sums}};
import package::lib::matrix_products::{{multiply_pv}};

const SIZE: u32 = {size}u;
const QK_PADDED: u32 = {qk}u; // columns in workgroup memory, zeros behind the last
const V_PADDED: u32 = {v}u;
{constants}
alias a_matrix = coop_mat{size}x{size}<f16, A>;
alias b_matrix = coop_mat{size}x{size}<f16, B>;
alias c_matrix = coop_mat{size}x{size}<f32, C>;

",
            rows = self.rows(),
            size = self.size,
            imports = self.quad().imports(Self::KERNEL),
            qk = self.qk_padded(),
            v = self.quad().v_padded(),
            constants = self.quad().constants(),
        )
    }

    /// `out += P V` over a slice of keys, by as many columns at a time as it has keys.
    fn add_pv(&self) -> String {
        let chunk = |c: u32| {
            let adds = lines(4, |r| {
                format!("    (*out).r{r}c{c} += vec4<f32>(a[{r}], b[{r}], c[{r}], d[{r}]);")
            });
            let columns = ["a", "b", "c", "d"].iter().enumerate().map(|(i, name)| {
                format!("        {name} = quad_of_sums(quad, 4u * lane + {i}u);\n")
            });
            let columns: String = columns.collect::<String>().replace("        ", "    ");
            format!(
                "    workgroupBarrier();\n    multiply_pv({}u, subgroup, subgroups);\n    workgroupBarrier();\n{columns}{adds}",
                KEYS * c
            )
        };
        let chunks: String = (0..self.quad().chunks()).map(chunk).collect();
        format!(
            "\
// Of the four columns of a lane, each is one number a row.
fn tile_add_pv(out: ptr<function, OTile>, quad: u32, lane: u32, subgroup: u32, subgroups: u32) {{
    var a: Rows;
    var b: Rows;
    var c: Rows;
    var d: Rows;
{chunks}}}

"
        )
    }

    /// What the infinities and NaN of V add, which its product went without.
    fn add_odd(&self) -> String {
        let loads = lines(self.quad().chunks(), |c| {
            format!(
                "        let x{c} = odd_of_v(at, 4u * (lane + {}u));",
                c * LANES
            )
        });
        let adds = self.quad().fields(|r, c| {
            format!("        (*out).r{r}c{c} += select(vec4<f32>(), p[{r}] * x{c}, live[{r}]);")
        });
        format!(
            "\
fn odd_of_v(at: u32, column: u32) -> vec4<f32> {{
    let x = load_v(at, column);
    return select(vec4<f32>(), x, odd(x));
}}

// What the infinities and NaN of V add, which its product went without. A masked key adds nothing.
fn tile_add_odd(out: ptr<function, OTile>, quad: u32, lane: u32, v_head: u32, first: u32) {{
    for (var n = 0u; n < KEYS; n++) {{
        let line = 4u * quad * P_LINE + n;
        let p = Rows(vec4<f16>(p_tile[line], p_tile[line + P_LINE], p_tile[line + 2u * P_LINE], p_tile[line + 3u * P_LINE]));
        let live = counts(p);
        let at = v_head + min(first + n, shape.kv_len - 1u) * shape.v_row_stride;
{loads}{adds}    }}
}}
"
        )
    }
}
