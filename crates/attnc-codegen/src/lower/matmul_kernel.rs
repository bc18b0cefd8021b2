//! The kernels that can compute a matrix product, and what each costs.
//!
//! Costs are instructions of a subgroup for each element of the result and four steps of k ([`Costs`]): a tile of
//! R rows and C columns loads R rows of A (or R / lanes, where lanes share them) and four rows of B, from memory, or
//! from workgroup memory, to which the workgroup's block of both has been copied.

use super::row_shape::{self, Lanes};
use super::{constant, div_ceil};
use crate::Stored;
use crate::choice::{Candidate, Costs, KernelShape, exchange_width, waste};
use crate::micro::{Access, Division, LeftLoad, MatmulTile, RightLoad, Staged};
use crate::params;
use attnc_ir::Dim;
use attnc_plan::DeviceProfile;

/// What the choice of a kernel depends on.
#[derive(Clone)]
pub(super) struct MatmulNeeds {
    /// How operands are read; its rows and columns are not looked at.
    pub(super) tile: MatmulTile,
    /// Whether rows of B may be read by eights.
    pub(super) b_by_eights: bool,
    /// Whether rows of C may be written by eights.
    pub(super) c_by_eights: bool,
    /// Where operands are worth an image.
    pub(super) images: WorthImages,
    /// Products.
    pub(super) batches: Option<u32>,
    /// Rows of the result, if known.
    pub(super) m: Option<u32>,
    /// Columns of the result, if known.
    pub(super) n: Option<u32>,
    /// Terms of a sum.
    pub(super) k: Dim,
}

/// The most rows that are few: those that [`KernelShape::Lanes`] has at once.
pub(super) const FEW: u32 = 4;

/// Rows of tiles that lanes share.
const SHARED_ROWS: [u32; 4] = [8, 16, 24, 32];

/// Rows and columns in registers, tiles down and across, and steps of k of staged tiles: 64 invocations for blocks of
/// 32 × 32 to 64 × 64, and the 256 with 8 × 8 each that large products on discrete GPUs get everywhere (CUTLASS).
const STAGED: [(u32, u32, u32, u32, u32); 4] = [
    (4, 4, 8, 8, 16),
    (8, 4, 8, 8, 16),
    (8, 8, 8, 8, 16),
    (8, 8, 16, 16, 8),
];

/// The same by matrices, where a tile is a subgroup's: up to 64 sums a lane of 32.
const MATRICES: [(u32, u32, u32, u32, u32); 3] =
    [(16, 32, 2, 2, 32), (32, 32, 2, 2, 32), (32, 64, 4, 2, 32)];

/// Lanes of the subgroups of devices that have matrices, as far as known, if they do not say more.
const MATRIX_LANES: u32 = 32;

/// Columns that a product is taken to have where that depends on the run, terms of its sums, and rows of a short run.
const TYPICAL: u32 = 256;

/// Rows of a long run: enough that no core is idle.
const MANY: u32 = 1 << 20;

/// Which operands are read through images.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorthImages {
    /// Whether A is, where lanes share its rows: it is copied for that.
    pub(super) a: bool,
    /// Whether B is, where lanes share rows of A: it is copied for that.
    pub(super) b: bool,
    /// Whether B is in any case: a weight in panels.
    pub(super) panels: bool,
}

