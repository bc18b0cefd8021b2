// Sum over the lanes of a row, known to each of them: at most 256 lanes, a power of two.
//
// A butterfly: after step n each lane knows the result of 2^n neighbours. Conditions are constant.

import package::params::{lane_elem, WORKGROUP_SIZE};
import package::lanes::{lane_xor};

fn lanes_sum(x: lane_elem, lane: u32) -> lane_elem {
    var all = x;
    if WORKGROUP_SIZE > 1u { all += lane_xor(all, 1u, lane); }
    if WORKGROUP_SIZE > 2u { all += lane_xor(all, 2u, lane); }
    if WORKGROUP_SIZE > 4u { all += lane_xor(all, 4u, lane); }
    if WORKGROUP_SIZE > 8u { all += lane_xor(all, 8u, lane); }
    if WORKGROUP_SIZE > 16u { all += lane_xor(all, 16u, lane); }
    if WORKGROUP_SIZE > 32u { all += lane_xor(all, 32u, lane); }
    if WORKGROUP_SIZE > 64u { all += lane_xor(all, 64u, lane); }
    if WORKGROUP_SIZE > 128u { all += lane_xor(all, 128u, lane); }
    return all;
}
