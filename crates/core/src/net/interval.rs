//! Sets of numbers as disjoint intervals: an operation costs the logarithm of the number of intervals.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Family, Range, number, v4, v6};

/// A set of numbers, kept as merged intervals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IntervalSet {
    /// First to last, both inside; no two touch.
    runs: BTreeMap<u128, u128>,
}

impl IntervalSet {
    /// Adds every number from `first` to `last`, both included.
    pub fn insert(&mut self, first: u128, last: u128) {
        if first > last {
            return;
        }
        let (mut first, mut last) = (first, last);
        if let Some((&start, &end)) = self.runs.range(..=first).next_back()
            && end.saturating_add(1) >= first
        {
            first = start;
            last = last.max(end);
        }
        while let Some((&start, &end)) = self.runs.range(first..=last.saturating_add(1)).next() {
            self.runs.remove(&start);
            last = last.max(end);
        }
        self.runs.insert(first, last);
    }

    /// Takes every number from `first` to `last` out, both included.
    pub fn remove(&mut self, first: u128, last: u128) {
        if let Some((&start, &end)) = self.runs.range(..first).next_back()
            && end >= first
        {
            self.runs.insert(start, first - 1);
            if end > last {
                self.runs.insert(last + 1, end);
            }
        }
        while let Some((&start, &end)) = self.runs.range(first..=last).next() {
            self.runs.remove(&start);
            if end > last {
                self.runs.insert(last + 1, end);
            }
        }
    }

    /// True if the number is inside.
    pub fn contains(&self, number: u128) -> bool {
        self.runs.range(..=number).next_back().is_some_and(|(_, &end)| end >= number)
    }

    /// The first number from `first` to `last` that is inside.
    pub fn first_intersection(&self, first: u128, last: u128) -> Option<u128> {
        if first > last {
            None
        } else if self.contains(first) {
            Some(first)
        } else {
            self.runs.range(first..=last).next().map(|(&start, _)| start)
        }
    }

    /// The first number at or above `from` that is not inside.
    pub fn first_gap(&self, from: u128) -> Option<u128> {
        match self.runs.range(..=from).next_back() {
            Some((_, &end)) if end >= from => end.checked_add(1),
            _ => Some(from),
        }
    }

    /// The parts from `first` to `last` that are not inside, ascending.
    pub fn gaps(&self, first: u128, last: u128) -> Vec<(u128, u128)> {
        let mut gaps = Vec::new();
        let mut from = Some(first);
        while let Some(start) = from.and_then(|from| self.first_gap(from)).filter(|&start| start <= last) {
            let next = self.runs.range(start..=last).next();
            gaps.push((start, next.map_or(last, |(&run, _)| run - 1)));
            from = next.map(|(&run, _)| run);
        }
        gaps
    }

    /// The intervals, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u128, u128)> {
        self.runs.iter().map(|(&first, &last)| (first, last))
    }

    /// True if nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

/// A set of addresses of both families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressSet {
    v4: IntervalSet,
    v6: IntervalSet,
}

impl AddressSet {
    /// Adds a range.
    pub fn insert(&mut self, range: Range) {
        match range.family() {
            Family::V4 => self.v4.insert(range.first(), range.last()),
            Family::V6 => self.v6.insert(range.first(), range.last()),
        }
    }

    /// True if the address is inside.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => self.v4.contains(number(address)),
            IpAddr::V6(_) => self.v6.contains(number(address)),
        }
    }

    /// True if the range has an address in common with the set.
    pub fn intersects(&self, range: Range) -> bool {
        self.first_intersection(range).is_some()
    }

    /// The first address of the range that is not inside.
    pub fn first_gap(&self, range: Range) -> Option<IpAddr> {
        let (set, address): (_, fn(u128) -> IpAddr) = match range.family() {
            Family::V4 => (&self.v4, |number| v4(number).into()),
            Family::V6 => (&self.v6, |number| v6(number).into()),
        };
        set.first_gap(range.first()).filter(|number| *number <= range.last()).map(address)
    }

    /// The first address of the range that is inside.
    pub fn first_intersection(&self, range: Range) -> Option<IpAddr> {
        match range.family() {
            Family::V4 => self.v4.first_intersection(range.first(), range.last()).map(|n| v4(n).into()),
            Family::V6 => self.v6.first_intersection(range.first(), range.last()).map(|n| v6(n).into()),
        }
    }
}

impl FromIterator<Range> for AddressSet {
    fn from_iter<T: IntoIterator<Item = Range>>(ranges: T) -> Self {
        let mut set = Self::default();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn intervals_agree_with_a_plain_set(steps in prop::collection::vec((any::<bool>(), 0u128..40, 0u128..8), 0..30)) {
            let (mut set, mut plain) = (IntervalSet::default(), BTreeSet::new());
            for (add, first, length) in steps {
                let last = first + length;
                if add { set.insert(first, last); plain.extend(first..=last); }
                else { set.remove(first, last); plain.retain(|n| *n < first || *n > last); }
            }
            for n in 0..50 {
                prop_assert_eq!(set.contains(n), plain.contains(&n));
                prop_assert_eq!(set.first_gap(n), (n..60).find(|n| !plain.contains(n)));
                prop_assert_eq!(set.first_intersection(n, 44), (n..=44).find(|n| plain.contains(n)));
            }
            let gaps: Vec<u128> = set.gaps(3, 45).into_iter().flat_map(|(a, b)| a..=b).collect();
            prop_assert_eq!(gaps, (3..=45).filter(|n| !plain.contains(n)).collect::<Vec<_>>());
            let runs: Vec<_> = set.iter().collect();
            prop_assert!(runs.windows(2).all(|w| w[0].1 + 1 < w[1].0));
        }
    }

    #[test]
    fn the_whole_space_fits() {
        let mut set = IntervalSet::default();
        set.insert(0, u128::MAX);
        assert!(set.contains(u128::MAX));
        assert_eq!(set.first_gap(0), None);
        set.remove(5, 5);
        assert_eq!(set.gaps(0, u128::MAX), [(5, 5)]);
        set.remove(0, u128::MAX);
        assert!(set.is_empty());
    }

    #[test]
    fn two_pools_name_the_address_they_share() {
        let set: AddressSet =
            ["10.6.1.60-10.6.1.65", "fd00::/64"].iter().map(|r| r.parse::<Range>().unwrap()).collect();
        assert_eq!(set.first_intersection("10.6.1.0/26".parse().unwrap()), Some("10.6.1.60".parse().unwrap()));
        assert!(!set.intersects("10.6.1.66".parse().unwrap()));
        assert!(set.contains("fd00::ffff".parse().unwrap()));
    }
}