impl MatmulNeeds {
    /// Every tile that can compute it, the cheapest first.
    pub(super) fn candidates(&self, profile: &DeviceProfile) -> Vec<(MatmulTile, Candidate)> {
        let costs = Costs::of(profile);
        let mut tiles = vec![self.rows(profile)];
        tiles.extend(self.split(profile));
        tiles.extend(self.shared(profile));
        tiles.extend(self.staged(profile));
        tiles.extend(self.matrices(profile));
        let with_cost = |tile: MatmulTile| {
            let tile = self.with_images(tile);
            let b = self.right_load(&tile);
            let c_eights = self.writes_eights(&tile);
            let tile = MatmulTile {
                b,
                c_eights,
                ..tile
            };
            let candidate = self.candidate(&tile, &costs);
            (tile, candidate)
        };
        let mut all: Vec<_> = tiles.into_iter().map(with_cost).collect();
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
            division: Division::Rows,
            ..self.tile.clone()
        }
    }

    /// The lanes that can have parts of a sum, where there are enough terms.
    pub(super) fn lanes(&self, profile: &DeviceProfile) -> Option<Lanes> {
        row_shape::lanes(profile, &div_ceil(&self.k, 4), 1)
    }

    /// Tiles of few rows whose sums are split among lanes.
    fn split(&self, profile: &DeviceProfile) -> Vec<MatmulTile> {
        let Some(lanes) = self.lanes(profile) else {
            return Vec::new();
        };
        let tile = |columns| MatmulTile {
            rows: self.m.map_or(FEW, |m| m.clamp(1, FEW)),
            columns,
            division: Division::Lanes { count: lanes.count },
            ..self.tile.clone()
        };
        [4, 8].into_iter().map(tile).collect()
    }

    /// Tiles whose rows lanes share, where they can exchange numbers and A lies along k.
    fn shared(&self, profile: &DeviceProfile) -> Vec<MatmulTile> {
        let by_vectors = self.tile.a == LeftLoad::KVec4;
        let Some(lanes) = exchange_width(profile).filter(|_| by_vectors) else {
            return Vec::new();
        };
        let tile = |rows, columns| MatmulTile {
            rows,
            columns,
            division: Division::Subgroup { lanes },
            ..self.tile.clone()
        };
        let of_rows = |rows| [tile(rows, 4), tile(rows, 8)];
        SHARED_ROWS.into_iter().flat_map(of_rows).collect()
    }

    /// Tiles in workgroup memory, as far as it and a workgroup reach.
    fn staged(&self, profile: &DeviceProfile) -> Vec<MatmulTile> {
        let tile = |(rows, columns, down, across, steps)| MatmulTile {
            rows,
            columns,
            division: Division::Tiled(Staged {
                down,
                across,
                steps,
            }),
            ..self.tile.clone()
        };
        let tiles = STAGED.into_iter().map(tile);
        tiles.filter(|tile| fits(tile, profile)).collect()
    }

    /// The same by matrices of f16, where the device has them and the operands are stored so.
    fn matrices(&self, profile: &DeviceProfile) -> Vec<MatmulTile> {
        let features = &profile.features;
        let (Some(subgroups), Some(size), Stored::F16) = (
            features.subgroups,
            profile.matrix_size(),
            self.tile.operands,
        ) else {
            return Vec::new();
        };
        let tile = |(rows, columns, down, across, steps)| MatmulTile {
            rows,
            columns,
            division: Division::Matrix {
                staged: Staged {
                    down,
                    across,
                    steps,
                },
                size,
                lanes: subgroups.max.max(MATRIX_LANES),
            },
            ..self.tile.clone()
        };
        let tiles = MATRICES.into_iter().map(tile);
        tiles.filter(|tile| fits(tile, profile)).collect()
    }

    /// The tile with what it reads through images.
    fn with_images(&self, tile: MatmulTile) -> MatmulTile {
        let WorthImages { a, b, panels } = self.images;
        let shares = matches!(tile.division, Division::Subgroup { .. });
        let b_vectors = matches!(tile.b, RightLoad::NVec4 | RightLoad::KVec4);
        let in_panels = matches!(tile.b, RightLoad::Panels { .. });
        MatmulTile {
            a_image: a && shares,
            b_image: b && shares && b_vectors || panels && in_panels,
            ..tile
        }
    }

    /// How a tile reads B: by eights, where it may and has as many columns of its own.
    fn right_load(&self, tile: &MatmulTile) -> RightLoad {
        let may = self.b_by_eights && !tile.k_tail && tile.operands == Stored::F32Pairs;
        let eights = may && tile.columns.is_multiple_of(8) && tile.staged().is_none();
        match tile.b {
            RightLoad::NVec4 if eights && !tile.b_image => RightLoad::NVec8,
            b => b,
        }
    }

    /// Whether a tile writes rows of C by eights: where it may, and has as many columns.
    fn writes_eights(&self, tile: &MatmulTile) -> bool {
        let may = self.c_by_eights && tile.c == Access::Vec4 && tile.result == Stored::F32Pairs;
        may && tile.columns == 8 && tile.writes_rows()
    }

    fn candidate(&self, tile: &MatmulTile, costs: &Costs) -> Candidate {
        let (shape, name) = match tile.division {
            Division::Rows => (KernelShape::Rows, name(tile.rows, tile.columns)),
            Division::Lanes { .. } => (KernelShape::Lanes, name(tile.rows, tile.columns)),
            Division::Subgroup { .. } => (KernelShape::Subgroup, name(tile.rows, tile.columns)),
            Division::Tiled(staged) => (KernelShape::Tiled, staged_name(tile, &staged)),
            Division::Matrix { staged, .. } => (KernelShape::Matrix, staged_name(tile, &staged)),
        };
        Candidate {
            shape,
            tile: name,
            cost: self.cost(tile, costs),
        }
    }

    fn cost(&self, tile: &MatmulTile, costs: &Costs) -> f64 {
        let Some(m) = self.m else {
            // Twice as long in a short run weighs as much as in a long one: the geometric mean. In a short one that is
            // little work, what a tile costs hardly shows beside handing it over.
            let steps = self.elements(TYPICAL) * f64::from(self.terms()) / 4.0;
            let dispatch = costs.dispatch * costs.busy / steps;
            let [short, long] = [TYPICAL, MANY].map(|m| self.cost_of_rows(m, tile, costs));
            return ((short + dispatch) * long).sqrt();
        };
        self.cost_of_rows(m, tile, costs)
    }

    /// Elements of the result, of so many rows.
    fn elements(&self, m: u32) -> f64 {
        let sizes = [self.batches.unwrap_or(1), m, self.n.unwrap_or(TYPICAL)];
        sizes.into_iter().map(|n| f64::from(n.max(1))).product()
    }

    /// Terms of a sum, as far as known.
    fn terms(&self) -> u32 {
        constant(&self.k).unwrap_or(TYPICAL).max(1)
    }

    fn cost_of_rows(&self, m: u32, tile: &MatmulTile, costs: &Costs) -> f64 {
        let rows_of = (tile.block_rows(), tile.block_columns());
        // Lanes that have the tile together, what they compute with, what a workgroup has, and how many lanes idle.
        let (together, multiply_adds, (rows, columns), idle) = match tile.division {
            Division::Rows | Division::Tiled(_) => (1, costs.multiply_adds, rows_of, 1.0),
            Division::Lanes { .. } => (1, costs.multiply_adds, rows_of, 1.0),
            Division::Subgroup { lanes } => {
                let idle = f64::from(costs.lanes.max(lanes)) / f64::from(lanes);
                let block = (tile.rows, tile.columns * lanes);
                (1, costs.multiply_adds, block, idle)
            }
            Division::Matrix { lanes, .. } => (lanes, costs.matrix, rows_of, 1.0),
        };
        let sums = f64::from(tile.rows * tile.columns) / f64::from(together);
        let decoding = match sums > f64::from(costs.decoded) {
            true => 1.2,
            false => 1.0,
        };
        let each = self.loads(tile, costs) + multiply_adds * decoding;
        let spills = (sums / f64::from(costs.accumulators)).max(1.0);
        let waste = waste(rows, self.m) * waste(columns, self.n);
        let elements = self.elements(m);
        let split = match tile.division {
            Division::Lanes { count } => f64::from(count),
            _ => 1.0,
        };
        let subgroups = split * elements / sums / f64::from(costs.lanes);
        let workgroups = match tile.invocations() {
            Some(_) => elements / (f64::from(rows) * f64::from(columns)),
            None => subgroups,
        };
        let unfilled = costs.unfilled(workgroups, subgroups);
        each * spills * idle * waste * unfilled / f64::from(costs.lanes)
    }

    /// What reading the operands costs for each element of the result.
    fn loads(&self, tile: &MatmulTile, costs: &Costs) -> f64 {
        let four = costs.load(tile.operands.words_of_four());
        // Four steps of k of a row of A, and of a column of B.
        let a = match tile.a {
            LeftLoad::KVec4 if tile.a_image => costs.image,
            LeftLoad::KVec4 => four,
            LeftLoad::Scalar | LeftLoad::Element => 4.0 * costs.load(1),
        };
        let b = match tile.b {
            _ if tile.b_image => costs.image,
            RightLoad::NVec4 | RightLoad::KVec4 => four,
            RightLoad::Panels { .. } if tile.operands != Stored::F32Pairs => four,
            RightLoad::NVec8 | RightLoad::Panels { .. } => costs.load(4) / 2.0,
            RightLoad::Scalar | RightLoad::Element => 4.0 * costs.load(1),
        };
        let (rows, columns) = (f64::from(tile.rows), f64::from(tile.columns));
        match tile.division {
            Division::Rows => (a * rows + b * columns) / (rows * columns),
            Division::Lanes { count } => {
                // Each lane takes part in adding the parts up, and has the last steps alone.
                let k = self.terms();
                let sums = f64::from(count.ilog2() * 4 * count) / f64::from(k);
                let each = (a * rows + b * columns) / (rows * columns) + sums * costs.exchange;
                each * waste(4 * count, Some(k))
            }
            Division::Subgroup { lanes } => {
                let a_rows = f64::from(tile.rows.div_ceil(lanes));
                let loads = a * a_rows + b * columns;
                loads / (rows * columns) + 4.0 * costs.exchange / columns
            }
            Division::Tiled(_) | Division::Matrix { .. } => {
                let [m, n] = [tile.block_rows(), tile.block_columns()].map(f64::from);
                let copied = m * (a + costs.staged) + n * (b + costs.staged);
                copied / (m * n) + (rows + columns) * costs.staged / (rows * columns)
            }
        }
    }
}

/// `64x64k16r8c2`: the workgroup's rows and columns, steps of k, and the tile.
fn staged_name(tile: &MatmulTile, staged: &Staged) -> String {
    let (rows, columns) = (tile.block_rows(), tile.block_columns());
    let registers = name(tile.rows, tile.columns);
    format!("{rows}x{columns}k{}{registers}", staged.steps)
}

/// Whether workgroup memory and a workgroup reach.
fn fits(tile: &MatmulTile, profile: &DeviceProfile) -> bool {
    let limits = &profile.limits;
    let most = limits.invocations.min(limits.workgroup_size[0]);
    tile.workgroup_bytes() <= limits.workgroup_bytes && tile.invocations().is_none_or(|n| n <= most)
}

/// `r4c2`: rows, and vectors of columns.
fn name(rows: u32, columns: u32) -> String {
    format!("r{rows}c{}", columns / 4)
}
