// x to the power y as IEEE 754 pow has it for finite x: WGSL's own is exp2(y * log2(x)), which is NaN
// for every negative x. A negative x needs an integer y.
fn power(x: f32, y: f32) -> f32 {
    if y == 0.0 {
        return 1.0;
    }
    let magnitude = pow(abs(x), y);
    let odd = floor(0.5 * y) * 2.0 != y;
    let signed_power = select(magnitude, -magnitude, odd && x < 0.0);
    let not_real = x < 0.0 && floor(y) != y;
    return select(signed_power, bitcast<f32>(0x7fc00000u | bitcast<u32>(magnitude)), not_real);
}
