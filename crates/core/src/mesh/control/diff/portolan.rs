//! The calls for a Portolan proxy: one transaction, which keeps every session that is still valid.

use serde_json::{Map, Value, json};

use super::{CallMethod, CallPlan, Delta, ProxyCall, endpoint, handed_over, removes_orphans};
use crate::mesh::control::wire::ProxyConfig;

/// The owner of our objects on the proxy.
const OWNER: &str = "portolan-mesh";
/// Maximum number of changes in one transaction, so that a call stays within its timeout.
const MAX_OPERATIONS: usize = 2_000;

pub(super) fn calls(desired: &ProxyConfig, observed: &super::ObservedConfig, delta: &Delta, plan: &mut CallPlan) {
    let mut ops = Vec::new();
    for name in delta.clusters.added.iter().chain(&delta.clusters.changed) {
        let Some(cluster) = desired.clusters.get(name) else { continue };
        let mut object = cluster.to_value();
        if object.get("endpoints").is_some() {
            object["endpoints"] = cluster.endpoints.iter().map(endpoint).collect();
        }
        ops.push(put("cluster", name, &object));
    }
    for (cluster, changes) in &delta.endpoints {
        let Some(wanted) = desired.clusters.get(cluster) else { continue };
        let coming = |name: &&std::sync::Arc<str>| wanted.endpoints.iter().find(|one| one.name == **name);
        for one in changes.added.iter().filter_map(|name| coming(&name)) {
            let mut op = put("endpoint", &one.name, &endpoint(one));
            op["cluster"] = (&**cluster).into();
            ops.push(op);
        }
        for one in changes.changed.iter().filter_map(|name| coming(&name)) {
            let was = observed.endpoints.get(cluster).and_then(|all| all.get(&one.name)).cloned().unwrap_or_default();
            let mut draining = was.clone();
            draining["state"] = "draining".into();
            if draining == endpoint(one) {
                ops.push(json!({"op": "drain", "kind": "endpoint", "name": &*one.name}));
                continue;
            }
            let mut object = endpoint(one);
            if !one.draining {
                object["state"] = "active".into();
            }
            let mut op = put("endpoint", &one.name, &object);
            op["cluster"] = (&**cluster).into();
            ops.push(op);
        }
    }
    for name in delta.routes.added.iter().chain(&delta.routes.changed) {
        ops.extend(desired.routes.get(name).map(|one| put("route", name, &one.to_value())));
    }
    for name in delta.rules.added.iter().chain(&delta.rules.changed) {
        ops.extend(desired.rules.get(name).map(|one| put("rule", name, &one.to_value())));
    }
    for (name, rules) in &delta.rulelists {
        let rules = rules.iter().map(|rule| Value::from(&**rule)).collect::<Value>();
        ops.push(put("rulelist", name, &json!({"name": &**name, "rules": rules})));
    }
    let first = handed_over(desired, observed, delta);
    let gone = |name: &std::sync::Arc<str>| {
        let recursive = observed.listeners.get(name).is_some_and(removes_orphans);
        delete("listener", name, recursive)
    };
    ops.extend(first.iter().map(gone));
    for name in delta.listeners.added.iter().chain(&delta.listeners.changed) {
        ops.extend(desired.listeners.get(name).map(|one| put("listener", name, &one.to_value())));
    }
    ops.extend(delta.listeners.removed.iter().filter(|name| !first.contains(*name)).map(gone));
    ops.extend(delta.removed_rulelists.iter().map(|name| delete("rulelist", name, false)));
    ops.extend(delta.rules.removed.iter().map(|name| delete("rule", name, false)));
    ops.extend(delta.routes.removed.iter().map(|name| delete("route", name, false)));
    ops.extend(delta.clusters.removed.iter().map(|name| delete("cluster", name, false)));
    let endpoints = delta.endpoints.values().flat_map(|changes| &changes.removed);
    ops.extend(endpoints.map(|name| delete("endpoint", name, true)));
    // in order, so that no chunk depends on a later one
    for ops in ops.chunks(MAX_OPERATIONS) {
        let body = Some(json!({"owner": OWNER, "ops": ops}));
        plan.calls.push(ProxyCall { method: CallMethod::Post, path: "/api/v2/apply".to_owned(), body });
    }
}

fn put(kind: &str, name: &str, object: &Value) -> Value {
    json!({"op": "put", "kind": kind, "name": name, "object": object})
}

fn delete(kind: &str, name: &str, recursive: bool) -> Value {
    let mut op = Map::new();
    op.insert("op".to_owned(), "delete".into());
    op.insert("kind".to_owned(), kind.into());
    op.insert("name".to_owned(), name.into());
    if recursive {
        op.insert("recursive".to_owned(), true.into());
    }
    Value::Object(op)
}
