// Sums over the lanes of a subgroup, several at once, so that each ends up in a lane of its own.
//
// Each step halves the numbers and doubles the lanes that share them, as in a fast Fourier transform: eight sums
// over eight lanes cost seven exchanges where one after the other costs 24. All lanes must take part.

// The sum over a lane and the lane `distance` away, of `a` where that bit of the lane's number is 0, else of `b`.
fn fold(a: f32, b: f32, lane: u32, distance: u32) -> f32 {
    let upper = (lane & distance) != 0u;
    return select(a, b, upper) + subgroupShuffleXor(select(b, a, upper), distance);
}
