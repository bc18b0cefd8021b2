// layer_norm_rows.f32.gain_bias
//
// Linked by attnc; generated, do not edit.

// ---- params (generated)

// params: workgroups of 32

alias out_elem = f32;
alias out_item = f32;

const WORKGROUP_SIZE: u32 = 32u;

// ---- kernels/layer_norm_rows.wgsl

// Layer normalisation over one axis: out[row, i] = epilogue((x[row, i] - mean) / sqrt(variance + epsilon))
//
// One invocation owns one row and walks it three times: mean, variance about that mean, result.
// Weight and bias are part of the epilogue.
//
// Ba, Kiros and Hinton 2016, arXiv:1607.06450, section 3. Two passes for the variance, because
// E[x^2] - E[x]^2 cancels in f32.
//
// Layout: x comes from load_element; a row is (outer, inner) = (row / inner, row % inner).

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
fn layer_norm_rows(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_workgroup(group, groups) * WORKGROUP_SIZE + lane;
    if row >= shape.rows {
        return;
    }

    var sum = 0.0;
    for (var i = 0u; i < shape.len; i++) {
        sum += load_element(row, i);
    }
    let mean = sum / f32(shape.len);
    var squares = 0.0;
    for (var i = 0u; i < shape.len; i++) {
        let centred = load_element(row, i) - mean;
        squares += centred * centred;
    }
    let rstd = 1.0 / sqrt(squares / f32(shape.len) + shape.epsilon);

    var at = shape.out_offset + (row / shape.inner) * shape.out_outer_stride + (row % shape.inner) * shape.out_inner_stride;
    for (var i = 0u; i < shape.len; i++) {
        store_out(at, epilogue((load_element(row, i) - mean) * rstd, row, i));
        at += shape.out_axis_stride;
    }
}

// ---- mods (generated)

@group(1) @binding(0) var<storage, read> x: array<f32>;
@group(1) @binding(1) var<storage, read> t: array<f32>;
@group(1) @binding(2) var<storage, read> t2: array<f32>;

// load_element: x[d0, d1, i]
fn load_element(row: u32, i: u32) -> f32 {
    return x[16u * row + i];
}

// epilogue: (value * t1[] + t2[]) * t[i] + t2[i]
fn epilogue(value: f32, row: u32, i: u32) -> f32 {
    return (value * 1.0 + 0.0) * t[i] + t2[i];
}

// ---- store/elements.wgsl

// store_out: one item of memory an element

@group(0) @binding(1) var<storage, read_write> out: array<out_item>;

fn store_out(at: u32, x: out_elem) {
    out[at] = out_item(x);
}

// ---- lib/indexing.wgsl

// Index arithmetic shared by all kernels.

// Position of a workgroup in the grid, x fastest. A grid may be folded over y and z in any way:
// kernels use only this number, and workgroups beyond their work return.
fn linear_workgroup(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + groups.x * (group.y + groups.y * group.z);
}

fn div_ceil(x: u32, y: u32) -> u32 {
    return (x + y - 1u) / y;
}
