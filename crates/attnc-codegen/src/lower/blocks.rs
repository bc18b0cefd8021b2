//! Which tiles of an attention are skipped, and how its kernel knows.
//!
//! | the mask | on a tile | how |
//! | --- | --- | --- |
//! | is of indices and lengths | `block_some`, `block_all`: intervals of the mask, in the shader | [`Skipping::Intervals`] |
//! | reads data by query | looked up in `[B, H, M / BLOCK, N / BLOCK]` bits that `block_mask` computes | [`Skipping::Table`] |
//! | reads data by key alone | nothing is skipped by it: a key that no row sees costs its mask only | |
//!
//! A table takes one look at every element of the mask. It pays because every head of every layer with that mask
//! uses the table, which is computed once, and each saves a product of the head dim an element. It does not where
//! there are fewer queries than a tile has, and it needs a binding.
//!
//! On exit: `mods` has `block_some`, `block_all`, `HAS_FILL` and `SETTLED_ABOVE`.

use super::kernel::Dispatch;
use super::pointwise::operations;
use super::turns::loop_of;
use super::{Lowerer, div_ceil, label, storage_bindings_needed};
use crate::mods::{Function, IndexSpace, Mods, Returns, float_literal};
use crate::params::{self, BLOCK};
use attnc_ir::scalar::block_mask::{BlockMask, FILL, counted, live_keys, reads_data};
use attnc_ir::scalar::{ExprId, Scalar, ScalarExpr};
use attnc_ir::{Attention, DType, Diagnostic, Dim, Extents, Graph, Op, ValueId};
use attnc_plan::{Buffer, BufferId, DeviceProfile, Uniform};

/// How an attention's kernel knows which tiles to skip.
#[derive(Debug, Clone, PartialEq)]
pub enum Skipping {
    /// It does not: every tile is computed.
    None,
    /// From the tile's corners.
    Intervals(BlockMask),
    /// From a table that a pre-pass computes of this mask.
    Table(ScalarExpr),
}

/// What is known about the tiles of an attention.
#[derive(Debug, Clone, PartialEq)]
pub struct Tiles {
    /// How they are found.
    pub skipping: Skipping,
    /// The keys that count, as far as tiles may tell; `None` if all do.
    pub mask: Option<ScalarExpr>,
    /// Set if keys are skipped that a finite fill takes out: rows with no greater maximum are walked again.
    pub settled_above: Option<f32>,
    /// Why more could not be skipped.
    pub note: Option<String>,
}

impl Tiles {
    /// Whether what is skipped differs along axis 0 (batch) or 1 (heads).
    #[must_use]
    pub fn differs_along(&self, axis: usize) -> bool {
        self.mask
            .as_ref()
            .is_some_and(|mask| depends_on(mask, axis))
    }
}

/// How the tiles of attention `value` are found on a device.
///
/// # Panics
/// If `value` is no attention.
#[must_use]
pub fn attention_tiles(graph: &Graph, value: ValueId, profile: &DeviceProfile) -> Tiles {
    let node = graph.node(value);
    let Op::Attention(attention) = &node.op else {
        panic!("%{} is no attention", node.name());
    };
    if !attention.weighs_before_sum() {
        let why = "prob_mod needs the sum of its row: the keys are walked twice, all of them";
        return Tiles {
            skipping: Skipping::None,
            mask: None,
            settled_above: None,
            note: Some(why.to_owned()),
        };
    }
    let extents = Extents::new(axes(graph, value).to_vec());
    let few = extents.dims()[2]
        .as_const()
        .is_some_and(|m| m < i64::from(BLOCK));
    let bindings = u32::try_from(storage_bindings_needed(graph, value)).unwrap_or(u32::MAX);
    let table = !few && bindings < profile.limits.storage_buffers;
    let by_table = |mask: &ScalarExpr| table && reads_data(mask, i64::from(BLOCK));
    let worth = |mask: &ScalarExpr| by_table(mask) || BlockMask::of(mask, &extents).skips();
    let found = counted(attention, &extents, &worth);
    let note = attention
        .score_mod
        .as_ref()
        .and_then(|score| outweighed(score, &extents));
    let Some(found) = found else {
        return Tiles {
            skipping: Skipping::None,
            mask: None,
            settled_above: None,
            note,
        };
    };
    let skipping = if by_table(&found.mask) {
        Skipping::Table(found.mask.clone())
    } else {
        Skipping::Intervals(found.tiles(attention, &extents))
    };
    Tiles {
        skipping,
        mask: Some(found.mask),
        settled_above: found.settled_above,
        note,
    }
}

