// Root-mean-square normalisation over one axis: out[row, i] = epilogue(x[row, i] / sqrt(mean(x^2) + epsilon))
//
// One invocation owns one row and walks it twice. The weight is part of the epilogue.
//
// Zhang and Sennrich 2019, arXiv:1910.07467, equation 4.
//
// Layout: x comes from load_element; a row is (outer, inner) = (row / inner, row % inner).

import package::params::{WORKGROUP_SIZE};
import package::mods::{load_element, epilogue};
import package::store::{store_out};
import package::lib::indexing::{linear_workgroup};

struct Shape {
    rows: u32,
    len: u32,
    inner: u32, // product of the sizes behind the axis
    out_offset: u32,
    out_outer_stride: u32,
    out_inner_stride: u32,
    out_axis_stride: u32,
    epsilon: f32,
}

@group(0) @binding(0) var<uniform> shape: Shape;

@compute @workgroup_size(WORKGROUP_SIZE)
fn rms_norm_rows(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_workgroup(group, groups) * WORKGROUP_SIZE + lane;
    if row >= shape.rows {
        return;
    }

    var squares = 0.0;
    for (var i = 0u; i < shape.len; i++) {
        let x = load_element(row, i);
        squares += x * x;
    }
    let scale = 1.0 / sqrt(squares / f32(shape.len) + shape.epsilon);

    var at = shape.out_offset + (row / shape.inner) * shape.out_outer_stride + (row % shape.inner) * shape.out_inner_stride;
    for (var i = 0u; i < shape.len; i++) {
        store_out(at, epilogue(load_element(row, i) * scale, row, i));
        at += shape.out_axis_stride;
    }
}
