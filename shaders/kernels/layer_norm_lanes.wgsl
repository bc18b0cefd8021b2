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
