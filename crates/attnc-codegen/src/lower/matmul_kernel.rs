//! The kernels that can compute a matrix product, and what each costs.
//!
//! Costs are instructions of a subgroup for each element of the result and four steps of k ([`Costs`]): a tile of
//! R rows and C columns loads R rows of A (or R / lanes, where lanes share them) and four rows of B.

use crate::Stored;
use crate::choice::{Candidate, Costs, KernelShape, exchange_width, waste};
use crate::micro::{LeftLoad, MatmulTile, RightLoad};
use crate::params;
use attnc_plan::DeviceProfile;

/// What the choice of a kernel depends on.
pub(super) struct MatmulNeeds {
    /// How operands are read; its rows and columns are not looked at.
    pub(super) tile: MatmulTile,
    /// Whether rows of B may be read by eights.
    pub(super) b_by_eights: bool,
    /// Rows of the result, if known.
    pub(super) m: Option<u32>,
    /// Columns of the result, if known.
    pub(super) n: Option<u32>,
}

/// Rows of tiles that lanes share.
const SHARED_ROWS: [u32; 4] = [8, 16, 24, 32];

impl MatmulNeeds {
    /// Every tile that can compute it, the cheapest first.
    pub(super) fn candidates(&self, profile: &DeviceProfile) -> Vec<(MatmulTile, Candidate)> {
        let costs = Costs::of(profile);
        let mut all = vec![self.candidate(self.rows(profile), &costs)];
        if let Some(width) = exchange_width(profile)
            && self.tile.a == LeftLoad::KVec4
        {
            for rows in SHARED_ROWS {
                for columns in [4, 8] {
                    let tile = MatmulTile {
                        rows,
                        columns,
                        shared_by: Some(width),
                        ..self.tile.clone()
                    };
                    all.push(self.candidate(tile, &costs));
                }
            }
        }
        all.sort_by(|(_, a), (_, b)| a.cost.total_cmp(&b.cost));
        all
    }

    /// The tile of the kernel that can do everything, no larger than the matrix.
    fn rows(&self, profile: &DeviceProfile) -> MatmulTile {
        let (rows, columns) = params::matmul_tile(profile);
        let few = |size: Option<u32>, most: u32| size.map_or(most, |n| n.clamp(1, most));
        MatmulTile {
            rows: few(self.m, rows),
            columns: few(self.n, columns).next_multiple_of(4),
            shared_by: None,
            ..self.tile.clone()
        }
    }

    /// How B is read where a lane has so many columns.
    fn right_load(&self, columns: u32) -> RightLoad {
        let tile = &self.tile;
        let eights = self.b_by_eights && !tile.k_tail && tile.operands == Stored::F32Pairs;
        match tile.b {
            RightLoad::NVec4 if eights && columns.is_multiple_of(8) => RightLoad::NVec8,
            b => b,
        }
    }

    fn candidate(&self, tile: MatmulTile, costs: &Costs) -> (MatmulTile, Candidate) {
        let tile = MatmulTile {
            b: self.right_load(tile.columns),
            ..tile
        };
        let four = costs.load(tile.operands.words_of_four());
        let (rows, columns) = (f64::from(tile.rows), f64::from(tile.columns));
        let lanes = tile.shared_by.unwrap_or(1);
        let a_loads = match tile.a {
            LeftLoad::KVec4 => f64::from(tile.rows.div_ceil(lanes)) * four,
            LeftLoad::Scalar | LeftLoad::Element => 4.0 * rows * costs.load(1),
        };
        let b_loads = match tile.b {
            RightLoad::NVec4 | RightLoad::KVec4 => columns * four,
            RightLoad::NVec8 => columns / 2.0 * costs.load(4),
            RightLoad::Scalar | RightLoad::Element => 4.0 * columns * costs.load(1),
        };
        let exchanges = match tile.shared_by {
            Some(_) => 4.0 * costs.exchange / columns,
            None => 0.0,
        };
        // Four products and sums, and reading and writing the element.
        let each = (a_loads + b_loads) / (rows * columns) + 11.0 + exchanges;
        let held = f64::from(tile.rows * tile.columns);
        let spills = (held / f64::from(costs.accumulators)).max(1.0);
        let idle = match tile.shared_by {
            Some(width) => f64::from(costs.lanes.max(width)) / f64::from(width),
            None => 1.0,
        };
        let waste = waste(tile.rows, self.m) * waste(tile.columns * lanes, self.n);
        let cost = each * spills * idle * waste / f64::from(costs.lanes);
        let shape = match tile.shared_by {
            Some(_) => KernelShape::Subgroup,
            None => KernelShape::Rows,
        };
        let name = format!("r{}c{}", tile.rows, tile.columns / 4);
        (
            tile,
            Candidate {
                shape,
                tile: name,
                cost,
            },
        )
    }
}
