//! The attention kernels that stage slices of Q, K and V in workgroup memory: by blocks of registers, and by matrices.
//!
//! On entry: what an attention needs, and a device. On exit: the tiles that fit it, with what each costs
//! ([`super::attention_kernel`] says in what).

use super::attention_kernel::{AttentionKernel, AttentionNeeds, dims};
use crate::Stored;
use crate::choice::{Candidate, Costs, KernelShape, waste};
use crate::micro::{AttentionTile, LANES, MatrixAttentionTile, TiledAttentionTile, Weights};
use crate::params::BLOCK;
use attnc_plan::DeviceProfile;

/// Fours of rows of tiles in workgroup memory, from one subgroup of 32 lanes to four.
const QUADS: [u32; 3] = [4, 8, 16];

/// The tiles whose slices fit into workgroup memory and whose blocks fit into registers.
pub(super) fn tiled(
    needs: &AttentionNeeds,
    profile: &DeviceProfile,
    costs: &Costs,
) -> Vec<(AttentionKernel, Candidate)> {
    if matches!(needs.rows.weights, Weights::AfterSum { .. }) {
        return Vec::new();
    }
    let of = AttentionTile {
        rows: 4,
        ..needs.rows.clone()
    };
    let tiles = QUADS.map(|quads| TiledAttentionTile {
        quads,
        of: of.clone(),
    });
    let limits = &profile.limits;
    let fits = |tile: &TiledAttentionTile| {
        tile.workgroup_bytes() <= limits.workgroup_bytes
            && tile.invocations() <= limits.invocations.min(limits.workgroup_size[0])
            && tile.held() <= costs.registers
    };
    let candidate = |tile: TiledAttentionTile| {
        let candidate = Candidate {
            shape: KernelShape::Tiled,
            tile: format!("m{}n{BLOCK}{}", tile.rows(), dims(&tile.of)),
            cost: tiled_cost(&tile, needs.q_len, costs),
        };
        (AttentionKernel::Tiled(tile), candidate)
    };
    tiles.into_iter().filter(fits).map(candidate).collect()
}

fn tiled_cost(tile: &TiledAttentionTile, q_len: Option<u32>, costs: &Costs) -> f64 {
    let (rows, keys, lanes) = (f64::from(tile.rows()), f64::from(BLOCK), f64::from(LANES));
    let (qk, v) = (f64::from(tile.of.qk_dim), f64::from(tile.of.v_dim));
    // Of a quad's rows and a lane's keys by four columns; of a key by a lane's columns.
    let of_scores = qk / 4.0 * (4.0 + keys / lanes) * lanes / (4.0 * keys);
    let of_values = f64::from(1 + tile.chunks()) * lanes / 4.0;
    let staging = (qk + v) / 4.0 / rows + qk / 4.0 / keys;
    // An invocation waits at a barrier as long as it takes to move some vectors.
    let barriers = 2.0 * (qk / 16.0).ceil() + 2.0 + keys / 8.0;
    let waiting = 8.0 * barriers * f64::from(tile.invocations()) / (rows * keys);
    let moves = of_scores + of_values + staging + waiting;
    let load = costs.load(tile.of.operands.words_of_four());
    let each = 2.0 * (qk + v) + moves * costs.staged + staging * load;
    let idle = f64::from(costs.lanes) / f64::from(costs.lanes.min(tile.invocations()));
    each * idle / f64::from(costs.lanes) * waste(tile.rows(), q_len)
}

/// The same by matrices, where the device has them and the operands are stored so; whole subgroups only.
pub(super) fn matrix(
    needs: &AttentionNeeds,
    profile: &DeviceProfile,
    costs: &Costs,
) -> Vec<(AttentionKernel, Candidate)> {
    let (Some(subgroups), Some(size)) = (profile.features.subgroups, profile.matrix_size()) else {
        return Vec::new();
    };
    let of = AttentionTile {
        rows: 4,
        ..needs.rows.clone()
    };
    if of.operands != Stored::F16 || of.weights != Weights::Probabilities {
        return Vec::new();
    }
    let tiles = QUADS.map(|quads| MatrixAttentionTile {
        quads,
        size,
        of: of.clone(),
    });
    let limits = &profile.limits;
    let fits = |tile: &MatrixAttentionTile| {
        tile.rows().is_multiple_of(2 * size)
            && tile.invocations().is_multiple_of(subgroups.max)
            && tile.workgroup_bytes() <= limits.workgroup_bytes
            && tile.invocations() <= limits.invocations.min(limits.workgroup_size[0])
            && tile.held() <= costs.registers
    };
    let candidate = |tile: MatrixAttentionTile| {
        let candidate = Candidate {
            shape: KernelShape::Matrix,
            tile: format!("m{}n32{}", tile.rows(), dims(&tile.of)),
            cost: matrix_cost(&tile, needs.q_len, costs),
        };
        (AttentionKernel::Matrix(tile), candidate)
    };
    tiles.into_iter().filter(fits).map(candidate).collect()
}

fn matrix_cost(tile: &MatrixAttentionTile, q_len: Option<u32>, costs: &Costs) -> f64 {
    let (rows, keys) = (f64::from(tile.rows()), 32.0);
    let columns = f64::from(tile.of.qk_dim + tile.of.v_dim) / 4.0;
    // Elements of f16 go to workgroup memory one by one; scores go there and back twice, P once, sums of O once a slice.
    let staging = 4.0 * columns / rows;
    let scores = 5.0 + 2.0 * f64::from(tile.of.v_dim) / keys;
    let barriers = 5.0 + 2.0 * f64::from(tile.of.v_dim.div_ceil(32));
    let waiting = 8.0 * barriers * f64::from(tile.invocations()) / (rows * keys);
    let load = columns / rows * costs.load(tile.of.operands.words_of_four());
    let each = columns * costs.matrix + (staging + scores + waiting) * costs.staged + load;
    let idle = f64::from(costs.lanes) / f64::from(costs.lanes.min(tile.invocations()));
    each * idle / f64::from(costs.lanes) * waste(tile.rows(), q_len)
}
