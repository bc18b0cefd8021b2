// Sums over the lanes of a subgroup, several at once: lane r ends up with the r-th sum.
//
// Each step halves the numbers and doubles the lanes that share them, as in a fast Fourier transform, so that
// eight sums cost seven exchanges where one after the other costs 24. Exchanges stay within eight (or four)
// neighbouring lanes, whatever the subgroup's width. All lanes must take part.

// The sum over a lane and the lane `distance` away: of `a` where that bit of the lane's number is 0, else of `b`.
fn fold(a: f32, b: f32, lane: u32, distance: u32) -> f32 {
    let upper = (lane & distance) != 0u;
    return select(a, b, upper) + subgroupShuffleXor(select(b, a, upper), distance);
}

fn sums_of_2(a: f32, b: f32, lane: u32) -> f32 {
    return fold(a, b, lane, 1u);
}

fn sums_of_4(a: f32, b: f32, c: f32, d: f32, lane: u32) -> f32 {
    return fold(sums_of_2(a, b, lane), sums_of_2(c, d, lane), lane, 2u);
}

fn sums_of_8(a: f32, b: f32, c: f32, d: f32, e: f32, f: f32, g: f32, h: f32, lane: u32) -> f32 {
    return fold(sums_of_4(a, b, c, d, lane), sums_of_4(e, f, g, h, lane), lane, 4u);
}
