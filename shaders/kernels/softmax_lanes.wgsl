// Softmax: out[row, i] = epilogue(exp(x[row, i] - max) / sum)
//
// The lanes of one workgroup own one row and walk it three times: maximum, sum, result. A lane takes every
// WORKGROUP_SIZE-th pack, so that neighbours read neighbouring memory. The literal meaning is kept for rows with
// infinities, which an online sum would lose to inf - inf; but a row of nothing but -inf has no key and gives
// zeros, where the literal meaning is NaN.
//
// Milakov and Gimelshein 2018, arXiv:1805.02867, Algorithm 2 (safe softmax).
//
// Layout: x comes from load_element; out is contiguous; `len` and `out_offset` count packs.

import package::params::{WORKGROUP_SIZE};
import package::mods::{load_element, epilogue};
import package::pack::{pack, pack_max, pack_sum};
import package::store::{store_out};
import package::lib::float_bits::{float_bits};
import package::lib::indexing::{linear_workgroup};
import package::lib::lanes_max::{lanes_max};
import package::lib::lanes_sum::{lanes_sum};
import package::lib::online_softmax::{NEG_INF_BITS};

struct Shape {
    rows: u32,
    len: u32,
    out_offset: u32,
}

@group(0) @binding(0) var<uniform> shape: Shape;

@compute @workgroup_size(WORKGROUP_SIZE)
fn softmax_lanes(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_workgroup(group, groups);
    if row >= shape.rows {
        return; // all lanes of it
    }

    var top = pack(float_bits(NEG_INF_BITS));
    for (var i = lane; i < shape.len; i += WORKGROUP_SIZE) {
        top = max(top, load_element(row, i));
    }
    let m = lanes_max(pack_max(top), lane);
    let no_key = bitcast<u32>(m) == NEG_INF_BITS;
    var sum = pack();
    for (var i = lane; i < shape.len; i += WORKGROUP_SIZE) {
        sum += exp(load_element(row, i) - m);
    }
    let l = lanes_sum(pack_sum(sum), lane);

    let start = shape.out_offset + row * shape.len;
    for (var i = lane; i < shape.len; i += WORKGROUP_SIZE) {
        let p = exp(load_element(row, i) - m) / l;
        store_out(start + i, epilogue(select(p, pack(), no_key), row, i));
    }
}
