//! Changes are whole: in force or not at all, and seen by the engine as what differs.

use std::time::Instant;

use serde_json::{Value, json};

use super::client::{Call, Proxy};
use portolan_proxy::config::document::{Language, parse};
use portolan_proxy::config::types::{ClusterSpec, EndpointState, ListenerSpec, Matching, RetryOn, TransportCluster};

#[test]
fn the_engine_sees_checked_objects() {
    let proxy = Proxy::start(
        "{listeners: [{name: l, spec: {protocol: JSONSocket, transport: {protocol: UDP, port: 19000, address: '::ffff:127.0.0.1'}}, rules: rl, options: {idle_timeout: 5}}], \
          rules: [{name: ru, match: {op: test, path: /a, value: 1}, action: {route: r}}, {name: bad, match: {op: nope}, action: {}}], \
          routes: [{name: r, destination: c, retry: {retry_on: always, timeout: 7}}], clusters: [{name: c, spec: {protocol: UDP, port: 1}, endpoints: [{name: e, spec: {address: 127.0.0.1}}]}]}",
        false,
    );
    let snapshot = proxy.engine.snapshot();
    let listener = snapshot.listeners.get("l").unwrap();
    let ListenerSpec::Udp(udp) = listener.spec.transport() else { panic!("{:?}", listener.spec) };
    assert_eq!((udp.port, udp.address.map(|ip| ip.to_string())), (19000, Some("127.0.0.1".to_owned())));
    assert_eq!(listener.options.idle_timeout, Some(5.0));
    assert_eq!(snapshot.rules.get("bad").unwrap().matching, Matching::Never);
    let retry = snapshot.routes.get("r").unwrap().retry;
    assert_eq!((retry.retry_on, retry.num_retries, retry.timeout), (RetryOn::Always, 1, 7));

    proxy.ask("PATCH /api/v2/endpoints/e", Some(json!({"state": "draining"})));
    let cluster = proxy.engine.snapshot().clusters.get("c").cloned().unwrap();
    assert!(matches!(cluster.spec, ClusterSpec::Transport(TransportCluster::Udp(_))));
    assert_eq!(cluster.endpoints[0].state, EndpointState::Draining);
    let before = snapshot.clusters.get("c").unwrap();
    assert_eq!((before.id, before.endpoints[0].id), (cluster.id, cluster.endpoints[0].id), "a change keeps identity");
    assert_eq!(before.endpoints[0].state, EndpointState::Active, "a snapshot never changes");
}

#[test]
fn only_listeners_that_changed_are_told_to_the_engine() {
    let proxy = Proxy::start("{listeners: [{name: a, spec: {protocol: UDP, port: 1}, rules: x}]}", false);
    proxy.ask("PUT /api/v2/listeners/b", Some(json!({"spec": {"protocol": "UDP", "port": 2}, "rules": "x"})));
    let names = |proxy: &Proxy| -> Vec<String> {
        let changes = &proxy.engine.snapshot().changed_listeners;
        changes.iter().filter_map(|change| change.after.as_ref()).map(|listener| listener.name.to_string()).collect()
    };
    assert_eq!(names(&proxy), ["b"]);
    proxy.ask("PUT /api/v2/clusters/c", Some(json!({"spec": {"protocol": "Echo"}})));
    assert_eq!(names(&proxy), [""; 0]);
}

#[test]
fn a_reloaded_file_changes_only_what_changed_in_it() {
    let file = |text: &str| parse(text, Language::Yaml).unwrap();
    let proxy = Proxy::start(
        "{listeners: [{name: a, spec: {protocol: UDP, port: 1}, rules: [{action: {route: r}}]}], clusters: [{name: c, spec: {protocol: Echo}}]}",
        false,
    );
    proxy.ask("PUT /api/v2/clusters/mine", Some(json!({"spec": {"protocol": "Echo"}})));
    let (applied, before) = (proxy.engine.applied(), proxy.engine.snapshot());
    proxy
        .api
        .load(&file("{clusters: [{spec: {protocol: Echo}, name: c}], listeners: [{name: a, spec: {protocol: UDP, port: 1}, rules: [{action: {route: r}}]}]}"))
        .unwrap();
    assert_eq!(proxy.engine.applied(), applied, "the same file changes nothing");

    proxy
        .api
        .load(&file("{listeners: [{name: a, spec: {protocol: UDP, port: 1}, rules: [{action: {route: r}}]}]}"))
        .unwrap();
    let after = proxy.engine.snapshot();
    assert!(after.clusters.get("c").is_none() && after.clusters.get("mine").is_some());
    assert!(std::sync::Arc::ptr_eq(before.listeners.get("a").unwrap(), after.listeners.get("a").unwrap()));

    let bad = proxy.api.load(&file("{clusters: [{name: d, spec: {protocol: Echo}}, {name: e}]}"));
    assert_eq!(bad.unwrap_err().content, "clusters[1]: Cannot add cluster: Property spec is required");
    assert_eq!(proxy.engine.snapshot().generation, after.generation, "a bad file changes nothing");
}

