// load_element: x[row, i], contiguous; epilogue: x

struct RowDims {
    len: u32,
}

@group(1) @binding(0) var<uniform> row_dims: RowDims;
@group(1) @binding(1) var<storage, read> x: array<f32>; // [rows, len]

fn load_element(row: u32, i: u32) -> f32 {
    return x[row * row_dims.len + i];
}

fn epilogue(value: f32, row: u32, i: u32) -> f32 {
    return value;
}
