//! An address pool: ranges in the order they were written, each address once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Family, IntervalSet, Range, RangeError, number, v4, v6};

/// The addresses of one family, in pool order: items as written, ascending inside an item, first mention wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges {
    /// In pool order; disjoint.
    runs: Vec<Run>,
    /// Indices of `runs`, by first number.
    by_number: Vec<usize>,
    count: u128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: u128,
    last: u128,
    /// Position of its first number.
    position: u128,
}

impl Ranges {
    fn new(items: impl IntoIterator<Item = Range>) -> Self {
        let (mut runs, mut seen, mut count) = (Vec::<Run>::new(), IntervalSet::default(), 0u128);
        for item in items {
            for (first, last) in seen.gaps(item.first(), item.last()) {
                runs.push(Run { first, last, position: count });
                count = count.saturating_add((last - first).saturating_add(1));
            }
            seen.insert(item.first(), item.last());
        }
        let mut by_number: Vec<usize> = (0..runs.len()).collect();
        by_number.sort_unstable_by_key(|&run| runs[run].first);
        Self { runs, by_number, count }
    }

    /// How many addresses; `u128::MAX` stands for more.
    pub fn count(&self) -> u128 {
        self.count
    }

    /// The position of a number, from 0.
    pub fn rank(&self, number: u128) -> Option<u128> {
        let below = self.by_number.partition_point(|&run| self.runs[run].first <= number);
        let run = self.runs[*self.by_number.get(below.checked_sub(1)?)?];
        (number <= run.last).then(|| run.position + (number - run.first))
    }

    /// The number at a position.
    pub fn select(&self, position: u128) -> Option<u128> {
        let upto = self.runs.partition_point(|run| run.position <= position);
        let run = self.runs.get(upto.checked_sub(1)?)?;
        run.first.checked_add(position - run.position).filter(|&number| number <= run.last)
    }

    /// The intervals in pool order, first and last number.
    pub fn iter(&self) -> impl Iterator<Item = (u128, u128)> {
        self.runs.iter().map(|run| (run.first, run.last))
    }
}

/// The addresses of a gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pool {
    /// IPv4 addresses.
    pub v4: Ranges,
    /// IPv6 addresses.
    pub v6: Ranges,
}

impl Pool {
    /// A pool of ranges; each goes to its family.
    pub fn new(ranges: impl IntoIterator<Item = Range>) -> Self {
        let (v4, v6): (Vec<Range>, Vec<Range>) = ranges.into_iter().partition(|range| range.family() == Family::V4);
        Self { v4: Ranges::new(v4), v6: Ranges::new(v6) }
    }

    /// Reads the two lists of a gateway. Empty items are ignored; the first bad item is the error.
    pub fn parse<T: AsRef<str>>(ipv4: &[T], ipv6: &[T]) -> Result<Self, RangeError> {
        let mut ranges = Vec::new();
        for (items, wanted) in [(ipv4, Family::V4), (ipv6, Family::V6)] {
            for item in items.iter().map(AsRef::as_ref).filter(|item| !item.trim().is_empty()) {
                let range: Range = item.parse()?;
                if range.family() != wanted {
                    return Err(RangeError::WrongFamily { item: item.to_owned(), wanted });
                }
                ranges.push(range);
            }
        }
        Ok(Self::new(ranges))
    }

    /// True if the address is inside.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.rank(address).is_some()
    }

    /// The position of an address among those of its family, from 0.
    pub fn rank(&self, address: IpAddr) -> Option<u128> {
        self.family(Family::of(address)).rank(number(address))
    }

    /// The IPv4 address at a position.
    pub fn v4_at(&self, position: u128) -> Option<Ipv4Addr> {
        self.v4.select(position).map(v4)
    }

    /// The IPv6 address at a position.
    pub fn v6_at(&self, position: u128) -> Option<Ipv6Addr> {
        self.v6.select(position).map(v6)
    }

    /// The first address of a family.
    pub fn first(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4_at(0).map(IpAddr::V4),
            Family::V6 => self.v6_at(0).map(IpAddr::V6),
        }
    }

    /// The addresses of one family.
    pub fn family(&self, family: Family) -> &Ranges {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// Every interval, for comparison with other pools.
    pub fn ranges(&self) -> impl Iterator<Item = Range> {
        let v4 = self.v4.iter().map(|(first, last)| (Family::V4, first, last));
        let v6 = self.v6.iter().map(|(first, last)| (Family::V6, first, last));
        v4.chain(v6).map(|(family, first, last)| Range::between(family, first, last))
    }

    /// True if it has no address at all.
    pub fn is_empty(&self) -> bool {
        self.v4.count() == 0 && self.v6.count() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_seeds_example_pool_is_21_addresses() {
        // 10.6.1.70/28 is 64 to 79, so 64 and 65 are mentioned twice
        let pool = Pool::parse(&["10.6.1.55", "10.6.1.60-10.6.1.65", "10.6.1.70/28"], &[""]).unwrap();
        assert_eq!((pool.v4.count(), pool.v6.count()), (21, 0));
        assert_eq!(pool.first(Family::V4), Some("10.6.1.55".parse().unwrap()));
        assert_eq!(pool.v4_at(7), Some("10.6.1.66".parse().unwrap()));
        assert_eq!(pool.rank("10.6.1.79".parse().unwrap()), Some(20));
        assert!(!pool.contains("10.6.1.80".parse().unwrap()));
    }

    #[test]
    fn a_slash_64_costs_nothing() {
        let pool = Pool::parse(&[], &["fd00::/64", "fd01::/64"]).unwrap();
        assert_eq!(pool.v6.count(), 1 << 65);
        assert_eq!(pool.v6_at((1 << 64) + 5), Some("fd01::5".parse().unwrap()));
        assert_eq!(pool.rank("fd01::5".parse().unwrap()), Some((1 << 64) + 5));
    }

    #[test]
    fn an_address_in_the_wrong_list_is_an_error() {
        let error = Pool::parse(&["fd00::1"], &[]).unwrap_err();
        assert!(error.to_string().contains("not IPv4"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn positions_are_those_of_a_plain_list(items in prop::collection::vec((0u8..30, 0u8..6), 0..8)) {
            let ranges: Vec<Range> = items.iter().map(|(a, n)| format!("10.0.0.{a}-10.0.0.{}", a + n).parse().unwrap()).collect();
            let mut plain = Vec::new();
            for range in &ranges {
                for n in range.first()..=range.last() {
                    if !plain.contains(&n) { plain.push(n); }
                }
            }
            let pool = Pool::new(ranges);
            prop_assert_eq!(pool.v4.count(), plain.len() as u128);
            for position in 0..40u128 {
                prop_assert_eq!(pool.v4.select(position), plain.get(position as usize).copied());
            }
            for n in 0x0a00_0000u128..0x0a00_0030 {
                prop_assert_eq!(pool.v4.rank(n), plain.iter().position(|p| *p == n).map(|p| p as u128));
            }
        }
    }
}
