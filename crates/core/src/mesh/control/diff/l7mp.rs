//! A real l7mp: call by call, around its quirks.
//!
//! Always `name`, `rules` and all of `retry`; lists by name only; never `recursive` on a rulelist; an endpoint's weight
//! beside its spec. What would end the process was refused when the objects were read.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};

use super::order::{self, Step};
use super::{CallMethod, CallPlan, Delta, ObservedConfig, ProxyCall, handed_over, removes_orphans};
use crate::mesh::control::types::Protocol;
use crate::mesh::control::wire::{Endpoint, Listener, ProxyConfig};
use crate::mesh::control::{Diagnostic, Reason};

pub(super) fn calls(desired: &ProxyConfig, observed: &ObservedConfig, delta: &Delta, steps: &mut CallPlan) {
    clusters(desired, delta, steps);
    for name in &delta.routes.changed {
        steps.delete("routes", name, false);
        steps.post("routes", "route", desired.routes.get(name).map(|one| one.to_value()));
    }
    for name in &delta.routes.added {
        steps.post("routes", "route", desired.routes.get(name).map(|one| one.to_value()));
    }
    rules(desired, observed, delta, steps);
    listeners(desired, observed, delta, steps);
    for name in &delta.removed_rulelists {
        steps.delete("rulelists", name, false);
    }
    for name in &delta.rules.removed {
        steps.delete("rules", name, false);
    }
    for name in &delta.routes.removed {
        steps.delete("routes", name, false);
    }
    for name in &delta.clusters.removed {
        steps.delete("clusters", name, false);
    }
    for name in delta.endpoints.values().flat_map(|kinds| &kinds.removed) {
        steps.delete("endpoints", name, true);
    }
    for name in lost_singletons(desired, delta) {
        if let Some(listener) = desired.listeners.get(&name) {
            restart(listener, steps);
        }
    }
}

/// New clusters, new endpoints, and clusters that are not what they should be: those go and come back to back, and
/// live sessions go on.
fn clusters(desired: &ProxyConfig, delta: &Delta, steps: &mut CallPlan) {
    for name in &delta.clusters.added {
        steps.post("clusters", "cluster", desired.clusters.get(name).map(|one| one.to_value()));
    }
    for name in &delta.clusters.changed {
        steps.delete("clusters", name, false);
        steps.post("clusters", "cluster", desired.clusters.get(name).map(|one| one.to_value()));
    }
    for (cluster, kinds) in &delta.endpoints {
        let Some(wanted) = desired.clusters.get(cluster) else { continue };
        let path = format!("clusters/{}/endpoints", encoded(cluster));
        for name in &kinds.changed {
            steps.delete("endpoints", name, false);
        }
        for name in kinds.added.iter().chain(&kinds.changed) {
            let endpoint = wanted.endpoints.iter().find(|one| one.name == *name);
            steps.post(&path, "endpoint", endpoint.map(Endpoint::to_value));
        }
    }
}

/// Rules of new lists are added, rules of standing lists are put into their place; then the old ones go, without a gap.
fn rules(desired: &ProxyConfig, observed: &ObservedConfig, delta: &Delta, steps: &mut CallPlan) {
    let standing: BTreeSet<&Arc<str>> = delta
        .rulelists
        .iter()
        .filter(|(name, _)| observed.rulelists.contains_key(*name))
        .flat_map(|(_, rules)| rules)
        .collect();
    let mut missing: BTreeSet<&Arc<str>> = delta.rules.added.iter().collect();
    for name in delta.rules.added.iter().filter(|name| !standing.contains(name)) {
        steps.post("rules", "rule", desired.rules.get(name).map(|one| one.to_value()));
        missing.remove(name);
    }
    // a Rule object keeps its name when it is edited: only new sessions can fall in the gap
    for name in &delta.rules.changed {
        steps.delete("rules", name, false);
        steps.post("rules", "rule", desired.rules.get(name).map(|one| one.to_value()));
    }
    for (name, wanted) in &delta.rulelists {
        let Some(there) = observed.rulelists.get(name) else {
            let rules = wanted.iter().map(|rule| Value::from(&**rule)).collect::<Value>();
            steps.post("rulelists", "rulelist", Some(json!({"name": &**name, "rules": rules})));
            continue;
        };
        let list = format!("rulelists/{}/rules", encoded(name));
        for step in order::steps(there, wanted) {
            match step {
                Step::Insert(place, rule) => {
                    let body = desired.rules.get(&rule).filter(|_| missing.remove(&rule)).map(|one| one.to_value());
                    steps.post(&format!("{list}/{place}"), "rule", Some(body.unwrap_or_else(|| (&*rule).into())));
                }
                Step::Delete(place) => steps.delete(&list, &place.to_string(), false),
            }
        }
    }
}

fn listeners(desired: &ProxyConfig, observed: &ObservedConfig, delta: &Delta, steps: &mut CallPlan) {
    let first = handed_over(desired, observed, delta);
    let recursive = |name: &Arc<str>| observed.listeners.get(name).is_some_and(removes_orphans);
    for name in &first {
        steps.delete("listeners", name, recursive(name));
    }
    // all that are to move leave their ports before any takes one
    for name in &delta.listeners.changed {
        steps.delete("listeners", name, false);
    }
    for name in delta.listeners.changed.iter().chain(&delta.listeners.added) {
        let Some(listener) = desired.listeners.get(name) else { continue };
        steps.post("listeners", "listener", Some(listener.to_value()));
    }
    for listener in delta.listeners.changed.iter().filter_map(|name| desired.listeners.get(name)) {
        remark_cut(listener, steps);
    }
    for name in delta.listeners.removed.iter().filter(|name| !first.contains(*name)) {
        steps.delete("listeners", name, recursive(name));
    }
}

fn restart(listener: &Listener, steps: &mut CallPlan) {
    steps.delete("listeners", &listener.name, false);
    steps.post("listeners", "listener", Some(listener.to_value()));
}

fn remark_cut(listener: &Listener, steps: &mut CallPlan) {
    let opened = listener.spec.get("transport").unwrap_or(&listener.spec);
    if opened.get("protocol").and_then(Value::as_str) == Some(Protocol::WebSocket.as_str()) {
        let message = format!("l7mp ends the sessions of WebSocket listener `{}` when it is edited", listener.name);
        steps.diagnostics.push((Arc::clone(&listener.name), Diagnostic::new(Reason::SessionsCut, message)));
    }
}

/// Singleton listeners that lose their only session with an endpoint: without retry it never comes back.
fn lost_singletons(desired: &ProxyConfig, delta: &Delta) -> Vec<Arc<str>> {
    let shrunk: BTreeSet<&Arc<str>> =
        delta.endpoints.iter().filter(|(_, kinds)| !kinds.removed.is_empty()).map(|(cluster, _)| cluster).collect();
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
