//! Attention whose keys are walked in parts: what a part leaves behind, and the module of the kernel that joins them.
//!
//! A part of a row is `v_dim + 4` numbers of f32: the columns of O, not divided, then m, l, the greatest score and a
//! zero. On entry: a number of columns that is a multiple of 4. On exit: modules that `walk/part` and
//! `flash_attention_combine` import.

use super::attention::loads::store_function;
use super::rows::RowTypes;
use super::{Access, Checks, MicroError, imports, lines};
use crate::Stored;

/// Numbers that a part of a row has beside its columns.
pub(crate) const STATE: u32 = 4;

/// `PART_LEN` and `store_state` of a kernel that has `types` rows an invocation.
pub(super) fn state_functions(types: RowTypes, v_dim: u32) -> String {
    let stores = lines(types.0, |r| {
        let [at, own, m, l, top] =
            ["at", "own", "m", "l", "row_max"].map(|name| types.row(name, r));
        format!(
            "    if {own} {{\n        o[{at} / 4u + {}u] = vec4<f32>({m}, {l}, {top}, 0.0);\n    }}",
            v_dim / 4
        )
    });
    format!(
        "\
const PART_LEN: u32 = {}u; // numbers of a part of a row

fn store_state(at: RowIndex, own: RowMask, m: Rows, l: Rows, row_max: Rows) {{
{stores}}}

",
        v_dim + STATE
    )
}

/// The file for the slot `walk` of a kernel that walks all keys of its rows, or a part of them.
pub(super) fn walk(part: bool) -> &'static str {
    if part { "walk/part" } else { "walk/whole" }
}

/// What `flash_attention_combine` needs to know of the result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CombineTile {
    /// Columns of V and O, a multiple of 4.
    pub v_dim: u32,
    /// How O is written.
    pub o: Access,
    /// How O is stored.
    pub result: Stored,
    /// Whether `mods` has a `sink`.
    pub sink: bool,
}

impl CombineTile {
    /// The kernel that the tile is for.
    pub const KERNEL: &'static str = "flash_attention_combine";

    /// The text of the `micro` module.
    ///
    /// # Errors
    /// Columns that are no multiple of 4, packed elements that are not written by vectors.
    pub fn print(&self) -> Result<String, MicroError> {
        let mut checks = Checks::default();
        checks.expect(self.v_dim > 0 && self.v_dim.is_multiple_of(4), || {
            format!("v_dim: expected a multiple of 4, found {}", self.v_dim)
        });
        checks.expect(self.o == Access::Vec4 || !self.result.is_packed(), || {
            "o: words of two elements are written by vectors only".to_owned()
        });
        checks.finish()?;
        let (import, sink) = match self.sink {
            true => ("import package::mods::{sink};\n", "sink(m, b, h, q_idx)"),
            false => ("", "0.0"),
        };
        let shape = match self.o {
            Access::Vec4 => "o",
            Access::Scalar => "shape, o",
        };
        Ok(format!(
            "\
// micro: the result of attention, V and O of {} columns (generated)

{import}import package::kernels::{}::{{{shape}}};
{}
const COLUMN_VECTORS: u32 = {}u;
const HAS_SINK: bool = {};

{}alias HeadIndex = u32;
alias o_item = {};

fn rows_sink(m: Rows, b: u32, h: HeadIndex, q_idx: RowIndex) -> Rows {{
    return {sink};
}}

{}",
            self.v_dim,
            Self::KERNEL,
            imports(self.result.writer(self.o)),
            self.v_dim / 4,
            self.sink,
            RowTypes(1),
            self.o.item(self.result),
            store_function("store_columns", self.o, self.result, 4),
        ))
    }
}
