//! The register tile of `flash_attention_fwd_subgroup`: rows a workgroup has in common, columns by lanes.

use std::fmt::Write as _;

use super::attention_part::{state_functions, walk};
use super::lane_columns::LaneColumns;
use super::rows::{RowFunctions, RowTypes};
use super::{Access, Checks, Converter, MicroError, imports, lines};
use crate::Stored;

/// Query rows of one workgroup, whose columns its lanes share out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SubgroupAttentionTile {
    /// Lanes: 4 or 8. Of a wider subgroup, the first.
    pub width: u32,
    /// Rows whose scores are one number of each lane: a power of two, at most `width`.
    pub group: u32,
    /// Such groups: 1, 2 or 4.
    pub groups: u32,
    /// Whether a workgroup may have rows of all heads of a KV head, where each has few.
    pub packs_heads: bool,
    /// Columns of Q and K, a multiple of 4.
    pub qk_dim: u32,
    /// Columns of V and O, a multiple of 4.
    pub v_dim: u32,
    /// How Q, K and V are stored.
    pub operands: Stored,
    /// Whether lanes have their columns by eights, which K and V then are read by: all strides are multiples of 8.
    pub eights: bool,
    /// How O is stored.
    pub result: Stored,
    /// Whether `mask_mod` may be false or `score_mod` may be -inf.
    pub masked: bool,
    /// Whether `score_mod` may be -inf.
    pub scores_mask: bool,
    /// Whether `mods` has a `sink`.
    pub sink: bool,
    /// Whether `mods` has a `prob_mod`, which lets factors pass.
    pub prob_mod: bool,
    /// Whether workgroups walk a part of the keys: O is then where parts are kept, f32.
    pub part: bool,
}

impl SubgroupAttentionTile {
    /// The kernel that the tile is for.
    pub const KERNEL: &'static str = "flash_attention_fwd_subgroup";

