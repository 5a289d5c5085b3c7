//! Who comes first.

use std::collections::BTreeMap;

use super::super::types::Identity;

/// Objects, oldest first.
pub(super) fn oldest_first<K: Ord, V>(objects: &BTreeMap<K, V>, identity: impl Fn(&V) -> &Identity) -> Vec<(&K, &V)> {
    let mut sorted: Vec<(&K, &V)> = objects.iter().collect();
    sorted.sort_by(|(_, one), (_, other)| identity(one).age().cmp(&identity(other).age()));
    sorted
}
