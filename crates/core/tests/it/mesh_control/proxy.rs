//! A model of a proxy's configuration that takes the calls as a real l7mp would, and refuses what it would refuse.

use std::collections::BTreeMap;

use portolan_core::mesh::control::{CallMethod, ProxyCall};
use serde_json::{Map, Value, json};

/// What a proxy holds.
#[derive(Debug, Clone, Default)]
pub(super) struct Proxy {
    objects: BTreeMap<&'static str, BTreeMap<String, Value>>,
    /// Things that calls have taken away or put, by kind and name.
    pub(super) handled: Vec<(&'static str, String)>,
}

const KINDS: [&str; 5] = ["clusters", "routes", "rules", "rulelists", "listeners"];

impl Proxy {
    /// A proxy with things of its own, as the charts of l7mp install them.
    pub(super) fn with_foreign() -> Self {
        let mut proxy = Self::default();
        for (kind, object) in [
            (
                "listeners",
                json!({"name": "controller-listener", "spec": {"protocol": "HTTP", "port": 1234}, "rules": "controller-listener-RuleList-0", "options": {"track": 0}}),
            ),
            ("rulelists", json!({"name": "controller-listener-RuleList-0", "rules": ["controller-rule"]})),
            ("rulelists", json!({"name": "static", "rules": ["f0", "f1"]})),
            (
                "rules",
                json!({"name": "controller-rule", "match": {"match": "*"}, "action": {"route": "controller-route"}}),
            ),
            (
                "rules",
                json!({"name": "f0", "match": {"op": "defined", "path": "/x"}, "action": {"route": "controller-route"}}),
            ),
            ("rules", json!({"name": "f1", "match": {"match": "*"}, "action": {"route": "controller-route"}})),
            (
                "routes",
                json!({"name": "controller-route", "destination": "l7mp-controller", "ingress": [], "egress": [], "retry": {"retry_on": "never", "num_retries": 1, "timeout": 2000}}),
            ),
            (
                "clusters",
                json!({"name": "l7mp-controller", "spec": {"protocol": "L7mpController"}, "endpoints": [], "loadbalancer": {"policy": "None"}}),
            ),
        ] {
            proxy.put(kind, object);
        }
        proxy
    }

    /// The answer of GET /config, with endpoints listed in their clusters.
    pub(super) fn config(&self) -> Value {
        let lists = KINDS.map(|kind| {
            let all = self.objects.get(kind).into_iter().flat_map(BTreeMap::values);
            (kind.to_owned(), all.map(|object| shown(kind, object)).collect::<Value>())
        });
        Value::Object(Map::from_iter(lists))
    }

    pub(super) fn take(&mut self, call: &ProxyCall) -> Result<(), String> {
        let path = call.path.strip_prefix("/api/").ok_or("no API")?;
        if path == "v2/apply" {
            let ops = call.body.as_ref().and_then(|body| body["ops"].as_array()).ok_or("no ops")?;
            return ops.iter().try_for_each(|op| self.apply(op));
        }
        let path = path.strip_prefix("v1/").ok_or("no v1")?;
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let segments: Vec<String> = path.split('/').map(decoded).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match (call.method, &segments[..]) {
            (CallMethod::Post, ["clusters", cluster, "endpoints"]) => {
                let endpoint = call.body.as_ref().ok_or("no body")?["endpoint"].clone();
                self.add_endpoint(cluster, endpoint)
            }
            (CallMethod::Post, ["rulelists", list, "rules", place]) => {
                let mut rule = call.body.as_ref().ok_or("no body")?["rule"].clone();
                if rule.is_object() {
                    let name = rule["name"].clone();
                    self.add("rules", rule)?;
                    rule = name;
                }
                let place: usize = place.parse().map_err(|_| "no place")?;
                let rules = self.rules(list)?;
                if place > rules.len() {
                    return Err(format!("Cannot insert rule at position {place} into rulelist"));
                }
                rules.insert(place, rule);
                Ok(())
            }
            (CallMethod::Delete, ["rulelists", list, "rules", place]) => {
                let place: usize = place.parse().map_err(|_| "no place")?;
                let rules = self.rules(list)?;
                if place >= rules.len() {
                    return Err("beyond the end".to_owned());
                }
                rules.remove(place);
                Ok(())
            }
            (CallMethod::Delete, ["endpoints", name]) => self.remove_endpoint(name),
            (CallMethod::Delete, ["rulelists", _]) if query.contains("recursive") => {
                Err("recursive rulelist".to_owned())
            }
            (CallMethod::Delete, [kind, name]) => self.remove(plural(kind)?, name),
            (CallMethod::Post, [kind]) => {
                let kind = plural(kind)?;
                let body = call.body.as_ref().and_then(Value::as_object).ok_or("no body")?;
                let object = body.values().next().ok_or("empty body")?;
                self.add(kind, object.clone())
            }
            _ => Err(format!("no such call: {call:?}")),
        }
    }

    fn apply(&mut self, op: &Value) -> Result<(), String> {
        let name = op["name"].as_str().ok_or("no name")?.to_owned();
        let kind = op["kind"].as_str().ok_or("no kind")?;
        match (op["op"].as_str(), kind) {
            (Some("put"), "endpoint") => {
                let cluster = op["cluster"].as_str().ok_or("no cluster")?;
                drop(self.remove_endpoint(&name));
                let mut endpoint = op["object"].clone();
                if endpoint["state"] == "active" {
                    endpoint.as_object_mut().map(|object| object.remove("state"));
                }
                self.add_endpoint(cluster, endpoint)
            }
            (Some("drain"), "endpoint") => {
                let endpoint = self.endpoint(&name).ok_or("no endpoint")?;
                endpoint["state"] = json!("draining");
                Ok(())
            }
            (Some("put"), kind) => {
                let kind = plural(&format!("{kind}s"))?;
                self.objects.entry(kind).or_default().remove(&name);
                self.add(kind, op["object"].clone())
            }
            (Some("delete"), "endpoint") => self.remove_endpoint(&name),
            (Some("delete"), kind) => self.remove(plural(&format!("{kind}s"))?, &name),
            _ => Err(format!("no such op: {op}")),
        }
    }

