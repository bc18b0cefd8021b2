// Four neighbouring output elements from their index: out[4 i .. 4 i + 4] = element4(i)
//
// As pointwise.wgsl, for expressions whose every load is four contiguous elements or one scalar, and
// whose last axis is a multiple of 4.
//
// Layout: out is contiguous, its offset and its count are multiples of 4.

import package::params::{WORKGROUP_SIZE, out_elem};
import package::mods::{element4};
import package::lib::indexing::{linear_workgroup};

struct Shape {
    count: u32, // elements of out; a multiple of 4
    out_offset: u32, // in elements; a multiple of 4
}

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<out_elem>>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn pointwise_vec4(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let count = shape.count / 4u;
    let invocations = groups.x * groups.y * groups.z * WORKGROUP_SIZE;
    var i = linear_workgroup(group, groups) * WORKGROUP_SIZE + lane;
    while i < count {
        out[shape.out_offset / 4u + i] = element4(i);
        if invocations >= count - i {
            break; // and i + invocations cannot wrap
        }
        i += invocations;
    }
}
