//! The kernels that can compute an attention, and what each costs.
//!
//! Costs are instructions of a subgroup for one row and key ([`Costs`]): loads of K and V are shared by all rows of a
//! tile, arithmetic is each row's own, and rows that a tile has beyond those there are cost as much as the others.

use super::attention_parts::{FEW, idle, split};
use super::attention_problem::Sizes;
use super::attention_staged::{matrix, tiled};
use super::{div_ceil, images};
use crate::choice::{Candidate, Choices, Costs, KernelShape, exchange_width, waste};
use crate::micro::{
    Access, AttentionTile, KvLoads, MAX_HELD, MatrixAttentionTile, MicroError,
    SubgroupAttentionTile, TiledAttentionTile, Weights,
};
use crate::params::{self, BLOCK};
use attnc_ir::Dim;
use attnc_plan::DeviceProfile;

/// What the choice of a kernel depends on.
#[derive(Clone)]
pub(super) struct AttentionNeeds {
    /// The tile of the kernel that can do everything, as large as it gets.
    pub(super) rows: AttentionTile,
    /// Whether rows of K and V may be read by eights.
    pub(super) kv_by_eights: bool,
    /// Rows of one head, if known.
    pub(super) q_len: Option<u32>,
    /// Keys of one head, if known.
    pub(super) kv_len: Option<u32>,
    /// Query heads of the batch, or of one of it, if known.
    pub(super) heads: Option<u32>,
    /// Whether tiles are skipped by a finite fill, so that some rows are walked again.
    pub(super) fills: bool,
    /// Heads that share K and V, and may share tiles.
    pub(super) heads_per_kv: u32,
}

impl AttentionNeeds {
    /// Whether K and V are to be read through images, into which they are copied for it: where the device gains from
    /// images and many rows read the copy.
    fn kv_in_images(&self, profile: &DeviceProfile) -> bool {
        let rows = self.q_len.map(|n| n.saturating_mul(self.heads_per_kv));
        images::suit(profile, self.rows.operands)
            && !self.rows.part
            && rows.is_none_or(|n| n >= images::WORTH_ROWS)
    }
}

/// A kernel and its tile.
pub(super) enum AttentionKernel {
    Rows(AttentionTile),
    Subgroup(SubgroupAttentionTile),
    Tiled(TiledAttentionTile),
    Matrix(MatrixAttentionTile),
    /// One of these that walks so many of the keys at a time, and another kernel that joins the parts.
    Split(Box<AttentionKernel>, u32),
}

impl AttentionKernel {
    /// Every kernel that can compute it, the cheapest first.
    pub(super) fn candidates(
        needs: &AttentionNeeds,
        profile: &DeviceProfile,
    ) -> Vec<(Self, Candidate)> {
        let costs = Costs::of(profile);
        let mut all = vec![rows(needs, &costs)];
        all.extend(subgroup(needs, profile, &costs));
        all.extend(tiled(needs, profile, &costs));
        all.extend(matrix(needs, profile, &costs));
        if needs.q_len.is_some_and(|n| n <= FEW) {
            let usual = params::workgroup_size(profile);
            for (kernel, candidate) in &mut all {
                let size = kernel.workgroup_size(usual);
                candidate.cost *= idle(kernel.part_workgroups(needs, size, 1), &costs);
            }
        }
        all.extend(split(needs, profile, &costs));
        all.sort_by(|(_, a), (_, b)| a.cost.total_cmp(&b.cost));
        all
    }

    /// Whether a single query is better off with a kernel of its own: what is cheapest for many has rows in common for
    /// many invocations, or the keys of one can be walked in parts.
    pub(super) fn decodes_otherwise(
        any: &AttentionNeeds,
        single: &AttentionNeeds,
        profile: &DeviceProfile,
        choices: &Choices,
    ) -> bool {
        let open = |needs| choices.open(Self::candidates(needs, profile));
        let [many, one] = [any, single].map(open);
        let in_parts = one.iter().any(|(k, _)| k.part_keys().is_some());
        in_parts || !matches!(many.first(), Some((Self::Rows(_), _)))
    }

