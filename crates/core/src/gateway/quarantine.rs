//! Numbers that were released a short time ago: packets with them may still be on their way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::addresses::Moment;
use super::keys::KeySpace;

/// Where numbers come from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// Keys of accounts.
    Accounts,
    /// Ids of tunnels.
    Tunnels,
    /// Keys of the load balancers of the account with this uid.
    Services(Arc<str>),
}

/// What one process has seen of numbers that came free. It is not stored: after a restart no number is used again before
/// a whole quarantine is over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quarantine {
    /// Since when this process sees what is in use. None: not yet.
    since: Option<Moment>,
    live: BTreeMap<Space, BTreeSet<u32>>,
    released: BTreeMap<Space, BTreeMap<u32, Moment>>,
}

impl Quarantine {
    /// Takes note of the numbers in use. `length` is how long a number stays in quarantine.
    pub fn follow(&mut self, now: Moment, length: u64, live: BTreeMap<Space, BTreeSet<u32>>) {
        self.since.get_or_insert(now);
        for (space, before) in &self.live {
            let left = live.get(space);
            for number in before.iter().filter(|number| !left.is_some_and(|left| left.contains(number))) {
                self.released.entry(space.clone()).or_default().insert(*number, now);
            }
        }
        for numbers in self.released.values_mut() {
            numbers.retain(|_, released| released.saturating_add(length) > now);
        }
        self.released.retain(|_, numbers| !numbers.is_empty());
        self.live = live;
    }

    /// Keeps the numbers in quarantine from being handed out.
    pub(super) fn apply(&self, space: &Space, now: Moment, length: u64, keys: KeySpace) -> KeySpace {
        if self.since.is_none_or(|since| since.saturating_add(length) > now) {
            return keys.without_reuse();
        }
        let mut keys = keys;
        for number in self.released.get(space).into_iter().flat_map(BTreeMap::keys) {
            keys.reserve(*number);
        }
        keys
    }

    /// When the next number of a space comes free.
    pub(super) fn next_free(&self, space: &Space, length: u64) -> Option<Moment> {
        let released = self.released.get(space).into_iter().flat_map(BTreeMap::values).min();
        let start = released.copied().into_iter().chain(self.since).max_by_key(|moment| *moment);
        start.map(|moment| moment.saturating_add(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(numbers: &[u32]) -> BTreeMap<Space, BTreeSet<u32>> {
        BTreeMap::from([(Space::Accounts, numbers.iter().copied().collect())])
    }

    fn used_up() -> KeySpace {
        let mut space = KeySpace::keys(u16::MAX);
        for number in 3..=u16::MAX {
            space.add_live(number.into());
        }
        space
    }

    #[test]
    fn a_number_is_used_again_when_it_was_seen_free_for_the_whole_quarantine() {
        let mut quarantine = Quarantine::default();
        let take = |quarantine: &Quarantine, now| quarantine.apply(&Space::Accounts, now, 100, used_up()).take();
        assert_eq!(take(&quarantine, 0), None, "nothing was seen yet");
        quarantine.follow(1000, 100, live(&[1]));
        assert_eq!(take(&quarantine, 1099), None, "who knows when 2 was released");
        assert_eq!(take(&quarantine, 1100), Some(1), "live numbers are the caller's to add");
        quarantine.follow(1150, 100, live(&[]));
        assert_eq!(take(&quarantine, 1200), Some(2), "1 was released a short time ago");
        assert_eq!(quarantine.next_free(&Space::Accounts, 100), Some(1250));
        quarantine.follow(1250, 100, live(&[]));
        assert_eq!(take(&quarantine, 1250), Some(1));
    }
}
