// pointwise.f32x4.select_gather_add
//
// Linked by attnc; generated, do not edit.

// ---- params (generated)

// params: workgroups of 32

alias out_item = vec4<f32>;

const WORKGROUP_SIZE: u32 = 32u;
const ITEMS_PER_INVOCATION: u32 = 1u;

// ---- kernels/pointwise.wgsl

// One output element from its index: out[offset + i] = element(i)
//
// A workgroup owns a run of WORKGROUP_SIZE * ITEMS_PER_INVOCATION items, which its invocations take in turns, so
// that neighbours touch neighbouring memory. What an element is (arithmetic on any number of inputs, a copy of a
// view, a gather, a concat, a pad) is the scalar expression printed into `mods`.
//
// Layout: out is contiguous.

struct Shape {
    count: u32, // items of out: elements, words of two, or vectors of four
    out_offset: u32,
    dim_seq: u32,
    dim_192_seq: u32,
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

// ---- mods (generated)

@group(1) @binding(0) var<storage, read> ids: array<i32>;
@group(1) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(1) @binding(2) var<storage, read> x2: array<vec4<f32>>;

// element: e0 = ids[d0, d1]; x[select(e0 < 0, e0 + 50257, e0), d2] + x2[d1, d2]; i counts vectors
fn element(i: u32) -> vec4<f32> {
    let quotient0 = i / 192u;
    let n0 = ids[quotient0];
    let clamped0 = min(u32(select(n0, n0 + 50257i, n0 < 0i)), 50256u);
    let remainder0 = i % 192u;
    let quotient1 = i / shape.dim_192_seq;
    let d1 = quotient0 - shape.dim_seq * quotient1;
    let clamped1 = min(d1, 1023u);
    return x[192u * clamped0 + remainder0] + x2[192u * clamped1 + remainder0];
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
