// One output element from its index: out[offset + i] = element(i)
//
// A workgroup owns a run of WORKGROUP_SIZE * ITEMS_PER_INVOCATION items, which its invocations take in turns, so
// that neighbours touch neighbouring memory. What an element is (arithmetic on any number of inputs, a copy of a
// view, a gather, a concat, a pad) is the scalar expression printed into `mods`.
//
// Layout: out is contiguous.

import package::params::{WORKGROUP_SIZE, ITEMS_PER_INVOCATION, out_item};
import package::mods::{element};
import package::lib::indexing::{linear_workgroup};

struct Shape {
    count: u32, // items of out: elements, words of two, or vectors of four
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
    let run = WORKGROUP_SIZE * ITEMS_PER_INVOCATION;
    let start = linear_workgroup(group, groups) * run;
    if start >= shape.count {
        return;
    }
    let end = start + min(run, shape.count - start);
    for (var i = start + lane; i < end; i += WORKGROUP_SIZE) {
        out[shape.out_offset + i] = element(i);
    }
}
