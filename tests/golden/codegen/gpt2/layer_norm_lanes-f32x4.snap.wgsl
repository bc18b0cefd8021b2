// layer_norm_lanes.f32x4
//
// Linked by attnc; generated, do not edit.

// ---- params (generated)

// params: workgroups of 64

alias out_elem = vec4<f32>;
alias out_item = vec4<f32>;
alias lane_elem = f32;

const WORKGROUP_SIZE: u32 = 64u;

// ---- kernels/layer_norm_lanes.wgsl

// Layer normalisation: out[row, i] = epilogue((x[row, i] - mean) / sqrt(variance + epsilon))
//
// The lanes of one workgroup own one row and walk it twice: mean and variance, result. A lane takes every
// WORKGROUP_SIZE-th pack, so that neighbours read neighbouring memory. Weight and bias are part of the epilogue.
//
// Ba, Kiros and Hinton 2016, arXiv:1607.06450, section 3. Each element of a lane's pack keeps a mean and a sum of
// squares about it (Welford 1962, Technometrics 4(3), "Note on a method for calculating corrected sums of squares
// and products"), because E[x^2] - E[x]^2 cancels in f32; these join exactly (Chan, Golub and LeVeque 1979,
// STAN-CS-79-773, equation 2.1).
//
// Layout: x comes from load_element; out is contiguous; `len` and `out_offset` count packs.

struct Shape {
    rows: u32,
    len: u32,
    out_offset: u32,
    epsilon: f32,
}

@group(0) @binding(0) var<uniform> shape: Shape;

@compute @workgroup_size(WORKGROUP_SIZE)
fn layer_norm_lanes(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_workgroup(group, groups);
    if row >= shape.rows {
        return; // all lanes of it
    }

    var n = 0.0;
    var mean = pack();
    var squares = pack();
    for (var i = lane; i < shape.len; i += WORKGROUP_SIZE) {
        let x = load_element(row, i);
        let centred = x - mean;
        n += 1.0;
        mean += centred * (1.0 / n);
        squares += centred * (x - mean);
    }
    let count = f32(shape.len * PACK);
    let row_mean = lanes_sum(n * pack_sum(mean), lane) / count;
    let apart = mean - row_mean;
    let variance = lanes_sum(pack_sum(squares + n * apart * apart), lane) / count;
    let rstd = 1.0 / sqrt(variance + shape.epsilon);

    let start = shape.out_offset + row * shape.len;
    for (var i = lane; i < shape.len; i += WORKGROUP_SIZE) {
        store_out(start + i, epilogue((load_element(row, i) - row_mean) * rstd, row, i));
    }
}

// ---- mods (generated)

@group(1) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(1) @binding(1) var<storage, read> gain: array<vec4<f32>>;
@group(1) @binding(2) var<storage, read> bias: array<vec4<f32>>;

// load_element: x[d0, d1, i]; i counts vectors
fn load_element(row: u32, i: u32) -> vec4<f32> {
    return x[192u * row + i];
}

// epilogue: value * gain[i] + bias[i]; i counts vectors
fn epilogue(value: vec4<f32>, row: u32, i: u32) -> vec4<f32> {
    return value * gain[i] + bias[i];
}

// ---- lanes/workgroup.wgsl

// lane_xor: the lanes of a row are a workgroup, of which nothing more is known
//
// For devices without subgroup operations.

var<workgroup> exchanged: array<lane_elem, WORKGROUP_SIZE>;

// The x of lane `lane ^ far`, for a power of two below WORKGROUP_SIZE. All lanes of the workgroup must be here.
fn lane_xor(x: lane_elem, far: u32, lane: u32) -> lane_elem {
    workgroupBarrier();
    exchanged[lane] = x;
    workgroupBarrier();
    return exchanged[lane ^ far];
}

// ---- pack/four.wgsl

// pack: a lane takes four neighbouring elements at a time

alias pack = vec4<f32>;

const PACK: u32 = 4u;

fn pack_sum(x: pack) -> f32 {
    return (x.x + x.y) + (x.z + x.w);
}

fn pack_max(x: pack) -> f32 {
    return max(max(x.x, x.y), max(x.z, x.w));
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

// ---- lib/lanes_sum.wgsl

// Sum over the lanes of a row, known to each of them: at most 256 lanes, a power of two.
//
// A butterfly: after step n each lane knows the result of 2^n neighbours. Conditions are constant.

fn lanes_sum(x: lane_elem, lane: u32) -> lane_elem {
    var all = x;
    if WORKGROUP_SIZE > 1u { all += lane_xor(all, 1u, lane); }
    if WORKGROUP_SIZE > 2u { all += lane_xor(all, 2u, lane); }
    if WORKGROUP_SIZE > 4u { all += lane_xor(all, 4u, lane); }
    if WORKGROUP_SIZE > 8u { all += lane_xor(all, 8u, lane); }
    if WORKGROUP_SIZE > 16u { all += lane_xor(all, 16u, lane); }
    if WORKGROUP_SIZE > 32u { all += lane_xor(all, 32u, lane); }
    if WORKGROUP_SIZE > 64u { all += lane_xor(all, 64u, lane); }
    if WORKGROUP_SIZE > 128u { all += lane_xor(all, 128u, lane); }
    return all;
}
