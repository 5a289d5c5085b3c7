//! Virtual clusters, alone and in chains.

use super::lab::{Lab, ask, free_port, is_silent, receive, udp_client, until};
use base64::Engine;
use serde_json::{Value, json};
use std::net::UdpSocket;

fn virtual_cluster(protocol: &str) -> Value {
    json!({ "spec": { "protocol": protocol } })
}

fn before_echo(lab: &Lab, stages: Value) -> UdpSocket {
    let port = free_port();
    let route = json!({ "ingress": stages, "destination": virtual_cluster("Echo") });
    lab.listener_with(&format!("l{port}"), json!({ "protocol": "UDP", "port": port }), route, json!({}));
    udp_client(port)
}

#[test]
fn each_virtual_cluster_does_its_part_before_an_echo() {
    let lab = Lab::new();
    let discard = before_echo(&lab, json!([virtual_cluster("Discard")]));
    discard.send(b"hello").unwrap();
    assert!(is_silent(&discard));
    let logger = json!({ "spec": { "protocol": "Logger", "log_file": "log.txt", "log_prefix": "PFX" } });
    assert_eq!(ask(&before_echo(&lab, json!([logger])), "hello"), "hello");
    let log = lab.path("log.txt");
    until("the line in the log", || std::fs::read_to_string(&log).is_ok_and(|text| text == "PFX: hello"));
    let encap = before_echo(&lab, json!([virtual_cluster("JSONEncap")]));
    let wrapped = ask(&encap, "hello");
    assert!(wrapped.starts_with(r#"{"metadata":{"name":"UDP:127.0.0.1:"#), "{wrapped}");
    let parsed: Value = serde_json::from_str(&wrapped).unwrap();
    assert_eq!(parsed["payload"], json!(base64::engine::general_purpose::STANDARD.encode("hello")));
    assert_eq!(parsed["metadata"]["IP"]["src_addr"], json!("127.0.0.1"));
    let both = before_echo(&lab, json!([virtual_cluster("JSONEncap"), virtual_cluster("JSONDecap")]));
    assert_eq!(ask(&both, "hello"), "hello");
    let decap = before_echo(&lab, json!([virtual_cluster("JSONDecap")]));
    assert_eq!((ask(&decap, r#"{"payload":"aGVsbG8="}"#), ask(&decap, "junk")), ("hello".into(), String::new()));
    let metric = json!({ "name": "m", "spec": { "protocol": "Metric" } });
    assert_eq!(ask(&before_echo(&lab, json!([metric])), "hello"), "hello");
    let stats = portolan_proxy::config::engine::Engine::stats(&*lab.plane);
    let metered: Vec<_> = stats.metered.iter().map(|m| (&*m.cluster, m.packets, m.bytes)).collect();
    assert_eq!(metered, [("m", 1, 5)]);
}

#[test]
fn an_egress_stage_sees_what_comes_back() {
    let (lab, port) = (Lab::new(), free_port());
    let route = json!({ "destination": virtual_cluster("Echo"), "egress": [virtual_cluster("JSONEncap")] });
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, json!({}));
    assert!(ask(&udp_client(port), "x").contains("\"payload\":\"eA==\""));
    assert_eq!(lab.sessions()[0]["egress"].as_array().unwrap().len(), 1);
}

#[test]
fn members_of_a_sync_group_hear_each_other_and_never_themselves() {
    let lab = Lab::new();
    let cluster = json!({ "cluster": { "name": "s", "spec": { "protocol": "Sync", "query": "/labels/room" } } });
    lab.post("/clusters", &cluster);
    let port = free_port();
    let route = json!({ "destination": "s" });
    let rules = json!([{ "match": { "op": "defined", "path": "/nothing" }, "action": { "route": route } },
        { "action": { "rewrite": [{ "path": "/labels/room", "value": "r1" }], "route": route } }]);
    lab.post(
        "/listeners",
        &json!({ "listener": { "name": "l", "spec": { "protocol": "UDP", "port": port }, "rules": rules } }),
    );
    let [a, b, c] = [udp_client(port), udp_client(port), udp_client(port)];
    a.send(b"a0").unwrap();
    until("a", || lab.sessions().len() == 1);
    b.send(b"b0").unwrap();
    assert_eq!((receive(&b), receive(&a)), ("a0".into(), "b0".into()));
    c.send(b"c0").unwrap();
    assert_eq!((receive(&a), receive(&b)), ("c0".into(), "c0".into()));
    assert!(is_silent(&c));
    a.send(b"a1").unwrap();
    assert_eq!((receive(&b), receive(&c)), ("a1".into(), "a1".into()));
    assert!(is_silent(&a));
    let other = free_port();
    let options = json!({ "track": 60 });
    lab.listener_with("nolabel", json!({ "protocol": "UDP", "port": other }), route, options);
    udp_client(other).send(b"x").unwrap();
    until("the refusal", || lab.sessions().iter().any(|session| session["status"] == "DESTROYED"));
    let sessions = lab.sessions();
    let refused = sessions.iter().find(|session| session["status"] == "DESTROYED").unwrap();
    let name = refused["name"].as_str().unwrap();
    let told = refused["events"][2]["content"].as_str().unwrap();
    let expected = format!("SyncCluster.stream: reject: Session: \"{name}\": query \"/labels/room\": empty label");
    assert!(told.contains(&expected), "{told}");
}

#[test]
fn a_pair_takes_two() {
    let (lab, port) = (Lab::new(), free_port());
    let cluster = json!({ "spec": { "protocol": "Sync", "query": "/IP/src_addr", "pair": true } });
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), cluster);
    let [a, b, c] = [udp_client(port), udp_client(port), udp_client(port)];
    a.send(b"1").unwrap();
    until("a", || lab.sessions().len() == 1);
    b.send(b"2").unwrap();
    assert_eq!((receive(&b), receive(&a)), ("1".into(), "2".into()));
    c.send(b"3").unwrap();
    assert!(is_silent(&c));
    assert_eq!(lab.sessions().len(), 2);
}

#[test]
fn stdio_needs_to_be_allowed() {
    let lab = Lab::new();
    let cluster = json!({ "cluster": { "name": "c", "spec": { "protocol": "Stdio" } } });
    assert_eq!(lab.call("POST", "/clusters", Some(&cluster)).0, 400);
}
