//! The consistent hash ring of 3rd-Eden/node-hashring 3.2.0, as l7mp uses it: one replica per virtual node.

use std::array;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::{Server, md5};

/// Virtual nodes of a server of average weight.
const NODES: f64 = 40.0;

/// Points that are hashed side by side.
const LANES: usize = 8;

/// A point on the ring: keys that hash to it or below belong to its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Where on the ring.
    pub hash: u32,
    /// Index of the server in the list the ring was built from.
    pub server: u32,
}

/// A ring of servers, in which a key moves only when its own server leaves or a closer one comes.
#[derive(Debug, Clone, Default)]
pub struct Ring {
    points: Vec<Point>,
    /// Hashes of each address in the order of their making, kept for the next build.
    made: BTreeMap<String, Arc<[u32]>>,
}

impl Ring {
    /// Builds a ring; of open servers with one address the last counts.
    pub fn new(servers: &[Server<'_>]) -> Self {
        Self::default().rebuilt(servers)
    }

    /// Builds the ring of other servers, hashing only what this one has not hashed already.
    #[must_use]
    pub fn rebuilt(&self, servers: &[Server<'_>]) -> Self {
        let distinct = distinct(servers);
        let total: f64 = distinct.iter().map(|(_, server)| server.weight).sum();
        let mut made = BTreeMap::new();
        let mut packed = Vec::new();
        for &(index, server) in &distinct {
            let hashes = self.hashes(server.address, count(server.weight, total, distinct.len()));
            packed.extend(hashes.iter().map(|hash| (u64::from(*hash) << 32) | u64::from(index)));
            made.insert(server.address.to_owned(), hashes);
        }
        packed.sort_unstable();
        let points = packed.into_iter().map(unpack).collect();
        Self { points, made }
    }

    /// The index of the server that has a key, or nothing when the ring has no point.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let hash = md5::first_word(key);
        let next = self.points.partition_point(|point| point.hash < hash);
        let point = self.points.get(next).or_else(|| self.points.first())?;
        usize::try_from(point.server).ok()
    }

    /// All points, lowest first.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    fn hashes(&self, address: &str, count: usize) -> Arc<[u32]> {
        match self.made.get(address) {
            Some(known) if known.len() == count => Arc::clone(known),
            Some(known) if known.len() > count => known[..count].into(),
            Some(known) => [&known[..], &points(address, known.len()..count)].concat().into(),
            None => points(address, 0..count).into(),
        }
    }
}

/// The hashes of an address with each number behind it.
fn points(address: &str, numbers: Range<usize>) -> Vec<u32> {
    let mut texts: [Vec<u8>; LANES] = array::from_fn(|_| format!("{address}-").into_bytes());
    let mut hashes = Vec::with_capacity(numbers.len() + LANES);
    for first in numbers.clone().step_by(LANES) {
        for (text, number) in texts.iter_mut().zip(first..) {
            text.truncate(address.len() + 1);
            push_number(text, number);
        }
        hashes.extend(md5::first_words(texts.each_ref().map(Vec::as_slice)));
    }
    hashes.truncate(numbers.len());
    hashes
}

fn push_number(text: &mut Vec<u8>, number: usize) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    text.push(b"0123456789"[number % 10]);
}

/// Open servers with distinct addresses, each with its index in the given list.
fn distinct<'a>(servers: &[Server<'a>]) -> Vec<(u32, Server<'a>)> {
    let open = || (0_u32..).zip(servers.iter().copied()).filter(|(_, server)| server.is_open());
    let last: BTreeMap<&str, u32> = open().map(|(index, server)| (server.address, index)).collect();
    open().filter(|(index, server)| last.get(server.address) == Some(index)).collect()
}

/// How many points a weight earns; the order of the products decides the rounding and is node-hashring's.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "weights are positive and their share of 40 points per server is far below 2^52"
)]
fn count(weight: f64, total: f64, servers: usize) -> usize {
    ((weight / total) * NODES * servers as f64).floor() as usize
}

#[expect(clippy::cast_possible_truncation, reason = "the halves of the packed number are taken apart")]
fn unpack(packed: u64) -> Point {
    Point { hash: (packed >> 32) as u32, server: packed as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers<'a>(weights: &[(&'a str, f64)]) -> Vec<Server<'a>> {
        weights.iter().map(|&(address, weight)| Server { address, weight }).collect()
    }

    #[test]
    fn hashes_are_the_first_four_bytes_little_endian() {
        assert_eq!(md5::first_word(b"127.0.0.1-0"), 3_187_647_615);
        assert_eq!(md5::first_word(b"1"), 943_901_380);
    }

    #[test]
    fn a_point_is_the_hash_of_the_address_and_its_number() {
        for (address, numbers) in [("10.0.0.1", 0..25), ("10.0.0.1", 95..1003), (&"a".repeat(60), 0..9)] {
            let singly = numbers.clone().map(|number| md5::first_word(format!("{address}-{number}").as_bytes()));
            assert_eq!(points(address, numbers.clone()), singly.collect::<Vec<_>>(), "{address} {numbers:?}");
        }
    }

    #[test]
    fn the_last_of_equal_addresses_counts() {
        let ring = Ring::new(&servers(&[("a", 1.0), ("b", 1.0), ("a", 3.0)]));
        assert_eq!(ring.points().len(), 80);
        assert_eq!(ring.points().iter().filter(|point| point.server == 2).count(), 60);
        assert!(ring.points().iter().all(|point| point.server != 0));
    }

    #[test]
    fn a_rebuilt_ring_equals_one_built_afresh() {
        let first = servers(&[("a", 1.0), ("b", 1.0), ("c", 2.0)]);
        let second = servers(&[("c", 1.0), ("d", 5.0), ("a", 1.0)]);
        let (rebuilt, fresh) = (Ring::new(&first).rebuilt(&second), Ring::new(&second));
        assert_eq!(rebuilt.points(), fresh.points());
        assert_eq!(rebuilt.rebuilt(&first).points(), Ring::new(&first).points());
    }

    #[test]
    fn a_ring_without_open_servers_finds_nothing() {
        assert_eq!(Ring::new(&[]).find(b"key"), None);
        assert_eq!(Ring::new(&servers(&[("a", 0.0), ("b", -1.0), ("c", f64::NAN)])).find(b"key"), None);
    }
}
