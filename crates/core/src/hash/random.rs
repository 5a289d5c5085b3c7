//! Numbers that look random and follow from their seed.

/// SplitMix64: a stream of 64-bit numbers; two streams of one seed are equal.
#[derive(Debug, Clone)]
pub struct SplitMix(u64);

impl SplitMix {
    /// A stream that starts at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The stream's next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `[0, 1)`, of 53 bits.
    pub fn next_unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exactly what an f64 holds")]
        let bits = (self.next_u64() >> 11) as f64;
        bits / 9_007_199_254_740_992.0
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix;

    #[test]
    fn the_published_stream_of_seed_1234567_comes_out() {
        let mut stream = SplitMix::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| stream.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
