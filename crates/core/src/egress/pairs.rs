//! Which IPv4 address goes with which IPv6 address.
//!
//! The i-th IPv4 address of the pool pairs with the i-th IPv6 address. Recorded pairs stay together even if the pool
//! was edited since; addresses that lose their partner this way pair among themselves in pool order. Recording a pair
//! of this structure changes no other pair, so it is built once per pool.
//!
//! Every egress address of the pool has an *index* that defines pool order, draws and free ranges: the position of
//! its IPv4 address, or of its IPv6 address beyond the last IPv4 address. An IPv6 address without a partner comes
//! after all others. An index is a gap where an IPv6 address is paired elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Eip;
use crate::net::Pool;

/// The pairing of one pool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EipPairs {
    pool: Pool,
    /// By IPv4 position: the IPv6 address, where it is not the one at the same position.
    to_v6: BTreeMap<u128, Option<Ipv6Addr>>,
    /// By IPv6 position: the IPv4 address, where it is not the one at the same position.
    to_v4: BTreeMap<u128, Option<Ipv4Addr>>,
    /// Recorded addresses that are not in the pool.
    outside: BTreeMap<IpAddr, Eip>,
    /// Positions of the IPv6 addresses without a partner, which come after all others.
    unpaired_v6: Vec<u128>,
}

impl EipPairs {
    /// Pairs the pool around recorded pairs. No address may occur twice in `recorded`.
    pub fn new(pool: &Pool, recorded: impl IntoIterator<Item = Eip>) -> Self {
        let mut pairs = Self { pool: pool.clone(), ..Self::default() };
        for eip in recorded {
            if !pairs.by_position(eip) {
                pairs.keep(eip);
            }
        }
        pairs.join_leftovers();
        let v4_count = pool.v4.count();
        pairs.unpaired_v6 =
            pairs.to_v4.iter().filter(|(p, half)| **p < v4_count && half.is_none()).map(|(p, _)| *p).collect();
        pairs
    }

    /// One past the last index.
    pub fn span(&self) -> u128 {
        self.main().saturating_add(self.unpaired_v6.len() as u128)
    }

    /// The egress address at an index; none at gaps and past the end.
    pub fn at(&self, index: u128) -> Option<Eip> {
        if let Some(v4) = self.pool.v4_at(index) {
            return Some(Eip { v4: Some(v4), v6: self.half_of_v4(index) });
        }
        let position = match index.checked_sub(self.main()) {
            Some(behind) => *self.unpaired_v6.get(usize::try_from(behind).ok()?)?,
            None if matches!(self.to_v4.get(&index), Some(Some(_))) => return None,
            None => index,
        };
        Some(Eip { v4: None, v6: self.pool.v6_at(position) })
    }

    /// The egress address that an address belongs to; none if it is neither in the pool nor recorded.
    pub fn eip(&self, address: IpAddr) -> Option<Eip> {
        let Some(position) = self.pool.rank(address) else { return self.outside.get(&address).copied() };
        Some(match address {
            IpAddr::V4(v4) => Eip { v4: Some(v4), v6: self.half_of_v4(position) },
            IpAddr::V6(v6) => Eip { v4: self.half_of_v6(position), v6: Some(v6) },
        })
    }

    /// The index of an egress address; none if its first address is outside the pool.
    pub fn index(&self, eip: Eip) -> Option<u128> {
        match (eip.v4, eip.v6) {
            (Some(v4), _) => self.pool.rank(v4.into()),
            (None, Some(v6)) => {
                let position = self.pool.rank(v6.into())?;
                match self.unpaired_v6.binary_search(&position) {
                    Ok(behind) => Some(self.main().saturating_add(behind as u128)),
                    Err(_) => Some(position),
                }
            }
            (None, None) => None,
        }
    }

    /// True if this pair exists only because it is recorded: without it, other pairs may form.
    pub fn deviates(&self, eip: Eip) -> bool {
        !self.by_position(eip)
    }

    /// Includes all indices that are gaps or have an address outside the pool.
    pub fn irregular(&self) -> impl Iterator<Item = u128> {
        self.to_v6.keys().chain(self.to_v4.keys()).copied()
    }

    fn main(&self) -> u128 {
        self.pool.v4.count().max(self.pool.v6.count())
    }

    fn half_of_v4(&self, position: u128) -> Option<Ipv6Addr> {
        self.to_v6.get(&position).copied().unwrap_or_else(|| self.pool.v6_at(position))
    }

    fn half_of_v6(&self, position: u128) -> Option<Ipv4Addr> {
        self.to_v4.get(&position).copied().unwrap_or_else(|| self.pool.v4_at(position))
    }

    /// True if the pool alone gives this pair.
    fn by_position(&self, eip: Eip) -> bool {
        let v4 = eip.v4.and_then(|v4| self.pool.rank(v4.into()));
        let v6 = eip.v6.and_then(|v6| self.pool.rank(v6.into()));
        match (v4, v6) {
            (Some(v4), Some(v6)) => v4 == v6,
            (Some(v4), None) => eip.v6.is_none() && self.pool.v6_at(v4).is_none(),
            (None, Some(v6)) => eip.v4.is_none() && self.pool.v4_at(v6).is_none(),
            (None, None) => false,
        }
    }

