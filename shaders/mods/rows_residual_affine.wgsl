// load_element: x[row, i] + residual[row, i]; epilogue: value * weight[i] + bias[i]      (post-norm layers)

struct RowDims {
    len: u32,
}

@group(1) @binding(0) var<uniform> row_dims: RowDims;
@group(1) @binding(1) var<storage, read> x: array<f32>; // [rows, len]
@group(1) @binding(2) var<storage, read> residual: array<f32>; // [rows, len]
@group(1) @binding(3) var<storage, read> weight: array<f32>; // [len]
@group(1) @binding(4) var<storage, read> bias: array<f32>; // [len]

fn load_element(row: u32, i: u32) -> f32 {
    let at = row * row_dims.len + i;
    return x[at] + residual[at];
}

fn epilogue(value: f32, row: u32, i: u32) -> f32 {
    return value * weight[i] + bias[i];
}
