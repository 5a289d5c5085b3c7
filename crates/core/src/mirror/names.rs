//! Names of EndpointSlices: made from what a slice is for, so that two replicas never make one twice.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::net::Family;

/// What a slice is for, besides its Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SliceGroup {
    pub(super) remote: Arc<str>,
    pub(super) family: Family,
    /// Distinguishes port sets; empty where a Service has one.
    pub(super) ports: String,
}

impl SliceGroup {
    /// The name of the slice with this index.
    pub(super) fn slice_name(&self, service: &str, index: usize) -> Arc<str> {
        let Self { remote, family, ports } = self;
        format!("{service}-{}", short_hash(&format!("{remote}\n{family}\n{ports}\n{index}"))).into()
    }
}

/// The first ten characters of the SHA-256 of a text, in lower-case base32hex.
pub fn short_hash(text: &str) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let hash = Sha256::digest(text.as_bytes());
    // Bit by bit: ten digits are fifty bits.
    let bit = |number: usize| usize::from(hash[number / 8] >> (7 - number % 8) & 1);
    let digit = |place: usize| (5 * place..5 * place + 5).fold(0, |bits, number| bits << 1 | bit(number));
    (0..10).map(|place| char::from(DIGITS[digit(place)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_standard() {
        // base64.b32hexencode(hashlib.sha256(text).digest())[:10].lower() in Python
        assert_eq!(short_hash(""), "seoc8gkovg");
        assert_eq!(short_hash("shop/web"), "isrlchlhrq");
    }
}
