//! Hostile and broken requests: each gets its answer, and the next one gets its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use portolan_proxy::rest::exchange::{Client, Request};
use portolan_proxy::rest::server;
use portolan_proxy::rest::{Access, Api, Settings};
use serde_json::json;

use super::client::{Call, Proxy};
use super::engine::Memory;

#[test]
fn answers_carry_the_reason_and_the_headers_that_clients_know() {
    let proxy = Proxy::start("{}", false);
    let good = proxy.ask("GET /api/v1/admin", None);
    assert_eq!((good.status, good.reason.as_str()), (200, "OK"));
    assert_eq!(good.header("Content-Type"), Some("application/json"));
    let bad = proxy.ask("GET /api/v1/listeners/x", None);
    assert_eq!((bad.status, bad.reason.as_str()), (400, "Bad Request"));
    assert_eq!((bad.header("status"), bad.header("message")), (None, None));
    let call = Call { line: "POST /api/v1/listeners", body: b"x".to_vec(), ..Call::default() };
    let odd = proxy.connect().send(&call);
    assert_eq!((odd.status, odd.reason.as_str(), odd.content()), (500, "General Server Error", json!(415)));
    let strict = Proxy::start("{admin: {strict: true}}", false).ask("POST /api/v1/listeners", Some(json!({})));
    assert_eq!(strict.reason, "Unprocessable Entity: Input JSON schema validation failed");
}

#[test]
fn too_much_is_refused_counted_and_forgotten() {
    let proxy = Proxy::start(
        "{admin: {limits: {body: 4000, object: 1000, json_depth: 6, name: 10, objects: 2, rules_per_list: 3, predicate_nodes: 3, regex: 5}}}",
        false,
    );
    let long = "x".repeat(2000);
    let deep = (0..8).fold(json!(1), |inner, _| json!([inner]));
    for (path, body, status, says) in [
        ("clusters", json!({"cluster": long.repeat(3)}), 413, "admin.limits.body"),
        (
            "clusters",
            json!({"cluster": {"name": "c", "spec": {"protocol": "Echo", "x": long}}}),
            400,
            "admin.limits.object",
        ),
        ("clusters", json!({"cluster": {"name": "c", "spec": deep}}), 400, "admin.limits.json_depth"),
        ("clusters", json!({"cluster": {"name": "01234567890", "spec": {"protocol": "Echo"}}}), 400, "name is invalid"),
        (
            "rulelists",
            json!({"rulelist": {"name": "l", "rules": ["a", "b", "c", "d"]}}),
            400,
            "admin.limits.rules_per_list",
        ),
        (
            "rules",
            json!({"rule": {"name": "r", "match": {"op": "or", "apply": [{"op": "or", "apply": []}, {"op": "or", "apply": []}, {"op": "or", "apply": []}]}, "action": {}}}),
            400,
            "admin.limits.predicate_nodes",
        ),
        (
            "rules",
            json!({"rule": {"name": "r", "match": {"op": "not", "apply": [{"op": "matches", "path": "/a", "value": "abcdef"}]}, "action": {}}}),
            400,
            "admin.limits.regex",
        ),
    ] {
        let answer = proxy.ask(&format!("POST /api/v1/{path}"), Some(body));
        assert_eq!(answer.status, status, "{says}: {}", answer.body);
        assert!(answer.content().as_str().unwrap().contains(says), "{says}: {}", answer.body);
    }
    for (index, status) in [200, 200, 400].into_iter().enumerate() {
        let cluster = json!({"cluster": {"name": format!("c{index}"), "spec": {"protocol": "Echo"}}});
        assert_eq!(proxy.ask("POST /api/v1/clusters", Some(cluster)).status, status);
    }
    let metrics = proxy.ask("GET /metrics", None);
    assert_eq!(metrics.header("Content-Type"), Some("text/plain; version=0.0.4"));
    for limit in ["body", "object", "json_depth", "name", "objects", "rules_per_list", "predicate_nodes", "regex"] {
        assert!(
            metrics.body.contains(&format!("portolan_proxy_limit_refusals_total{{limit=\"{limit}\"}} 1\n")),
            "{limit}"
        );
    }
}

