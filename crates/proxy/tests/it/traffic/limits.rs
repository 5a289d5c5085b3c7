//! Limits that sessions meet: each has a clear answer and a counter.

use super::lab::{Lab, ask, free_port, read_exact, tcp_client, udp_client, until};
use super::websocket::{Peer, read_head};
use portolan_proxy::proto::ws::{Opcode, write_frame};
use serde_json::{Value, json};
use std::io::{Read, Write};

fn lab(limits: Value) -> Lab {
    let lab = Lab::with_workers(1);
    lab.load(&json!({ "admin": { "limits": limits } }));
    lab
}

fn refusals(lab: &Lab, limit: &str) -> u64 {
    lab.metric(&format!("portolan_proxy_limit_refusals_total{{limit=\"{limit}\"}}")).unwrap()
}

fn echo() -> Value {
    json!({ "spec": { "protocol": "Echo" } })
}

#[test]
fn a_large_head_is_told_which_limit_it_met() {
    let (lab, port) = (lab(json!({ "http_head": 200, "http_headers": 3 })), free_port());
    lab.listener("l", json!({ "protocol": "HTTP", "port": port }), echo());
    for (limit, headers) in
        [("http_head", format!("a: {}\r\n", "x".repeat(300))), ("http_headers", "a: b\r\n".repeat(5))]
    {
        let mut client = tcp_client(port);
        client.write_all(format!("GET / HTTP/1.1\r\n{headers}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).ok();
        assert!(answer.starts_with("HTTP/1.1 431 ") && answer.contains(&format!("admin.limits.{limit}")), "{answer}");
        assert_eq!(refusals(&lab, limit), 1);
    }
}

#[test]
fn a_large_json_socket_header_is_told_which_limit_it_met() {
    let (lab, port) = (lab(json!({ "jsonsocket_header": 50 })), free_port());
    lab.listener("l", json!({ "protocol": "JSONSocket", "transport": { "protocol": "UDP", "port": port } }), echo());
    let answer = ask(&udp_client(port), &json!({ "x": "y".repeat(100), "JSONSocketVersion": 1 }).to_string());
    assert!(answer.contains("admin.limits.jsonsocket_header"), "{answer}");
    assert_eq!(refusals(&lab, "jsonsocket_header"), 1);
}

#[test]
fn a_large_message_is_closed_with_1009_before_it_is_read() {
    let (lab, port) = (lab(json!({ "ws_message": 100 })), free_port());
    lab.listener("l", json!({ "protocol": "WebSocket", "port": port }), echo());
    let mut client = Peer::connect(port, "/", &[]).stream;
    let mut frame = Vec::new();
    write_frame(&mut frame, Opcode::Binary, &[0; 101], Some([0; 4]));
    client.write_all(&frame[..20]).unwrap();
    let mut close = [0; 4];
    client.read_exact(&mut close).unwrap();
    assert_eq!((close[0], u16::from_be_bytes([close[2], close[3]])), (0x88, 1009));
    assert_eq!(refusals(&lab, "ws_message"), 1);
}

#[test]
fn large_metadata_is_a_session_error() {
    let (lab, port) = (lab(json!({ "metadata": 1000 })), free_port());
    let rules = json!([{ "action": { "route": { "destination": echo() },
        "rewrite": [{ "path": "/labels/x", "value": "y".repeat(2000) }] } }]);
    lab.post(
        "/listeners",
        &json!({ "listener": { "name": "l", "spec": { "protocol": "UDP", "port": port },
        "rules": rules, "options": { "track": 60 } } }),
    );
    udp_client(port).send(b"x").unwrap();
    until("the session to end", || refusals(&lab, "metadata") == 1 && lab.sessions().len() == 1);
    let content = lab.sessions()[0].to_string();
    assert!(content.contains("admin.limits.metadata"), "{content}");
}

#[test]
fn one_session_too_many_is_refused_and_counted() {
    let (lab, port) = (lab(json!({ "sessions": 1 })), free_port());
    lab.listener("l", json!({ "protocol": "TCP", "port": port }), echo());
    let mut first = tcp_client(port);
    first.write_all(b"x").unwrap();
    assert_eq!(read_exact(&mut first, 1), "x");
    assert_eq!(tcp_client(port).read(&mut [0; 10]).unwrap_or(0), 0);
    assert_eq!(refusals(&lab, "sessions"), 1);
}

#[test]
fn what_waits_for_sessions_to_stand_has_a_bound_in_all() {
    let (lab, port) = (lab(json!({ "setup_queue": 10 })), free_port());
    let nobody = json!({ "name": "c", "spec": { "protocol": "UDP", "port": 1 } });
    let retry = json!({ "retry_on": "always", "num_retries": 100, "timeout": 1000 });
    let route = json!({ "destination": nobody, "retry": retry });
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, json!({}));
    let clients = [udp_client(port), udp_client(port)];
    for client in &clients {
        client.send(b"123456").unwrap();
    }
    until("the second to find no room", || refusals(&lab, "setup_queue") == 1);
    assert_eq!(lab.metric("portolan_proxy_drops_total{cause=\"setup_queue\"}"), Some(1));
}

#[test]
fn a_message_head_that_fits_is_answered() {
    let (lab, port) = (lab(json!({ "http_head": 200 })), free_port());
    lab.listener("l", json!({ "protocol": "HTTP", "port": port }), echo());
    let mut client = tcp_client(port);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(read_head(&mut client).0.status(), 200);
}
