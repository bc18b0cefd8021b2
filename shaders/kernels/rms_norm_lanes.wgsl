// Root-mean-square normalisation: out[row, i] = epilogue(x[row, i] / sqrt(mean(x^2) + epsilon))
//
// The lanes of one workgroup own one row and walk it twice: squares, result. A lane takes every
// WORKGROUP_SIZE-th pack, so that neighbours read neighbouring memory. The weight is part of the epilogue.
//
// Zhang and Sennrich 2019, arXiv:1910.07467, equation 4.
//
// Layout: x comes from load_element; out is contiguous; `len` and `out_offset` count packs.

import package::params::{WORKGROUP_SIZE};
import package::mods::{load_element, epilogue};
import package::pack::{pack, PACK, pack_sum};
import package::store::{store_out};
import package::lib::indexing::{linear_workgroup};
import package::lib::lanes_sum::{lanes_sum};

struct Shape {
    rows: u32,
    len: u32,
    out_offset: u32,
    epsilon: f32,
}

@group(0) @binding(0) var<uniform> shape: Shape;

@compute @workgroup_size(WORKGROUP_SIZE)
fn rms_norm_lanes(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_workgroup(group, groups);
    if row >= shape.rows {
        return; // all lanes of it
    }

    var squares = pack();
    for (var i = lane; i < shape.len; i += WORKGROUP_SIZE) {
        let x = load_element(row, i);
        squares += x * x;
    }
    let mean = lanes_sum(pack_sum(squares), lane) / f32(shape.len * PACK);
    let scale = 1.0 / sqrt(mean + shape.epsilon);

    let start = shape.out_offset + row * shape.len;
    for (var i = lane; i < shape.len; i += WORKGROUP_SIZE) {
        store_out(start + i, epilogue(load_element(row, i) * scale, row, i));
    }
}