#[test]
fn one_connection_too_many_is_told_so_and_the_others_go_on() {
    let proxy = Proxy::start("{admin: {limits: {api_connections: 2}}}", false);
    let mut held: Vec<_> = (0..2).map(|_| proxy.connect()).collect();
    for connection in &mut held {
        assert_eq!(connection.ask("GET /livez", None).status, 200);
    }
    assert_eq!(proxy.connect().receive().status, 429);
    assert_eq!(held[0].ask("GET /livez", None).status, 200);
    drop(held);
    // the server notices a closed connection when it next looks, so ask until it did
    let free = (0..1000).any(|_| {
        std::thread::yield_now();
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        if stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").is_err() {
            return false;
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).is_ok_and(|_| answer.starts_with("HTTP/1.1 200"))
    });
    assert!(free);
}

#[test]
fn a_request_that_never_ends_is_given_up() {
    let proxy = Proxy::start("{admin: {limits: {api_request_ms: 50}}}", false);
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"POST /api/v1/clusters HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{").unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    assert_eq!(proxy.ask("GET /livez", None).status, 200);
}

#[test]
fn nothing_that_is_sent_ends_the_api() {
    let proxy = Proxy::start("{}", false);
    for bytes in [
        &b"\x00\x01\x02\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"POST /api/v1/listeners HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/listeners HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /api/v1/listeners/%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // a reset is an answer as well
        if stream.read_to_end(&mut answer).is_ok() && !answer.is_empty() {
            assert!(answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
        }
        assert_eq!(proxy.ask("GET /livez", None).status, 200);
    }
}

#[test]
fn the_deepest_body_is_refused_in_either_language() {
    let proxy = Proxy::start("{}", false);
    for language in ["application/json", "application/yaml"] {
        for opening in ["[", "{\"a\":", "- ", "? "] {
            let call = Call {
                line: "POST /api/v1/clusters",
                headers: vec![("Content-Type", language.to_owned())],
                body: opening.repeat(500_000).into_bytes(),
            };
            let answer = proxy.connect().send(&call);
            assert_eq!(answer.status, 400, "{language} {opening}");
        }
    }
    assert_eq!(proxy.ask("GET /livez", None).status, 200);
}

#[test]
fn bodies_of_every_shape_are_answered_by_every_operation() {
    let proxy = Proxy::start("{}", false);
    let shapes =
        [json!(null), json!(0), json!(""), json!([]), json!({}), json!([[{}]]), json!({"name": {}}), json!({"": null})];
    for strict in [false, true] {
        proxy.ask("POST /api/v1/admin", Some(json!({"admin": {"strict": strict}})));
        for version in ["v1", "v2"] {
            for (path, key) in [
                ("listeners", "listener"),
                ("clusters", "cluster"),
                ("rulelists", "rulelist"),
                ("rules", "rule"),
                ("routes", "route"),
                ("clusters/c/endpoints", "endpoint"),
                ("rulelists/l/rules/0", "rule"),
                ("admin", "admin"),
                ("apply", "ops"),
            ] {
                for shape in &shapes {
                    for field in ["name", "spec", "rules", "action", "destination", "retry", "options", "match", "ops"]
                    {
                        let mut object = json!({"name": "n", "spec": {"protocol": "UDP", "port": 1}, "rules": [], "action": {}, "destination": "d"});
                        object[field] = shape.clone();
                        for body in [shape.clone(), json!({key: shape}), json!({key: object})] {
                            let answer = proxy.direct("POST", &format!("/api/{version}/{path}"), &body);
                            assert!(answer.status < 500, "{version}/{path} {body}");
                            assert!(serde_json::from_slice::<serde_json::Value>(&answer.body).is_ok());
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_queued_request_is_answered_on_the_apis_thread() {
    let (api_handler, queue) = server::api_queue();
    let api = Arc::new(Api::new(Arc::new(Memory::default()), Access::default(), Settings::default()));
    let running = server::start(Arc::clone(&api), queue, None).unwrap();
    assert_eq!(running.address, None);
    let (sender, receiver) = mpsc::channel();
    let ask = |target: &str| {
        let sender = sender.clone();
        let client = Client { address: Some([127, 0, 0, 1].into()), certified: false };
        let request = Request { method: "GET".to_owned(), target: target.to_owned(), client, ..Request::default() };
        let answered =
            move |response| sender.send((response, std::thread::current().name().map(str::to_owned))).unwrap();
        api_handler.submit(request, Box::new(answered));
        receiver.recv_timeout(Duration::from_secs(20)).expect("an answer")
    };
    let (response, thread) = ask("/api/v1/admin");
    assert_eq!((response.status, thread.as_deref()), (200, Some("api")));
    assert_eq!(ask("/readyz").0.status, 503, "no configuration is in force");
    running.stop();
    assert_eq!(ask("/api/v1/admin").0.status, 503);
}
