// schedule: a workgroup computes one tile, that of its own number.

import package::lib::indexing::{linear_workgroup};

fn compute_tiles(group: vec3<u32>, groups: vec3<u32>, lane: u32) {
    compute_tile(linear_workgroup(group, groups), lane);
}
