//! JSONSocket listeners and clusters.

use super::lab::{LONG, Lab, UdpEcho, ask, free_port, is_silent, receive, tcp_client, udp_client, until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::UdpSocket;

const OK: &str = r#"{"JSONSocketVersion":1,"JSONSocketStatus":200,"JSONSocketMessage":"OK"}"#;

fn listener(port: u16) -> Value {
    json!({ "protocol": "JSONSocket", "transport": { "protocol": "UDP", "port": port } })
}

#[test]
fn a_header_opens_the_way_and_its_labels_are_seen() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start("E:"), free_port());
    lab.listener("js", listener(port), upstream.cluster("c"));
    let client = udp_client(port);
    let header = r#"{"labels":{"a":"x"},"foo":{"bar":"z"},"JSONSocketVersion":1}"#;
    assert_eq!(ask(&client, header), OK);
    assert_eq!(ask(&client, header), OK, "a repetition before data is answered again");
    assert_eq!(ask(&client, "data"), "E:data");
    assert_eq!(ask(&client, header), format!("E:{header}"), "after data it is data");
    let session = &lab.sessions()[0];
    assert_eq!(session["name"], json!("JSONSocket:js-0"));
    assert_eq!(session["metadata"]["labels"], json!({ "a": "x" }));
    assert_eq!(session["metadata"]["JSONSocket"]["foo"], json!({ "bar": "z" }));
    assert_eq!(session["metadata"]["UDP"]["dst_port"], json!(port));
}

