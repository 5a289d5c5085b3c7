//! Who comes first.

use std::collections::BTreeMap;

use super::super::types::Identity;

/// Objects, oldest first, each with its place in the order of names.
pub(super) fn oldest_first<K: Ord, V>(
    objects: &BTreeMap<K, V>,
    identity: impl Fn(&V) -> &Identity,
) -> Vec<(usize, &K, &V)> {
    let mut sorted: Vec<(usize, &K, &V)> =
        objects.iter().enumerate().map(|(place, (name, object))| (place, name, object)).collect();
    sorted.sort_by(|(_, _, one), (_, _, other)| identity(one).age().cmp(&identity(other).age()));
    sorted
}
