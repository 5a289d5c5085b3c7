//! The configuration changes while sessions run.

use super::lab::{Lab, UdpEcho, ask, echo, free_port, read_exact, receive, serve, tcp_client, udp_client, until};
use portolan_proxy::io::sys;
use serde_json::json;
use std::io::Write;
use std::net::TcpListener;

#[test]
fn changes_under_traffic_lose_no_packet_and_cut_no_session() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start(""), free_port());
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), upstream.cluster("c"));
    let client = udp_client(port);
    assert_eq!(ask(&client, "first"), "first");
    let name = lab.session_names();
    for i in 0..100 {
        client.send(format!("a{i}").as_bytes()).unwrap();
        lab.post("/clusters", &json!({ "cluster": { "name": format!("x{i}"), "spec": { "protocol": "Echo" } } }));
        client.send(format!("b{i}").as_bytes()).unwrap();
        assert_eq!([receive(&client), receive(&client)], [format!("a{i}"), format!("b{i}")]);
    }
    assert_eq!(lab.session_names(), name);
}

#[test]
fn orphans_end_with_their_listener_where_that_is_asked_for() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start(""), free_port());
    let route = json!({ "destination": upstream.cluster("c") });
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, json!({ "removeOrphanSessions": true }));
    assert_eq!(ask(&udp_client(port), "x"), "x");
    lab.delete("/listeners/l");
    until("the session to end", || lab.sessions().is_empty());
}

#[test]
fn a_stream_moves_to_another_endpoint_with_its_client_connected() {
    let (lab, port, upstream) = (Lab::new(), free_port(), free_port());
    for address in ["127.0.0.1", "127.0.0.2"] {
        serve(TcpListener::bind((address, upstream)).unwrap(), move |mut stream| {
            stream.write_all(&[address.as_bytes()[8]]).ok();
            echo(stream);
        });
    }
    let cluster = json!({ "name": "c", "spec": { "protocol": "TCP", "port": upstream }, "endpoints": [
        { "name": "e1", "spec": { "address": "127.0.0.1" } }, { "name": "e2", "spec": { "address": "127.0.0.2" } }] });
    let retry = json!({ "retry_on": "always", "num_retries": 3, "timeout": 100 });
    lab.listener_with(
        "l",
        json!({ "protocol": "TCP", "port": port }),
        json!({ "destination": cluster, "retry": retry }),
        json!({}),
    );
    let mut client = tcp_client(port);
    client.write_all(b"a").unwrap();
    assert_eq!(read_exact(&mut client, 2), "1a");
    let name = lab.session_names();
    lab.delete("/endpoints/e1?recursive=true");
    client.write_all(b"b").unwrap();
    assert_eq!(read_exact(&mut client, 2), "2b");
    assert_eq!(lab.session_names(), name);
}

#[test]
fn a_page_of_sessions_ends_where_the_next_begins() {
    use portolan_proxy::config::engine::{Engine, Page, SessionFilter};
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start(""), free_port());
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), upstream.cluster("c"));
    let clients: Vec<_> = (0..250).map(|_| udp_client(port)).collect();
    for client in &clients {
        assert_eq!(ask(client, "x"), "x");
    }
    let (mut names, mut from) = (Vec::new(), None);
    loop {
        let page = lab.plane.sessions(&SessionFilter::default(), &Page { limit: Some(70), from });
        assert!(page.sessions.len() <= 70);
        names.extend(page.sessions.into_iter().map(|session| session.name));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(names, lab.session_names());
    assert_eq!(lab.plane.count(&SessionFilter::default()), 250);
}

#[test]
fn ten_thousand_endpoints_come_into_force_at_once_whatever_the_balancer() {
    let upstream = UdpEcho::on("127.0.0.1:0", "");
    for (policy, most) in [("Trivial", 1), ("HashRing", 2), ("Maglev", 2), ("RoundRobin", 2)] {
        let (lab, port) = (Lab::new(), free_port());
        let mut cluster = upstream.cluster("c");
        cluster["loadbalancer"] = json!({ "policy": policy, "key": "/UDP/src_port" });
        let route = json!({ "destination": cluster });
        lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, json!({ "track": 60 }));
        let client = udp_client(port);
        assert_eq!(ask(&client, "before"), "before");
        let ops: Vec<_> = (0..9_999u32)
            .map(|index| {
                let address = std::net::Ipv4Addr::from(0x7f00_0002 + index).to_string();
                json!({ "op": "put", "kind": "endpoint", "name": format!("e{index}"), "cluster": "c",
                    "object": { "spec": { "address": address } } })
            })
            .collect();
        let body = json!({ "owner": "test", "ops": ops });
        let (began, busy) = (std::time::Instant::now(), sys::thread_cpu_ns());
        let (status, answer) = lab.call_v2("POST", "/apply", &body);
        let busy = (sys::thread_cpu_ns() - busy) / 1000;
        eprintln!("10 000 endpoints, {policy}: {:?}, of which {busy} us at work", began.elapsed());
        assert_eq!(status, 200, "{answer}");
        assert_eq!(ask(&client, "after"), "after");
        let placed: std::collections::BTreeSet<String> = (0..2 * most)
            .map(|_| {
                udp_client(port).send(b"x").unwrap();
                let sessions = lab.sessions();
                sessions.last().unwrap()["destination"]["endpoint"]["name"].to_string()
            })
            .collect();
        assert!(placed.len() >= most, "{policy}: {placed:?}");
    }
}
