//! Circuits, retry budgets, and endpoints that are left alone.

use super::lab::{
    Lab, UdpEcho, echo, free_port, read_exact, session_path, tcp_client, tcp_cluster, tcp_server, udp_client, until,
};
use portolan_proxy::config::engine::Engine;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;

#[test]
fn an_open_circuit_refuses_at_once() {
    let lab = Lab::new();
    let (port, upstream) = (free_port(), tcp_server(echo));
    let mut cluster = tcp_cluster("c", upstream.port());
    cluster["options"] = json!({ "max_sessions": 1 });
    let route = json!({ "destination": cluster });
    lab.listener_with("l", json!({ "protocol": "TCP", "port": port }), route, json!({ "track": 60 }));
    let mut first = tcp_client(port);
    first.write_all(b"x").unwrap();
    assert_eq!(read_exact(&mut first, 1), "x");
    assert_eq!(tcp_client(port).read(&mut [0; 10]).unwrap_or(0), 0);
    until("the second to be told", || lab.sessions().len() == 2 && lab.sessions()[1]["status"] == "DESTROYED");
    assert_eq!(lab.sessions()[1]["events"][2]["message"], json!("Service Unavailable"));
    assert_eq!(refusals(&lab, "max_sessions"), 1);
    drop(first);
    until("the first to end", || lab.sessions()[0]["status"] == "DESTROYED");
    let mut third = tcp_client(port);
    third.write_all(b"y").unwrap();
    assert_eq!(read_exact(&mut third, 1), "y");
}

fn refusals(lab: &Lab, limit: &str) -> u64 {
    let series = format!("portolan_proxy_circuit_refusals_total{{cluster=\"c\",limit=\"{limit}\"}}");
    lab.metric(&series).unwrap_or(0)
}

/// A port that takes connections into a queue of its own and is full: further ones neither stand nor fail.
fn silent_port() -> (TcpListener, Vec<std::net::TcpStream>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let short = std::time::Duration::from_millis(50);
    let held = std::iter::from_fn(|| std::net::TcpStream::connect_timeout(&address, short).ok()).collect();
    (listener, held)
}

#[test]
fn attempts_beyond_max_pending_are_refused() {
    let (lab, port) = (Lab::with_workers(1), free_port());
    let (silent, _held) = silent_port();
    let mut cluster = tcp_cluster("c", silent.local_addr().unwrap().port());
    cluster["options"] = json!({ "max_pending": 2 });
    lab.listener("l", json!({ "protocol": "TCP", "port": port }), cluster);
    let _waiting = [tcp_client(port), tcp_client(port)];
    until("two to wait", || lab.sessions().len() == 2);
    assert_eq!(tcp_client(port).read(&mut [0; 10]).unwrap_or(0), 0);
    assert_eq!((refusals(&lab, "max_pending"), lab.sessions().len()), (1, 2));
}

/// Sessions that fail at once and would be tried again after a long time.
fn retrying(lab: &Lab, port: u16, options: Value) {
    let mut cluster = tcp_cluster("c", free_port());
    cluster["options"] = options;
    let retry = json!({ "retry_on": "connect-failure", "num_retries": 1, "timeout": 60_000 });
    let route = json!({ "destination": cluster, "retry": retry });
    lab.listener_with("l", json!({ "protocol": "TCP", "port": port }), route, json!({ "track": 60 }));
}

#[test]
fn retries_beyond_max_retries_are_refused_and_their_place_is_given_back() {
    let (lab, port) = (Lab::with_workers(1), free_port());
    retrying(&lab, port, json!({ "max_retries": 1 }));
    let waits = |n: usize| {
        let waiting = lab.sessions().iter().filter(|it| it["destination"]["status"] == "RETRYING").count();
        waiting == n
    };
    let _first = tcp_client(port);
    until("one to wait for its next attempt", || waits(1));
    assert_eq!(tcp_client(port).read(&mut [0; 10]).unwrap_or(0), 0);
    assert_eq!(refusals(&lab, "max_retries"), 1);
    let error = &lab.sessions()[1]["events"][2];
    assert_eq!(error["message"], json!("Service Unavailable"));
    assert!(error["content"].as_str().unwrap().contains("max_retries"), "{error}");
    lab.delete(&session_path(&lab.session_names()[0]));
    assert!(waits(0));
    let _second = tcp_client(port);
    until("another to take its place", || waits(1));
}

#[test]
fn the_retry_budget_lets_a_storm_die_down() {
    let (lab, port) = (Lab::with_workers(1), free_port());
    retrying(&lab, port, json!({}));
    let clients: Vec<_> = (0..300).map(|_| tcp_client(port)).collect();
    // A hundred may be tried again, and one for every five first attempts.
    until("the rest to be refused", || refusals(&lab, "retry_budget") >= 100);
    until("all to have failed once", || {
        let waiting = lab.sessions().iter().filter(|it| it["destination"]["status"] == "RETRYING").count();
        waiting as u64 + refusals(&lab, "retry_budget") == 300
    });
    drop(clients);
}

