//! Details of protocols and of the program that clients and operators meet.

use super::lab::{Lab, UdpEcho, ask, free_port, is_silent, tcp_client, udp_client, until};
use super::process::run;
use super::program::Program;
use super::websocket::read_head;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

fn http(lab: &Lab, destination: &str) -> u16 {
    let port = free_port();
    let spec = json!({ "protocol": "HTTP", "port": port });
    lab.listener(&format!("http-{port}"), spec, json!({ "spec": { "protocol": destination } }));
    port
}

/// Everything that a connection answers to some bytes, up to its end.
fn exchange(port: u16, request: &[u8]) -> String {
    let mut client = tcp_client(port);
    client.write_all(request).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_second_proxy_on_the_same_ports_does_not_start() {
    for (protocol, destination) in [("UDP", "Echo"), ("TCP", "Echo"), ("HTTP", "L7mpController")] {
        let port = free_port();
        let file = format!(
            "listeners: [{{name: l, spec: {{protocol: {protocol}, port: {port}}}, \
             rules: [{{action: {{route: {{destination: {{spec: {{protocol: {destination}}}}}}}}}}}]}}]"
        );
        let mut first = Program::start(&["--workers", "2"], &file);
        let (code, said) = run(&["-c", "proxy.yaml", "--workers", "2"], &file);
        assert_eq!(code, 1, "{protocol}: {said}");
        assert!(said.contains("EADDRINUSE") && said.contains(&port.to_string()), "{protocol}: {said}");
        assert_eq!(first.exit_code(), None);
    }
}

#[test]
fn workers_share_a_port_and_an_edit_of_its_address_takes_it_over() {
    let (lab, port) = (Lab::with_workers(2), free_port());
    lab.listener(
        "l",
        json!({ "protocol": "UDP", "port": port }),
        json!({ "name": "e", "spec": { "protocol": "Echo" } }),
    );
    let clients: Vec<UdpSocket> = (0..64).map(|_| udp_client(port)).collect();
    for client in &clients {
        assert_eq!(ask(client, "x"), "x");
    }
    let spec = json!({ "protocol": "UDP", "port": port, "address": "127.0.0.1" });
    let (status, answer) = lab.call_v2("PATCH", "/listeners/l", &json!({ "spec": spec }));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(ask(&udp_client(port), "y"), "y");
}

#[test]
fn a_deleted_udp_listener_frees_its_port_at_once() {
    let (lab, port) = (Lab::new(), free_port());
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), json!({ "spec": { "protocol": "Echo" } }));
    assert_eq!(ask(&udp_client(port), "x"), "x");
    lab.delete("/listeners/l?recursive=true");
    // all commands that a worker got before it lists its sessions are done; the tick that closes what is left takes a second
    assert!(lab.sessions().is_empty());
    UdpSocket::bind(("0.0.0.0", port)).unwrap();
}

#[test]
fn finished_sessions_are_listed_in_linear_time() {
    const STEP: u64 = 1500;
    let port = free_port();
    let file =
        format!("listeners: [{{name: l, spec: {{protocol: UDP, port: {port}}}, rules: [], options: {{track: 600}}}}]");
    let program = Program::start(&["--workers", "1"], &file);
    let finish_up_to = |count: u64| {
        let ended = || program.metric("portolan_proxy_sessions_ended_total{reason=\"error\"}");
        while ended() < count {
            let before = ended();
            let clients: Vec<UdpSocket> = (0..count.min(before + 100) - before).map(|_| udp_client(port)).collect();
            for client in &clients {
                assert_eq!(client.send(b"x").unwrap(), 1);
            }
            until("the sessions to end", || ended() == before + clients.len() as u64);
        }
    };
    // processor time, because other tests run beside this one
    let list = || {
        let before = program.processor_time();
        let listed = program.json("/sessions").as_array().unwrap().len() as u64;
        (listed, program.processor_time().saturating_sub(before))
    };
    finish_up_to(STEP);
    let (listed, few) = list();
    assert_eq!(listed, STEP);
    finish_up_to(6 * STEP);
    let (listed, many) = list();
    assert_eq!(listed, 6 * STEP);
    // six times as many: 36 times as long, if each slice looked at all of them
    assert!(many < 15 * few, "{few:?} for {STEP}, {many:?} for six times as many");
}

#[test]
fn the_parts_of_a_url_are_those_of_l7mp() {
    let (lab, upstream) = (Lab::new(), UdpEcho::start(""));
    let port = free_port();
    lab.listener("l", json!({ "protocol": "HTTP", "port": port }), upstream.cluster("c"));
    let mut client = tcp_client(port);
    let mut url = |target: &str| -> Value {
        client = tcp_client(port);
        write!(client, "POST {target} HTTP/1.1\r\nHost: h:1\r\nContent-Length: 2\r\n\r\nhi").unwrap();
        assert_eq!(read_head(&mut client).0.status(), 200);
        let sessions = lab.sessions();
        sessions.last().unwrap()["metadata"]["HTTP"]["url"].clone()
    };
    let plain = url("/chat?x=1");
    for (key, value) in
        [("href", "/chat?x=1"), ("protocol", ""), ("host", ""), ("port", ""), ("path", "/chat?x=1"), ("query", "x=1")]
    {
        assert_eq!(plain[key], json!(value), "{key}");
    }
    let whole = url("http://Other:81/p?q");
    for (key, value) in [
        ("href", "http://other:81/p?q"),
        ("protocol", "http:"),
        ("host", "other:81"),
        ("port", "81"),
        ("path", "/p?q"),
        ("query", "q"),
    ] {
        assert_eq!(whole[key], json!(value), "{key}");
    }
    let api = http(&lab, "L7mpController");
    let answer = exchange(api, b"GET http://proxy/api/v1/admin HTTP/1.1\r\nHost: proxy\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn head_has_no_body() {
    let lab = Lab::new();
    for destination in ["Echo", "L7mpController", "Prometheus"] {
        let port = http(&lab, destination);
        let answer = exchange(port, b"HEAD /api/v1/admin HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 ") && answer.ends_with("\r\n\r\n"), "{destination}: {answer:?}");
        assert_eq!(answer.matches("\r\n\r\n").count(), 1, "{destination}: {answer:?}");
    }
    let port = free_port();
    let spec = json!({ "protocol": "HTTP", "port": port });
    lab.post("/listeners", &json!({ "listener": { "name": "none", "spec": spec, "rules": [] } }));
    let answer = exchange(port, b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.ends_with("\r\n\r\n"), "{answer:?}");
}

