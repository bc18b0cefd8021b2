// Sixteen numbers in four vectors. A matrix in name only: products are of elements.

alias sixteen = mat4x4<f32>;

fn times(a: sixteen, b: sixteen) -> sixteen {
    return sixteen(a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]);
}

fn dots(a: sixteen, b: sixteen) -> f32 {
    return dot(a[0], b[0]) + dot(a[1], b[1]) + dot(a[2], b[2]) + dot(a[3], b[3]);
}
