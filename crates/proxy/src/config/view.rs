//! What clients read: objects by themselves, or with all that they refer to in place of its name.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use super::json::{Json, Object as Fields, object};
use super::kind::Kind;
use super::state::{Meta, State};
use super::types::{ClusterSpec, Endpoint};

/// One object, references as names.
pub fn shallow(state: &State, kind: Kind, meta: &Meta) -> Json {
    if kind != Kind::Cluster {
        return Json::Object(Fields::clone(&meta.view));
    }
    cluster(state, meta, false)
}

/// One object and everything below it.
pub fn deep(state: &State, kind: Kind, meta: &Meta) -> Json {
    let mut view = Fields::clone(&meta.view);
    match kind {
        Kind::Cluster => return cluster(state, meta, true),
        Kind::Endpoint => {}
        Kind::Listener => {
            let rules = below(state, Kind::RuleList, view.get("rules"));
            // the list's own name is not shown
            view.set("rules", rules.get("rules").cloned().unwrap_or(rules));
        }
        Kind::RuleList => each(state, Kind::Rule, &mut view, "rules"),
        Kind::Rule => {
            if let Some(Json::Object(action)) = view.get("action") {
                let mut action = action.clone();
                if let Some(route) = action.get("route") {
                    let route = below(state, Kind::Route, Some(route));
                    action.set("route", route);
                }
                view.set("action", action);
            }
        }
        Kind::Route => {
            let destination = below(state, Kind::Cluster, view.get("destination"));
            view.set("destination", destination);
            each(state, Kind::Cluster, &mut view, "ingress");
            each(state, Kind::Cluster, &mut view, "egress");
        }
    }
    Json::Object(view)
}

/// All objects of a kind, in the order in which they were added.
pub fn list(state: &State, kind: Kind, recursive: bool) -> Json {
    let one = if recursive { deep } else { shallow };
    Json::Array(state.list(kind).into_iter().map(|meta| one(state, kind, meta)).collect())
}

/// An object in the form of a write: like [`shallow`], but a cluster includes its endpoints.
pub fn writable(state: &State, kind: Kind, meta: &Meta) -> Json {
    let Some(found) = state.snapshot.clusters.get(meta.name()).filter(|_| kind == Kind::Cluster) else {
        return shallow(state, kind, meta);
    };
    let mut view = Fields::clone(&meta.view);
    if !found.spec.is_virtual() {
        view.set("endpoints", endpoints(state, &found.endpoints));
    }
    Json::Object(view)
}

/// A hash of an object, for ETag and for remote comparison.
pub fn hash(state: &State, kind: Kind, meta: &Meta) -> String {
    let mut text = Vec::new();
    writable(state, kind, meta).write_sorted(&mut text);
    format!("{:032x}", xxh3_128(&text))
}

/// The endpoints of a cluster, in order.
pub fn endpoints(state: &State, endpoints: &[Arc<Endpoint>]) -> Json {
    let metas = endpoints.iter().filter_map(|endpoint| state.meta(Kind::Endpoint, &endpoint.name));
    Json::Array(metas.map(|meta| Json::Object(Fields::clone(&meta.view))).collect())
}

fn cluster(state: &State, meta: &Meta, recursive: bool) -> Json {
    let mut view = Fields::default();
    let Some(cluster) = state.snapshot.clusters.get(meta.name()) else { return Json::Null };
    for (key, value) in meta.view.iter() {
        if key == "loadbalancer" {
            let shown = if recursive { members(state, cluster) } else { cluster.endpoints.len().into() };
            view.set("endpoints", shown);
        }
        view.set(key, value.clone());
    }
    Json::Object(view)
}

fn members(state: &State, cluster: &super::types::Cluster) -> Json {
    if !cluster.spec.is_virtual() || cluster.spec == ClusterSpec::Prometheus {
        return endpoints(state, &cluster.endpoints);
    }
    let spec = object([("address", "<VIRTUAL>".into())]);
    Json::Array(vec![object([("name", (&*cluster.name).into()), ("spec", spec)])])
}

/// The object of a name; an unknown name is marked as stale.
fn below(state: &State, kind: Kind, name: Option<&Json>) -> Json {
    let name = name.and_then(Json::as_str).unwrap_or_default();
    match state.meta(kind, name) {
        Some(meta) => deep(state, kind, meta),
        None => format!("{name}:<STALE>").into(),
    }
}

fn each(state: &State, kind: Kind, view: &mut Fields, key: &str) {
    let names = view.get(key).and_then(Json::as_array).unwrap_or_default();
    let objects = names.iter().map(|name| below(state, kind, Some(name))).collect::<Vec<_>>();
    view.set(key, objects);
}
