//! Maglev's lookup table: even shares, one memory access per key, few keys moved when the servers change.
//!
//! A server looks for free slots in an order of its own. Here that order is pseudo-random, not an offset and a
//! step: steps that are near multiples of one another follow each other through the table, and then one server
//! that leaves can move ten times the usual share of keys (4 % were seen with 24 servers, against 0.4 %).
//!
//! The table is a function of the open servers' addresses and weights alone, not of their order, so that every
//! proxy of a fleet sends a key to the same server.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Server, SplitMix, hash64};

/// Slots of the table: about a hundred for each server of a large cluster.
const SLOTS: u32 = 65_537;

/// No server has this slot.
const FREE: u16 = u16::MAX;

/// The table of a set of servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maglev {
    slots: Vec<u16>,
}

/// A server while it looks for slots.
struct Seeker {
    index: u16,
    /// Its weight relative to the heaviest.
    share: f64,
    /// Slots it has taken.
    taken: f64,
    order: SplitMix,
}

/// When a seeker takes its next slot, on a clock on which the heaviest server takes one per tick.
#[derive(PartialEq)]
struct Turn {
    tick: f64,
    seeker: usize,
}

impl Maglev {
    /// Builds the table; of open servers with one address the last counts, and at most 65 535 servers take part.
    pub fn new(servers: &[Server<'_>]) -> Self {
        let mut seekers = seekers(servers);
        let mut turns: BinaryHeap<Turn> = (0..seekers.len()).map(|seeker| Turn { tick: 0.0, seeker }).collect();
        let mut slots = vec![FREE; if seekers.is_empty() { 0 } else { SLOTS as usize }];
        for _ in 0..slots.len() {
            let Some(mut turn) = turns.peek_mut() else { break };
            let seeker = &mut seekers[turn.seeker];
            seeker.take(&mut slots);
            turn.tick = seeker.taken / seeker.share;
        }
        Self { slots }
    }

    /// The index of the server that has a key, or nothing when there is no open server.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        self.at(hash64(key))
    }

    /// The index of the server that has a key with this hash.
    pub fn at(&self, hash: u64) -> Option<usize> {
        self.slots.get(slot(hash)).map(|index| usize::from(*index))
    }
}

impl Seeker {
    fn new(address: &str, index: u16, share: f64) -> Self {
        Self { index, share, taken: 0.0, order: SplitMix::new(hash64(address.as_bytes())) }
    }

    fn take(&mut self, slots: &mut [u16]) {
        loop {
            let slot = slot(self.order.next_u64());
            if slots[slot] == FREE {
                slots[slot] = self.index;
                self.taken += 1.0;
                return;
            }
        }
    }
}

impl Eq for Turn {}

impl Ord for Turn {
    /// The greatest is the earliest, which a heap gives first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.tick.total_cmp(&self.tick).then_with(|| other.seeker.cmp(&self.seeker))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The slot of a hash, by its upper half: a product in place of a remainder.
fn slot(hash: u64) -> usize {
    (((hash >> 32) * u64::from(SLOTS)) >> 32) as usize
}

/// Open servers by address: the order of the list must not show in the table.
fn seekers(servers: &[Server<'_>]) -> Vec<Seeker> {
    let open = (0..FREE).zip(servers).filter(|(_, server)| server.is_open());
    let last: BTreeMap<&str, (u16, f64)> =
        open.map(|(index, server)| (server.address, (index, server.weight))).collect();
    let heaviest = last.values().map(|(_, weight)| *weight).fold(0.0, f64::max);
    last.into_iter().map(|(address, (index, weight))| Seeker::new(address, index, weight / heaviest)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(addresses: &[String], weight: f64) -> Vec<Server<'_>> {
        addresses.iter().map(|address| Server { address, weight }).collect()
    }

    fn addresses(count: u32) -> Vec<String> {
        (0..count).map(|number| format!("10.0.{}.{}", number / 256, number % 256)).collect()
    }

    fn slots_of(table: &Maglev, index: u16) -> usize {
        table.slots.iter().filter(|slot| **slot == index).count()
    }

    #[test]
    fn equal_servers_get_equal_shares() {
        let addresses = addresses(100);
        let table = Maglev::new(&servers(&addresses, 1.0));
        let shares: Vec<usize> = (0..100).map(|index| slots_of(&table, index)).collect();
        assert!(shares.iter().all(|share| (655..=656).contains(share)), "{shares:?}");
    }

    #[test]
    fn weights_are_shares() {
        let list = [("a", 1.0), ("b", 2.0), ("c", 5.0)].map(|(address, weight)| Server { address, weight });
        let table = Maglev::new(&list);
        let eighth = 65_537 / 8;
        for (index, parts) in [(0, 1), (1, 2), (2, 5)] {
            assert!(slots_of(&table, index).abs_diff(parts * eighth) <= 8, "server {index}");
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_show() {
        let forth = addresses(20);
        let back: Vec<String> = forth.iter().rev().cloned().collect();
        let (one, other) = (Maglev::new(&servers(&forth, 1.0)), Maglev::new(&servers(&back, 1.0)));
        assert!(one.slots.iter().zip(&other.slots).all(|(a, b)| forth[usize::from(*a)] == back[usize::from(*b)]));
    }

    #[test]
    fn a_leaving_server_moves_few_keys_of_others() {
        let addresses = addresses(100);
        let all = servers(&addresses, 1.0);
        let before = Maglev::new(&all);
        for gone in [0_u16, 37, 99] {
            let mut fewer = all.clone();
            fewer[usize::from(gone)].weight = 0.0;
            let after = Maglev::new(&fewer);
            let moved = before.slots.iter().zip(&after.slots).filter(|(old, new)| **old != gone && old != new).count();
            assert!(moved * 100 < 65_537, "{moved} slots moved without need");
            assert_eq!(slots_of(&after, gone), 0);
        }
    }

    #[test]
    fn more_servers_than_slots_still_fill_the_table() {
        let addresses: Vec<String> = (0..70_000).map(|number| format!("s{number}")).collect();
        let table = Maglev::new(&servers(&addresses, 1.0));
        assert_eq!(slots_of(&table, FREE), 0);
    }

    #[test]
    fn no_open_server_no_answer() {
        assert_eq!(Maglev::new(&[]).find(b"key"), None);
        assert_eq!(Maglev::new(&[Server { address: "a", weight: 0.0 }]).find(b"key"), None);
    }
}
