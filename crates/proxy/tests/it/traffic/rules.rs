//! Rules on real sessions.

use super::lab::{Lab, ask, free_port, is_silent, read_exact, tcp_client, udp_client, until};
use serde_json::{Value, json};
use std::io::{Read, Write};

fn rules(lab: &Lab, port: u16, protocol: &str, rules: &Value) {
    let spec = json!({ "protocol": protocol, "port": port });
    lab.post("/listeners", &json!({ "listener": { "name": format!("l{port}"), "spec": spec, "rules": rules, "options": { "track": 60 } } }));
}

fn echo() -> Value {
    json!({ "route": { "destination": { "spec": { "protocol": "Echo" } } } })
}

#[test]
fn addresses_match_with_and_without_v6_clothes() {
    let lab = Lab::new();
    for value in ["127.0.0.1", "::ffff:127.0.0.1"] {
        let port = free_port();
        let test = json!({ "op": "test", "path": "/IP/src_addr", "value": value });
        rules(&lab, port, "TCP", &json!([{ "match": test, "action": echo() }]));
        let mut client = tcp_client(port);
        client.write_all(b"x").unwrap();
        assert_eq!(read_exact(&mut client, 1), "x", "{value}");
    }
}

#[test]
fn nothing_that_rules_say_ends_the_process() {
    let lab = Lab::new();
    let [looping, typed, replaced] = [free_port(), free_port(), free_port()];
    lab.post("/rulelists", &json!({ "rulelist": { "name": "a", "rules": [{ "action": { "apply": "b" } }] } }));
    lab.post("/rulelists", &json!({ "rulelist": { "name": "b", "rules": [{ "action": { "apply": "a" } }] } }));
    rules(&lab, looping, "TCP", &json!("a"));
    assert_eq!(tcp_client(looping).read(&mut [0; 1]).unwrap_or(0), 0);
    until("the refusal", || lab.sessions().first().is_some_and(|s| s["status"] == "DESTROYED"));
    let told = lab.sessions()[0]["events"][1].clone();
    assert_eq!((&told["event"], &told["message"]), (&json!("ERROR"), &json!("Not Found")));
    let number = json!({ "op": "contains", "path": "/UDP/src_port", "value": "1" });
    rules(&lab, typed, "UDP", &json!([{ "match": number, "action": echo() }]));
    let client = udp_client(typed);
    client.send(b"x").unwrap();
    assert!(is_silent(&client));
    let rewrite = json!([{ "path": "/", "value": "text" }]);
    let mut action = echo();
    action["rewrite"] = rewrite;
    rules(&lab, replaced, "UDP", &json!([{ "action": action }]));
    assert_eq!(ask(&udp_client(replaced), "still here"), "still here");
    let deep = free_port();
    action["rewrite"] = json!([{ "path": "/a".repeat(100_000), "value": 1 }]);
    rules(&lab, deep, "UDP", &json!([{ "action": action }]));
    assert_eq!(ask(&udp_client(deep), "and still"), "and still");
}

#[test]
fn missing_objects_are_named_in_the_error() {
    let lab = Lab::new();
    let route = |destination: &str| json!({ "action": { "route": { "destination": destination } } });
    for (rules_of, content) in [
        (json!("nolist"), "Cannot find RuleList \"nolist\""),
        (json!([{ "action": { "route": "noroute" } }]), "Cannot find Route \"noroute\" for session"),
        (json!([route("nocluster")]), "Not Found: Cannot find cluster \"nocluster\""),
        (json!([]), "No route for session"),
    ] {
        let port = free_port();
        rules(&lab, port, "TCP", &rules_of);
        assert_eq!(tcp_client(port).read(&mut [0; 1]).unwrap_or(0), 0);
        let told = || {
            let sessions = lab.sessions();
            let of_port = sessions.iter().find(|s| s["metadata"]["TCP"]["dst_port"] == port)?;
            let error = of_port["events"].as_array()?.iter().find(|event| event["event"] == "ERROR")?;
            Some(error["content"].as_str()?.to_owned())
        };
        until("the error", || told().is_some());
        assert!(told().unwrap().contains(content), "{content}: {:?}", told());
    }
}
