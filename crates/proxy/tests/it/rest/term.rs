//! Calls of a deposed operator are refused; the highest term seen counts.

use portolan_core::mesh::TERM_HEADER;
use portolan_proxy::config::engine::Ending;
use serde_json::{Value, json};

use super::client::{Answer, Call, Proxy};

const CONFIG: &str = "{listeners: [{name: l, spec: {protocol: UDP, port: 1}, rules: [{action: {route: {destination: c}}}]}], \
                       clusters: [{name: c, spec: {protocol: UDP, port: 1}, endpoints: [{name: e, spec: {address: 127.0.0.1}}]}]}";

fn send(proxy: &Proxy, line: &str, term: Option<&str>, body: &Value) -> Answer {
    let mut headers = vec![("Content-Type", "application/json".to_owned())];
    headers.extend(term.map(|term| (TERM_HEADER, term.to_owned())));
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    proxy.connect().send(&Call { line, headers, body })
}

fn term(proxy: &Proxy) -> Value {
    proxy.ask("GET /api/v2/admin", None).json()["portolan"]["term"].clone()
}

/// A call of each kind that changes something, with its body.
fn changes() -> Vec<(&'static str, Value)> {
    let echo = json!({"name": "x", "spec": {"protocol": "Echo"}});
    let put = json!({"op": "put", "kind": "cluster", "name": "x", "object": echo});
    vec![
        ("POST /api/v1/clusters", json!({ "cluster": echo })),
        ("POST /api/v1/config", json!({"clusters": [echo]})),
        ("POST /api/v1/admin", json!({"admin": {"log_level": "error"}})),
        ("POST /api/v1/clusters/c/endpoints", json!({"endpoint": {"name": "x", "spec": {"address": "127.0.0.2"}}})),
        ("POST /api/v1/rulelists/none/rules/0", json!({"rule": "x"})),
        ("DELETE /api/v1/rulelists/none/rules/0", Value::Null),
        ("DELETE /api/v1/clusters/c", Value::Null),
        ("DELETE /api/v1/sessions/s", Value::Null),
        ("POST /api/v2/apply", json!({"owner": "me", "ops": [put]})),
        ("POST /api/v2/config", json!({"clusters": [echo]})),
        ("POST /api/v2/clusters", json!({ "cluster": echo })),
        ("PUT /api/v2/clusters/x", echo),
        ("PUT /api/v2/clusters/c/endpoints/x", json!({"spec": {"address": "127.0.0.2"}})),
        ("PATCH /api/v2/clusters/c", json!({"options": {"max_sessions": 5}})),
        ("DELETE /api/v2/listeners/l", Value::Null),
        ("DELETE /api/v2/sessions?listener=l", Value::Null),
        ("DELETE /api/v2/sessions/s", Value::Null),
    ]
}

#[test]
fn a_call_of_a_lower_term_is_refused_and_changes_nothing() {
    let proxy = Proxy::start(CONFIG, false);
    proxy.engine.open("s", "l");
    let raise = json!({"owner": "me", "ops": []});
    assert_eq!(send(&proxy, "POST /api/v2/apply", Some("5"), &raise).status, 200);
    let before = proxy.engine.snapshot().generation;
    for (line, body) in changes() {
        let refused = send(&proxy, line, Some("3"), &body);
        assert_eq!((refused.status, refused.reason.as_str()), (409, "Conflict"), "{line}: {}", refused.body);
        let content = "term 3 is over: term 5 was seen; another operator leads now";
        assert_eq!(refused.json(), json!({"status": 409, "message": "Conflict", "content": content}), "{line}");
    }
    assert_eq!(proxy.engine.snapshot().generation, before);
    assert_eq!(proxy.engine.ended(), [] as [(String, Ending); 0], "no session was ended");
    assert_eq!(term(&proxy), json!(5));
}

#[test]
fn an_equal_or_higher_term_and_a_call_without_one_are_accepted() {
    for (line, body) in changes().into_iter().filter(|(line, _)| !line.contains("/none/")) {
        let proxy = Proxy::start(CONFIG, false);
        proxy.engine.open("s", "l");
        assert_eq!(term(&proxy), json!(0), "none was seen yet");
        let raise = json!({"owner": "me", "ops": []});
        assert_eq!(send(&proxy, "POST /api/v2/apply", Some("5"), &raise).status, 200);
        let header = if line.starts_with("POST") { Some("5") } else { Some("6") };
        let accepted = send(&proxy, line, header, &body);
        assert_eq!(accepted.status, 200, "{line}: {}", accepted.body);
        assert_eq!(term(&proxy).to_string(), header.unwrap_or_default(), "{line}");
        let undo = send(&proxy, "POST /api/v2/config?force=true", None, &json!({}));
        assert_eq!(undo.status, 200, "a call without a term is not checked: {}", undo.body);
    }
}

#[test]
fn a_refused_change_still_shows_the_term_of_its_caller() {
    let proxy = Proxy::start(CONFIG, false);
    assert_eq!(send(&proxy, "DELETE /api/v1/clusters/none", Some("9"), &Value::Null).status, 400);
    assert_eq!(term(&proxy), json!(9));
    assert_eq!(send(&proxy, "DELETE /api/v1/clusters/c", Some("8"), &Value::Null).status, 409);
}

#[test]
fn a_malformed_term_is_a_bad_request_in_both_versions() {
    let proxy = Proxy::start(CONFIG, false);
    let before = proxy.engine.snapshot().generation;
    for (line, body) in changes() {
        let refused = send(&proxy, line, Some("five"), &body);
        let content = json!("Header portolan-term: expected one decimal number, at most 2147483647");
        assert_eq!((refused.status, refused.content()), (400, content), "{line}");
    }
    assert_eq!((proxy.engine.snapshot().generation, term(&proxy)), (before, json!(0)));
    assert_eq!(send(&proxy, "GET /api/v1/admin", Some("five"), &Value::Null).status, 200, "reads are not checked");
}

#[test]
fn terms_and_changes_of_two_operators_do_not_interleave() {
    let proxy = Proxy::start("{clusters: []}", false);
    let put = |term: u64| {
        let object = json!({"spec": {"protocol": "UDP", "port": term}});
        send(&proxy, "PUT /api/v2/clusters/c", Some(&term.to_string()), &object).status
    };
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let put = &put;
            let expected = |status: u16| assert!(matches!(status, 200 | 409), "{status}");
            scope.spawn(move || (0..50).for_each(|step| expected(put(1 + step * 4 + worker))));
        }
    });
    // whoever came last, the configuration is of the highest term
    let shown = proxy.ask("GET /api/v2/clusters/c", None).json()["spec"]["port"].clone();
    assert_eq!((shown, term(&proxy)), (json!(200), json!(200)));
}
