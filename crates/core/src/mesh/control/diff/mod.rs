//! Computes the calls that bring a proxy from its current to its desired configuration, without interrupting sessions.
//!
//! ```text
//! add      clusters -> routes -> rules -> rulelists -> listeners
//! delete   listeners -> rulelists -> rules -> routes -> clusters, endpoints
//! ```
//! New objects are added before old ones are deleted, except where a port or a name changes hands. Objects whose names
//! are not ours are never touched.

mod known;
mod l7mp;
mod observed;
mod order;
mod portolan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::names::ClusterDomain;
use super::wire::{Insertion, ProxyConfig};
use super::world::ProxyImplementation;
use super::{Diagnostic, Reason};

pub use self::observed::ObservedConfig;

/// The calls that a proxy needs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallPlan {
    /// Calls, in order.
    pub calls: Vec<ProxyCall>,
    /// Changes that are not possible or have side effects, with the name of the object.
    pub diagnostics: Vec<(Arc<str>, Diagnostic)>,
}

/// A call of a proxy's REST API.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyCall {
    /// `POST` or `DELETE`.
    pub method: CallMethod,
    /// Path and query.
    pub path: String,
    /// The body of a `POST`.
    pub body: Option<Value>,
}

/// The verb of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallMethod {
    /// Adds an object.
    Post,
    /// Deletes an object.
    Delete,
}

/// Which objects on a proxy belong to the operator.
#[derive(Debug, Clone)]
pub struct Ownership {
    /// The suffix of full names.
    pub domain: ClusterDomain,
    /// Objects of the l7mp operator are adopted.
    pub adopt_legacy: bool,
}

impl Default for Ownership {
    fn default() -> Self {
        Self { domain: ClusterDomain::default(), adopt_legacy: true }
    }
}

impl Ownership {
    fn is_ours(&self, name: &str) -> bool {
        self.domain.is_ours(name, self.adopt_legacy)
    }
}

/// The calls that bring a proxy from its current to its desired configuration.
pub fn diff(
    desired: &ProxyConfig,
    observed: &ObservedConfig,
    flavour: ProxyImplementation,
    ownership: &Ownership,
) -> CallPlan {
    let mut plan = CallPlan::default();
    let delta = Delta::new(desired, observed, ownership, &mut plan.diagnostics);
    match flavour {
        ProxyImplementation::Portolan => portolan::calls(desired, observed, &delta, &mut plan),
        ProxyImplementation::L7mp => l7mp::calls(desired, observed, &delta, &mut plan),
    }
    plan
}

/// The changes of objects of one kind.
#[derive(Debug, Default)]
struct ObjectChanges {
    added: Vec<Arc<str>>,
    changed: Vec<Arc<str>>,
    removed: Vec<Arc<str>>,
}

/// The difference between the current and the desired configuration.
#[derive(Debug, Default)]
struct Delta {
    clusters: ObjectChanges,
    /// Endpoints of clusters that stay, by cluster.
    endpoints: BTreeMap<Arc<str>, ObjectChanges>,
    routes: ObjectChanges,
    rules: ObjectChanges,
    listeners: ObjectChanges,
    /// New and changed rulelists, as they should be.
    rulelists: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    removed_rulelists: Vec<Arc<str>>,
}

impl Delta {
    fn new(
        desired: &ProxyConfig,
        observed: &ObservedConfig,
        ownership: &Ownership,
        notes: &mut Vec<(Arc<str>, Diagnostic)>,
    ) -> Self {
        let mut delta = Self {
            clusters: compare(&observed.clusters, &desired.clusters, ownership, |one| {
                observed::cluster(&one.to_value())
            }),
            routes: compare(&observed.routes, &desired.routes, ownership, |one| observed::route(&one.to_value())),
            rules: compare(&observed.rules, &desired.rules, ownership, |one| observed::rule(&one.to_value())),
            listeners: compare(&observed.listeners, &desired.listeners, ownership, |one| {
                observed::listener(&one.to_value())
            }),
            ..Self::default()
        };
        for (name, cluster) in &desired.clusters {
            let Some(there) = observed.endpoints.get(name).filter(|_| !delta.clusters.changed.contains(name)) else {
                continue;
            };
            let wanted: BTreeMap<Arc<str>, Value> =
                cluster.endpoints.iter().map(|one| (Arc::clone(&one.name), endpoint(one))).collect();
            let mut changes = ObjectChanges::default();
            for (name, one) in &wanted {
                match there.get(name) {
                    None => changes.added.push(Arc::clone(name)),
                    Some(other) if other != one => changes.changed.push(Arc::clone(name)),
                    Some(_) => {}
                }
            }
            changes.removed.extend(there.keys().filter(|name| !wanted.contains_key(*name)).cloned());
            if !(changes.added.is_empty() && changes.changed.is_empty() && changes.removed.is_empty()) {
                delta.endpoints.insert(Arc::clone(name), changes);
            }
        }
        delta.compare_lists(desired, observed, ownership, notes);
        delta
    }

