//! Ways that lead back to where they began, and code points that travel.

use super::lab::{Lab, free_port, receive, tcp_client, tcp_cluster, udp_client, udp_cluster, until};
use portolan_proxy::io::sys;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

fn dropped(lab: &Lab) -> u64 {
    lab.metric("portolan_proxy_drops_total{cause=\"loop\"}").unwrap()
}

#[test]
fn a_loop_inside_one_proxy_ends_after_eight_hops() {
    let lab = Lab::new();
    let (udp, tcp) = (free_port(), free_port());
    lab.listener("u", json!({ "protocol": "UDP", "port": udp }), udp_cluster("cu", udp));
    udp_client(udp).send(b"x").unwrap();
    until("the last hop to be refused", || dropped(&lab) >= 1);
    assert_eq!(lab.sessions().len(), 9, "the first and eight that it led to");
    lab.delete("/listeners/u?recursive=true");
    lab.listener("t", json!({ "protocol": "TCP", "port": tcp }), tcp_cluster("ct", tcp));
    let mut client = tcp_client(tcp);
    client.write_all(b"x").unwrap();
    assert_eq!(client.read(&mut [0; 10]).unwrap_or(0), 0, "closed back along the way");
    drop(client);
    until("nothing to be left", || lab.sessions().is_empty());
    assert_eq!(lab.metric("portolan_proxy_sessions_total"), Some(18));
}

#[test]
fn a_way_through_an_own_listener_is_not_a_loop() {
    let lab = Lab::new();
    let (outer, inner) = (free_port(), free_port());
    lab.listener("inner", json!({ "protocol": "UDP", "port": inner }), json!({ "spec": { "protocol": "Echo" } }));
    lab.listener("outer", json!({ "protocol": "UDP", "port": outer }), udp_cluster("c", inner));
    assert_eq!(super::lab::ask(&udp_client(outer), "hello"), "hello");
    assert_eq!(dropped(&lab), 0);
}

#[test]
fn a_listening_address_of_our_own_is_never_answered() {
    let lab = Lab::new();
    let (port, named) = (free_port(), free_port());
    // A second socket on a listener's address sends as a forged packet would.
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), json!({ "spec": { "protocol": "Echo" } }));
    lab.listener(
        "other",
        json!({ "protocol": "UDP", "port": named, "address": "127.0.0.1" }),
        json!({ "spec": { "protocol": "Echo" } }),
    );
    let forger = sys::udp_listener(([127, 0, 0, 1], named).into(), sys::Sharing::Joins, sys::Buffers::System).unwrap();
    sys::send_to(forger.as_raw_fd(), b"forged", &std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
    until("the packet to be dropped", || dropped(&lab) == 1);
    assert!(lab.sessions().is_empty());
}

