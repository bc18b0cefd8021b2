//! The register tile of `flash_attention_fwd_subgroup`: rows a workgroup has in common, columns by lanes.
//!
//! Lane `i` has the softmax of rows `g * group + i % group`, for key `i / group % keys` of those that are taken together.

mod scores;
mod values;

use std::fmt::Write as _;

use super::attention_part::{state_functions, walk};
use super::lane_columns::LaneColumns;
use super::rows::{RowFunctions, RowTypes};
use super::{Access, Checks, Converter, MicroError, imports, lines};
use crate::Stored;

/// How rows of K and V are read, which are contiguous and whose other strides are multiples of as many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvLoads {
    /// Four elements at a time.
    Fours,
    /// Eight, f32 by pairs, which is how lanes share out all columns then.
    Eights,
    /// Four elements of f32 at a time, from images.
    Images,
}

/// Query rows of one workgroup, whose columns its lanes share out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SubgroupAttentionTile {
    /// Lanes: 4 or 8. Of a wider subgroup, the first.
    pub width: u32,
    /// Rows whose scores are one number of each lane: a power of two, at most `width`.
    pub group: u32,
    /// Such groups: 1, 2 or 4.
    pub groups: u32,
    /// Keys whose scores are taken together, by lanes that have no row of their own: a power of two, at most
    /// `width / group`.
    pub keys: u32,
    /// Whether a workgroup may have rows of all heads of a KV head, where each has few.
    pub packs_heads: bool,
    /// Columns of Q and K, a multiple of 4.
    pub qk_dim: u32,
    /// Columns of V and O, a multiple of 4.
    pub v_dim: u32,
    /// How Q, K and V are stored.
    pub operands: Stored,
    /// How K and V are read.
    pub kv: KvLoads,
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
            eights: self.kv == KvLoads::Eights,
        }
    }

    /// How K and V are stored, as the kernel sees it.
    fn kv_stored(&self) -> Stored {
        match self.kv {
            KvLoads::Fours | KvLoads::Eights => self.operands,
            KvLoads::Images => Stored::F32Image,
        }
    }

    /// The variables that are bound as images.
    #[must_use]
    pub fn images(&self) -> Vec<&'static str> {
        match self.kv {
            KvLoads::Fours | KvLoads::Eights => Vec::new(),
            KvLoads::Images => vec!["k", "v"],
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
        let fits = self.keys.is_power_of_two() && self.group * self.keys <= self.width;
        checks.expect(fits, || {
            format!(
                "keys: expected a power of two up to {}, found {}",
                self.width / self.group.max(1),
                self.keys
            )
        });
        for (name, dim) in [("qk_dim", self.qk_dim), ("v_dim", self.v_dim)] {
            checks.expect(dim > 0 && dim.is_multiple_of(4), || {
                format!("{name}: expected a multiple of 4, found {dim}")
            });
            let suits =
                self.kv != KvLoads::Eights || Self::suits_eights(self.width, self.operands, dim);
            checks.expect(suits, || {
                format!("eights: expected f32 by pairs that lanes have equally much of, found {} and {dim} columns", self.operands)
            });
        }
        let f32 = matches!(self.operands, Stored::F32 | Stored::F32Pairs);
        checks.expect(self.kv != KvLoads::Images || f32, || {
            format!("images: expected f32, found {}", self.operands)
        });
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
        let sums = match self.group * self.keys {
            1 => "",
            _ => "import package::lib::subgroup_sums::{fold};\n",
        };
        format!(
            "\
// micro: attention tile of {} query rows, columns by {} lanes; Q and K have {}, V and O {} (generated)
//
// Row g * {} + r is the one whose softmax lane r has in component g, for the first of {} keys.

import package::mods::{{{}}};
import package::kernels::{}::{{shape, q, k, v, o}};
{sums}{}
const ROWS: u32 = {}u;
const GROUP: u32 = {}u;
const KEYS: u32 = {}u;
const PACKS_HEADS: bool = {};
const SCORES_MASK: bool = {};
const HAS_SINK: bool = {};

",
            self.rows(),
            self.width,
            self.qk_dim,
            self.v_dim,
            self.group,
            self.keys,
            functions.imports(),
            Self::KERNEL,
            imports(self.converters()),
            self.rows(),
            self.group,
            self.keys,
            self.packs_heads,
            self.scores_mask,
            self.sink,
        )
    }

    /// What reads Q, K and V, and writes O.
    fn converters(&self) -> impl Iterator<Item = Converter> {
        let q = self.operands.reader(Access::Vec4);
        let kv = self.columns().reader(self.kv_stored());
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
        let rows_of_v = lines(self.keys, |k| format!("    k{k}: VRow,"));
        let rows_of_v = format!("struct VRows {{\n{rows_of_v}}}\n\n");
        format!(
            "\
{}alias q_item = {};
alias k_item = {item};
alias v_item = {item};
alias o_item = {};

// What a lane has of a row of K, of V, and of some rows of V.
{}{}{}{}{}",
            RowTypes(self.groups),
            self.operands.vec4(),
            self.result.vec4(),
            slice("KRow", qk),
            slice("VRow", v),
            rows_of_v,
            tile("QTile", qk),
            tile("OTile", v),
            item = self.columns().item(self.kv_stored()),
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

    /// The value of row `r`, in all lanes.
    fn of_row(&self, name: &str, r: u32) -> String {
        self.of_key(name, r, 0)
    }

    /// The value of row `r` and key `k`, in all lanes.
    fn of_key(&self, name: &str, r: u32, k: u32) -> String {
        let of_group = self.of_group(name, r / self.group);
        let lane = k * self.group + r % self.group;
        format!("subgroupBroadcast({of_group}, {lane}u)")
    }

    /// `name(x)`: `combine`, which names `A` and `B`, over lanes `first`, `2 first`, ... apart, up to `end`.
    fn over_lanes(name: &str, ty: &str, first: u32, end: u32, combine: &str) -> String {
        let mut x = "x".to_owned();
        let mut steps = String::new();
        let mut distance = first;
        while distance < end {
            let other = format!("subgroupShuffleXor({x}, {distance}u)");
            let step = combine.replace('A', &x).replace('B', &other);
            let _ = writeln!(steps, "    let by{distance} = {step};");
            x = format!("by{distance}");
            distance *= 2;
        }
        format!("fn {name}(x: {ty}) -> {ty} {{\n{steps}    return {x};\n}}\n\n")
    }

    fn rows_text(&self) -> String {
        let last = self.group - 1;
        let numbers = RowTypes(self.groups).per_row("RowIndex", |g| {
            let start = g * self.group;
            format!("{start}u + (lane & {last}u)")
        });
        let (group, keys) = (self.group, self.group * self.keys);
        let number = match self.keys {
            1 => "0u".to_owned(),
            n => format!("lane / {group}u % {n}u"),
        };
        let or = Self::over_lanes("lanes_or", "u32", 1, self.width, "A | B");
        let max = Self::over_lanes("max_over_keys", "Rows", group, keys, "max(A, B)");
        let sum = Self::over_lanes("sum_over_keys", "Rows", group, keys, "A + B");
        format!(
            "\
// The bits of all lanes.
{or}// Of the keys that are taken together.
{max}{sum}// The numbers of the rows whose softmax the lane has, and of the key.
fn row_numbers(lane: u32) -> RowIndex {{
    return {numbers};
}}

fn key_number(lane: u32) -> u32 {{
    return {number};
}}

{}",
            self.functions().print()
        )
    }
}

/// Where the row is that comes n rows after the one at `at`, or the last one.
fn row_at(operand: &str, n: u32) -> String {
    format!("min(at + {n}u * shape.{operand}_row_stride, last)")
}
