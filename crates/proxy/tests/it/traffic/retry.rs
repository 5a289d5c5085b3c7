//! Attempts, time-outs and what remains of a session that never stood.

use super::lab::{Lab, echo, events, free_port, read_exact, serve, tcp_client, tcp_cluster, until};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

#[test]
fn an_upstream_that_opens_late_gets_the_first_bytes() {
    let (lab, port, late) = (Lab::new(), free_port(), free_port());
    let retry = json!({ "retry_on": "connect-failure", "num_retries": 3, "timeout": 500 });
    let route = json!({ "destination": tcp_cluster("c", late), "retry": retry });
    lab.listener_with("l", json!({ "protocol": "TCP", "port": port }), route, json!({}));
    let began = Instant::now();
    let mut client = tcp_client(port);
    client.write_all(b"first bytes").unwrap();
    until("the session to wait for its next attempt", || {
        lab.sessions().first().is_some_and(|session| session["destination"]["status"] == "RETRYING")
    });
    std::thread::sleep(Duration::from_millis(700).saturating_sub(began.elapsed()));
    serve(TcpListener::bind(("127.0.0.1", late)).unwrap(), echo);
    let opened = Instant::now();
    assert_eq!(read_exact(&mut client, 11), "first bytes");
    assert!(began.elapsed().as_millis() >= 950, "an attempt came before its time");
    assert!(opened.elapsed().as_millis() < 1500, "attempts are 500 ms apart, and a second is for a busy machine");
}

#[test]
fn a_cluster_without_endpoints_is_tried_and_then_told_of() {
    let (lab, port) = (Lab::new(), free_port());
    let cluster = json!({ "name": "c", "spec": { "protocol": "TCP", "port": 1 }, "endpoints": [] });
    let retry = json!({ "retry_on": "always", "num_retries": 2, "timeout": 400 });
    let route = json!({ "destination": cluster, "retry": retry });
    lab.listener_with("l", json!({ "protocol": "TCP", "port": port }), route, json!({ "track": 60 }));
    let began = Instant::now();
    let mut client = tcp_client(port);
    until("the session", || !lab.sessions().is_empty());
    let session = &lab.sessions()[0];
    assert_eq!((&session["status"], &session["destination"]["status"]), (&json!("INIT"), &json!("RETRYING")));
    assert_eq!(client.read(&mut [0; 10]).unwrap_or(0), 0);
    let took = began.elapsed().as_millis();
    assert!((780..2500).contains(&took), "closed after {took} ms");
    until("the session to be over", || lab.sessions()[0]["status"] == "DESTROYED");
    let session = &lab.sessions()[0];
    assert_eq!(events(session), ["INIT", "LOOKUP SUCCESS", "ERROR", "DESTROY"]);
    let name = session["name"].as_str().unwrap();
    assert_eq!(
        session["events"][2]["content"],
        json!(format!("Pipeline setup failed for session \"{name}\": Not Found: No endpoint in cluster"))
    );
}

#[test]
fn a_lost_upstream_is_connected_again_for_a_waiting_client() {
    let lab = Lab::new();
    let port = free_port();
    let upstream = super::lab::tcp_server(|mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(&byte).unwrap();
    });
    let retry = json!({ "retry_on": "always", "num_retries": 3, "timeout": 50 });
    let route = json!({ "destination": tcp_cluster("c", upstream.port()), "retry": retry });
    lab.listener_with("l", json!({ "protocol": "TCP", "port": port }), route, json!({}));
    let mut client = tcp_client(port);
    for byte in ["a", "b", "c"] {
        client.write_all(byte.as_bytes()).unwrap();
        assert_eq!(read_exact(&mut client, 1), byte);
        until("the upstream to be back", || lab.sessions()[0]["status"] == "CONNECTED");
        std::thread::sleep(Duration::from_millis(60));
        until("the upstream to be back", || lab.sessions()[0]["status"] == "CONNECTED");
    }
    assert_eq!(lab.sessions().len(), 1);
}
