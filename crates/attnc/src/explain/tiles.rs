//! Tiles of attention at given lengths: which are skipped, and how much work is left.
//!
//! ```
//! use attnc::{Model, explain, opt, plan::{DeviceProfile, DimValues}};
//! let model = Model::from_text("causal", "graph @causal(%q: f32[B, 2, S, 16]) {
//!   %o = attention %q, %q, %q, scale = 0.25, mask_mod = { kv_idx <= q_idx }
//!   return %o
//! }")?;
//! let explained = explain::explain(&model, &opt::Options::default(), &DeviceProfile::webgpu())?;
//! let dims: DimValues = [("B", 1), ("S", 256)].into_iter().collect();
//! let tiles = &explained.at(&dims)?.report.tiles[0];
//! assert_eq!((tiles.empty, tiles.full, tiles.partial), (6, 6, 4));
//! assert_eq!(tiles.work_left, 10.0 / 16.0);
//! # Ok::<(), attnc::Error>(())
//! ```
//!
//! The host evaluates the expressions that the shader evaluates ([`BlockMask`]), and looks at every element where
//! the shader reads a table. What only the data of a run decide is counted apart, as work that may be left.

use crate::codegen::{self, BLOCK, Skipping, attention_tiles};
use crate::ir::scalar::eval::Env;
use crate::ir::scalar::print::Names;
use crate::ir::scalar::{BlockMask, ScalarExpr};
use crate::ir::{Atom, Dim, DimError, Extents, Graph, Op, ValueId, layout};
use crate::plan::{DeviceProfile, DimValues};
use indexmap::IndexMap;
use serde::Serialize;

/// Evaluations on the host after which the tiles that are left are said to depend on data.
const PATIENCE: u64 = 1 << 24;

/// The tiles of attentions with one mask.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tiles {
    /// The attentions, by name.
    pub nodes: Vec<String>,
    /// When a key counts; `true` where every key does, as far as tiles can tell.
    pub mask: String,
    /// How the kernel finds the tiles: `dense`, `intervals`, `table`.
    pub found_by: &'static str,
    /// Number of queries and of keys.
    pub lengths: [i64; 2],
    /// Queries, and keys, of a tile.
    pub tile: u32,
    /// Tiles that are skipped, of all batches and heads that differ.
    pub empty: u64,
    /// Tiles that need no mask.
    pub full: u64,
    /// Tiles with keys of both kinds.
    pub partial: u64,
    /// Tiles that the data of a run decide.
    pub by_data: u64,
    /// Share of the tiles that are computed, counting those that data decide.
    pub work_left: f64,
    /// What else is to be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The tiles of every distinct attention of an optimised graph.
pub(super) fn tiles(graph: &Graph, profile: &DeviceProfile, dims: &DimValues) -> Vec<Tiles> {
    let mut found: IndexMap<(String, [Option<i64>; 4]), Tiles> = IndexMap::new();
    for value in graph.topo_order() {
        let node = graph.node(value);
        let Op::Attention(_) = &node.op else { continue };
        let how = attention_tiles(graph, value, profile);
        let host = Host {
            graph,
            operands: node.operands(),
            dims,
        };
        let mask = how
            .mask
            .as_ref()
            .map_or_else(|| "true".to_owned(), |m| host.text(m));
        let [q, k] = [0, 1].map(|n| &graph.ty(node.operands()[n]).shape);
        let sizes = [&q[0], &q[1], &q[2], &k[2]].map(|d| d.eval(&|name| dims.get(name)).ok());
        let key = (format!("{mask} {:?}", how.note), sizes);
        let nodes = vec![node.name().to_owned()];
        if let Some(known) = found.get_mut(&key) {
            known.nodes.extend(nodes);
        } else if let [Some(b), Some(h), Some(m), Some(n)] = sizes {
            let counted = host.count(&how, [b, h, m, n]);
            found.insert(
                key,
                Tiles {
                    nodes,
                    mask,
                    ..counted
                },
            );
        }
    }
    found.into_values().collect()
}

/// Evaluates masks of one attention.
struct Host<'a> {
    graph: &'a Graph,
    operands: &'a [ValueId],
    dims: &'a DimValues,
}

