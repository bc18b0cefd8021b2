//! Numbers that look drawn, and are the same on every machine.
//!
//! SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", fig. 15)
//! gives the bits. A normal deviate is the sum of twelve uniforms less six (Irwin-Hall): unlike
//! Box-Muller it needs no logarithm or cosine, whose last bit differs between systems.

/// A stream of numbers from a seed.
pub(super) struct Weights {
    state: u64,
}

impl Weights {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1), on a grid of 2⁻⁵³.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal with mean 0 and variance 1, within ±6.
    fn deviate(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// `count` deviates times `spread`, around `mean`.
    pub(super) fn around(&mut self, mean: f64, spread: f64, count: i64) -> Vec<f32> {
        (0..count)
            .map(|_| (mean + spread * self.deviate()) as f32)
            .collect()
    }

    /// `count` deviates times `spread`.
    pub(super) fn normal(&mut self, spread: f64, count: i64) -> Vec<f32> {
        self.around(0.0, spread, count)
    }

    /// `count` integers of `0..below`.
    pub(super) fn ids(&mut self, below: i64, count: usize) -> Vec<i64> {
        // The remainder's bias is below 2⁻⁵⁰ here and does not matter.
        (0..count)
            .map(|_| (self.next() % below.unsigned_abs()) as i64)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_splitmix64() {
        // The reference outputs for seed 1234567 (Rosetta Code, "SplitMix64").
        let mut weights = Weights::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| weights.next()).collect();
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first, expected);
    }

    #[test]
    fn deviates_have_mean_zero_and_variance_one() {
        let drawn = Weights::new(1).normal(1.0, 20_000);
        let mean = drawn.iter().sum::<f32>() / 20_000.0;
        let variance = drawn.iter().map(|x| x * x).sum::<f32>() / 20_000.0;
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((variance - 1.0).abs() < 0.05, "{variance}");
    }
}
