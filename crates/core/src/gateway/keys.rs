//! Keys and ids: numbers that a parent object hands out to its children.
//!
//! ```text
//! EGW ---- account key (16 bits) ----> Account ---- service key (16 bits) ----> LoadBalancer
//!  '------ tunnel id (32 bits) ------> tunnel of a LoadBalancer to a client's node
//! ```

use crate::net::IntervalSet;

/// The key of a load balancer in packets: that of its account in the upper half, its own in the lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GueKey {
    /// Key of the account.
    pub account: u16,
    /// Key of the load balancer within its account.
    pub service: u16,
}

impl GueKey {
    /// The number as `spec.gue-key` has it.
    pub fn pack(self) -> u32 {
        u32::from(self.account) << 16 | u32::from(self.service)
    }

    /// The two halves of `spec.gue-key`.
    pub fn split(number: u32) -> Self {
        let [a, b, c, d] = number.to_be_bytes();
        Self { account: u16::from_be_bytes([a, b]), service: u16::from_be_bytes([c, d]) }
    }
}

/// The numbers 1 to `most` of one parent: those in use, and the one to hand out next.
///
/// Fresh numbers come first: one that was on the wire is handed out again only when every number was. A counter that
/// was lost with the parent's status is restored from the numbers in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySpace {
    most: u32,
    mark: u32,
    used: IntervalSet,
    reuses: bool,
}

impl KeySpace {
    /// The keys of accounts, and of the services of an account.
    pub fn keys(counter: u16) -> Self {
        Self::new(u16::MAX.into(), counter.into())
    }

    /// The ids of tunnels.
    pub fn tunnel_ids(counter: u32) -> Self {
        Self::new(u32::MAX, counter)
    }

    fn new(most: u32, counter: u32) -> Self {
        Self { most, mark: counter, used: IntervalSet::default(), reuses: true }
    }

    /// Hands out fresh numbers only: which of the others were released a short time ago is not known yet.
    #[must_use]
    pub fn without_reuse(self) -> Self {
        Self { reuses: false, ..self }
    }

    /// An object has this number. False if another one has it already, or if it is not a number of this space.
    pub fn add_live(&mut self, number: u32) -> bool {
        if !self.reserve(number) {
            return false;
        }
        self.mark = self.mark.max(number);
        true
    }

    /// Nobody gets this number: it is reserved for a child, or was released a short time ago. False as for `add_live`.
    pub fn reserve(&mut self, number: u32) -> bool {
        if number == 0 || number > self.most || self.used.contains(number.into()) {
            return false;
        }
        self.used.insert(number.into(), number.into());
        true
    }

    /// Hands out a number: the next fresh one, or else the lowest free one. None if all are in use.
    pub fn take(&mut self) -> Option<u32> {
        let fresh = self.mark.checked_add(1).and_then(|from| self.free_from(from));
        let number = match fresh {
            None if self.reuses => self.free_from(1)?,
            found => found?,
        };
        self.used.insert(number.into(), number.into());
        self.mark = self.mark.max(number);
        Some(number)
    }

    fn free_from(&self, from: u32) -> Option<u32> {
        let free = self.used.first_gap(from.into()).and_then(|free| u32::try_from(free).ok());
        free.filter(|free| *free <= self.most)
    }

    /// The highest number that was ever handed out, for the parent's status. It never decreases.
    pub fn mark(&self) -> u32 {
        self.mark
    }

    /// How many numbers there are.
    pub fn capacity(&self) -> u32 {
        self.most
    }

    /// How many of them are in use, reserved or released a short time ago.
    pub fn used(&self) -> u128 {
        self.used.iter().map(|(first, last)| last - first + 1).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn small(most: u32, counter: u32) -> KeySpace {
        KeySpace::new(most, counter)
    }

    #[test]
    fn the_documents_keys_decode_as_it_says() {
        assert_eq!(GueKey::split(65537), GueKey { account: 1, service: 1 });
        assert_eq!(GueKey::split(65539), GueKey { account: 1, service: 3 });
    }

    #[test]
    fn exhaustion_is_an_error_not_a_wrap() {
        let mut space = KeySpace::keys(u16::MAX - 1);
        assert_eq!(space.take(), Some(65535));
        for number in 1..u16::MAX {
            assert_eq!(space.take(), Some(number.into()), "the lowest free one, after the last fresh one");
        }
        assert_eq!(space.take(), None);
        assert_eq!((space.mark(), space.used()), (65535, 65535));
    }

    #[test]
    fn counter_rebuilt_from_live_objects() {
        let mut space = KeySpace::tunnel_ids(0);
        assert!(space.add_live(7) && space.add_live(3));
        assert_eq!(space.take(), Some(8), "not 1, 2 or 4: they were on the wire");
        assert_eq!(space.mark(), 8);
    }

    #[test]
    fn a_number_that_was_released_is_not_used_again_while_there_are_fresh_ones() {
        let mut space = small(5, 3);
        assert!(space.add_live(2));
        assert_eq!((space.take(), space.take()), (Some(4), Some(5)));
        assert!(space.reserve(1), "released a short time ago");
        assert_eq!((space.take(), space.take()), (Some(3), None));
    }

    #[test]
    fn a_number_has_one_holder_and_zero_is_none() {
        let mut space = small(5, 0);
        assert!(space.add_live(4));
        assert!(!space.add_live(4) && !space.reserve(4));
        assert!(!space.add_live(0) && !space.add_live(6));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn pack_split_roundtrip(account: u16, service: u16) {
            let key = GueKey { account, service };
            prop_assert_eq!(GueKey::split(key.pack()), key);
            prop_assert_eq!(key.pack() / 65536, u32::from(account));
            prop_assert_eq!(key.pack() % 65536, u32::from(service));
        }

        #[test]
        fn numbers_are_handed_out_as_by_a_plain_set(
            counter in 0u32..12,
            live in prop::collection::btree_set(1u32..12, 0..8),
            reserved in prop::collection::btree_set(1u32..12, 0..4),
        ) {
            const MOST: u32 = 11;
            let mut space = small(MOST, counter);
            for number in &live { space.add_live(*number); }
            for number in &reserved { space.reserve(*number); }
            let mut used: BTreeSet<u32> = live.union(&reserved).copied().collect();
            let mut mark = counter.max(live.last().copied().unwrap_or_default());
            loop {
                let fresh = (mark + 1..=MOST).find(|number| !used.contains(number));
                let expected = fresh.or_else(|| (1..=MOST).find(|number| !used.contains(number)));
                let taken = space.take();
                prop_assert_eq!(taken, expected);
                let Some(number) = taken else { break };
                used.insert(number);
                mark = mark.max(number);
                prop_assert_eq!(space.mark(), mark);
            }
        }
    }
}
