// lane_xor: the lanes of a row are a workgroup, of which nothing more is known
//
// For devices without subgroup operations.

import package::params::{lane_elem, WORKGROUP_SIZE};

var<workgroup> exchanged: array<lane_elem, WORKGROUP_SIZE>;

// The x of lane `lane ^ far`, for a power of two below WORKGROUP_SIZE. All lanes of the workgroup must be here.
fn lane_xor(x: lane_elem, far: u32, lane: u32) -> lane_elem {
    workgroupBarrier();
    exchanged[lane] = x;
    workgroupBarrier();
    return exchanged[lane ^ far];
}
