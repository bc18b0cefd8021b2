// element: x[i] + y[i]

@group(1) @binding(0) var<storage, read> x: array<f32>;
@group(1) @binding(1) var<storage, read> y: array<f32>;

fn element(i: u32) -> f32 {
    return x[i] + y[i];
}
