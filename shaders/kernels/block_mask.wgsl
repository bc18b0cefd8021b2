// What a mask that depends on data does on each tile of BLOCK_M queries and BLOCK_N keys.
//
// One workgroup looks at every element of one tile. blocks[b, h, i, j] is a sum of bits: BLOCK_LIVE if the mask
// is true somewhere in tile (i, j), BLOCK_DEAD if it is false somewhere. Batch and heads are 1 where the mask is
// the same for all.
//
// The BlockMask of Dong et al. 2024, FlexAttention, arXiv:2412.05496, section 4.

import package::params::{WORKGROUP_SIZE, BLOCK_M, BLOCK_N};
import package::mods::{mask_mod};
import package::lib::block_bits::{BLOCK_LIVE, BLOCK_DEAD};
import package::lib::indexing::{linear_workgroup, div_ceil};

struct Shape {
    batch: u32,
    heads: u32,
    q_len: u32,
    kv_len: u32,
}

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read_write> blocks: array<u32>;

var<workgroup> found: atomic<u32>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn block_mask(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let rows = div_ceil(shape.q_len, BLOCK_M);
    let columns = div_ceil(shape.kv_len, BLOCK_N);
    let index = linear_workgroup(group, groups);
    let b = index / (columns * rows * shape.heads);
    if b >= shape.batch {
        return;
    }
    let h = index / (columns * rows) % shape.heads;
    let q_first = index / columns % rows * BLOCK_M;
    let kv_first = index % columns * BLOCK_N;
    let q_end = min(q_first + BLOCK_M, shape.q_len);

    // A lane takes whole columns of the tile.
    var bits = 0u;
    for (var kv_idx = kv_first + lane; kv_idx < min(kv_first + BLOCK_N, shape.kv_len); kv_idx += WORKGROUP_SIZE) {
        for (var q_idx = q_first; q_idx < q_end; q_idx++) {
            bits |= select(BLOCK_DEAD, BLOCK_LIVE, mask_mod(b, h, q_idx, kv_idx));
        }
    }
    atomicOr(&found, bits);
    workgroupBarrier();
    if lane == 0u {
        blocks[index] = atomicLoad(&found);
    }
}
