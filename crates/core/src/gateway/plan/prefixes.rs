//! Prefixes: which of them give addresses.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::addresses::Pool;
use super::super::prefix;
use super::super::types::World;
use super::order::oldest_first;

pub(super) struct Pools {
    pub(super) usable: BTreeMap<Arc<str>, Pool>,
    /// Prefixes with the older ones that they overlap with.
    pub(super) overlaps: BTreeMap<Arc<str>, Arc<str>>,
}

pub(super) fn pools(world: &World) -> Pools {
    let sorted = oldest_first(&world.prefixes, |prefix| &prefix.identity);
    let valid = sorted.iter().filter_map(|(_, name, prefix)| Some((*name, prefix.prefix.as_ref().ok()?)));
    let overlaps = prefix::overlaps(valid);
    let usable = world.prefixes.iter().map(|(name, prefix)| {
        let is_usable = prefix.problem.is_none() && !overlaps.contains_key(name);
        let addresses = prefix.prefix.as_ref().ok().filter(|_| is_usable).cloned();
        (Arc::clone(name), Pool { prefix: addresses, fence: prefix.fence.clone() })
    });
    Pools { usable: usable.collect(), overlaps }
}
