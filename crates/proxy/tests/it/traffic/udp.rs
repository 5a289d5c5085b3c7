//! UDP listeners and clusters.

use super::lab::{
    Lab, UdpEcho, ask, events, free_port, is_silent, receive, session_path, udp_client, udp_cluster, until,
};
use serde_json::json;
use std::net::UdpSocket;

#[test]
fn two_clients_are_two_sessions_and_a_deleted_one_comes_back_as_another() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start("E:"), free_port());
    let route = json!({ "destination": upstream.cluster("c") });
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, json!({ "track": 5 }));
    let (a, b) = (udp_client(port), udp_client(port));
    assert_eq!((ask(&a, "a1"), ask(&b, "b1")), ("E:a1".into(), "E:b1".into()));
    let names = lab.session_names();
    let name = |client: &UdpSocket, id: usize| {
        format!("UDP:127.0.0.1:{}-0.0.0.0:{port}-{id}", client.local_addr().unwrap().port())
    };
    assert_eq!(names, [name(&a, 0), name(&b, 1)]);
    let session = &lab.sessions()[0];
    assert_eq!((&session["status"], &session["destination"]["status"]), (&json!("CONNECTED"), &json!("READY")));
    assert_eq!(events(session), ["INIT", "LOOKUP SUCCESS", "CONNECT"]);
    assert_eq!(session["metadata"]["UDP"]["dst_port"], json!(port));
    lab.delete(&session_path(&names[0]));
    assert_eq!(ask(&a, "a2"), "E:a2");
    assert_eq!(lab.session_names(), [name(&a, 0), name(&b, 1), name(&a, 2)]);
    let ended = &lab.sessions()[0];
    assert_eq!(ended["status"], json!("DESTROYED"));
    let end = ended["events"].as_array().unwrap().iter().find(|event| event["event"] == "END").unwrap();
    assert_eq!((&end["message"], &end["content"]), (&json!("OK"), &json!("Session removed from the API")));
}

#[test]
fn sessions_outlive_their_listener_and_its_return() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start("E:"), free_port());
    lab.post("/clusters", &json!({ "cluster": upstream.cluster("c") }));
    let add = || lab.listener("l", json!({ "protocol": "UDP", "port": port }), json!("c"));
    add();
    let (known, later) = (udp_client(port), udp_client(port));
    assert_eq!(ask(&known, "1"), "E:1");
    lab.delete("/listeners/l");
    assert_eq!(ask(&known, "2"), "E:2");
    assert_eq!(lab.sessions()[0]["source"]["listener"], json!("<INVALID>"));
    later.send(b"nobody").unwrap();
    assert!(is_silent(&later));
    add();
    assert_eq!((ask(&known, "3"), ask(&later, "4")), ("E:3".into(), "E:4".into()));
    assert_eq!(lab.sessions().len(), 2);
}

#[test]
fn sessions_outlive_their_cluster_unless_it_is_deleted_recursively() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start("E:"), free_port());
    lab.post("/clusters", &json!({ "cluster": upstream.cluster("c") }));
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), json!("c"));
    let client = udp_client(port);
    assert_eq!(ask(&client, "1"), "E:1");
    lab.delete("/clusters/c");
    assert_eq!(ask(&client, "2"), "E:2");
    lab.delete(&session_path(&lab.session_names()[0]));
    lab.post("/clusters", &json!({ "cluster": upstream.cluster("c") }));
    until("the cluster serves again", || {
        client.send(b"3").unwrap();
        !is_silent(&client)
    });
    lab.delete("/clusters/c?recursive=true");
    assert_eq!(lab.session_names(), [""; 0]);
}

#[test]
fn a_session_moves_to_another_endpoint_when_its_own_is_deleted() {
    let port = free_port();
    let one = UdpEcho::on("127.0.0.1:0", "1:");
    let _other = UdpEcho::on(&format!("127.0.0.2:{}", one.port), "2:");
    let lab = Lab::new();
    let cluster = json!({ "name": "c", "spec": { "protocol": "UDP", "port": one.port }, "endpoints": [
        { "name": "e1", "spec": { "address": "127.0.0.1" } }, { "name": "e2", "spec": { "address": "127.0.0.2" } }] });
    let route = json!({ "destination": cluster, "retry": { "retry_on": "always", "num_retries": 2, "timeout": 100 } });
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, json!({}));
    let client = udp_client(port);
    assert_eq!(ask(&client, "a"), "1:a");
    let before = lab.session_names();
    lab.delete("/endpoints/e1?recursive=true");
    assert_eq!(ask(&client, "b"), "2:b");
    assert_eq!(lab.session_names(), before);
}

#[test]
fn a_singleton_has_its_session_before_any_packet_and_talks_to_one_peer() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start("E:"), free_port());
    let (peer, stranger) = (udp_client(port), udp_client(port));
    let peer_port = peer.local_addr().unwrap().port();
    let spec = json!({ "protocol": "UDP", "port": port, "connect": { "address": "127.0.0.1", "port": peer_port } });
    lab.listener("l", spec, upstream.cluster("c"));
    until("the session of the singleton", || lab.sessions().len() == 1);
    stranger.send(b"hello").unwrap();
    assert!(is_silent(&stranger));
    assert_eq!(ask(&peer, "x"), "E:x");
    lab.delete(&session_path(&lab.session_names()[0]));
    assert_eq!(ask(&peer, "y"), "E:y");
}