    fn keep(&mut self, eip: Eip) {
        if let Some(v4) = eip.v4 {
            match self.pool.rank(v4.into()) {
                Some(position) => drop(self.to_v6.insert(position, eip.v6)),
                None => drop(self.outside.insert(v4.into(), eip)),
            }
        }
        if let Some(v6) = eip.v6 {
            match self.pool.rank(v6.into()) {
                Some(position) => drop(self.to_v4.insert(position, eip.v4)),
                None => drop(self.outside.insert(v6.into(), eip)),
            }
        }
    }

    fn join_leftovers(&mut self) {
        let kept_v4: BTreeSet<u128> = self.to_v6.keys().copied().collect();
        let kept_v6: BTreeSet<u128> = self.to_v4.keys().copied().collect();
        let mut left_v4 = kept_v6.difference(&kept_v4).filter(|p| **p < self.pool.v4.count());
        let mut left_v6 = kept_v4.difference(&kept_v6).filter(|p| **p < self.pool.v6.count());
        loop {
            let (v4, v6) = (left_v4.next(), left_v6.next());
            if let Some(position) = v4 {
                self.to_v6.insert(*position, v6.and_then(|v6| self.pool.v6_at(*v6)));
            }
            if let Some(position) = v6 {
                self.to_v4.insert(*position, v4.and_then(|v4| self.pool.v4_at(*v4)));
            }
            if v4.is_none() && v6.is_none() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(v4: &str, v6: &str) -> Pool {
        Pool::parse(&[v4], &[v6]).unwrap()
    }

    fn eip(v4: &str, v6: &str) -> Eip {
        Eip { v4: v4.parse().ok(), v6: v6.parse().ok() }
    }

    fn all(pairs: &EipPairs) -> Vec<Eip> {
        (0..pairs.span()).filter_map(|index| pairs.at(index)).collect()
    }

    #[test]
    fn halves_pair_by_position() {
        let pairs = EipPairs::new(&pool("10.0.0.1-10.0.0.2", "fd00::1-fd00::2"), []);
        assert_eq!(all(&pairs), [eip("10.0.0.1", "fd00::1"), eip("10.0.0.2", "fd00::2")]);
        assert_eq!(pairs.eip("fd00::2".parse().unwrap()), Some(eip("10.0.0.2", "fd00::2")));
        assert_eq!(pairs.eip("fd00::3".parse().unwrap()), None);
    }

    #[test]
    fn one_family_makes_pairs_of_one() {
        let pairs = EipPairs::new(&pool("10.0.0.1-10.0.0.2", ""), []);
        assert_eq!(all(&pairs), [eip("10.0.0.1", ""), eip("10.0.0.2", "")]);
        let pairs = EipPairs::new(&pool("", "fd00::/64"), []);
        assert_eq!((pairs.span(), pairs.at(9)), (1 << 64, Some(eip("", "fd00::9"))));
    }

    #[test]
    fn a_recorded_pair_is_kept_and_its_leftovers_pair() {
        let recorded = eip("10.0.0.1", "fd00::2");
        let pairs = EipPairs::new(&pool("10.0.0.1-10.0.0.3", "fd00::1-fd00::3"), [recorded]);
        assert_eq!(all(&pairs), [recorded, eip("10.0.0.2", "fd00::1"), eip("10.0.0.3", "fd00::3")]);
        assert!(pairs.deviates(recorded));
        assert!(pairs.deviates(eip("10.0.0.2", "fd00::1")));
        assert!(!pairs.deviates(eip("10.0.0.3", "fd00::3")));
        let again =
            EipPairs::new(&pool("10.0.0.1-10.0.0.3", "fd00::1-fd00::3"), [recorded, eip("10.0.0.2", "fd00::1")]);
        assert_eq!(all(&again), all(&pairs), "recording a leftover pair changes nothing");
    }

    #[test]
    fn a_half_outside_the_pool_leaves_the_other_alone() {
        let pairs = EipPairs::new(&pool("10.0.0.1-10.0.0.2", "fd00::1-fd00::2"), [eip("10.0.0.9", "fd00::1")]);
        assert_eq!(all(&pairs), [eip("10.0.0.1", ""), eip("10.0.0.2", "fd00::2")]);
        assert_eq!(pairs.eip("10.0.0.9".parse().unwrap()), Some(eip("10.0.0.9", "fd00::1")));
        assert_eq!(pairs.eip("fd00::1".parse().unwrap()), Some(eip("10.0.0.9", "fd00::1")));
    }

    #[test]
    fn a_recorded_single_address_stays_single_and_its_partner_comes_last() {
        let pairs = EipPairs::new(&pool("10.0.0.1-10.0.0.2", "fd00::1-fd00::2"), [eip("10.0.0.1", "")]);
        assert_eq!(all(&pairs), [eip("10.0.0.1", ""), eip("10.0.0.2", "fd00::2"), eip("", "fd00::1")]);
        for index in 0..pairs.span() {
            assert_eq!(pairs.index(pairs.at(index).unwrap()), Some(index));
        }
    }
}
