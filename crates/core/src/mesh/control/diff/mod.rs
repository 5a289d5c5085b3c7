//! From what a proxy holds to what it should hold, in the fewest calls and in an order that cuts nothing.
//!
//! ```text
//! add      clusters -> routes -> rules -> rulelists -> listeners
//! delete   listeners -> rulelists -> rules -> routes -> clusters, endpoints
//! ```
//! Whatever is new stands before anything old goes, except where a port or a name is handed over. Objects whose names
//! are not of our grammar are never touched.

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

/// How a proxy is brought to what it should hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallPlan {
    /// Calls, in order.
    pub calls: Vec<ProxyCall>,
    /// What cannot be done, or is done at a price, with the name of what it is about.
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
    /// Adds.
    Post,
    /// Takes away.
    Delete,
}

/// Which names are ours on a proxy.
#[derive(Debug, Clone)]
pub struct Ownership {
    /// The suffix of full names.
    pub domain: ClusterDomain,
    /// The shipped operator's objects are taken over.
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

/// The calls that bring a proxy from what it holds to what it should hold.
pub fn diff(
    desired: &ProxyConfig,
    observed: &ObservedConfig,
    flavour: ProxyImplementation,
    ownership: &Ownership,
) -> CallPlan {
    let mut steps = CallPlan::default();
    let delta = Delta::new(desired, observed, ownership, &mut steps.diagnostics);
    match flavour {
        ProxyImplementation::Portolan => portolan::calls(desired, observed, &delta, &mut steps),
        ProxyImplementation::L7mp => l7mp::calls(desired, observed, &delta, &mut steps),
    }
    steps
}

/// What became of the objects of one kind.
#[derive(Debug, Default)]
struct Kinds {
    added: Vec<Arc<str>>,
    changed: Vec<Arc<str>>,
    removed: Vec<Arc<str>>,
}

/// Everything that is different.
#[derive(Debug, Default)]
struct Delta {
    clusters: Kinds,
    /// Endpoints of clusters that stay: cluster, then what it lacks, what is different in it, what it has too many of.
    endpoints: BTreeMap<Arc<str>, Kinds>,
    routes: Kinds,
    rules: Kinds,
    listeners: Kinds,
    /// Rulelists that stay or come, as they should be.
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
            let mut kinds = Kinds::default();
            for (name, one) in &wanted {
                match there.get(name) {
                    None => kinds.added.push(Arc::clone(name)),
                    Some(other) if other != one => kinds.changed.push(Arc::clone(name)),
                    Some(_) => {}
                }
            }
            kinds.removed.extend(there.keys().filter(|name| !wanted.contains_key(*name)).cloned());
            if !(kinds.added.is_empty() && kinds.changed.is_empty() && kinds.removed.is_empty()) {
                delta.endpoints.insert(Arc::clone(name), kinds);
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
                // somebody else's rule in a list of ours stays where it is
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
    let message = format!("rulelist `{rulelist}` is not on the proxy: add it to the proxy's own file");
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
) -> Kinds {
    let mut kinds = Kinds::default();
    for (name, one) in desired {
        match observed.get(name) {
            None => kinds.added.push(Arc::clone(name)),
            Some(there) if *there != show(one) => kinds.changed.push(Arc::clone(name)),
            Some(_) => {}
        }
    }
    let gone = observed.keys().filter(|name| !desired.contains_key(*name) && ownership.is_ours(name));
    kinds.removed.extend(gone.cloned());
    kinds
}

/// The transport and port of a listener, which two cannot have at once.
fn port(listener: &Value) -> Option<(bool, u64)> {
    let spec = listener.get("spec")?;
    let opened = spec.get("transport").unwrap_or(spec);
    Some((opened.get("protocol")? == "UDP", opened.get("port")?.as_u64()?))
}

/// Listeners that must go before others come, because they hand their port over.
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
