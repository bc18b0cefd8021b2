// Reduction: out[row] = epilogue(finish(x[row, 0] + x[row, 1] + ...)), for any "+"
//
// The lanes of one workgroup own one row and walk it once. A lane takes every WORKGROUP_SIZE-th pack, so that
// neighbours read neighbouring memory. What "+" and finish are is the module `combine`, as in reduce_rows; lanes
// start from the value of no elements, which changes nothing.
//
// Layout: x comes from load_element, `len` counts its packs; out is contiguous, one element a row.

import package::params::{WORKGROUP_SIZE, acc_elem};
import package::mods::{load_element, epilogue};
import package::combine::{reduce_combine, reduce_finish};
import package::pack::{PACK, pack_combine};
import package::store::{store_out};
import package::lib::indexing::{linear_workgroup};
import package::lib::lanes_combine::{lanes_combine};

struct Shape {
    rows: u32,
    len: u32,
    out_offset: u32,
    none: u32, // bits of the value of no elements
}

@group(0) @binding(0) var<uniform> shape: Shape;

@compute @workgroup_size(WORKGROUP_SIZE)
fn reduce_lanes(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_workgroup(group, groups);
    if row >= shape.rows {
        return; // all lanes of it
    }

    var x = bitcast<acc_elem>(shape.none);
    for (var i = lane; i < shape.len; i += WORKGROUP_SIZE) {
        x = reduce_combine(x, pack_combine(load_element(row, i)));
    }
    x = lanes_combine(x, lane);
    if lane == 0u {
        store_out(shape.out_offset + row, epilogue(reduce_finish(x, shape.len * PACK), row, 0u));
    }
}
