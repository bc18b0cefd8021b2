// In which order workgroups take blocks of rows.

// A permutation of 0 .. n that takes from both ends in turn, so that any run of consecutive numbers has as much
// of the beginning as of the end: causal rows cost more the later they are.
fn balanced(i: u32, n: u32) -> u32 {
    return select(i / 2u, n - 1u - i / 2u, i % 2u == 1u);
}