impl Host<'_> {
    /// The mask with the names of indices and tensors.
    fn text(&self, mask: &ScalarExpr) -> String {
        let indices = ["b", "h", "q_idx", "kv_idx"];
        mask.to_text(&Names {
            operand: &|n| format!("%{}", self.graph.node(self.operands[n]).name()),
            index: &|n| indices[n as usize].to_owned(),
            arg: "score",
        })
    }

    /// The value at an index, where constants and lengths decide it.
    fn value(&self, expr: &ScalarExpr, index: &[i64]) -> Option<bool> {
        let length = |name: &str| self.dims.get(name);
        let load = |operand: usize, index: &[i64]| self.constant(operand, index);
        let env = Env {
            index,
            arg: 0.0,
            length: &length,
            load: &load,
        };
        Some(expr.eval(&env).ok()? != 0.0)
    }

    fn constant(&self, operand: usize, index: &[i64]) -> Option<f64> {
        let (base, flat) = layout::flat_index(self.graph, self.operands[operand]);
        let Op::Constant(data) = &self.graph.node(base).op else {
            return None;
        };
        let at = flat.eval_with(&|atom| match atom {
            Atom::Index(n) => index.get(*n as usize).copied().ok_or(DimError::Index(*n)),
            Atom::Sym(name) => {
                let value = self.dims.get(name);
                value.ok_or_else(|| DimError::Unbound(name.to_string()))
            }
            _ => unreachable!("eval_with asks for leaves"),
        });
        data.get_f64(usize::try_from(at.ok()?).ok()?)
    }

    fn count(&self, how: &codegen::Tiles, [b, h, m, n]: [i64; 4]) -> Tiles {
        let extents = Extents::new([b, h, m, n].map(Dim::from).to_vec());
        let block = i64::from(BLOCK);
        let differ = |axis, size: i64| {
            if how.differs_along(axis) {
                size
            } else {
                size.min(1)
            }
        };
        let by_intervals = match &how.skipping {
            Skipping::Intervals(tiles) => Some(tiles.clone()),
            Skipping::Table(mask) => Some(BlockMask::of(mask, &extents)),
            Skipping::None => None,
        };
        let mut patience = PATIENCE;
        let (mut empty, mut full, mut partial, mut by_data) = (0, 0, 0, 0);
        for (b, h) in (0..differ(0, b)).flat_map(|b| (0..differ(1, h)).map(move |h| (b, h))) {
            for q_first in (0..m).step_by(BLOCK as usize) {
                for kv_first in (0..n).step_by(BLOCK as usize) {
                    let (q_end, kv_end) = ((q_first + block).min(m), (kv_first + block).min(n));
                    let corners = [b, h, q_first, q_end - 1, kv_first, kv_end - 1];
                    let kinds = match &by_intervals {
                        None => Some([true, false]),
                        Some(tiles) => self.kinds(how, tiles, corners, &mut patience),
                    };
                    *match kinds {
                        None => &mut by_data,
                        Some([false, _]) => &mut empty,
                        Some([true, false]) => &mut full,
                        Some([true, true]) => &mut partial,
                    } += 1;
                }
            }
        }
        let all = empty + full + partial + by_data;
        Tiles {
            nodes: Vec::new(),
            mask: String::new(),
            found_by: match how.skipping {
                Skipping::None => "dense",
                Skipping::Intervals(_) => "intervals",
                Skipping::Table(_) => "table",
            },
            lengths: [m, n],
            tile: BLOCK,
            empty,
            full,
            partial,
            by_data,
            work_left: share(all - empty, all),
            note: how.note.clone(),
        }
    }

    /// Whether a tile has keys that count, and keys that do not; `None` where data decide.
    fn kinds(
        &self,
        how: &codegen::Tiles,
        tiles: &BlockMask,
        corners: [i64; 6],
        patience: &mut u64,
    ) -> Option<[bool; 2]> {
        *patience = patience.checked_sub(1)?;
        let intervals = (
            self.value(&tiles.some, &corners),
            self.value(&tiles.all, &corners),
        );
        let Skipping::Table(mask) = &how.skipping else {
            return Some([intervals.0?, !intervals.1?]);
        };
        if intervals.0 == Some(false) {
            return Some([false, true]);
        }
        let [b, h, q_first, q_last, kv_first, kv_last] = corners;
        let mut found = [false, false];
        for q_idx in q_first..=q_last {
            for kv_idx in kv_first..=kv_last {
                *patience = patience.checked_sub(1)?;
                let counts = self.value(mask, &[b, h, q_idx, kv_idx])?;
                found[usize::from(!counts)] = true;
                if found == [true, true] {
                    return Some(found);
                }
            }
        }
        Some(found)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share of a count")]
fn share(part: u64, all: u64) -> f64 {
    if all == 0 {
        0.0
    } else {
        part as f64 / all as f64
    }
}