    /// The file in `kernels/`.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Rows(tile) => tile.kernel(),
            Self::Subgroup(_) => SubgroupAttentionTile::KERNEL,
            Self::Tiled(_) => TiledAttentionTile::KERNEL,
            Self::Matrix(_) => MatrixAttentionTile::KERNEL,
            Self::Split(of, _) => of.name(),
        }
    }

    /// The file for the slot `walk`, where the kernel has one.
    pub(super) fn walk(&self) -> Option<&'static str> {
        match self {
            Self::Rows(tile) => tile.walk(),
            Self::Subgroup(tile) => Some(tile.walk()),
            Self::Tiled(_) | Self::Matrix(_) => None,
            Self::Split(of, _) => of.walk(),
        }
    }

    /// Whether it has the slot `schedule`.
    pub(super) fn is_scheduled(&self) -> bool {
        match self {
            Self::Subgroup(_) => true,
            Self::Rows(_) | Self::Tiled(_) | Self::Matrix(_) => false,
            Self::Split(of, _) => of.is_scheduled(),
        }
    }

    /// Keys of a part, where they are walked in parts.
    pub(super) fn part_keys(&self) -> Option<u32> {
        match self {
            Self::Split(_, keys) => Some(*keys),
            _ => None,
        }
    }

    /// The operands that are bound as images.
    pub(super) fn images(&self) -> Vec<&'static str> {
        match self {
            Self::Subgroup(tile) => tile.images(),
            Self::Rows(_) | Self::Tiled(_) | Self::Matrix(_) => Vec::new(),
            Self::Split(of, _) => of.images(),
        }
    }

    /// The text of `micro`.
    pub(super) fn print(&self) -> Result<String, MicroError> {
        match self {
            Self::Rows(tile) => tile.print(),
            Self::Subgroup(tile) => tile.print(),
            Self::Tiled(tile) => tile.print(),
            Self::Matrix(tile) => tile.print(),
            Self::Split(of, _) => of.print(),
        }
    }

    /// Invocations of a workgroup, where `usual` is what kernels without shared work have.
    pub(super) fn workgroup_size(&self, usual: u32) -> u32 {
        match self {
            Self::Rows(_) => usual,
            Self::Subgroup(tile) => tile.width,
            Self::Tiled(tile) => tile.invocations(),
            Self::Matrix(tile) => tile.invocations(),
            Self::Split(of, _) => of.workgroup_size(usual),
        }
    }

    /// Query rows of a workgroup of `size`, or of a lane that has a part of the keys to itself.
    fn rows(&self, size: u32) -> u32 {
        match self {
            Self::Rows(tile) if tile.part => tile.rows,
            Self::Rows(tile) => tile.rows * size,
            Self::Subgroup(tile) => tile.rows(),
            Self::Tiled(tile) => tile.rows(),
            Self::Matrix(tile) => tile.rows(),
            Self::Split(of, _) => of.rows(size),
        }
    }

    /// Parts of the keys that a workgroup of `size` has.
    fn parts(&self, size: u32) -> u32 {
        match self {
            Self::Rows(tile) if tile.part => size,
            Self::Split(of, _) => of.parts(size),
            _ => 1,
        }
    }

    /// Workgroups that compute it.
    pub(super) fn workgroups(&self, sizes: &Sizes, size: u32) -> Dim {
        let blocks = div_ceil(&sizes.q_len, self.rows(size));
        let units = blocks * sizes.heads.clone() * sizes.batch.clone();
        match self {
            Self::Split(_, keys) => {
                let parts = div_ceil(&sizes.kv_len, *keys);
                div_ceil(&(units * parts), self.parts(size))
            }
            _ => units,
        }
    }

    /// How many of them have work, where each row has so many parts.
    pub(super) fn part_workgroups(&self, needs: &AttentionNeeds, size: u32, parts: u32) -> u32 {
        let q_len = needs.q_len.unwrap_or(1);
        let heads = needs.heads.unwrap_or(1);
        let blocks = match self {
            Self::Subgroup(tile) if tile.packs_heads && q_len < tile.rows() => {
                let groups = heads.div_ceil(needs.heads_per_kv);
                groups * (needs.heads_per_kv * q_len).div_ceil(tile.rows())
            }
            _ => heads * q_len.div_ceil(self.rows(size)),
        };
        (blocks * parts).div_ceil(self.parts(size))
    }

    /// The tile, for people.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Rows(tile) => format!(
                "{} query rows in registers, {} B a lane; no workgroup memory",
                tile.rows,
                4 * tile.rows * tile.held_columns()
            ),
            Self::Subgroup(tile) => format!(
                "{} query rows a subgroup, columns by {} lanes, {} B a lane{}; no workgroup memory",
                tile.rows(),
                tile.width,
                4 * tile.held(),
                match tile.kv {
                    KvLoads::Images => ", K and V from images",
                    KvLoads::Fours | KvLoads::Eights => "",
                }
            ),
            Self::Tiled(tile) => format!(
                "{} query rows by {} invocations, {BLOCK} keys at a time, {} B a lane; {} B of workgroup memory",
                tile.rows(),
                tile.invocations(),
                4 * tile.held(),
                tile.workgroup_bytes()
            ),
            Self::Matrix(tile) => format!(
                "{} query rows by {} invocations, products by matrices of {}, {} B a lane; {} B of workgroup memory",
                tile.rows(),
                tile.invocations(),
                tile.size,
                4 * tile.held(),
                tile.workgroup_bytes()
            ),
            Self::Split(of, keys) => format!("{keys} keys a part; {}", of.describe()),
        }
    }
}