#[test]
fn a_half_named_peer_is_answered_and_others_are_not() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start("E:"), free_port());
    let (peer, stranger) = (udp_client(port), udp_client(port));
    let peer_port = peer.local_addr().unwrap().port();
    let spec = json!({ "protocol": "UDP", "port": port, "connect": { "port": peer_port } });
    lab.listener("l", spec, upstream.cluster("c"));
    assert_eq!(ask(&peer, "x"), "E:x");
    stranger.send(b"hello").unwrap();
    assert!(is_silent(&stranger));
}

#[test]
fn a_burst_of_a_new_client_comes_back_whole_and_in_order() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start(""), free_port());
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), upstream.cluster("c"));
    let client = udp_client(port);
    for i in 0..50 {
        client.send(format!("packet {i}").as_bytes()).unwrap();
    }
    let answers: Vec<String> = (0..50).map(|_| receive(&client)).collect();
    assert_eq!(answers, (0..50).map(|i| format!("packet {i}")).collect::<Vec<_>>());
    assert_eq!(lab.sessions().len(), 1);
}

#[test]
fn two_thousand_clients_lose_no_first_packet() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start(""), free_port());
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), upstream.cluster("c"));
    let clients: Vec<UdpSocket> = (0..2000).map(|_| udp_client(port)).collect();
    for clients in clients.chunks(100) {
        for client in clients {
            client.send(b"first").unwrap();
        }
        for client in clients {
            assert_eq!(receive(client), "first");
        }
    }
    assert_eq!(lab.sessions().len(), 2000);
    lab.delete("/listeners/l?recursive=true");
    assert_eq!(lab.sessions().len(), 0);
}

#[test]
fn empty_and_large_datagrams_pass_whole() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start(""), free_port());
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), upstream.cluster("c"));
    let client = udp_client(port);
    assert_eq!(ask(&client, ""), "");
    let large = "x".repeat(65_000);
    assert_eq!(ask(&client, &large).len(), 65_000);
    for mixed in [&large[..1200], "", &large[..1200], &large[..7], &large[..9000]] {
        assert_eq!(ask(&client, mixed), mixed);
    }
    assert_eq!(lab.sessions().len(), 1);
}

#[test]
fn an_endpoint_that_refuses_ends_the_session_and_the_next_packet_makes_another() {
    let (lab, port, dead) = (Lab::new(), free_port(), free_port());
    let route = json!({ "destination": udp_cluster("c", dead) });
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, json!({ "track": 60 }));
    let client = udp_client(port);
    client.send(b"1").unwrap();
    until("the first session to end", || lab.sessions().first().is_some_and(|s| s["status"] == "DESTROYED"));
    let session = &lab.sessions()[0];
    assert_eq!(events(session), ["INIT", "LOOKUP SUCCESS", "CONNECT", "DISCONNECT", "END", "DESTROY"]);
    let told = session["events"][3]["message"].as_str().unwrap();
    assert_eq!(told, "Session.disconnect: Stage: c: Error: recvmsg ECONNREFUSED:");
    assert_eq!(session["events"][4]["message"], json!("Normal end"));
    until("a second session", || {
        client.send(b"2").ok();
        lab.sessions().len() > 1
    });
}

#[test]
fn an_idle_session_ends_and_traffic_in_either_direction_keeps_it() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start(""), free_port());
    let route = json!({ "destination": upstream.cluster("c") });
    lab.listener_with(
        "l",
        json!({ "protocol": "UDP", "port": port }),
        route,
        json!({ "idle_timeout": 1, "track": 60 }),
    );
    let client = udp_client(port);
    assert_eq!(ask(&client, "x"), "x");
    until("the session to be idle", || lab.sessions()[0]["status"] == "DESTROYED");
    assert_eq!(ask(&client, "y"), "y");
}

#[test]
fn caps_refuse_or_evict() {
    let (lab, upstream) = (Lab::new(), UdpEcho::start(""));
    lab.post("/clusters", &json!({ "cluster": upstream.cluster("c") }));
    let [refusing, sourced] = [free_port(), free_port()];
    let add = |name: &str, port: u16, options| {
        lab.listener_with(name, json!({ "protocol": "UDP", "port": port }), json!({ "destination": "c" }), options);
    };
    add("refusing", refusing, json!({ "max_sessions": 1 }));
    add("sourced", sourced, json!({ "max_sessions_per_source": 1 }));
    for port in [refusing, sourced] {
        let (first, second) = (udp_client(port), udp_client(port));
        assert_eq!(ask(&first, "1"), "1");
        second.send(b"2").unwrap();
        assert!(is_silent(&second));
    }
    let lab = Lab::with_workers(1);
    lab.post("/clusters", &json!({ "cluster": upstream.cluster("c") }));
    let port = free_port();
    let route = json!({ "destination": "c" });
    lab.listener_with(
        "l",
        json!({ "protocol": "UDP", "port": port }),
        route,
        json!({ "max_sessions": 1, "evict": "lru" }),
    );
    let (first, second) = (udp_client(port), udp_client(port));
    assert_eq!((ask(&first, "1"), ask(&second, "2")), ("1".into(), "2".into()));
    assert_eq!(lab.sessions().len(), 1);
}

#[test]
fn both_families_are_served_without_an_address() {
    let (lab, upstream, port) = (Lab::new(), UdpEcho::start("E:"), free_port());
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), upstream.cluster("c"));
    let six = UdpSocket::bind("[::1]:0").unwrap();
    six.connect(("::1", port)).unwrap();
    six.set_read_timeout(Some(super::lab::LONG)).unwrap();
    assert_eq!((ask(&six, "6"), ask(&udp_client(port), "4")), ("E:6".into(), "E:4".into()));
    assert_eq!(lab.sessions()[0]["metadata"]["IP"]["src_addr"], json!("::1"));
}
