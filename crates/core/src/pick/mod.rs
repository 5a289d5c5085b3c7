//! Seeded choice: rendezvous weights and draws, by a hash that is fixed by definition.
//!
//! The hash is XXH3 (64 bits) with the seed, over parts that each follow their length as eight little-endian bytes.
//! Replicas, restarts and releases therefore choose alike. A weight joins two hashes made beforehand, of the thing
//! and of the node, with one round of SplitMix64: comparing thousands of nodes costs microseconds.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Up to this many bytes are hashed in one go, which gives the same and costs a tenth.
const SHORT: usize = 240;

/// Hashes the parts; parts of other lengths never collide by their borders.
pub fn hash(seed: u64, parts: &[&[u8]]) -> u64 {
    if parts.iter().map(|part| 8 + part.len()).sum::<usize>() <= SHORT {
        let (mut bytes, mut length) = ([0; SHORT], 0);
        for part in parts {
            bytes[length..][..8].copy_from_slice(&(part.len() as u64).to_le_bytes());
            bytes[length + 8..][..part.len()].copy_from_slice(part);
            length += 8 + part.len();
        }
        return xxh3_64_with_seed(&bytes[..length], seed);
    }
    let mut state = Xxh3::with_seed(seed);
    for part in parts {
        state.update(&(part.len() as u64).to_le_bytes());
        state.update(part);
    }
    state.digest()
}

/// The weight of a node for a thing, from the hashes of both: the highest wins.
pub fn weight(thing: u64, node: u64) -> u64 {
    let mut mixed = (thing ^ node).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A draw from `count` things; none from nothing.
pub fn draw(hash: u64, count: u128) -> Option<u128> {
    u128::from(hash).checked_rem(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_never_changes() {
        // recorded once: another value would move addresses on upgrade
        assert_eq!(hash(1, &[b"gateway", b"policy"]), GOLDEN);
        assert_eq!(weight(1, 2), GOLDEN_WEIGHT);
        assert_ne!(hash(1, &[b"ab", b"c"]), hash(1, &[b"a", b"bc"]));
        assert_ne!(hash(1, &[b"ab"]), hash(2, &[b"ab"]));
    }

    #[test]
    fn short_and_long_hash_alike() {
        for length in [0, 1, 7, SHORT - 17, SHORT - 16, SHORT - 15, 600] {
            let part = vec![7; length];
            let mut all = Xxh3::with_seed(3);
            all.update(&[&1u64.to_le_bytes()[..], b"x", &(length as u64).to_le_bytes(), &part].concat());
            assert_eq!(hash(3, &[b"x", &part]), all.digest(), "{length}");
        }
    }

    const GOLDEN: u64 = 17_230_872_670_567_752_366;
    const GOLDEN_WEIGHT: u64 = 2_092_789_425_003_139_053;

    #[test]
    fn weights_spread_evenly_and_move_little() {
        let nodes: Vec<u64> = (0..10u64).map(|node| hash(7, &[&node.to_le_bytes()])).collect();
        let best = |thing: u64, nodes: &[u64]| (0..nodes.len()).max_by_key(|n| weight(thing, nodes[*n])).unwrap();
        let mut shares = [0; 10];
        for thing in 0..10_000u64 {
            let thing = hash(7, &[b"x", &thing.to_le_bytes()]);
            let first = best(thing, &nodes);
            shares[first] += 1;
            let without = best(thing, &nodes[..9]);
            assert!(first == 9 || first == without, "only what was on the lost node moves");
        }
        assert!(shares.iter().all(|share| (850..1150).contains(share)), "{shares:?}");
    }

    #[test]
    fn a_draw_from_nothing_is_nothing() {
        assert_eq!(draw(9, 0), None);
        assert_eq!(draw(9, 4), Some(1));
    }
}
