// lane_xor: the lanes of a row are one subgroup, or part of one
//
// For devices whose subgroups have at least WORKGROUP_SIZE lanes.

import package::params::{lane_elem};

// The x of lane `lane ^ far`, for a power of two below WORKGROUP_SIZE. All lanes of the workgroup must be here.
fn lane_xor(x: lane_elem, far: u32, lane: u32) -> lane_elem {
    return subgroupShuffleXor(x, far);
}