#[test]
fn labels_of_strangers_stay_apart_where_that_is_asked_for() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start("E:"), free_port());
    let route = json!({ "destination": upstream.cluster("c") });
    lab.listener_with("js", listener(port), route, json!({ "import_labels": false }));
    assert_eq!(ask(&udp_client(port), r#"{"labels":{"a":"x"},"JSONSocketVersion":1}"#), OK);
    let metadata = &lab.sessions()[0]["metadata"];
    assert_eq!((&metadata["labels"], &metadata["JSONSocket"]["labels"]["a"]), (&Value::Null, &json!("x")));
}

#[test]
fn bad_headers_and_missing_routes_are_told() {
    let (lab, port, nowhere) = (Lab::new(), free_port(), free_port());
    lab.listener("js", listener(port), json!({ "spec": { "protocol": "Echo" } }));
    let answer = |status: u16, message: &str| {
        format!(r#"{{"JSONSocketVersion":1,"JSONSocketStatus":{status},"JSONSocketMessage":"{message}"}}"#)
    };
    assert_eq!(ask(&udp_client(port), "junk"), answer(400, "Bad Request: Invalid JSON header"));
    assert_eq!(ask(&udp_client(port), "[]"), answer(400, "Bad Request: err"));
    assert_eq!(
        ask(&udp_client(port), r#"{"JSONSocketVersion":2}"#),
        answer(505, "Bad Request: Unsupported JSONSocket version in header: { JSONSocketVersion: 2 }")
    );
    lab.post("/listeners", &json!({ "listener": { "name": "jr", "spec": listener(nowhere), "rules": [] } }));
    assert_eq!(
        ask(&udp_client(nowhere), r#"{"JSONSocketVersion":1}"#),
        answer(404, r#"Not Found: No route for session \"JSONSocket:jr-0\""#)
    );
    until("nothing to be left", || lab.sessions().is_empty());
}

#[test]
fn a_header_on_a_stream_is_the_first_object() {
    let (lab, port) = (Lab::new(), free_port());
    let spec = json!({ "protocol": "JSONSocket", "transport": { "protocol": "TCP", "port": port } });
    lab.listener("js", spec, json!({ "spec": { "protocol": "Echo" } }));
    let mut client = tcp_client(port);
    client.write_all(br#"{"JSONSocketVer"#).unwrap();
    client.write_all(br#"sion":1}early"#).unwrap();
    let expected = format!("{OK}early");
    assert_eq!(super::lab::read_exact(&mut client, expected.len()), expected);
    let mut bad = tcp_client(port);
    bad.write_all(b"junk").unwrap();
    let mut told = String::new();
    bad.read_to_string(&mut told).unwrap();
    assert!(told.contains("Invalid JSON header"), "{told}");
}

#[test]
fn the_client_side_sends_the_header_first_and_the_data_after_the_answer() {
    let (lab, port) = (Lab::new(), free_port());
    let upstream = UdpSocket::bind("127.0.0.1:0").unwrap();
    upstream.set_read_timeout(Some(LONG)).unwrap();
    let header = json!([{ "path": { "from": "/labels", "to": "/labels" } }, { "path": "/IP" }, { "set": { "key": "/foo/bar", "value": "z" } }]);
    let transport = json!({ "protocol": "UDP", "port": upstream.local_addr().unwrap().port() });
    let cluster = json!({ "spec": { "protocol": "JSONSocket", "transport": transport, "header": header },
        "endpoints": [{ "spec": { "address": "127.0.0.1" } }] });
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), cluster);
    let client = udp_client(port);
    client.send(b"p1").unwrap();
    client.send(b"p2").unwrap();
    let mut buffer = [0; 1000];
    let (n, from) = upstream.recv_from(&mut buffer).unwrap();
    let first: Value = serde_json::from_slice(&buffer[..n]).unwrap();
    assert_eq!(
        first,
        json!({ "src_addr": "127.0.0.1", "dst_addr": "0.0.0.0", "foo": { "bar": "z" }, "JSONSocketVersion": 1 })
    );
    assert!(buffer[..n].ends_with(br#""JSONSocketVersion":1}"#));
    assert_eq!(lab.sessions()[0]["status"], json!("INIT"));
    upstream.send_to(OK.as_bytes(), from).unwrap();
    let texts: Vec<String> = (0..2)
        .map(|_| {
            let n = upstream.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..n]).into_owned()
        })
        .collect();
    assert_eq!(texts, ["p1", "p2"]);
    upstream.send_to(b"back", from).unwrap();
    assert_eq!(receive(&client), "back");
}

#[test]
fn labels_travel_between_two_proxies() {
    let lab = Lab::new();
    let [first, second] = [free_port(), free_port()];
    let echo = json!({ "spec": { "protocol": "Echo" } });
    lab.listener("second", listener(second), echo);
    let cluster = json!({ "name": "js", "spec": { "protocol": "JSONSocket", "transport": { "protocol": "UDP", "port": second } },
        "endpoints": [{ "spec": { "address": "127.0.0.1" } }] });
    let rules = json!([{ "action": { "rewrite": [{ "path": "/labels/call", "value": "c7" }], "route": { "destination": cluster } } }]);
    lab.post(
        "/listeners",
        &json!({ "listener": { "name": "first", "spec": { "protocol": "UDP", "port": first }, "rules": rules } }),
    );
    assert_eq!(ask(&udp_client(first), "hello"), "hello");
    let received = lab.sessions().into_iter().find(|session| session["name"] == "JSONSocket:second-0").unwrap();
    assert_eq!(received["metadata"]["labels"], json!({ "call": "c7" }));
}

#[test]
fn a_lost_header_is_sent_again_only_where_that_is_asked_for() {
    for (retransmit, headers) in [(0, 1), (40, 3)] {
        let (lab, port) = (Lab::new(), free_port());
        let upstream = UdpSocket::bind("127.0.0.1:0").unwrap();
        upstream.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
        let transport = json!({ "protocol": "UDP", "port": upstream.local_addr().unwrap().port() });
        let cluster = json!({ "spec": { "protocol": "JSONSocket", "transport": transport, "handshake": { "retransmit_ms": retransmit } },
            "endpoints": [{ "spec": { "address": "127.0.0.1" } }] });
        lab.listener("l", json!({ "protocol": "UDP", "port": port }), cluster);
        let client = udp_client(port);
        client.send(b"x").unwrap();
        let seen = (0..3).take_while(|_| upstream.recv(&mut [0; 1000]).is_ok()).count();
        assert_eq!(seen, headers, "retransmit_ms {retransmit}");
        assert!(is_silent(&client));
    }
}

#[test]
fn a_server_over_udp_learns_from_our_client_that_a_session_is_over() {
    // one destination takes the long way through the worker, the other the short one
    for is_udp in [false, true] {
        let (gateway, worker) = (Lab::new(), Lab::new());
        let (port, between, upstream) = (free_port(), free_port(), UdpEcho::start(""));
        let echo = json!({ "spec": { "protocol": "Echo" } });
        worker.listener("js", listener(between), if is_udp { upstream.cluster("c") } else { echo });
        let cluster = json!({ "name": "next", "endpoints": [{ "spec": { "address": "127.0.0.1" } }],
            "spec": { "protocol": "JSONSocket", "transport": { "protocol": "UDP", "port": between },
                "handshake": { "retransmit_ms": 100 } } });
        gateway.listener("l", json!({ "protocol": "UDP", "port": port }), cluster);
        let clients = [udp_client(port), udp_client(port)];
        for client in &clients {
            assert_eq!(ask(client, "hello"), "hello");
        }
        let before = worker.session_names();
        assert_eq!(before.len(), 2);
        let header = worker.sessions()[0]["metadata"]["JSONSocket"].clone();
        assert_eq!(header.as_object().unwrap().keys().collect::<Vec<_>>(), ["JSONSocketVersion", "labels"]);

        // who does not know the word ends nothing
        let peer = worker.sessions()[0]["metadata"]["UDP"]["src_port"].clone();
        let forged =
            format!(r#"{{"portolan-end":{{"port":{peer},"token":"0000000000000007"}},"JSONSocketVersion":1}}"#);
        let stranger = udp_client(between);
        stranger.send(forged.as_bytes()).unwrap();
        assert!(is_silent(&stranger));
        assert_eq!(worker.session_names(), before);

        gateway.delete(&super::lab::session_path(&gateway.session_names()[0]));
        until("the session to end behind it", || worker.session_names().len() == 1);
        assert_eq!(ask(&clients[1], "still here"), "still here");
        assert_eq!(worker.metric("portolan_proxy_sessions_total"), Some(2), "a close notice is not a session");
    }
}
