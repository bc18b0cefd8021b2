// One output element from its index: out[offset + i] = element(i)
//
// Each invocation owns every grid-th element. What an element is (arithmetic on any number of inputs,
// a copy of a view, a gather, a concat, a pad) is the scalar expression printed into `mods`.
//
// Layout: out is contiguous.

import package::params::{WORKGROUP_SIZE, out_item};
import package::mods::{element};
import package::lib::indexing::{linear_workgroup};

struct Shape {
    count: u32, // items of out: elements, or words of two
    out_offset: u32,
}

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read_write> out: array<out_item>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn pointwise(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let invocations = groups.x * groups.y * groups.z * WORKGROUP_SIZE;
    var i = linear_workgroup(group, groups) * WORKGROUP_SIZE + lane;
    while i < shape.count {
        out[shape.out_offset + i] = element(i);
        if invocations >= shape.count - i {
            break; // and i + invocations cannot wrap
        }
        i += invocations;
    }
}
