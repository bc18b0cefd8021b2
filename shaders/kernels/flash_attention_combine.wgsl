// Joins the parts of an attention whose keys were walked in parts:
// O = sum(exp(m_i - m) O_i) / sum(exp(m_i - m) l_i), m = max(m_i)
//
// An invocation has four columns of a row. A part without a live key has m = SCORE_MIN, l = 0 and O = 0.
//
// Milakov and Gimelshein 2018, arXiv:1805.02867, section 3.1 (the operator on pairs (m, l); O goes as l does).
//
// Layout: parts are [B, H, M, PARTS, PART_LEN], a part as walk/part says; O is [B, H, M, D], every axis strided, in
// elements.

import package::params::{WORKGROUP_SIZE};
import package::micro::{COLUMN_VECTORS, o_item, store_columns};
import package::walk::{rows_end};
import package::lib::online_softmax::{SCORE_MIN};
import package::lib::indexing::{linear_workgroup};

struct Shape {
    batch: u32,
    heads: u32,
    q_len: u32,
    part_count: u32, // 0 if there is no key
    o_offset: u32,
    o_batch_stride: u32,
    o_head_stride: u32,
    o_row_stride: u32,
    o_column_stride: u32, // read by scalar stores only
}

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> o: array<o_item>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn flash_attention_combine(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = linear_workgroup(group, groups) * WORKGROUP_SIZE + lane;
    let column = item % COLUMN_VECTORS;
    let row = item / COLUMN_VECTORS;
    let q_idx = row % shape.q_len;
    let h = row / shape.q_len % shape.heads;
    let b = row / (shape.q_len * shape.heads);
    if b >= shape.batch {
        return;
    }

    var out = vec4<f32>();
    var m = SCORE_MIN;
    var l = 0.0;
    var row_max = SCORE_MIN;
    for (var part = 0u; part < shape.part_count; part++) {
        let at = (row * shape.part_count + part) * (COLUMN_VECTORS + 1u);
        let state = parts[at + COLUMN_VECTORS];
        let joined = max(m, state.x);
        let shrink = exp(m - joined);
        let grow = exp(state.x - joined);
        out = out * shrink + parts[at + column] * grow;
        l = l * shrink + state.y * grow;
        m = joined;
        row_max = max(row_max, state.z);
    }
    let at = shape.o_offset + b * shape.o_batch_stride + h * shape.o_head_stride + q_idx * shape.o_row_stride;
    store_columns(at, 4u * column, out * rows_end(at, true, m, l, row_max, b, h, q_idx));
}
