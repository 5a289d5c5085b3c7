//! Whatever a body or a file says, it is taken or refused, and what is refused changes nothing.

use std::sync::Arc;

use portolan_proxy::config::document::{Language, parse};
use portolan_proxy::config::json::Json;
use portolan_proxy::rest::exchange::{Client, Request, Response};
use portolan_proxy::rest::{Access, Api, Settings};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::engine::Memory;

fn few() -> ProptestConfig {
    ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() }
}

/// Words that mean something somewhere, so that bodies come near to what is good.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "UDP", "TCP", "HTTP", "Echo", "JSONSocket", "WebSocket", "UnixDomainSocket", "Sync", "Logger", "a", "b",
            "127.0.0.1", "and", "test", "contains", "/IP/src_addr", "always", "HashRing", "Maglev", "oldest", "singleton",
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec![
            "name", "spec", "rules", "action", "match", "route", "destination", "endpoints", "options", "protocol", "port",
            "address", "transport", "op", "path", "value", "apply", "rewrite", "retry", "retry_on", "timeout", "policy",
            "key", "loadbalancer", "weight", "qos", "dscp", "per_source", "outlier", "eject_for", "track", "filename",
            "header", "set", "query", "ingress", "state", "bind", "connect", "mode", "max_sessions", "burst",
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn body() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => word().prop_map(Value::from),
        2 => any::<i32>().prop_map(Value::from),
        1 => any::<f64>().prop_map(|number| json!(number)),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            1 => vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => btree_map(key(), inner, 0..6).prop_map(|fields| json!(fields)),
        ]
    })
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn a_body_of_any_kind_is_taken_or_refused_whole(bodies in vec((0_usize..6, body(), any::<bool>()), 1..6), strict in any::<bool>()) {
        let (engine, api) = start(strict);
        api.load(&Json::from(&json!({ "clusters": [{ "name": "a", "spec": { "protocol": "UDP", "port": 1 } }] }))).unwrap();
        for (kind, mut body, named) in bodies {
            let (path, key) = [
                ("listeners", "listener"), ("clusters", "cluster"), ("rulelists", "rulelist"), ("rules", "rule"),
                ("routes", "route"), ("clusters/a/endpoints", "endpoint"),
            ][kind];
            if named && body.is_object() {
                body["name"] = json!("n");
            }
            let before = engine.snapshot().generation;
            for (method, target, sent) in [
                ("POST", format!("/api/v1/{path}"), json!({ key: body })),
                ("PUT", format!("/api/v2/{path}/n"), body.clone()),
                ("PATCH", format!("/api/v2/{path}/n"), body.clone()),
            ] {
                let answer = direct(&api, method, &target, &sent);
                prop_assert!(answer.status < 500, "{} {} {}: {}", method, target, sent, answer.status);
                prop_assert!(serde_json::from_slice::<Value>(&answer.body).is_ok());
            }
            let listed = direct(&api, "GET", "/api/v1/config?recursive=true", &Value::Null);
            prop_assert!(strict || listed.status == 200);
            prop_assert!(engine.snapshot().generation >= before);
        }
    }

    #[test]
    fn a_file_is_in_force_or_refused_with_words(config in body(), sections in vec((0_usize..6, vec(body(), 0..3)), 0..4)) {
        let mut config = if config.is_object() { config } else { json!({}) };
        for (section, objects) in sections {
            let name = ["listeners", "clusters", "rulelists", "rules", "routes", "admin"][section];
            config[name] = if name == "admin" { objects.into_iter().next().unwrap_or_default() } else { json!(objects) };
        }
        let (_, api) = start(false);
        if let Err(refusal) = api.load(&Json::from(&config)) {
            prop_assert!(!refusal.to_string().is_empty() || !refusal.violations.is_empty());
        }
    }

    #[test]
    fn json_reads_the_same_as_yaml(value in body()) {
        // numbers beyond the integers are printed and read by different rules
        let text = value.to_string();
        prop_assume!(!text.contains(['e', 'E', '.']) || !has_float(&value));
        let (one, other) = (parse(&text, Language::Json), parse(&text, Language::Yaml));
        prop_assert_eq!(one, other);
    }

    #[test]
    fn any_text_is_yaml_or_an_error(text in any::<String>(), nested in 0_usize..2000) {
        parse(&text, Language::Yaml).ok();
        parse(&format!("{}{text}", "[".repeat(nested)), Language::Yaml).ok();
        parse(&format!("{}{text}", "[".repeat(nested)), Language::Json).ok();
        parse(&format!("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n{text}"), Language::Yaml).ok();
    }
}

fn start(strict: bool) -> (Arc<Memory>, Api) {
    let engine = Arc::new(Memory::default());
    let settings = Settings { strict, ..Settings::default() };
    (Arc::clone(&engine), Api::new(engine, Access::default(), settings))
}

fn direct(api: &Api, method: &str, target: &str, body: &Value) -> Response {
    api.handle(&Request {
        method: method.to_owned(),
        target: target.to_owned(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
        client: Client { address: Some([127, 0, 0, 1].into()), certified: false },
    })
}

fn has_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_float),
        Value::Object(fields) => fields.values().any(has_float),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}
