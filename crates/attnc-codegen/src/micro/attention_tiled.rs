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

use super::quads::{LANES, Quad};
use super::{AttentionTile, Checks, MicroError, lines};
use crate::params::BLOCK;

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
        let right = (BLOCK * (SLICE / 4 + 1)).max(SLICE * self.quad().v_padded() / 4);
        16 * (left + right) + 8
    }

    /// Vectors of four columns that an invocation has of each of its rows of O.
    pub(crate) fn chunks(&self) -> u32 {
        self.quad().chunks()
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
        let mut checks = Checks::default();
        self.quad().check(self.quads, &mut checks);
        checks.finish()?;
        let qk_padded = self.of.qk_dim.next_multiple_of(SLICE);
        Ok([
            self.header(),
            self.quad().types(),
            self.quad().functions().print(),
            self.quad().loads(qk_padded),
            scores(),
            self.quad().scale_and_store(),
            self.add_pv("tile_add_pv", "", &|_, c| format!("x{c}")),
            "// The same, where V has infinities or NaN: a row for which a key is masked takes nothing of it.\n".to_owned(),
            self.add_pv(
                "tile_add_pv_where",
                "        let live = counts(p);\n",
                &|r, c| format!("select(vec4<f32>(), x{c}, live[{r}])"),
            ),
        ]
        .concat()
        .trim_end()
        .to_owned()
            + "\n")
    }

    fn quad(&self) -> Quad<'_> {
        Quad(&self.of)
    }

    fn header(&self) -> String {
        let AttentionTile { qk_dim, v_dim, .. } = self.of;
        format!(
            "\
// micro: attention tile of {} query rows by {BLOCK} keys; Q and K have {qk_dim} columns, V and O {v_dim} (generated)
//
// A vec4 named after keys has one number for each row of a quad; one named after rows and columns, four columns.

{}import package::lib::quads::{{LANES, counts}};
import package::lib::attention_slices::{{left, right, SLICE, LEFT_LINE, K_LINE}};

const QK_COLUMNS: u32 = {qk_dim}u;
const V_VECTORS: u32 = {}u; // of a row in workgroup memory, zeros behind the last column
{}
",
            self.rows(),
            self.quad().imports(Self::KERNEL),
            self.quad().v_padded() / 4,
            self.quad().constants(),
        )
    }

    /// `out += P V` over a slice of keys; `value` is what row `r` takes of V's columns `c`.
    fn add_pv(&self, name: &str, first: &str, value: &dyn Fn(u32, u32) -> String) -> String {
        let loads = lines(self.chunks(), |c| {
            format!(
                "        let x{c} = right[n * V_VECTORS + lane + {}u];",
                c * LANES
            )
        });
        let adds = self.quad().fields(|r, c| {
            let x = value(r, c);
            format!("        (*out).r{r}c{c} = fma(vec4<f32>(p[{r}]), {x}, (*out).r{r}c{c});")
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
}

/// The scores, the product of slices of Q and K, and the order in which scores are looked at.
fn scores() -> String {
    let fields = lines(KEYS, |n| format!("    k{n}: Rows,"));
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
// The scores of every LANES-th key.
struct Scores {{
{fields}}}

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
