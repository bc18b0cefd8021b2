// Running sum over one axis: out[row, i] = epilogue(x[row, 0] + ... + x[row, i])
//
// One invocation owns one row and walks it once, four elements a turn since drivers may count turns, and from the end
// if `reverse`; `exclusive` leaves the element itself out of its sum.
//
// Layout: x comes from load_element; a row is (outer, inner) = (row / inner, row % inner).

import package::params::{WORKGROUP_SIZE, acc_elem};
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
    exclusive: u32, // 0 or 1
    reverse: u32, // 0 or 1
}

@group(0) @binding(0) var<uniform> shape: Shape;

// The sum through the element that comes `step`th, which is stored, or out of which it is left.
fn take(row: u32, at: u32, step: u32, before: acc_elem) -> acc_elem {
    if step >= shape.len {
        return before;
    }
    let i = select(step, shape.len - 1u - step, shape.reverse != 0u);
    let through = before + load_element(row, i);
    store_out(at + i * shape.out_axis_stride, epilogue(select(through, before, shape.exclusive != 0u), row, i));
    return through;
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn scan_rows(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_workgroup(group, groups) * WORKGROUP_SIZE + lane;
    if row >= shape.rows {
        return;
    }

    let at = shape.out_offset + (row / shape.inner) * shape.out_outer_stride + (row % shape.inner) * shape.out_inner_stride;
    var sum = acc_elem();
    for (var step = 0u; step < shape.len; step += 4u) {
        sum = take(row, at, step, sum);
        sum = take(row, at, step + 1u, sum);
        sum = take(row, at, step + 2u, sum);
        sum = take(row, at, step + 3u, sum);
    }
}
