//! The difference of two maps, which every part of a state is compared by.

use std::collections::BTreeMap;

/// What is in these and not, or with another value, in those.
pub(super) fn without<K: Ord + Clone, V: PartialEq + Clone>(
    these: &BTreeMap<K, V>,
    those: &BTreeMap<K, V>,
) -> BTreeMap<K, V> {
    let differs = |(key, value): &(&K, &V)| those.get(key) != Some(value);
    these.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// What is here and not there, whatever its value there.
pub(super) fn gone<K: Ord + Clone, V: Clone>(these: &BTreeMap<K, V>, those: &BTreeMap<K, V>) -> BTreeMap<K, V> {
    let is_gone = |(key, _): &(&K, &V)| !those.contains_key(key);
    these.iter().filter(is_gone).map(|(key, value)| (key.clone(), value.clone())).collect()
}
