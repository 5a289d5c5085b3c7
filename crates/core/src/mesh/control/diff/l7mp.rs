//! The calls for a real l7mp, one object at a time, with workarounds for its quirks.
//!
//! It needs `name`, `rules` and all of `retry`, lists by name only, no `recursive` on a rulelist, and the weight of an
//! endpoint beside its spec. Values that would crash it are rejected when objects are read.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};

use super::order::{self, ListEdit};
use super::{CallMethod, CallPlan, Delta, ObservedConfig, ProxyCall, handed_over, removes_orphans};
use crate::mesh::control::types::Protocol;
use crate::mesh::control::wire::{Endpoint, Listener, ProxyConfig};
use crate::mesh::control::{Diagnostic, Reason};

pub(super) fn calls(desired: &ProxyConfig, observed: &ObservedConfig, delta: &Delta, plan: &mut CallPlan) {
    clusters(desired, delta, plan);
    for name in &delta.routes.changed {
        plan.delete("routes", name, false);
        plan.post("routes", "route", desired.routes.get(name).map(|one| one.to_value()));
    }
    for name in &delta.routes.added {
        plan.post("routes", "route", desired.routes.get(name).map(|one| one.to_value()));
    }
    rules(desired, observed, delta, plan);
    listeners(desired, observed, delta, plan);
    for name in &delta.removed_rulelists {
        plan.delete("rulelists", name, false);
    }
    for name in &delta.rules.removed {
        plan.delete("rules", name, false);
    }
    for name in &delta.routes.removed {
        plan.delete("routes", name, false);
    }
    for name in &delta.clusters.removed {
        plan.delete("clusters", name, false);
    }
    for name in delta.endpoints.values().flat_map(|changes| &changes.removed) {
        plan.delete("endpoints", name, true);
    }
    for name in lost_singletons(desired, delta) {
        if let Some(listener) = desired.listeners.get(&name) {
            restart(listener, plan);
        }
    }
}

/// New clusters, new endpoints, and changed clusters, which are deleted and added back to back: sessions survive that.
fn clusters(desired: &ProxyConfig, delta: &Delta, plan: &mut CallPlan) {
    for name in &delta.clusters.added {
        plan.post("clusters", "cluster", desired.clusters.get(name).map(|one| one.to_value()));
    }
    for name in &delta.clusters.changed {
        plan.delete("clusters", name, false);
        plan.post("clusters", "cluster", desired.clusters.get(name).map(|one| one.to_value()));
    }
    for (cluster, changes) in &delta.endpoints {
        let Some(wanted) = desired.clusters.get(cluster) else { continue };
        let path = format!("clusters/{}/endpoints", encoded(cluster));
        for name in &changes.changed {
            plan.delete("endpoints", name, false);
        }
        for name in changes.added.iter().chain(&changes.changed) {
            let endpoint = wanted.endpoints.iter().find(|one| one.name == *name);
            plan.post(&path, "endpoint", endpoint.map(Endpoint::to_value));
        }
    }
}

/// Adds the rules of new lists, inserts rules into existing lists at their positions, then deletes the old ones.
fn rules(desired: &ProxyConfig, observed: &ObservedConfig, delta: &Delta, plan: &mut CallPlan) {
    let standing: BTreeSet<&Arc<str>> = delta
        .rulelists
        .iter()
        .filter(|(name, _)| observed.rulelists.contains_key(*name))
        .flat_map(|(_, rules)| rules)
        .collect();
    let mut missing: BTreeSet<&Arc<str>> = delta.rules.added.iter().collect();
    for name in delta.rules.added.iter().filter(|name| !standing.contains(name)) {
        plan.post("rules", "rule", desired.rules.get(name).map(|one| one.to_value()));
        missing.remove(name);
    }
    // a Rule object keeps its name when it is edited: only new sessions can hit the gap
    for name in &delta.rules.changed {
        plan.delete("rules", name, false);
        plan.post("rules", "rule", desired.rules.get(name).map(|one| one.to_value()));
    }
    for (name, wanted) in &delta.rulelists {
        let Some(there) = observed.rulelists.get(name) else {
            let rules = wanted.iter().map(|rule| Value::from(&**rule)).collect::<Value>();
            plan.post("rulelists", "rulelist", Some(json!({"name": &**name, "rules": rules})));
            continue;
        };
        let list = format!("rulelists/{}/rules", encoded(name));
        for edit in order::edits(there, wanted) {
            match edit {
                ListEdit::Insert(place, rule) => {
                    let body = desired.rules.get(&rule).filter(|_| missing.remove(&rule)).map(|one| one.to_value());
                    plan.post(&format!("{list}/{place}"), "rule", Some(body.unwrap_or_else(|| (&*rule).into())));
                }
                ListEdit::Delete(place) => plan.delete(&list, &place.to_string(), false),
            }
        }
    }
}

