// Softmax over one axis: out[row, i] = epilogue(exp(x[row, i] - max) / sum)
//
// One invocation owns one row and walks it three times: maximum, sum, result. The literal meaning is
// kept for rows with infinities, which an online sum would lose to inf - inf; but a row of nothing but
// -inf has no key and gives zeros, where the literal meaning is NaN.
//
// Milakov and Gimelshein 2018, arXiv:1805.02867, Algorithm 2 (safe softmax).
//
// Layout: x comes from load_element; a row is (outer, inner) = (row / inner, row % inner).

import package::params::{WORKGROUP_SIZE};
import package::mods::{load_element, epilogue};
import package::lib::online_softmax::{NEG_INF_BITS};
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
}

@group(0) @binding(0) var<uniform> shape: Shape;

@compute @workgroup_size(WORKGROUP_SIZE)
fn softmax_rows(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_workgroup(group, groups) * WORKGROUP_SIZE + lane;
    if row >= shape.rows {
        return;
    }

    var m = load_element(row, 0u);
    for (var i = 1u; i < shape.len; i++) {
        m = max(m, load_element(row, i));
    }
    let no_key = bitcast<u32>(m) == NEG_INF_BITS;
    var l = 0.0;
    for (var i = 0u; i < shape.len; i++) {
        l += exp(load_element(row, i) - m);
    }

    var at = shape.out_offset + (row / shape.inner) * shape.out_outer_stride + (row % shape.inner) * shape.out_inner_stride;
    for (var i = 0u; i < shape.len; i++) {
        store_out(at, epilogue(select(exp(load_element(row, i) - m) / l, 0.0, no_key), row, i));
        at += shape.out_axis_stride;
    }
}
