// Online softmax: the running pair (m, l) of one query row, m the maximum and l = sum exp(score - m).
//
// Milakov and Gimelshein 2018, arXiv:1805.02867, Algorithm 3.

// Where the running maximum starts: the least finite f32. A score of exactly this value is a number
// like any other (exported models fill masked scores with it) and still gives p = exp(0) = 1, so a
// row of nothing else comes out as the mean of V. Whether a key counts is decided apart from it.
const SCORE_MIN: f32 = -3.40282346638528859811704183484516925e38;

// A score of -inf means "no key". Compared as bits, since WGSL may assume that no infinities exist.
const NEG_INF_BITS: u32 = 0xff800000u;

// How far a score may pass the number that stands for the maximum before sums are scaled anew, where a kernel
// scales them seldom: exp(HEADROOM) is some 3000, far from what overflows and as precise as 1.
const HEADROOM: f32 = 8.0;
