//! Parts of a configuration by key, so that a single change does not need the whole configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::wire::{ConfigKind, ProxyConfig};

/// Keys of configuration objects.
pub type ConfigKeys = BTreeSet<(ConfigKind, Arc<str>)>;

impl ProxyConfig {
    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = (ConfigKind, Arc<str>)> {
        let Self { clusters, routes, rules, rulelists, listeners, .. } = self;
        let of = |part: ConfigKind| move |name: &Arc<str>| (part, Arc::clone(name));
        (clusters.keys().map(of(ConfigKind::Cluster)))
            .chain(routes.keys().map(of(ConfigKind::Route)))
            .chain(rules.keys().map(of(ConfigKind::Rule)))
            .chain(rulelists.keys().map(of(ConfigKind::RuleList)))
            .chain(listeners.keys().map(of(ConfigKind::Listener)))
    }

    /// The part with some keys.
    #[must_use]
    pub fn only(&self, names: &ConfigKeys) -> Self {
        let mut config = Self::default();
        config.replace(names, self);
        config
    }

    /// Replaces the part with some keys by that of another configuration.
    pub fn replace(&mut self, names: &ConfigKeys, other: &Self) {
        for (part, name) in names {
            match part {
                ConfigKind::Cluster => take(&mut self.clusters, &other.clusters, name),
                ConfigKind::Route => take(&mut self.routes, &other.routes, name),
                ConfigKind::Rule => {
                    take(&mut self.rules, &other.rules, name);
                    take(&mut self.insertions, &other.insertions, name);
                }
                ConfigKind::RuleList => take(&mut self.rulelists, &other.rulelists, name),
                ConfigKind::Listener => take(&mut self.listeners, &other.listeners, name),
            }
        }
    }

    /// Keeps the objects whose names match.
    pub fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.clusters.retain(|name, _| is_kept(name));
        self.routes.retain(|name, _| is_kept(name));
        self.rules.retain(|name, _| is_kept(name));
        self.rulelists.retain(|name, _| is_kept(name));
        self.listeners.retain(|name, _| is_kept(name));
        self.insertions.retain(|name, _| is_kept(name));
    }
}

/// Copies one entry of a map, or removes it if the other map has none.
pub(super) fn take<V: Clone>(map: &mut BTreeMap<Arc<str>, V>, from: &BTreeMap<Arc<str>, V>, name: &Arc<str>) {
    match from.get(name) {
        Some(value) => drop(map.insert(Arc::clone(name), value.clone())),
        None => drop(map.remove(name)),
    }
}