fn listeners(desired: &ProxyConfig, observed: &ObservedConfig, delta: &Delta, plan: &mut CallPlan) {
    let first = handed_over(desired, observed, delta);
    let recursive = |name: &Arc<str>| observed.listeners.get(name).is_some_and(removes_orphans);
    for name in &first {
        plan.delete("listeners", name, recursive(name));
    }
    // all changed listeners release their ports before any is added
    for name in &delta.listeners.changed {
        plan.delete("listeners", name, false);
    }
    for name in delta.listeners.changed.iter().chain(&delta.listeners.added) {
        let Some(listener) = desired.listeners.get(name) else { continue };
        plan.post("listeners", "listener", Some(listener.to_value()));
    }
    for listener in delta.listeners.changed.iter().filter_map(|name| desired.listeners.get(name)) {
        warn_sessions_cut(listener, plan);
    }
    for name in delta.listeners.removed.iter().filter(|name| !first.contains(*name)) {
        plan.delete("listeners", name, recursive(name));
    }
}

fn restart(listener: &Listener, plan: &mut CallPlan) {
    plan.delete("listeners", &listener.name, false);
    plan.post("listeners", "listener", Some(listener.to_value()));
}

fn warn_sessions_cut(listener: &Listener, plan: &mut CallPlan) {
    let opened = listener.spec.get("transport").unwrap_or(&listener.spec);
    if opened.get("protocol").and_then(Value::as_str) == Some(Protocol::WebSocket.as_str()) {
        let message = format!("l7mp ends the sessions of WebSocket listener `{}` when it is edited", listener.name);
        plan.diagnostics.push((Arc::clone(&listener.name), Diagnostic::new(Reason::SessionsCut, message)));
    }
}

/// Singleton listeners that lose their only session with an endpoint: without retry it is not restored.
fn lost_singletons(desired: &ProxyConfig, delta: &Delta) -> Vec<Arc<str>> {
    let shrunk: BTreeSet<&Arc<str>> =
        delta.endpoints.iter().filter(|(_, changes)| !changes.removed.is_empty()).map(|(cluster, _)| cluster).collect();
    if shrunk.is_empty() {
        return Vec::new();
    }
    let loses = |listener: &&Arc<Listener>| {
        let rules = desired.rulelists.get(&listener.rules).into_iter().flatten();
        let routes = rules.filter_map(|rule| desired.rules.get(rule)?.route.as_ref());
        let mut routes = routes.filter_map(|route| desired.routes.get(route));
        is_singleton(&listener.spec)
            && routes.any(|route| {
                let moves = matches!(route.retry["retry_on"].as_str(), Some("always" | "disconnect"));
                let mut hops = route.ingress.iter().chain(&route.egress).chain([&route.destination]);
                !moves && hops.any(|hop| shrunk.contains(hop))
            })
    };
    let coming: BTreeSet<&Arc<str>> = delta.listeners.added.iter().chain(&delta.listeners.changed).collect();
    let lost = desired.listeners.values().filter(|listener| !coming.contains(&listener.name)).filter(loses);
    lost.map(|listener| Arc::clone(&listener.name)).collect()
}

fn is_singleton(spec: &Value) -> bool {
    let opened = spec.get("transport").unwrap_or(spec);
    let whole = opened["connect"].get("address").is_some() && opened["connect"].get("port").is_some();
    opened["protocol"] == "UDP" && whole && opened["options"]["mode"] != "server"
}

impl CallPlan {
    fn post(&mut self, path: &str, key: &str, object: Option<Value>) {
        let Some(object) = object else { return };
        let body = Some(Value::Object([(key.to_owned(), object)].into_iter().collect()));
        self.calls.push(ProxyCall { method: CallMethod::Post, path: format!("/api/v1/{path}"), body });
    }

    fn delete(&mut self, path: &str, name: &str, recursive: bool) {
        let query = if recursive { "?recursive=true" } else { "" };
        let path = format!("/api/v1/{path}/{}{query}", encoded(name));
        self.calls.push(ProxyCall { method: CallMethod::Delete, path, body: None });
    }
}

/// A name as a segment of a path.
fn encoded(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            path.push(char::from(byte));
        } else {
            write!(path, "%{byte:02X}").expect("a text takes any letter");
        }
    }
    path
}
