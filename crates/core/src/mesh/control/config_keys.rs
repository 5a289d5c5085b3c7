//! What a proxy should hold, in parts: a single change is told without looking at all the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::wire::{ConfigKind, ProxyConfig};

/// Names of things on a proxy.
pub type ConfigKeys = BTreeSet<(ConfigKind, Arc<str>)>;

impl ProxyConfig {
    /// Everything in it, by name.
    pub fn keys(&self) -> impl Iterator<Item = (ConfigKind, Arc<str>)> {
        let Self { clusters, routes, rules, rulelists, listeners, .. } = self;
        let of = |part: ConfigKind| move |name: &Arc<str>| (part, Arc::clone(name));
        (clusters.keys().map(of(ConfigKind::Cluster)))
            .chain(routes.keys().map(of(ConfigKind::Route)))
            .chain(rules.keys().map(of(ConfigKind::Rule)))
            .chain(rulelists.keys().map(of(ConfigKind::RuleList)))
            .chain(listeners.keys().map(of(ConfigKind::Listener)))
    }

    /// What it has of the things named.
    #[must_use]
    pub fn only(&self, names: &ConfigKeys) -> Self {
        let mut config = Self::default();
        config.replace(names, self);
        config
    }

    /// Holds from now on, of the things named, what the other has of them.
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

    /// Keeps what is named so.
    pub fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.clusters.retain(|name, _| is_kept(name));
        self.routes.retain(|name, _| is_kept(name));
        self.rules.retain(|name, _| is_kept(name));
        self.rulelists.retain(|name, _| is_kept(name));
        self.listeners.retain(|name, _| is_kept(name));
        self.insertions.retain(|name, _| is_kept(name));
    }
}

/// Brings one entry of a map to what another map has under its key.
pub(super) fn take<V: Clone>(map: &mut BTreeMap<Arc<str>, V>, from: &BTreeMap<Arc<str>, V>, name: &Arc<str>) {
    match from.get(name) {
        Some(value) => drop(map.insert(Arc::clone(name), value.clone())),
        None => drop(map.remove(name)),
    }
}