#[test]
fn the_hop_count_travels_as_a_label_between_proxies_of_ours() {
    let (one, other) = (Lab::new(), Lab::new());
    let ports = [free_port(), free_port()];
    let to = |port: u16| {
        json!({ "spec": { "protocol": "JSONSocket", "transport": { "protocol": "UDP", "port": port },
            "handshake": { "retransmit_ms": 100 } }, "endpoints": [{ "spec": { "address": "127.0.0.1" } }] })
    };
    let spec = |port: u16| json!({ "protocol": "JSONSocket", "transport": { "protocol": "UDP", "port": port } });
    one.listener("a", spec(ports[0]), to(ports[1]));
    other.listener("b", spec(ports[1]), to(ports[0]));
    let client = udp_client(ports[0]);
    client.send(br#"{"labels":{"x":"y"},"JSONSocketVersion":1}"#).unwrap();
    let answer = receive(&client);
    assert!(answer.contains("\"JSONSocketStatus\":404") || answer.contains("\"JSONSocketStatus\":5"), "{answer}");
    until("the loop to be seen", || dropped(&one) + dropped(&other) >= 1);
}

#[test]
fn a_code_point_is_read_and_written() {
    let (lab, port, upstream) = (Lab::new(), free_port(), UdpSocket::bind("127.0.0.1:0").unwrap());
    sys::receive_dscp(upstream.as_raw_fd());
    let mut cluster = udp_cluster("c", upstream.local_addr().unwrap().port());
    cluster["options"] = json!({ "qos": { "dscp": 46 } });
    let match_it = json!({ "op": "test", "path": "/IP/dscp", "value": 10 });
    for (name, protocol) in [("udp", "UDP"), ("tcp", "TCP")] {
        let rules = json!([{ "match": match_it, "action": { "route": { "destination":
            if protocol == "UDP" { cluster.clone() } else { json!({ "spec": { "protocol": "Echo" } }) } } } }]);
        lab.post(
            "/listeners",
            &json!({ "listener": { "name": name, "spec": { "protocol": protocol, "port": port },
            "rules": rules, "options": { "qos": {} } } }),
        );
    }
    let client = udp_client(port);
    sys::set_dscp(client.as_raw_fd(), 10);
    client.send(b"x").unwrap();
    let mut batch = sys::RecvBatch::new(true).unwrap();
    until("the datagram to arrive", || batch.receive(upstream.as_raw_fd(), 0).is_ok_and(|n| n == 1));
    assert_eq!(batch.dscp(0), Some(46));
    let wrong = udp_client(port);
    wrong.send(b"x").unwrap();
    until("another code point to find no route", || {
        lab.metric("portolan_proxy_drops_total{cause=\"no_route\"}") == Some(1)
    });
    let stream = sys::tcp_connecting(([127, 0, 0, 1], port).into(), None, Some(10)).unwrap();
    let mut stream = std::net::TcpStream::from(stream);
    stream.set_nonblocking(false).unwrap();
    stream.write_all(b"hello").unwrap();
    assert_eq!(super::lab::read_exact(&mut stream, 5), "hello");
}

/// Waits for a datagram and returns its code point.
fn code_point_of_next(socket: &UdpSocket) -> Option<u8> {
    let mut batch = sys::RecvBatch::new(true).unwrap();
    until("a datagram to arrive", || batch.receive(socket.as_raw_fd(), 0).is_ok_and(|n| n == 1));
    batch.dscp(0)
}

#[test]
fn live_sessions_are_marked_as_their_listener_and_cluster_say_by_now() {
    let (lab, port, upstream) = (Lab::new(), free_port(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let put = |cluster: Value, listener: Value| {
        let mut to = udp_cluster("c", upstream.local_addr().unwrap().port());
        to["options"] = cluster;
        let at = json!({ "spec": { "protocol": "UDP", "port": port }, "options": listener,
            "rules": [{ "name": "r", "action": { "route": { "name": "way", "destination": "c" } } }] });
        for (path, body) in [("/clusters/c", to), ("/listeners/l", at)] {
            let (status, answer) = lab.call_v2("PUT", path, &body);
            assert_eq!(status, 200, "{answer}");
        }
    };
    let marked = |dscp: u8| json!({ "qos": { "dscp": dscp } });
    put(json!({}), json!({}));
    let client = udp_client(port);
    let ways = [&upstream, &client];
    for end in ways {
        sys::receive_dscp(end.as_raw_fd());
    }
    client.send(b"first").unwrap();
    let mut from = [0; 9];
    let (_, stage) = upstream.recv_from(&mut from).unwrap();
    upstream.connect(stage).unwrap();
    let code_points = || {
        for end in ways {
            end.send(b"x").unwrap();
        }
        ways.map(code_point_of_next)
    };
    assert_eq!(code_points(), [Some(0), Some(0)]);
    put(marked(46), json!({}));
    assert_eq!(code_points(), [Some(46), Some(0)]);
    put(marked(8), marked(10));
    assert_eq!(code_points(), [Some(8), Some(10)]);
    put(json!({}), marked(12));
    assert_eq!(code_points(), [Some(0), Some(12)]);
    put(json!({}), json!({}));
    assert_eq!(code_points(), [Some(0), Some(0)]);
    assert_eq!(lab.metric("portolan_proxy_sessions_total"), Some(1));
}
