// element4: x[i] + y[i], four at a time

@group(1) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(1) @binding(1) var<storage, read> y: array<vec4<f32>>;

fn element4(i: u32) -> vec4<f32> {
    return x[i] + y[i];
}
