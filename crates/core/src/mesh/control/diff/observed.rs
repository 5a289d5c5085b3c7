//! The configuration that a proxy reports, in comparable form.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::mesh::LbPolicy;
use crate::mesh::control::types::Protocol;

/// The configuration of a proxy, including foreign objects, in comparable form.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedConfig {
    /// Without their endpoints.
    pub clusters: BTreeMap<Arc<str>, Value>,
    /// Of each cluster, by name.
    pub endpoints: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Value>>,
    /// Routes.
    pub routes: BTreeMap<Arc<str>, Value>,
    /// Rules.
    pub rules: BTreeMap<Arc<str>, Value>,
    /// Names of rules, in order.
    pub rulelists: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Listeners.
    pub listeners: BTreeMap<Arc<str>, Value>,
}

/// Fields that a Portolan proxy adds to an object.
const METADATA: [&str; 5] = ["owner", "hash", "generation", "warnings", "auto"];

impl ObservedConfig {
    /// Reads an answer of `GET /config`, or the lists of a real l7mp joined under the same keys: `listeners`,
    /// `clusters` (asked for recursively), `rulelists`, `rules`, `routes`; what is missing is empty.
    pub fn of(config: &Value) -> Self {
        let mut observed = Self::default();
        for (name, cluster) in named(config, "clusters") {
            let endpoints = cluster.get("endpoints").and_then(Value::as_array).into_iter().flatten();
            let endpoints = endpoints.filter_map(|one| Some((Arc::from(one.get("name")?.as_str()?), endpoint(one))));
            let is_virtual = protocol(&cluster).is_some_and(Protocol::is_virtual);
            let endpoints = if is_virtual { BTreeMap::new() } else { endpoints.collect() };
            observed.endpoints.insert(Arc::clone(&name), endpoints);
            observed.clusters.insert(name, self::cluster(&cluster));
        }
        // a shallow response has only the number of endpoints in each cluster, and lists all endpoints separately
        for (name, one) in named(config, "endpoints") {
            let owner = name.split_once('@').and_then(|(cluster, _)| observed.endpoints.get_mut(cluster));
            if let Some(endpoints) = owner {
                endpoints.entry(name).or_insert_with(|| endpoint(&one));
            }
        }
        observed.routes = named(config, "routes").map(|(name, route)| (name, self::route(&route))).collect();
        observed.rules = named(config, "rules").map(|(name, rule)| (name, self::rule(&rule))).collect();
        observed.listeners = named(config, "listeners").map(|(name, one)| (name, listener(&one))).collect();
        for (name, list) in named(config, "rulelists") {
            let rules = list.get("rules").and_then(Value::as_array).into_iter().flatten();
            let word = |rule: &Value| rule.as_str().or_else(|| rule.get("name")?.as_str()).map(Arc::from);
            observed.rulelists.insert(name, rules.filter_map(word).collect());
        }
        observed
    }
}

fn named<'v>(config: &'v Value, key: &str) -> impl Iterator<Item = (Arc<str>, Value)> + use<'v> {
    let items = config.get(key).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| Some((Arc::from(item.get("name")?.as_str()?), item.clone())))
}

fn protocol(object: &Value) -> Option<Protocol> {
    Protocol::find(object.get("spec")?.get("protocol")?.as_str()?)
}

fn without_metadata(object: &Value, others: &[&str]) -> Map<String, Value> {
    let mut map = object.as_object().cloned().unwrap_or_default();
    for key in METADATA.iter().chain(others) {
        map.remove(*key);
    }
    map
}

/// A cluster in comparable form, without its endpoints.
pub(super) fn cluster(cluster: &Value) -> Value {
    let mut map = without_metadata(cluster, &["endpoints"]);
    let protocol = protocol(cluster);
    if protocol.is_some_and(Protocol::is_virtual) {
        map.remove("loadbalancer");
    } else {
        let balancer = map.remove("loadbalancer").unwrap_or_else(|| json!({"policy": "Trivial"}));
        map.insert("loadbalancer".to_owned(), self::balancer(balancer));
    }
    if let Some(Value::Object(spec)) = map.get_mut("spec") {
        if protocol == Some(Protocol::Logger) {
            spec.entry("log_file").or_insert("-".into());
            spec.entry("log_prefix").or_insert("".into());
        }
        for item in spec.get_mut("header").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(Value::String(from)) = item.get("path") {
                *item = json!({"path": {"from": from, "to": "/"}});
            } else if item.get("from").is_some() {
                *item = json!({"path": item});
            }
        }
    }
    Value::Object(map)
}

fn balancer(mut balancer: Value) -> Value {
    if let Value::Object(map) = &mut balancer {
        if map.get("policy").is_some_and(|policy| policy == "ConsistentHash") {
            map.insert("policy".to_owned(), "HashRing".into());
        }
        if map.get("policy").is_some_and(|policy| policy == "None") {
            map.insert("policy".to_owned(), "Trivial".into());
        }
        if map.get("key").is_some_and(|key| key == LbPolicy::NO_KEY || key.is_null()) {
            map.remove("key");
        }
    }
    balancer
}

/// An endpoint in comparable form.
pub(super) fn endpoint(endpoint: &Value) -> Value {
    let mut map = without_metadata(endpoint, &["cluster"]);
    map.entry("weight").or_insert(1.into());
    if map.get("state").is_some_and(|state| state != "draining") {
        map.remove("state");
    }
    Value::Object(map)
}

/// A route in comparable form.
pub(super) fn route(route: &Value) -> Value {
    let mut map = without_metadata(route, &[]);
    if let Some(cluster) = map.remove("cluster") {
        map.entry("destination").or_insert(cluster);
    }
    for key in ["ingress", "egress"] {
        map.entry(key).or_insert_with(|| json!([]));
    }
    let mut retry = Map::from_iter([
        ("retry_on".to_owned(), Value::from("never")),
        ("num_retries".to_owned(), 1.into()),
        ("timeout".to_owned(), 2000.into()),
    ]);
    if let Some(Value::Object(given)) = map.remove("retry") {
        retry.extend(given);
    }
    map.insert("retry".to_owned(), Value::Object(retry));
    Value::Object(map)
}

/// A rule in comparable form.
pub(super) fn rule(rule: &Value) -> Value {
    let mut map = without_metadata(rule, &[]);
    let always = map.get("match").is_none_or(|matching| {
        matching.is_null() || matching.is_string() || (matching.get("op").is_none() && matching.get("match").is_some())
    });
    if always {
        map.insert("match".to_owned(), json!({"match": "*"}));
    }
    if let Some(Value::Object(action)) = map.get_mut("action") {
        action.retain(|_, value| !value.is_null() && *value != json!([]));
    }
    Value::Object(map)
}

/// A listener in comparable form.
pub(super) fn listener(listener: &Value) -> Value {
    let mut map = without_metadata(listener, &[]);
    let mut options = match map.remove("options") {
        Some(Value::Object(options)) => options,
        _ => Map::new(),
    };
    options.entry("track").or_insert(0.into());
    map.insert("options".to_owned(), Value::Object(options));
    Value::Object(map)
}