#[test]
fn conditions_guard_writes() {
    let proxy = Proxy::start("{clusters: [{name: c, spec: {protocol: Echo}}]}", false);
    let mut connection = proxy.connect();
    let tag = connection.ask("GET /api/v2/clusters/c", None).header("Etag").expect("an ETag").to_owned();
    let send = |connection: &mut super::client::Connection, line: &str, header: (&'static str, &str), body: &str| {
        let headers = vec![("Content-Type", "application/json".to_owned()), (header.0, header.1.to_owned())];
        connection.send(&Call { line, headers, body: body.as_bytes().to_vec() })
    };
    let discard = "{\"spec\":{\"protocol\":\"Discard\"}}";
    assert_eq!(send(&mut connection, "GET /api/v2/clusters/c", ("If-None-Match", &tag), "").status, 304);
    assert_eq!(send(&mut connection, "PUT /api/v2/clusters/c", ("If-Match", "\"other\""), discard).status, 412);
    assert_eq!(send(&mut connection, "PUT /api/v2/clusters/c", ("If-None-Match", "*"), discard).status, 412);
    assert_eq!(send(&mut connection, "PUT /api/v2/clusters/none", ("If-Match", "*"), discard).status, 412);
    assert_eq!(send(&mut connection, "PUT /api/v2/clusters/c", ("If-Match", &tag), discard).status, 200);
    assert_eq!(send(&mut connection, "PUT /api/v2/clusters/c", ("If-Match", &tag), discard).status, 412);
    assert_eq!(send(&mut connection, "DELETE /api/v2/clusters/c", ("If-Match", &tag), "").status, 412);
    assert_eq!(send(&mut connection, "PUT /api/v2/clusters/d", ("If-None-Match", "*"), discard).status, 200);
}

#[test]
fn ten_thousand_endpoints_are_one_change() {
    let proxy = Proxy::start("{clusters: [{name: c, spec: {protocol: UDP, port: 1}}]}", false);
    let ops: Vec<Value> = (0..10_000)
        .map(|index: u32| {
            let address = std::net::Ipv4Addr::from(0x0a00_0000 + index).to_string();
            json!({"op": "put", "kind": "endpoint", "name": format!("e{index}"), "cluster": "c", "object": {"spec": {"address": address}}})
        })
        .collect();
    let began = Instant::now();
    let answer = proxy.ask("POST /api/v2/apply", Some(json!({"owner": "op", "ops": ops})));
    eprintln!("10 000 endpoints in one apply: {:?}", began.elapsed());
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["generation"], 2);
    let cluster = proxy.engine.snapshot().clusters.get("c").cloned().unwrap();
    assert_eq!((cluster.endpoints.len(), &*cluster.endpoints[9_999].name), (10_000, "e9999"));
    let more = json!({"endpoint": {"spec": {"address": "10.1.0.0"}}});
    let refused = proxy.ask("POST /api/v1/clusters/c/endpoints", Some(more));
    assert!(refused.content().as_str().unwrap().contains("admin.limits.endpoints_per_cluster"), "{}", refused.body);
    let heavier = json!({"spec": {"address": "10.0.0.7"}, "weight": 2});
    let changed = proxy.ask("PUT /api/v2/endpoints/e7", Some(heavier));
    assert_eq!(changed.status, 200, "what is there may change in a full cluster: {}", changed.body);
}

#[test]
fn an_inline_object_never_takes_the_place_of_somebody_elses() {
    let proxy = Proxy::start("{}", false);
    let rule = |name: &str, to: &str| json!({"op": "put", "kind": "rule", "name": name, "object": {"action": {"route": {"name": "way", "destination": to}}}});
    let apply = |owner: &str, op: Value| proxy.ask("POST /api/v2/apply", Some(json!({"owner": owner, "ops": [op]})));
    assert_eq!(apply("one", rule("r", "a")).status, 200);
    assert_eq!(apply("one", rule("r", "b")).status, 200);
    let refused = apply("other", rule("s", "c"));
    assert_eq!(refused.content()["content"], "Cannot add route: Route \"way\" already defined", "{}", refused.body);
    assert_eq!(proxy.ask("GET /api/v1/routes/way", None).json()["destination"], "b");
}

#[test]
fn a_change_among_many_costs_about_what_it_costs_among_few() {
    let filled = |count: usize| {
        let proxy = Proxy::start("{}", false);
        let ops: Vec<Value> = (0..count)
            .map(|index| json!({"op": "put", "kind": "route", "name": format!("r{index}"), "object": {"destination": "c"}}))
            .collect();
        assert_eq!(proxy.direct("POST", "/api/v2/apply", &json!({"owner": "op", "ops": ops})).status, 200);
        proxy
    };
    let change = |proxy: &Proxy| {
        let began = Instant::now();
        for index in 0..100 {
            let rule = json!({"rule": {"name": format!("ru{index}"), "action": {"route": {"destination": "c"}}}});
            assert_eq!(proxy.direct("POST", "/api/v1/rules", &rule).status, 200);
        }
        for index in 0..100 {
            assert_eq!(proxy.direct("DELETE", &format!("/api/v1/rules/ru{index}"), &Value::Null).status, 200);
        }
        began.elapsed()
    };
    let (few, many) = (filled(50), filled(5_000));
    let mut ratios: Vec<f64> = Vec::new();
    for _ in 0..7 {
        let (few, many) = (change(&few), change(&many));
        eprintln!("400 object changes: {few:?} among 50, {many:?} among 5000");
        ratios.push(many.as_secs_f64() / few.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[3] < 5.0, "a hundred times the objects, {ratios:?} times the cost");
}