    /// The file for the slot `walk`.
    #[must_use]
    pub fn walk(&self) -> &'static str {
        walk(self.part)
    }

    /// Query rows of a workgroup.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.group * self.groups
    }

    /// Whether rows of so many columns may be shared out by eights, and are as well shared out as by fours.
    #[must_use]
    pub fn suits_eights(width: u32, operands: Stored, columns: u32) -> bool {
        operands == Stored::F32Pairs && LaneColumns::suits_eights(width, columns)
    }

    fn columns(&self) -> LaneColumns {
        LaneColumns {
            width: self.width,
            eights: self.eights,
        }
    }

    /// Vectors of four columns that a lane has of a row of so many.
    fn chunks(&self, columns: u32) -> u32 {
        self.columns().chunks(columns)
    }

    /// Numbers a lane holds of Q and O.
    pub(crate) fn held(&self) -> u32 {
        4 * self.rows() * (self.chunks(self.qk_dim) + self.chunks(self.v_dim))
    }

    /// The text of the `micro` module.
    ///
    /// # Errors
    /// Widths, rows or dims that it cannot have.
    pub fn print(&self) -> Result<String, MicroError> {
        self.check()?;
        Ok([
            self.header(),
            self.types(),
            self.rows_text(),
            self.q_functions(),
            self.k_functions(),
            self.v_functions(),
            self.o_functions(),
            self.state_functions(),
        ]
        .concat())
    }

    fn check(&self) -> Result<(), MicroError> {
        let mut checks = Checks::default();
        checks.expect([4, 8].contains(&self.width), || {
            format!("width: expected 4 or 8, found {}", self.width)
        });
        let fits = self.group.is_power_of_two() && self.group <= self.width;
        checks.expect(fits, || {
            format!(
                "group: expected a power of two up to {}, found {}",
                self.width, self.group
            )
        });
        checks.expect([1, 2, 4].contains(&self.groups), || {
            format!("groups: expected 1, 2 or 4, found {}", self.groups)
        });
        for (name, dim) in [("qk_dim", self.qk_dim), ("v_dim", self.v_dim)] {
            checks.expect(dim > 0 && dim.is_multiple_of(4), || {
                format!("{name}: expected a multiple of 4, found {dim}")
            });
            let suits = !self.eights || Self::suits_eights(self.width, self.operands, dim);
            checks.expect(suits, || {
                format!("eights: expected f32 by pairs that lanes have equally much of, found {} and {dim} columns", self.operands)
            });
        }
        checks.expect(!self.part || self.result == Stored::F32, || {
            format!("part: expected O of f32, found {}", self.result)
        });
        checks.finish()
    }

    fn state_functions(&self) -> String {
        match self.part {
            true => format!("\n{}", state_functions(RowTypes(self.groups), self.v_dim)),
            false => String::new(),
        }
    }

    fn header(&self) -> String {
        let functions = self.functions();
        let sums = match self.group {
            1 => "",
            _ => "import package::lib::subgroup_sums::{fold};\n",
        };
        format!(
            "\
// micro: attention tile of {} query rows, columns by {} lanes; Q and K have {}, V and O {} (generated)
//
// Row g * {} + r is the one whose softmax lane r has in component g.

import package::mods::{{{}}};
import package::kernels::{}::{{shape, q, k, v, o}};
{sums}{}
const ROWS: u32 = {}u;
const GROUP: u32 = {}u;
const PACKS_HEADS: bool = {};
const SCORES_MASK: bool = {};
const HAS_SINK: bool = {};

",
            self.rows(),
            self.width,
            self.qk_dim,
            self.v_dim,
            self.group,
            functions.imports(),
            Self::KERNEL,
            imports(self.converters()),
            self.rows(),
            self.group,
            self.packs_heads,
            self.scores_mask,
            self.sink,
        )
    }

    /// What reads Q, K and V, and writes O.
    fn converters(&self) -> impl Iterator<Item = Converter> {
        let q = self.operands.reader(Access::Vec4);
        let kv = self.columns().reader(self.operands);
        let o = self.result.writer(Access::Vec4);
        [q, kv, o].into_iter().flatten()
    }

    fn functions(&self) -> RowFunctions {
        RowFunctions {
            rows: self.groups,
            heads: true,
            prob_mod: self.prob_mod,
            sink: self.sink,
        }
    }

    fn types(&self) -> String {
        let tile = |name: &str, chunks: u32| {
            let fields = lines(self.rows() * chunks, |i| {
                format!("    r{}c{}: vec4<f32>,", i / chunks, i % chunks)
            });
            format!("struct {name} {{\n{fields}}}\n\n")
        };
        let slice = |name: &str, chunks: u32| {
            let fields = lines(chunks, |c| format!("    c{c}: vec4<f32>,"));
            format!("struct {name} {{\n{fields}}}\n\n")
        };
        let (qk, v) = (self.chunks(self.qk_dim), self.chunks(self.v_dim));
        format!(
            "\
{}alias q_item = {};
alias k_item = {item};
alias v_item = {item};
alias o_item = {};

// What a lane has of a row of K, and of V.
{}{}{}{}",
            RowTypes(self.groups),
            self.operands.vec4(),
            self.result.vec4(),
            slice("KSlice", qk),
            slice("VSlice", v),
            tile("QTile", qk),
            tile("OTile", v),
            item = self.columns().item(self.operands),
        )
    }

    /// Component `g` of one number a group.
    fn of_group(&self, name: &str, g: u32) -> String {
        if self.groups == 1 {
            name.to_owned()
        } else {
            format!("{name}[{g}]")
        }
    }

    /// The value that lane `r % group` has of row `r`, in all lanes.
    fn of_row(&self, name: &str, r: u32) -> String {
        let of_group = self.of_group(name, r / self.group);
        format!("subgroupBroadcast({of_group}, {}u)", r % self.group)
    }

    fn rows_text(&self) -> String {
        let last = self.group - 1;
        let numbers = RowTypes(self.groups).per_row("RowIndex", |g| {
            let start = g * self.group;
            format!("{start}u + (lane & {last}u)")
        });
        let mut or = "x".to_owned();
        let mut steps = String::new();
        let mut distance = 1;
        while distance < self.width {
            let _ = writeln!(
                steps,
                "    let by{distance} = {or} | subgroupShuffleXor({or}, {distance}u);"
            );
            or = format!("by{distance}");
            distance *= 2;
        }
        format!(
            "\
// The bits of all lanes.
fn lanes_or(x: u32) -> u32 {{
{steps}    return {or};
}}

// The numbers of the rows whose softmax the lane has.
fn row_numbers(lane: u32) -> RowIndex {{
    return {numbers};
}}

{}",
            self.functions().print()
        )
    }

    fn q_functions(&self) -> String {
        let chunks = self.chunks(self.qk_dim);
        let load = self
            .columns()
            .load_by_fours("q", "KSlice", self.operands, self.qk_dim); // Q and K have the same columns
        let rows = lines(self.rows(), |r| {
            let fields = (0..chunks).map(|c| format!("    tile.r{r}c{c} = row{r}.c{c} * scale;"));
            format!(
                "    let row{r} = load_q({}, lane);\n{}",
                self.of_row("at", r),
                fields.collect::<Vec<_>>().join("\n")
            )
        });
        format!(
            "\
{load}// Rows of Q times the scale, so that no product overflows before it is scaled.
fn tile_load_q(at: RowIndex, lane: u32, scale: f32) -> QTile {{
    var tile: QTile;
{rows}    return tile;
}}

"
        )
    }

    /// The sum over lanes of each of these rows' `dot`, two by two, so that few are held at a time.
    fn folded(&self, first: u32, end: u32, dot: &dyn Fn(u32) -> String) -> String {
        if end - first == 1 {
            return dot(first);
        }
        let half = (end - first) / 2;
        let (low, high) = (
            self.folded(first, first + half, dot),
            self.folded(first + half, end, dot),
        );
        format!("fold({low}, {high}, lane, {half}u)")
    }

    fn k_functions(&self) -> String {
        let chunks = self.chunks(self.qk_dim);
        let dot = |r: u32| {
            let terms = (0..chunks).map(|c| format!("dot(tile.r{r}c{c}, x.c{c})"));
            terms.collect::<Vec<_>>().join(" + ")
        };
        let group = |g: u32| {
            let first = g * self.group;
            let mut sum = self.folded(first, first + self.group, &dot);
            // Every lane with the number of a row has a part of its sum.
            let mut distance = self.group;
            while distance < self.width {
                sum = format!("over_pairs({sum}, {distance}u)");
                distance *= 2;
            }
            sum
        };
        let sums = RowTypes(self.groups).per_row("Rows", group);
        let pairs = if self.group < self.width {
            "\
fn over_pairs(x: f32, distance: u32) -> f32 {
    return x + subgroupShuffleXor(x, distance);
}

"
        } else {
            ""
        };
        format!(
            "\
{}{pairs}// Every row of the tile times the row of K at `at`, in the lane that has the row's softmax.
fn tile_dot_k(tile: QTile, lane: u32, at: u32) -> Rows {{
    let x = load_k(at, lane);
    return {sums};
}}

",
            self.columns().load("k", "KSlice", self.operands, self.qk_dim)
        )
    }

    fn v_functions(&self) -> String {
        let chunks = self.chunks(self.v_dim);
        let selected = lines(chunks, |c| {
            format!("        select(vec4<f32>(), x.c{c}, keep),")
        });
        let odd = (0..chunks).map(|c| {
            format!(
                "any((bitcast<vec4<u32>>(x.c{c}) & vec4<u32>(EXPONENT)) == vec4<u32>(EXPONENT))"
            )
        });
        let odd = match self.masked {
            true => odd.collect::<Vec<_>>().join(" || "),
            false => "false".to_owned(), // no key counts for some rows only
        };
        let adds = lines(self.rows(), |r| {
            let terms = (0..chunks)
                .map(|c| format!("    (*out).r{r}c{c} += p{r} * x.c{c} + next{r} * x_next.c{c};"));
            format!(
                "    let p{r} = {};\n    let next{r} = {};\n{}",
                self.of_row("p", r),
                self.of_row("p_next", r),
                terms.collect::<Vec<_>>().join("\n")
            )
        });
        format!(
            "\
{}// The lane's part of the row of V at `at`, or zeros.
fn load_v_where(at: u32, lane: u32, keep: bool) -> VSlice {{
    let x = load_v(at, lane);
    return VSlice(
{selected}    );
}}

const EXPONENT: u32 = 0x7f800000u;

// Whether the lane's part of the row has an infinity or NaN. By bits, since WGSL may assume that there are none.
fn v_is_odd(x: VSlice) -> bool {{
    return {odd};
}}

// out += p * (a row of V) + p_next * (the next row of V)
fn tile_add_v(out: ptr<function, OTile>, p: Rows, x: VSlice, p_next: Rows, x_next: VSlice) {{
{adds}}}

",
            self.columns().load("v", "VSlice", self.operands, self.v_dim)
        )
    }

    fn o_functions(&self) -> String {
        let chunks = self.chunks(self.v_dim);
        let scales = lines(self.rows(), |r| {
            let fields = (0..chunks).map(|c| format!("    (*out).r{r}c{c} *= factor{r};"));
            format!(
                "    let factor{r} = {};\n{}",
                self.of_row("factor", r),
                fields.collect::<Vec<_>>().join("\n")
            )
        });
        let stores = lines(self.rows(), |r| {
            let fields: Vec<_> = (0..chunks).map(|c| format!("tile.r{r}c{c}")).collect();
            format!(
                "    let at{r} = {};\n    let factor{r} = {};\n    if first <= {r}u && {r}u < end {{\n        store_o(at{r}, lane, factor{r}, {});\n    }}",
                self.of_row("at", r),
                self.of_row("factor", r),
                fields.join(", ")
            )
        });
        format!(
            "\
fn tile_zero() -> OTile {{
    return OTile();
}}

fn tile_scale(out: ptr<function, OTile>, factor: Rows) {{
{scales}}}

{}// Rows `first` to `end - 1`.
fn tile_store_o(at: RowIndex, lane: u32, first: u32, end: u32, tile: OTile, factor: Rows) {{
{stores}}}
",
            self.columns().store("o", self.result, self.v_dim)
        )
    }
}
