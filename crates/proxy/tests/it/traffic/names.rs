//! Endpoints that are names.

use super::lab::{Lab, UdpEcho, ask, free_port, udp_client, until};
use parking_lot::Mutex;
use portolan_proxy::io::Lookup;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

type Records = Arc<Mutex<Vec<IpAddr>>>;

fn lab(records: &Records) -> Lab {
    let records = Arc::clone(records);
    let lookup: Lookup = Arc::new(move |_| Ok(records.lock().clone()));
    let lab = Lab::with_names(&lookup);
    lab.load(&json!({ "admin": { "dns": { "ttl_min": 1, "ttl_max": 60 }, "endpoint_policy": { "deny": ["127.0.0.9/32"] } } }));
    lab
}

#[test]
fn all_records_are_used_and_one_that_goes_keeps_its_sessions_and_gets_no_more() {
    let records: Records = Arc::new(Mutex::new(["127.0.0.1", "127.0.0.2"].map(|ip| ip.parse().unwrap()).to_vec()));
    let (lab, port, upstream) = (lab(&records), free_port(), free_port());
    let _first = UdpEcho::on(&format!("127.0.0.1:{upstream}"), "1");
    let _second = UdpEcho::on(&format!("127.0.0.2:{upstream}"), "2");
    let cluster = json!({ "name": "c", "spec": { "protocol": "UDP", "port": upstream },
        "endpoints": [{ "spec": { "address": "service.test" } }] });
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), cluster);
    let clients: Vec<_> = (0..8).map(|_| udp_client(port)).collect();
    let answers: Vec<String> = clients.iter().map(|client| ask(client, "x")).collect();
    assert_eq!(answers.iter().collect::<BTreeSet<_>>().len(), 2, "{answers:?}");
    *records.lock() = vec!["127.0.0.2".parse().unwrap()];
    until("new sessions to go to the record that is left", || (0..4).all(|_| ask(&udp_client(port), "x") == "2x"));
    let again: Vec<String> = clients.iter().map(|client| ask(client, "x")).collect();
    assert_eq!(again, answers, "sessions stay where they are");
}

#[test]
fn a_name_leads_nowhere_that_the_policy_denies() {
    let records: Records = Arc::new(Mutex::new(vec!["127.0.0.9".parse().unwrap()]));
    let (lab, port, upstream) = (lab(&records), free_port(), free_port());
    let _denied = UdpEcho::on(&format!("127.0.0.9:{upstream}"), "");
    let cluster = json!({ "name": "c", "spec": { "protocol": "UDP", "port": upstream },
        "endpoints": [{ "spec": { "address": "innocent.test" } }] });
    let route = json!({ "destination": cluster });
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, json!({ "track": 60 }));
    udp_client(port).send(b"x").unwrap();
    until("the session to end", || lab.sessions().first().is_some_and(|it| it["status"] == "DESTROYED"));
    let error = lab.sessions()[0]["events"][2]["content"].as_str().unwrap().to_owned();
    assert!(error.contains("127.0.0.9") && error.contains("endpoint_policy denies it"), "{error}");
}