#[test]
fn requests_to_api_listeners_are_limited_like_those_to_the_api() {
    let lab = Lab::with_workers(1);
    lab.load(&json!({ "admin": { "limits": { "api_request_ms": 3000, "api_connections": 2 } } }));
    let port = http(&lab, "L7mpController");
    let begin = || {
        let mut client = tcp_client(port);
        client.write_all(b"POST /api/v1/clusters HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{").unwrap();
        client
    };
    let status = |mut client: TcpStream| read_head(&mut client).0.status();
    let slow = [begin(), begin()];
    until("both to have begun", || lab.sessions().len() == 2);
    assert_eq!(status(begin()), 429);
    assert_eq!(slow.map(status), [408, 408]);
    for limit in ["api_request_ms", "api_connections"] {
        let series = format!("portolan_proxy_limit_refusals_total{{limit=\"{limit}\"}}");
        assert!(lab.metric(&series).unwrap() > 0, "{limit}");
    }
    let answer = exchange(port, b"GET /api/v1/admin HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn heads_are_read_as_other_servers_read_them() {
    let (lab, upstream) = (Lab::new(), UdpEcho::start(""));
    let port = free_port();
    lab.listener("l", json!({ "protocol": "HTTP", "port": port }), upstream.cluster("c"));
    let mut client = tcp_client(port);
    let head =
        b"POST / HTTP/1.1\r\nHost: x\r\nCookie: a=1\r\nCookie: b=2\r\nX-Name: Andr\xe9\r\nContent-Length: 2\r\n\r\nhi";
    client.write_all(head).unwrap();
    assert_eq!(read_head(&mut client).0.status(), 200);
    let headers = lab.sessions()[0]["metadata"]["HTTP"]["headers"].clone();
    assert_eq!((&headers["cookie"], &headers["x-name"]), (&json!("a=1; b=2"), &json!("Andr\u{e9}")));
    let echo = http(&lab, "Echo");
    for (bad, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
        (b"GET / HTTP/1.0\r\n\r\n", "200"),
    ] {
        let answer = exchange(echo, bad);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[test]
fn a_websocket_client_learns_what_is_wrong_with_its_request() {
    let (lab, port) = (Lab::new(), free_port());
    lab.listener("l", json!({ "protocol": "WebSocket", "port": port }), json!({ "spec": { "protocol": "Echo" } }));
    let upgrade = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    let key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    let answer = exchange(port, format!("{upgrade}{key}Sec-WebSocket-Version: 8\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 426 ") && answer.contains("Sec-WebSocket-Version: 13\r\n"), "{answer}");
    let answer = exchange(port, format!("{upgrade}Sec-WebSocket-Version: 13\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn a_json_socket_client_over_udp_is_refused_once() {
    let (lab, port, dead) = (Lab::new(), free_port(), free_port());
    let spec = json!({ "protocol": "JSONSocket", "transport": { "protocol": "UDP", "port": port } });
    lab.listener("js", spec.clone(), json!({ "spec": { "protocol": "Echo" } }));
    let client = udp_client(port);
    assert!(ask(&client, "junk").contains("\"JSONSocketStatus\":400"));
    let began = Instant::now();
    for _ in 0..20 {
        client.send(b"junk").unwrap();
    }
    assert!(is_silent(&client) || began.elapsed() > Duration::from_secs(1), "every datagram is answered");
    assert!(ask(&udp_client(port), r#"{"JSONSocketVersion":1}"#).contains("\"JSONSocketStatus\":200"));
    assert_eq!(lab.session_names(), ["JSONSocket:js-0"], "refused headers take no number");
    let tcp = free_port();
    let transport = json!({ "protocol": "JSONSocket", "transport": { "protocol": "TCP", "port": tcp } });
    lab.listener("refused", transport, super::lab::tcp_cluster("dead", dead));
    let answer = exchange(tcp, br#"{"JSONSocketVersion":1}"#);
    assert!(answer.contains(r#""JSONSocketStatus":502,"JSONSocketMessage":"Bad Gateway: "#), "{answer}");
}

#[test]
fn socket_paths_that_cannot_be_bound_are_explained() {
    let lab = Lab::new();
    let long = lab.path(&"x".repeat(120));
    for (path, code, why) in [
        (lab.path("missing/a.sock"), "ENOENT", "folder of the socket file does not exist"),
        (long, "ENAMETOOLONG", "at most 107 bytes"),
    ] {
        let spec = json!({ "protocol": "UnixDomainSocket", "filename": path });
        let body = json!({ "listener": { "name": "l", "spec": spec, "rules": [] } });
        let (status, answer) = lab.call("POST", "/listeners", Some(&body));
        let content = answer["content"].as_str().unwrap();
        assert!(status == 400 && content.contains(code) && content.contains(why), "{answer}");
    }
}
