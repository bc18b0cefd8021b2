// pointwise.f16.pack
//
// Linked by attnc; generated, do not edit.

// ---- params (generated)

// params: workgroups of 32

alias out_item = u32;

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
    dim_5_B_M_minus_1: i32,
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

@group(1) @binding(0) var<storage, read> x: array<f32>;

// value: x[d0, d1, d2]
fn value(i: u32) -> f32 {
    return x[i];
}

// element: item i of memory, which holds f16 by words of two
fn element(i: u32) -> u32 {
    return f16_word(vec2<f32>(value(2u * i), value(min(2u * i + 1u, u32(shape.dim_5_B_M_minus_1)))));
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

// ---- lib/packed_f16.wgsl

// f16 by words, for devices without f16: a u32 holds element 2 j in its low half and element 2 j + 1 in its
// high half. Reading is exact. Writing rounds to nearest, ties to even, whatever the device's own conversion
// does; what rounds past 65504 becomes an infinity, as IEEE 754 has it, and a NaN stays one.

// Element i, which lies in `word`.
fn f16_at(word: u32, i: u32) -> f32 {
    return unpack2x16float(word >> (16u * (i & 1u))).x;
}

fn f16_vec4(words: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}

fn f16_word(x: vec2<f32>) -> u32 {
    let bits = bitcast<vec2<u32>>(x);
    let size = bits & vec2<u32>(0x7fffffffu);
    // The exponent's bias is 112 less, the fraction 13 bits shorter.
    let odd = (size >> vec2<u32>(13u)) & vec2<u32>(1u);
    let normal = (size + vec2<u32>(0xfffu) + odd - vec2<u32>(112u << 23u)) >> vec2<u32>(13u);
    // Below 2^-14 elements are multiples of 2^-24, which is what adding 0.5 rounds to.
    let subnormal = bitcast<vec2<u32>>(abs(x) + vec2<f32>(0.5)) - vec2<u32>(0x3f000000u);
    let number = min(select(normal, subnormal, size < vec2<u32>(113u << 23u)), vec2<u32>(0x7c00u));
    let sign = (bits >> vec2<u32>(16u)) & vec2<u32>(0x8000u);
    let half = sign | select(number, vec2<u32>(0x7e00u), size > vec2<u32>(0x7f800000u));
    return half.x | (half.y << 16u);
}

fn f16_words(x: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(f16_word(x.xy), f16_word(x.zw));
}

// `word` with element i, which lies in it, replaced.
fn f16_with(word: u32, i: u32, x: f32) -> u32 {
    let half = f16_word(vec2<f32>(x, 0.0));
    return select((word & 0xffff0000u) | half, (word & 0xffffu) | (half << 16u), (i & 1u) == 1u);
}
