//! Adapts configuration to a real l7mp, so that it behaves as specified. A Portolan proxy needs none of it.

use serde_json::{Map, Value, json};

use super::types::Protocol;
use super::wire;

/// Where l7mp keeps the metadata that a JSONSocket client sent.
const RECEIVED: &str = "/JSONSocket";

/// A cluster as l7mp needs it; `from_json` means that only JSONSocket listeners use it.
pub(super) fn cluster(cluster: &wire::Cluster, from_json: bool) -> wire::Cluster {
    let mut made = wire::Cluster { options: Map::new(), tls: None, ..cluster.clone() };
    // S2: labels are not forwarded by default
    if made.protocol == Protocol::JsonSocket
        && let Value::Object(spec) = &mut made.spec
    {
        spec.entry("header").or_insert_with(|| json!([{"path": {"from": "/labels", "to": "/labels"}}]));
        spec.remove("handshake");
    }
    // S3, S4: received labels are stored elsewhere
    if from_json {
        for key in [made.spec.get_mut("query"), made.loadbalancer.as_mut().and_then(|one| one.get_mut("key"))] {
            if let Some(Value::String(path)) = key {
                *path = received(path);
            }
        }
    }
    // it supports UDP endpoints over IPv4 only
    let opened = made.spec.get("transport").unwrap_or(&made.spec);
    if opened.get("protocol").is_some_and(|protocol| protocol == "UDP") {
        let is_v6 = |endpoint: &wire::Endpoint| {
            endpoint.spec.get("address").and_then(Value::as_str).is_some_and(|address| address.contains(':'))
        };
        made.endpoints.retain(|endpoint| !is_v6(endpoint));
    }
    // it does not support draining
    for endpoint in &mut made.endpoints {
        endpoint.draining = false;
    }
    made
}

/// A rule as l7mp needs it behind a listener of this protocol.
pub(super) fn rule(rule: &wire::Rule, listener: Option<Protocol>) -> wire::Rule {
    let mut made = rule.clone();
    let Some(listener) = listener else { return made };
    let has_http = matches!(listener, Protocol::WebSocket | Protocol::Http);
    // S1: a WebSocket client copies headers, which must exist
    if made.reaches_websocket && !has_http && !made.rewrite.iter().any(|(path, _)| is_below(path, "/HTTP")) {
        made.rewrite.push(("/HTTP/headers".to_owned(), json!({})));
    }
    if let Some(matching) = &mut made.matching {
        if listener == Protocol::JsonSocket {
            relocate(matching);
        }
        if matches!(listener, Protocol::Tcp | Protocol::WebSocket | Protocol::Http) {
            match_mapped_addresses(matching);
        }
    }
    made
}

/// A listener as l7mp needs it, without the options of Portolan.
pub(super) fn listener(listener: &wire::Listener) -> wire::Listener {
    wire::Listener { extension_options: Map::new(), tls: None, ..listener.clone() }
}

/// S4: matches on received labels.
fn relocate(matching: &mut Value) {
    let Value::Object(part) = matching else { return };
    if let Some(Value::String(path)) = part.get_mut("path") {
        *path = received(path);
    }
    for part in part.get_mut("apply").and_then(Value::as_array_mut).into_iter().flatten() {
        relocate(part);
    }
}

/// S6: IPv4 addresses are reported as IPv4-mapped IPv6 addresses, so a test must match both.
fn match_mapped_addresses(matching: &mut Value) {
    let Value::Object(part) = matching else { return };
    for part in part.get_mut("apply").and_then(Value::as_array_mut).into_iter().flatten() {
        match_mapped_addresses(part);
    }
    let path = part.get("path").and_then(Value::as_str).unwrap_or_default();
    if !matches!(path, "/IP/src_addr" | "/IP/dst_addr") {
        return;
    }
    let mapped = match (part.get("op").and_then(Value::as_str), part.get("value")) {
        (Some("test"), Some(value)) => mapped(value),
        (Some("in"), Some(Value::Array(values))) => {
            let all: Option<Vec<Value>> = values.iter().map(mapped).collect();
            all.map(Value::Array)
        }
        _ => None,
    };
    if let Some(value) = mapped {
        let mut other = part.clone();
        other.insert("value".to_owned(), value);
        *matching = json!({"op": "or", "apply": [part.clone(), other]});
    }
}