    fn compare_lists(
        &mut self,
        desired: &ProxyConfig,
        observed: &ObservedConfig,
        ownership: &Ownership,
        notes: &mut Vec<(Arc<str>, Diagnostic)>,
    ) {
        let mut inserted: BTreeMap<&Arc<str>, Vec<&Insertion>> = BTreeMap::new();
        for insertion in desired.insertions.values() {
            inserted.entry(&insertion.rulelist).or_default().push(insertion);
        }
        let names: BTreeSet<&Arc<str>> =
            observed.rulelists.keys().chain(desired.rulelists.keys()).chain(inserted.keys().copied()).collect();
        for name in names {
            let there = observed.rulelists.get(name);
            let wanted = desired.rulelists.get(name);
            let own = inserted.get(name).map(Vec::as_slice).unwrap_or_default();
            if there.is_some() && wanted.is_none() && ownership.is_ours(name) {
                self.removed_rulelists.push(Arc::clone(name));
                continue;
            }
            let foreign = there.into_iter().flatten().filter(|rule| !ownership.is_ours(rule));
            let standing: Vec<Arc<str>> = match (there, wanted) {
                (None, None) => {
                    notes.extend(own.iter().map(|insertion| (Arc::clone(&insertion.rule), missing(name))));
                    continue;
                }
                // a foreign rule in a list of ours keeps its position
                (Some(there), Some(wanted)) => keep_foreign(there, wanted, ownership),
                (None, Some(wanted)) => wanted.clone(),
                (Some(_), None) => foreign.cloned().collect(),
            };
            let should = order::merge(&standing, own);
            if there != Some(&should) {
                self.rulelists.insert(Arc::clone(name), should);
            }
        }
        for listener in desired.listeners.values().filter(|listener| !ownership.is_ours(&listener.rules)) {
            if !observed.rulelists.contains_key(&listener.rules) {
                notes.push((Arc::clone(&listener.name), missing(&listener.rules)));
            }
        }
    }
}

fn missing(rulelist: &str) -> Diagnostic {
    let message =
        format!("rulelist `{rulelist}` does not exist on the proxy: add it to the configuration file of the proxy");
    Diagnostic::new(Reason::RuleListMissing, message)
}

fn keep_foreign(there: &[Arc<str>], wanted: &[Arc<str>], ownership: &Ownership) -> Vec<Arc<str>> {
    let mut list = wanted.to_vec();
    for (index, rule) in there.iter().enumerate().filter(|(_, rule)| !ownership.is_ours(rule)) {
        list.insert(index.min(list.len()), Arc::clone(rule));
    }
    list
}

fn endpoint(endpoint: &super::wire::Endpoint) -> Value {
    let mut value = endpoint.to_value();
    if endpoint.draining {
        value["state"] = "draining".into();
    }
    observed::endpoint(&value)
}

fn compare<T>(
    observed: &BTreeMap<Arc<str>, Value>,
    desired: &BTreeMap<Arc<str>, Arc<T>>,
    ownership: &Ownership,
    show: impl Fn(&T) -> Value,
) -> ObjectChanges {
    let mut changes = ObjectChanges::default();
    for (name, one) in desired {
        match observed.get(name) {
            None => changes.added.push(Arc::clone(name)),
            Some(there) if *there != show(one) => changes.changed.push(Arc::clone(name)),
            Some(_) => {}
        }
    }
    let gone = observed.keys().filter(|name| !desired.contains_key(*name) && ownership.is_ours(name));
    changes.removed.extend(gone.cloned());
    changes
}

/// The transport and port of a listener, which only one listener can have.
fn port(listener: &Value) -> Option<(bool, u64)> {
    let spec = listener.get("spec")?;
    let opened = spec.get("transport").unwrap_or(spec);
    Some((opened.get("protocol")? == "UDP", opened.get("port")?.as_u64()?))
}

/// Listeners that must be deleted before others are added, because those take their port.
fn handed_over(desired: &ProxyConfig, observed: &ObservedConfig, delta: &Delta) -> BTreeSet<Arc<str>> {
    let coming = delta.listeners.added.iter().chain(&delta.listeners.changed);
    let wanted: BTreeSet<_> = coming.filter_map(|name| port(&desired.listeners.get(name)?.to_value())).collect();
    let going = delta.listeners.removed.iter();
    let of = |name: &&Arc<str>| observed.listeners.get(*name).and_then(port).is_some_and(|port| wanted.contains(&port));
    going.filter(of).cloned().collect()
}

fn removes_orphans(listener: &Value) -> bool {
    listener["options"]["removeOrphanSessions"] == Value::Bool(true)
}
