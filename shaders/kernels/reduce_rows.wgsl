// Reduction over one axis: out[row] = epilogue(finish(x[row, 0] + x[row, 1] + ...)), for any "+"
//
// One invocation owns one row and walks it once. What "+" and finish are (sum, mean, max, min, prod;
// any and all are max and min of 0 and 1) is the module `combine`, one file of mods/reduce_*.wgsl.
// The walk starts from the first element; what no elements make is given, since WGSL has no constant infinity.
//
// Layout: x comes from load_element; out is contiguous, one element a row.

import package::params::{WORKGROUP_SIZE, acc_elem};
import package::mods::{load_element, epilogue};
import package::combine::{reduce_combine, reduce_finish};
import package::store::{store_out};
import package::lib::indexing::{linear_workgroup};

struct Shape {
    rows: u32,
    len: u32,
    out_offset: u32,
    none: u32, // bits of the value of no elements
}

@group(0) @binding(0) var<uniform> shape: Shape;

@compute @workgroup_size(WORKGROUP_SIZE)
fn reduce_rows(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_workgroup(group, groups) * WORKGROUP_SIZE + lane;
    if row >= shape.rows {
        return;
    }

    var x = bitcast<acc_elem>(shape.none);
    if shape.len > 0u {
        x = load_element(row, 0u);
    }
    for (var i = 1u; i < shape.len; i++) {
        x = reduce_combine(x, load_element(row, i));
    }
    store_out(shape.out_offset + row, epilogue(reduce_finish(x, shape.len), row, 0u));
}