#[test]
fn an_endpoint_that_refuses_is_left_alone_by_default_and_half_of_them_at_most() {
    let lab = Lab::with_workers(1);
    let (port, alive) = (free_port(), tcp_server(echo));
    let endpoint = |name: &str, address: &str| json!({ "name": name, "spec": { "address": address } });
    let cluster = json!({ "name": "c", "spec": { "protocol": "TCP", "port": alive.port() },
        "loadbalancer": { "policy": "RoundRobin" },
        "endpoints": [endpoint("dead", "127.0.0.3"), endpoint("alive", "127.0.0.1"), endpoint("dead2", "127.0.0.4")] });
    lab.listener("l", json!({ "protocol": "TCP", "port": port }), cluster);
    let works = || {
        let mut client = tcp_client(port);
        client.write_all(b"x").is_ok() && client.read_exact(&mut [0]).is_ok()
    };
    let worked = (0..60).filter(|_| works()).count();
    let stats = lab.plane.stats();
    let mut open: Vec<_> = stats.endpoints.iter().map(|(_, endpoint, open)| (&**endpoint, *open)).collect();
    open.sort_unstable();
    assert_eq!(
        open.iter().filter(|(_, open)| !open).count(),
        1,
        "one of three is less than half, two are more: {open:?}"
    );
    assert_eq!(open[0], ("alive", true));
    assert!((30..60).contains(&worked), "{worked}");
}

#[test]
fn a_datagram_endpoint_is_judged_by_its_answers() {
    let lab = Lab::with_workers(1);
    let (port, upstream) = (free_port(), free_port());
    let alive = UdpEcho::on(&format!("127.0.0.1:{upstream}"), "");
    let cluster = json!({ "name": "c", "spec": { "protocol": "UDP", "port": upstream },
        "options": { "outlier": { "consecutive_failures": 2, "eject_for": 0.2 } },
        "endpoints": [{ "name": "dead", "spec": { "address": "127.0.0.3" } },
            { "name": "alive", "spec": { "address": "127.0.0.1" } }] });
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), cluster);
    let is_open = |name: &str| lab.plane.stats().endpoints.iter().any(|(_, it, open)| &**it == name && *open);
    until("the dead endpoint to be left alone", || {
        let client = udp_client(port);
        client.set_read_timeout(Some(super::lab::SHORT)).unwrap();
        client.send(b"x").unwrap();
        // refused, answered or left without an answer: whichever it is, the endpoint is judged by it
        let _answered = client.recv(&mut [0; 10]).is_ok();
        !is_open("dead")
    });
    let answered = || {
        let client = udp_client(port);
        client.set_read_timeout(Some(super::lab::SHORT)).unwrap();
        client.send(b"z").is_ok() && client.recv(&mut [0; 10]).is_ok()
    };
    until("the other one to answer", answered);
    let _back = UdpEcho::on(&format!("127.0.0.3:{upstream}"), "");
    until("a probe to find it well", || answered() && is_open("dead"));
    drop(alive);
}

#[test]
fn an_attempt_that_takes_too_long_speaks_against_the_endpoint() {
    let (lab, port) = (Lab::with_workers(1), free_port());
    let (silent, _held) = silent_port();
    let upstream = silent.local_addr().unwrap().port();
    let cluster = json!({ "name": "c", "spec": { "protocol": "TCP", "port": upstream },
        "endpoints": [{ "name": "slow", "spec": { "address": "127.0.0.1" } },
            { "name": "other", "spec": { "address": "127.0.0.2" } }] });
    let route = json!({ "destination": cluster, "retry": { "timeout": 20 } });
    lab.listener_with("l", json!({ "protocol": "TCP", "port": port }), route, json!({}));
    for _ in 0..3 {
        assert_eq!(tcp_client(port).read(&mut [0; 10]).unwrap_or(0), 0);
    }
    assert_eq!(lab.plane.stats().endpoints.iter().map(|(_, _, open)| *open).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn an_endpoint_that_takes_connections_and_cuts_them_is_left_alone_too() {
    let (lab, port) = (Lab::with_workers(1), free_port());
    // Closing with bytes unread is a reset.
    let cuts = tcp_server(|stream| drop(stream.peek(&mut [0; 10])));
    let cluster = json!({ "name": "c", "spec": { "protocol": "TCP", "port": cuts.port() },
        "endpoints": [{ "name": "cuts", "spec": { "address": "127.0.0.1" } },
            { "name": "other", "spec": { "address": "127.0.0.2" } }] });
    lab.listener("l", json!({ "protocol": "TCP", "port": port }), cluster);
    for _ in 0..3 {
        let mut client = tcp_client(port);
        client.write_all(b"x").unwrap();
        assert_eq!(client.read(&mut [0; 10]).unwrap_or(0), 0);
    }
    let open = || lab.plane.stats().endpoints.iter().map(|(_, _, open)| *open).collect::<Vec<_>>();
    until("the endpoint to be left alone", || open() == [false, true]);
}