    fn add(&mut self, kind: &'static str, object: Value) -> Result<(), String> {
        let name = object["name"].as_str().ok_or("Property name is required")?.to_owned();
        if self.objects.get(kind).is_some_and(|all| all.contains_key(&name)) {
            return Err(format!("{kind} \"{name}\" already defined"));
        }
        if kind == "listeners" {
            let port = port(&object);
            let taken = self.objects.get("listeners").into_iter().flat_map(BTreeMap::values);
            if let Some(other) = taken.into_iter().find(|other| port.is_some() && self::port(other) == port) {
                return Err(format!("port of {name} is used by {}", other["name"]));
            }
            if !object["rules"].is_string() {
                return Err("Property rules is invalid".to_owned());
            }
        }
        if kind == "routes" && object["retry"].as_object().is_none_or(|retry| retry.len() != 3) {
            return Err("retry without timeout".to_owned());
        }
        let is_virtual = !matches!(
            object["spec"]["protocol"].as_str(),
            Some("UDP" | "TCP" | "WebSocket" | "UnixDomainSocket" | "JSONSocket")
        );
        if kind == "clusters" && is_virtual && object.get("endpoints").is_some() {
            return Err("the process exits".to_owned());
        }
        self.handled.push((kind, name));
        self.put(kind, object);
        Ok(())
    }

    fn put(&mut self, kind: &'static str, object: Value) {
        let name = object["name"].as_str().unwrap_or_default().to_owned();
        self.objects.entry(kind).or_default().insert(name, object);
    }

    fn remove(&mut self, kind: &'static str, name: &str) -> Result<(), String> {
        self.handled.push((kind, name.to_owned()));
        let gone = self.objects.entry(kind).or_default().remove(name);
        gone.map(drop).ok_or_else(|| format!("Unknown {kind} \"{name}\""))
    }

    fn rules(&mut self, list: &str) -> Result<&mut Vec<Value>, String> {
        let list = self.objects.get_mut("rulelists").and_then(|all| all.get_mut(list));
        list.and_then(|list| list["rules"].as_array_mut()).ok_or_else(|| "No such rule list".to_owned())
    }

    fn add_endpoint(&mut self, cluster: &str, endpoint: Value) -> Result<(), String> {
        if endpoint["spec"]["address"].as_str().is_none() {
            return Err("the process exits".to_owned());
        }
        if self.endpoint(endpoint["name"].as_str().unwrap_or_default()).is_some() {
            return Err("Endpoint already defined".to_owned());
        }
        let found = self.objects.get_mut("clusters").and_then(|all| all.get_mut(cluster)).ok_or("Not Found")?;
        found["endpoints"].as_array_mut().ok_or("no endpoints")?.push(endpoint);
        self.handled.push(("clusters", cluster.to_owned()));
        Ok(())
    }

    fn endpoint(&mut self, name: &str) -> Option<&mut Value> {
        let clusters = self.objects.get_mut("clusters")?.values_mut();
        clusters.filter_map(|one| one.get_mut("endpoints")?.as_array_mut()).flatten().find(|one| one["name"] == name)
    }

    fn remove_endpoint(&mut self, name: &str) -> Result<(), String> {
        let clusters = self.objects.entry("clusters").or_default().values_mut();
        for endpoints in clusters.filter_map(|one| one.get_mut("endpoints")?.as_array_mut()) {
            if let Some(place) = endpoints.iter().position(|one| one["name"] == name) {
                endpoints.remove(place);
                return Ok(());
            }
        }
        Err("Not Found".to_owned())
    }
}

/// As the API shows it.
fn shown(kind: &str, object: &Value) -> Value {
    let mut object = object.clone();
    if kind == "rules" && object.get("match").is_none() {
        object["match"] = json!({"match": "*"});
    }
    if kind == "clusters" {
        let balancer = object["loadbalancer"].clone();
        if balancer.is_null() {
            object["loadbalancer"] = json!({"policy": "Trivial"});
        } else if balancer["policy"] == "ConsistentHash" {
            object["loadbalancer"]["policy"] = json!("HashRing");
            if balancer.get("key").is_none() {
                object["loadbalancer"]["key"] = json!("<RANDOM>");
            }
        }
        if object.get("endpoints").is_none() {
            object["endpoints"] = json!([{"name": object["name"], "spec": {"address": "<VIRTUAL>"}}]);
        }
        if object["spec"]["protocol"] == "Logger" {
            object["spec"] = json!({"protocol": "Logger", "log_file": "-", "log_prefix": ""});
        }
    }
    object
}

fn port(listener: &Value) -> Option<(bool, u64, Value)> {
    let spec = &listener["spec"];
    let opened = spec.get("transport").unwrap_or(spec);
    let apart = json!([opened.get("address"), opened.get("connect")]);
    Some((opened["protocol"] == "UDP", opened["port"].as_u64()?, apart))
}

fn plural(word: &str) -> Result<&'static str, String> {
    KINDS.into_iter().find(|kind| *kind == word).ok_or_else(|| format!("no kind {word}"))
}

fn decoded(segment: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let hex: String = rest.by_ref().take(2).map(char::from).collect();
            bytes.push(u8::from_str_radix(&hex, 16).unwrap_or(b'?'));
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
