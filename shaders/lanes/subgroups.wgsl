// lane_xor: the lanes of a row are several subgroups, of any size from SUBGROUP_SIZE_MIN on
//
// Lanes less than SUBGROUP_SIZE_MIN apart are in one subgroup whatever its size, since subgroups are runs of
// consecutive invocations; the others meet in workgroup memory.

import package::params::{lane_elem, SUBGROUP_SIZE_MIN, WORKGROUP_SIZE};

var<workgroup> exchanged: array<lane_elem, WORKGROUP_SIZE>;

// The x of lane `lane ^ far`, for a power of two below WORKGROUP_SIZE. All lanes of the workgroup must be here.
fn lane_xor(x: lane_elem, far: u32, lane: u32) -> lane_elem {
    if far < SUBGROUP_SIZE_MIN {
        return subgroupShuffleXor(x, far);
    }
    workgroupBarrier();
    exchanged[lane] = x;
    workgroupBarrier();
    return exchanged[lane ^ far];
}