fn mapped(value: &Value) -> Option<Value> {
    let plain: std::net::Ipv4Addr = value.as_str()?.parse().ok()?;
    Some(format!("::ffff:{plain}").into())
}

fn received(path: &str) -> String {
    if is_below(path, "/labels") { format!("{RECEIVED}{path}") } else { path.to_owned() }
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a match tests addresses in a way that l7mp may not match.
pub(super) fn may_miss(rule: &wire::Rule, listener: Protocol) -> bool {
    fn tests(part: &Value) -> bool {
        let on_address = matches!(part.get("path").and_then(Value::as_str), Some("/IP/src_addr" | "/IP/dst_addr"));
        let vague = matches!(part.get("op").and_then(Value::as_str), Some("starts" | "matches"));
        (on_address && vague) || part.get("apply").and_then(Value::as_array).into_iter().flatten().any(tests)
    }
    matches!(listener, Protocol::Tcp | Protocol::WebSocket | Protocol::Http)
        && rule.matching.as_ref().is_some_and(tests)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn a_rule(matching: Value) -> wire::Rule {
        wire::Rule {
            name: Arc::from("r"),
            matching: Some(matching),
            rewrite: Vec::new(),
            route: None,
            apply: None,
            reaches_websocket: true,
        }
    }

    #[test]
    fn udp_to_websocket_gets_headers_unless_a_rewrite_touches_http() {
        let plain = rule(&a_rule(json!("*")), Some(Protocol::Udp));
        assert_eq!(plain.rewrite, [("/HTTP/headers".to_owned(), json!({}))]);
        assert!(rule(&a_rule(json!("*")), Some(Protocol::WebSocket)).rewrite.is_empty());
        let mut own = a_rule(json!("*"));
        own.rewrite.push(("/HTTP/url/path".to_owned(), json!("/p")));
        assert_eq!(rule(&own, Some(Protocol::Tcp)).rewrite.len(), 1);
    }

    #[test]
    fn received_labels_are_read_from_where_l7mp_stores_them() {
        let test = json!({"op": "not", "apply": [{"op": "test", "path": "/labels/a", "value": 1}]});
        let made = rule(&a_rule(test.clone()), Some(Protocol::JsonSocket)).matching.unwrap();
        assert_eq!(made["apply"][0]["path"], "/JSONSocket/labels/a");
        assert_eq!(rule(&a_rule(test.clone()), Some(Protocol::Udp)).matching, Some(test));
    }

    #[test]
    fn tests_of_addresses_match_mapped_ones_where_l7mp_reports_them() {
        let test = json!({"op": "test", "path": "/IP/src_addr", "value": "10.0.0.1"});
        let made = rule(&a_rule(test.clone()), Some(Protocol::Tcp)).matching.unwrap();
        assert_eq!(made["op"], "or");
        assert_eq!(made["apply"][1]["value"], "::ffff:10.0.0.1");
        assert_eq!(rule(&a_rule(test.clone()), Some(Protocol::Udp)).matching, Some(test));
        let vague = a_rule(json!({"op": "starts", "path": "/IP/src_addr", "value": "10."}));
        assert!(may_miss(&vague, Protocol::Tcp) && !may_miss(&vague, Protocol::Udp));
    }

    #[test]
    fn sync_and_hash_follow_the_labels_and_labels_travel() {
        let sync = wire::Cluster {
            name: Arc::from("s"),
            protocol: Protocol::Sync,
            spec: json!({"protocol": "Sync", "query": "/labels/session_id"}),
            endpoints: Vec::new(),
            loadbalancer: None,
            options: Map::from_iter([("max_sessions".to_owned(), json!(5))]),
            tls: None,
        };
        assert_eq!(cluster(&sync, true).spec["query"], "/JSONSocket/labels/session_id");
        assert_eq!(cluster(&sync, false).spec["query"], "/labels/session_id");
        assert!(cluster(&sync, false).options.is_empty(), "nothing of ours is sent to a real l7mp");
        let spec = json!({"protocol": "JSONSocket", "transport": {"protocol": "UDP", "port": 1}});
        let json = wire::Cluster { protocol: Protocol::JsonSocket, spec, ..sync };
        assert_eq!(cluster(&json, false).spec["header"], json!([{"path": {"from": "/labels", "to": "/labels"}}]));
    }
}
