//! Hashing that is fixed by definition, so that every process and every version agrees where a key goes.
//!
//! [`Ring`] is the consistent hash of l7mp's world (MD5 points, byte for byte), [`Maglev`] the lookup table for
//! new set-ups. Both are values: built away from the data path from an ordered list of servers, then only read.

mod maglev;
mod md5;
mod random;
mod ring;

pub use maglev::Maglev;
pub use md5::md5;
pub use random::SplitMix;
pub use ring::{Point, Ring};

/// What gets keys: an address, and how large a share it takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Server<'a> {
    /// The server's identity; its place depends on this text alone.
    pub address: &'a str,
    /// The share relative to the others; a server without a positive, finite weight gets no key.
    pub weight: f64,
}

impl Server<'_> {
    /// Whether the server takes keys at all.
    pub fn is_open(&self) -> bool {
        self.weight.is_finite() && self.weight > 0.0
    }
}

/// The 64-bit hash behind [`Maglev`]: XXH3 without a seed.
pub fn hash64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}