pub(super) fn rows(needs: &AttentionNeeds, costs: &Costs) -> (AttentionKernel, Candidate) {
    let tile = &needs.rows;
    let most = params::attention_rows(tile.qk_dim.max(tile.v_dim));
    let rows = needs.q_len.map_or(most, |n| n.clamp(1, most));
    let tile = AttentionTile {
        rows,
        ..tile.clone()
    };
    let (qk, v) = (f64::from(tile.qk_dim), f64::from(tile.v_dim));
    let of_element = |access| match access {
        Access::Vec4 => costs.load(tile.operands.words_of_four()) / 4.0,
        Access::Scalar => costs.load(1),
    };
    let loads = of_element(tile.k) * qk + of_element(tile.v) * v;
    let lanes = f64::from(costs.lanes);
    let each = loads / f64::from(rows) + 2.0 * qk + 3.0 * v;
    let spills = spills(tile.rows * tile.held_columns(), costs);
    let in_step = if tile.part { 1 } else { costs.lanes };
    let cost = each * spills / lanes * waste(rows * in_step, needs.q_len);
    let name = format!("r{rows}{}", dims(&tile));
    (
        AttentionKernel::Rows(tile),
        Candidate {
            shape: KernelShape::Rows,
            tile: name,
            cost,
        },
    )
}

/// How much more it costs to hold so many numbers than if there were registers for all of them.
fn spills(held: u32, costs: &Costs) -> f64 {
    (f64::from(held) / f64::from(costs.registers)).max(1.0)
}

/// `d64`, `d64v32`, with letters for operands that are not read by vectors.
pub(super) fn dims(tile: &AttentionTile) -> String {
    let mut name = format!("d{}", tile.qk_dim);
    if tile.v_dim != tile.qk_dim {
        name = format!("{name}v{}", tile.v_dim);
    }
    let operands = [("q", tile.q), ("k", tile.k), ("v", tile.v), ("o", tile.o)];
    for (operand, _) in operands.into_iter().filter(|(_, a)| *a == Access::Scalar) {
        name = format!("{name}{operand}s");
    }
    name
}

/// Keys that are taken together at most: more were no faster, and are longer to compile.
const MOST_KEYS: u32 = 4;

/// The subgroup's tile, if everything is read by vectors and the device says how wide its subgroups are.
pub(super) fn subgroup(
    needs: &AttentionNeeds,
    profile: &DeviceProfile,
    costs: &Costs,
) -> Option<(AttentionKernel, Candidate)> {
    let all = &needs.rows;
    let width = exchange_width(profile)?;
    let by_vectors = [all.q, all.k, all.v, all.o]
        .iter()
        .all(|access| *access == Access::Vec4);
    let in_one_walk = !matches!(all.weights, Weights::AfterSum { .. });
    let fits = all.qk_dim <= MAX_HELD && by_vectors && in_one_walk;
    if !fits {
        return None;
    }
    let suits = |dim| SubgroupAttentionTile::suits_eights(width, all.operands, dim);
    let kv = if needs.kv_in_images(profile) {
        KvLoads::Images
    } else if needs.kv_by_eights && suits(all.qk_dim) && suits(all.v_dim) {
        KvLoads::Eights
    } else {
        KvLoads::Fours
    };
    let used = needs.q_len.map(|n| n * needs.heads_per_kv);
    let group = used.map_or(width, |n| n.next_power_of_two().min(width));
    let chunks = |dim: u32| dim.div_ceil(4 * width);
    let held = 4 * group * (chunks(all.qk_dim) + chunks(all.v_dim));
    let most = (costs.registers / held).clamp(1, 4);
    // A power of two, so that blocks of tables begin where rows of workgroups do.
    let most = 1 << most.ilog2();
    let groups = used.map_or(most, |n| n.div_ceil(group).next_power_of_two().min(most));
    let tile = SubgroupAttentionTile {
        width,
        group,
        groups,
        keys: (width / group).min(MOST_KEYS),
        packs_heads: needs.heads_per_kv > 1,
        qk_dim: all.qk_dim,
        v_dim: all.v_dim,
        operands: all.operands,
        kv,
        result: all.result,
        masked: all.masked,
        scores_mask: all.scores_mask,
        sink: all.sink,
        prob_mod: all.weights != Weights::Probabilities,
        part: all.part,
    };
    let rows = f64::from(tile.rows());
    let (qk, v) = (f64::from(chunks(all.qk_dim)), f64::from(chunks(all.v_dim)));
    let of_four = match kv {
        KvLoads::Fours => costs.load(all.operands.words_of_four()),
        KvLoads::Eights => costs.load(4) / 2.0,
        KvLoads::Images => costs.image,
    };
    let each = (qk + v) * of_four / rows + 4.0 * (2.0 * qk + 3.0 * v) + 3.0 * costs.exchange;
    // Lanes of a wider subgroup idle.
    let idle = f64::from(costs.lanes) / f64::from(width.min(costs.lanes));
    let cost = each * idle * waste(tile.rows(), used);
    let image = match kv {
        KvLoads::Images => "kvi",
        KvLoads::Fours | KvLoads::Eights => "",
    };
    let name = format!("g{groups}x{group}{}{image}", dims(all));
    Some((
        AttentionKernel::Subgroup(tile),
        Candidate {
            shape: KernelShape::Subgroup,
            tile: name,
            cost,
        },
    ))
}
