// element: table[ids[i / width], i % width]      (an embedding)

import package::lib::gather_index::{gather_index};

struct GatherDims {
    width: u32,
    rows: u32,
}

@group(1) @binding(0) var<uniform> gather_dims: GatherDims;
@group(1) @binding(1) var<storage, read> table: array<f32>; // [rows, width]
@group(1) @binding(2) var<storage, read> ids: array<i32>;

fn element(i: u32) -> f32 {
    let row = gather_index(ids[i / gather_dims.width], gather_dims.rows);
    return table[row * gather_dims.width + i % gather_dims.width];
}
