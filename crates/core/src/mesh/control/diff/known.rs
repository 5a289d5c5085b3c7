//! The known configuration of a proxy, updated between reads.

use serde_json::Value;

use super::{Delta, ObservedConfig, Ownership, endpoint, observed};
use crate::mesh::control::config_keys::{ConfigKeys, take};
use crate::mesh::control::wire::{ConfigKind, ProxyConfig};
use crate::mesh::control::world::{ListenerPort, Transport};

impl ObservedConfig {
    /// The part with some keys, and the foreign rulelists that our listeners refer to.
    #[must_use]
    pub fn only(&self, names: &ConfigKeys, ours: &ProxyConfig, ownership: &Ownership) -> Self {
        let mut part = Self::default();
        for (kind, name) in names {
            match kind {
                ConfigKind::Cluster => {
                    take(&mut part.clusters, &self.clusters, name);
                    take(&mut part.endpoints, &self.endpoints, name);
                }
                ConfigKind::Route => take(&mut part.routes, &self.routes, name),
                ConfigKind::Rule => take(&mut part.rules, &self.rules, name),
                ConfigKind::RuleList => take(&mut part.rulelists, &self.rulelists, name),
                ConfigKind::Listener => take(&mut part.listeners, &self.listeners, name),
            }
        }
        let lists = ours.listeners.values().map(|listener| &listener.rules);
        for name in lists.filter(|name| !ownership.is_ours(name)) {
            take(&mut part.rulelists, &self.rulelists, name);
        }
        part
    }

    /// Records that the proxy holds the desired configuration for some keys, or for all without keys.
    pub fn learn(&mut self, names: Option<&ConfigKeys>, desired: &ProxyConfig, ownership: &Ownership) {
        let ours = || {
            let changes = [
                (ConfigKind::Cluster, self.clusters.keys()),
                (ConfigKind::Route, self.routes.keys()),
                (ConfigKind::Rule, self.rules.keys()),
                (ConfigKind::Listener, self.listeners.keys()),
            ];
            let plain = changes.into_iter().flat_map(|(part, names)| names.map(move |name| (part, name.clone())));
            let lists = self.rulelists.keys().map(|name| (ConfigKind::RuleList, name.clone()));
            plain.filter(|(_, name)| ownership.is_ours(name)).chain(lists).chain(desired.keys()).collect()
        };
        let names: &ConfigKeys = match names {
            Some(names) => names,
            None => &ours(),
        };
        let mut lists = Delta::default();
        let ours = desired.only(names);
        lists.compare_lists(&ours, &self.only(names, &ours, ownership), ownership, &mut Vec::new());
        for name in &lists.removed_rulelists {
            self.rulelists.remove(name);
        }
        self.rulelists.extend(lists.rulelists);
        let mut told = Self::default();
        for (part, name) in names {
            match part {
                ConfigKind::Cluster => {
                    if let Some(cluster) = desired.clusters.get(name) {
                        told.clusters.insert(name.clone(), observed::cluster(&cluster.to_value()));
                        let endpoints = cluster.endpoints.iter().map(|one| (one.name.clone(), endpoint(one)));
                        told.endpoints.insert(name.clone(), endpoints.collect());
                    }
                    take(&mut self.clusters, &told.clusters, name);
                    take(&mut self.endpoints, &told.endpoints, name);
                }
                ConfigKind::Route => {
                    let route = desired.routes.get(name).map(|route| observed::route(&route.to_value()));
                    told.routes.extend(route.map(|route| (name.clone(), route)));
                    take(&mut self.routes, &told.routes, name);
                }
                ConfigKind::Rule => {
                    let rule = desired.rules.get(name).map(|rule| observed::rule(&rule.to_value()));
                    told.rules.extend(rule.map(|rule| (name.clone(), rule)));
                    take(&mut self.rules, &told.rules, name);
                }
                ConfigKind::RuleList => {}
                ConfigKind::Listener => {
                    let listener = desired.listeners.get(name).map(|one| observed::listener(&one.to_value()));
                    told.listeners.extend(listener.map(|listener| (name.clone(), listener)));
                    take(&mut self.listeners, &told.listeners, name);
                }
            }
        }
    }

    /// Ports of listeners that are not ours: transport, address if not all, port.
    pub fn foreign_ports(&self, ownership: &Ownership) -> Vec<ListenerPort> {
        let foreign = self.listeners.iter().filter(|(name, _)| !ownership.is_ours(name));
        let port = |listener: &Value| {
            let spec = listener.get("spec")?;
            let opened = spec.get("transport").unwrap_or(spec);
            let is_udp = opened.get("protocol")?.as_str()?.eq_ignore_ascii_case("UDP");
            let address = opened.get("address").and_then(|address| address.as_str()?.parse().ok());
            let port = u16::try_from(opened.get("port")?.as_u64()?).ok()?;
            let transport = if is_udp { Transport::Udp } else { Transport::Tcp };
            Some(ListenerPort { transport, address, port })
        };
        foreign.filter_map(|(_, listener)| port(listener)).collect()
    }
}
