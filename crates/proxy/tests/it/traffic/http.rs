//! HTTP listeners: streams of bodies, and the API as a route like any other.

use super::lab::{Lab, UdpEcho, free_port, tcp_client, until};
use super::websocket::read_head;
use portolan_core::mesh::TERM_HEADER;
use portolan_proxy::proto::http1::{Body, Chunks, HeadLimits, parse_head};
use portolan_proxy::rest::exchange::Request;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Reads one answer with its body, by length or in chunks; what comes behind it must wait.
fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut read = Vec::new();
    let mut byte = [0];
    let head = loop {
        assert_eq!(stream.read(&mut byte).expect("a head in time"), 1, "closed: {}", String::from_utf8_lossy(&read));
        read.push(byte[0]);
        if let Some((head, _)) = parse_head(&read, HeadLimits::default()).unwrap() {
            break head;
        }
    };
    let mut body = if head.lists("transfer-encoding", "chunked") {
        Body::Chunked(Chunks::default())
    } else {
        Body::Length(head.header("content-length").map_or(0, |length| length.parse().unwrap()))
    };
    let mut whole = Vec::new();
    while !body.is_done() {
        assert_eq!(stream.read(&mut byte).expect("the body in time"), 1, "closed inside the body");
        body.handle_bytes(&byte, |data| whole.extend_from_slice(data)).unwrap();
    }
    (head.status(), String::from_utf8(whole).unwrap())
}

#[test]
fn a_body_is_echoed_and_the_connection_lives_on() {
    let (lab, port) = (Lab::new(), free_port());
    lab.listener("l", json!({ "protocol": "HTTP", "port": port }), json!({ "spec": { "protocol": "Echo" } }));
    let mut client = tcp_client(port);
    client.write_all(b"POST /a?b=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    assert_eq!(answer(&mut client), (200, "hello".into()));
    client.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n").unwrap();
    client.write_all(b"3\r\ndef\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(answer(&mut client), (200, "abcdef".into()));
    assert_eq!(answer(&mut client), (200, String::new()), "a request right behind another");
    until("all sessions to end", || lab.sessions().is_empty());
}

#[test]
fn no_route_is_404_with_the_words_of_the_api() {
    let (lab, port) = (Lab::new(), free_port());
    lab.post(
        "/listeners",
        &json!({ "listener": { "name": "l", "spec": { "protocol": "HTTP", "port": port }, "rules": [] } }),
    );
    let mut client = tcp_client(port);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let (status, body) = answer(&mut client);
    let body: Value = serde_json::from_str(&body).unwrap();
    let own = client.local_addr().unwrap().port();
    let name = format!("HTTP:127.0.0.1:{own}-127.0.0.1:{port}-0");
    assert_eq!((status, &body["status"], &body["message"]), (404, &json!(404), &json!("Not Found")));
    assert_eq!(body["content"], json!(format!("No route for session \"{name}\"")));
}

#[test]
fn the_request_is_in_the_metadata() {
    let (lab, port, upstream) = (Lab::new(), free_port(), UdpEcho::start("E:"));
    lab.listener("l", json!({ "protocol": "HTTP", "port": port }), upstream.cluster("c"));
    let mut client = tcp_client(port);
    client.write_all(b"PUT /p/q?x=1 HTTP/1.1\r\nHost: h:1\r\nX-Id: 7\r\nContent-Length: 2\r\n\r\nhi").unwrap();
    let (head, _) = read_head(&mut client);
    assert_eq!(head.status(), 200);
    let http = lab.sessions()[0]["metadata"]["HTTP"].clone();
    assert_eq!((&http["version"], &http["method"]), (&json!("1.1"), &json!("PUT")));
    assert_eq!((&http["url"]["path"], &http["url"]["query"]), (&json!("/p/q?x=1"), &json!("x=1")));
    assert_eq!(http["headers"], json!({ "host": "h:1", "x-id": "7", "content-length": "2" }));
}

#[test]
fn the_api_answers_through_a_listener_of_its_own() {
    let (lab, port) = (Lab::new(), free_port());
    lab.listener(
        "controller-listener",
        json!({ "protocol": "HTTP", "port": port }),
        json!({ "name": "l7mp-controller", "spec": { "protocol": "L7mpController" } }),
    );
    let mut client = tcp_client(port);
    client.write_all(b"GET /api/v1/admin HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let (status, body) = answer(&mut client);
    assert_eq!((status, &serde_json::from_str::<Value>(&body).unwrap()["version"]), (200, &json!("0.5.7")));
    let cluster = json!({ "cluster": { "name": "new", "spec": { "protocol": "Echo" } } }).to_string();
    let head = format!(
        "POST /api/v1/clusters HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        cluster.len()
    );
    client.write_all(head.as_bytes()).unwrap();
    client.write_all(cluster.as_bytes()).unwrap();
    assert_eq!(answer(&mut client).0, 200);
    assert_eq!(lab.get("/clusters/new")["name"], json!("new"));
    lab.listener(
        "metrics",
        json!({ "protocol": "HTTP", "port": free_port() }),
        json!({ "spec": { "protocol": "Prometheus" } }),
    );
    let metrics = lab.plane.local_address("metrics").unwrap().port();
    let mut client = tcp_client(metrics);
    client.write_all(b"GET /anything HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert!(text.contains("listener_requests_total"), "{text}");
}

#[test]
fn hostile_requests_are_refused_and_the_proxy_lives() {
    let (lab, port) = (Lab::new(), free_port());
    lab.listener("l", json!({ "protocol": "HTTP", "port": port }), json!({ "spec": { "protocol": "Echo" } }));
    for bad in [
        "nonsense\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\na b: c\r\n\r\n",
    ] {
        let mut client = tcp_client(port);
        client.write_all(bad.as_bytes()).unwrap();
        assert_eq!(read_head(&mut client).0.status(), 400, "{bad:?}");
    }
    let mut client = tcp_client(port);
    client.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok").unwrap();
    assert_eq!(answer(&mut client), (200, "ok".into()));
}

#[test]
fn the_highest_term_counts_for_all_listeners_of_the_api() {
    let (lab, port) = (Lab::new(), free_port());
    lab.listener(
        "controller-listener",
        json!({ "protocol": "HTTP", "port": port }),
        json!({ "name": "l7mp-controller", "spec": { "protocol": "L7mpController" } }),
    );
    let mut client = tcp_client(port);
    let mut delete = |term: u64| {
        let head = format!(
            "DELETE /api/v1/clusters/none HTTP/1.1\r\nHost: x\r\nPortolan-Term: {term}\r\nContent-Length: 0\r\n\r\n"
        );
        client.write_all(head.as_bytes()).unwrap();
        answer(&mut client).0
    };
    assert_eq!(delete(5), 400, "an unknown cluster");
    assert_eq!(delete(4), 409);
    let headers = vec![(TERM_HEADER.to_owned(), "7".to_owned())];
    let request = Request {
        method: "DELETE".to_owned(),
        target: "/api/v2/clusters/none".to_owned(),
        headers,
        ..Request::default()
    };
    assert_eq!(lab.api.handle(&request).status, 404, "not through the data plane");
    assert_eq!((delete(6), delete(7)), (409, 400));
}