/// Why a fill takes no keys out: a number that is added to the score is outweighed by a greater score.
fn outweighed(score_mod: &ScalarExpr, extents: &Extents) -> Option<String> {
    if live_keys(score_mod, extents).is_some() {
        return None;
    }
    let literal = |id: &ExprId| match score_mod.node(*id) {
        Scalar::Float(bits) => {
            Some(f32::from_bits(*bits)).filter(|x| (f32::MIN..=FILL).contains(x))
        }
        _ => None,
    };
    let fill = score_mod.nodes().iter().find_map(|node| match node {
        Scalar::Select(_, a, b) => literal(a).or_else(|| literal(b)),
        _ => None,
    })?;
    Some(format!(
        "the fill {fill:e} is added to the score, which could outweigh it: keys so filled are computed"
    ))
}

/// `B, H, M, N`.
fn axes(graph: &Graph, value: ValueId) -> [Dim; 4] {
    let [q, k] = [0, 1].map(|n| &graph.ty(graph.node(value).operands()[n]).shape);
    [q[0].clone(), q[1].clone(), q[2].clone(), k[2].clone()]
}

/// The masks that have a table: equal ones of equal operands share it.
pub(super) type Tables = std::collections::HashMap<(ScalarExpr, Vec<ValueId>, [Dim; 4]), BufferId>;

const CORNERS: [&str; 6] = ["b", "h", "q_first", "q_last", "kv_first", "kv_last"];

impl Lowerer<'_> {
    /// The table of an attention's tiles, if its kernel reads one.
    pub(super) fn table_of(
        &mut self,
        value: ValueId,
        tiles: &Tiles,
    ) -> Result<Option<BufferId>, Diagnostic> {
        match &tiles.skipping {
            Skipping::Table(mask) => self.block_table(value, mask).map(Some),
            Skipping::None | Skipping::Intervals(_) => Ok(None),
        }
    }

    /// Adds what the kernel asks about tiles to its `mods`.
    pub(super) fn block_mods(
        &self,
        value: ValueId,
        attention: &Attention,
        tiles: &Tiles,
        mods: &mut Mods<'_>,
        files: &mut Vec<&'static str>,
    ) -> Result<(), Diagnostic> {
        match tiles.settled_above {
            None => files.push("mods/fill_none"),
            Some(above) => mods.text(&format!(
                "// Keys with a finite fill add exactly 0 to rows with a greater maximum.\n\
                 const HAS_FILL: bool = true;\nconst SETTLED_ABOVE: f32 = {};\n",
                float_literal(above)
            )),
        }
        match &tiles.skipping {
            Skipping::None => files.push("mods/blocks_full"),
            Skipping::Intervals(tiles) => self.block_functions(value, attention, tiles, mods)?,
            Skipping::Table(mask) => self.table_functions(value, attention, mask, mods),
        }
        Ok(())
    }

    fn block_functions(
        &self,
        value: ValueId,
        attention: &Attention,
        tiles: &BlockMask,
        mods: &mut Mods<'_>,
    ) -> Result<(), Diagnostic> {
        let [b, h, m, n] = axes(self.graph, value);
        let sizes = [b, h, m.clone(), m, n.clone(), n];
        let space = IndexSpace::identity(CORNERS.into_iter().zip(sizes).collect());
        let operands = self.graph.node(value).operands();
        let mut print = |name, expr| {
            mods.function(&Function {
                name,
                arg: None,
                space: &space,
                result: Returns::Bool,
                expr,
                operands,
            })
        };
        print("block_some", &tiles.some)?;
        if attention.mask_mod.is_some() {
            return print("block_all", &tiles.all);
        }
        mods.text(&all_function("true"));
        Ok(())
    }

    fn table_functions(
        &self,
        value: ValueId,
        attention: &Attention,
        mask: &ScalarExpr,
        mods: &mut Mods<'_>,
    ) {
        let [_, heads, m, n] = axes(self.graph, value);
        let (rows, columns) = (div_ceil(&m, BLOCK), div_ceil(&n, BLOCK));
        let heads = if depends_on(mask, 1) {
            heads
        } else {
            Dim::one()
        };
        let stride = |axis, stride: Dim| {
            if depends_on(mask, axis) {
                stride
            } else {
                Dim::zero()
            }
        };
        mods.word(
            "block_batch_stride",
            stride(0, heads * rows.clone() * columns.clone()),
        );
        mods.word("block_head_stride", stride(1, rows * columns.clone()));
        mods.word("block_row_stride", columns);
        mods.import("params", "BLOCK_M");
        mods.import("params", "BLOCK_N");
        mods.import("lib::block_bits", "BLOCK_LIVE");
        mods.import("lib::block_bits", "BLOCK_DEAD");
        mods.text(
            "\
@group(0) @binding(5) var<storage, read> blocks: array<u32>;

fn block_bits(b: u32, h: u32, q_first: u32, kv_first: u32) -> u32 {
    let tile = q_first / BLOCK_M * shape.block_row_stride + kv_first / BLOCK_N;
    return blocks[b * shape.block_batch_stride + h * shape.block_head_stride + tile];
}

fn block_some(b: u32, h: u32, q_first: u32, q_last: u32, kv_first: u32, kv_last: u32) -> bool {
    return (block_bits(b, h, q_first, kv_first) & BLOCK_LIVE) != 0u;
}
",
        );
        mods.text(&all_function(if attention.mask_mod.is_some() {
            "(block_bits(b, h, q_first, kv_first) & BLOCK_DEAD) == 0u"
        } else {
            "true"
        }));
    }

    /// The table of a mask, computed by a step of its own on first use.
    fn block_table(&mut self, value: ValueId, mask: &ScalarExpr) -> Result<BufferId, Diagnostic> {
        let graph = self.graph;
        let (loaded, operands) = (mask.loaded_operands(), graph.node(value).operands());
        let captured: Vec<ValueId> = loaded.iter().map(|&n| operands[n]).collect();
        let number = |n: usize| loaded.iter().position(|&l| l == n).expect("loaded");
        let mask = mask.map_operands(number);
        let sizes = axes(graph, value);
        let key = (mask.clone(), captured.clone(), sizes.clone());
        if let Some(&table) = self.tables.get(&key) {
            return Ok(table);
        }
        let shared = |axis: usize| {
            if depends_on(&mask, axis) {
                sizes[axis].clone()
            } else {
                Dim::one()
            }
        };
        let (batch, heads) = (shared(0), shared(1));
        let (rows, columns) = (div_ceil(&sizes[2], BLOCK), div_ceil(&sizes[3], BLOCK));
        let shape = vec![batch.clone(), heads.clone(), rows, columns];
        let workgroups: Dim = shape.iter().cloned().product();
        let name = format!("{}.blocks", graph.node(value).name());
        let table = self.plan.add_buffer(Buffer::temp(&name, DType::U32, shape));
        let [_, _, m, n] = sizes.clone();
        let lengths = [batch.clone(), heads.clone(), m.clone(), n.clone()];
        let stored = |value| self.stored(value);
        let mut mods = Mods::new(graph, &stored, "block_mask", |_, dtype, _| match dtype {
            DType::I32 | DType::U32 => "ids",
            _ => "mask",
        });
        let names = ["b", "h", "q_idx", "kv_idx"];
        mods.function(&Function {
            name: "mask_mod",
            arg: None,
            space: &IndexSpace::identity(names.into_iter().zip(sizes).collect()),
            result: Returns::Bool,
            expr: &mask,
            operands: &captured,
        })?;
        let dispatch = Dispatch {
            kernel: "block_mask",
            key: format!("block_mask.{}", label::mask_mod(&mask)),
            params: params::print(&[], self.workgroup_size) + &params::blocks(),
            micro: None,
            combine: None,
            store: None,
            op: Some("block_mask"),
            mod_files: Vec::new(),
            mods: mods.finish(),
            tile: format!("a tile of {BLOCK} queries and {BLOCK} keys a workgroup"),
            uniforms: lengths.map(Uniform::U32).to_vec(),
            operands: vec![table],
            counters: None,
            images: Vec::new(),
            workgroups,
            flops: batch * heads * m * n * Dim::from(operations(&mask)),
            turns: loop_of(BLOCK)
                .times(BLOCK.div_ceil(self.workgroup_size))
                .taken,
        };
        self.dispatch(value, dispatch)?;
        self.tables.insert(key, table);
        Ok(table)
    }
}

fn all_function(value: &str) -> String {
    format!(
        "fn block_all(b: u32, h: u32, q_first: u32, q_last: u32, kv_first: u32, kv_last: u32) -> bool {{\n    \
         return {value};\n}}\n"
    )
}

/// Whether an index variable occurs.
fn depends_on(mask: &ScalarExpr, axis: usize) -> bool {
    let axis = u32::try_from(axis).expect("four axes");
    let mut nodes = mask.nodes().iter();
    nodes.any(|node| matches!(node, Scalar::Int(dim) if dim.indices().contains(&axis)))
}
