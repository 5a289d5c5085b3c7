//! What l7mp does wrong and we must not: the list of the specification, by number. Those that other tests show
//! already are named in [`ELSEWHERE`].

use super::lab::{
    Lab, UdpEcho, ask, echo, events, free_port, is_silent, receive, session_path, tcp_client, tcp_cluster, tcp_server,
    udp_client, until,
};
use portolan_proxy::config::engine::Engine;
use serde_json::{Value, json};
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number, source, and the test in it.
const ELSEWHERE: [(u8, &str, &str); 24] = [
    (1, include_str!("../rest/faults.rs"), "nothing_that_is_sent_ends_the_api"),
    (1, include_str!("hostile.rs"), "noise_on_every_listener_leaves_the_others_alone"),
    (2, include_str!("websocket.rs"), "udp_reaches_a_websocket_without_http_metadata_and_with_rewrites"),
    (3, include_str!("load.rs"), "ten_thousand_clients_in_one_burst_are_ten_thousand_sessions_and_no_packet_is_lost"),
    (3, include_str!("udp.rs"), "a_burst_of_a_new_client_comes_back_whole_and_in_order"),
    (4, include_str!("udp.rs"), "an_idle_session_ends_and_traffic_in_either_direction_keeps_it"),
    (5, include_str!("../rest/table.rs"), "whole_configurations_answer_as_the_table_says"),
    (5, include_str!("../rest/table.rs"), "endpoints_answer_as_the_table_says"),
    (6, include_str!("../rest/table.rs"), "listeners_answer_as_the_table_says"),
    (7, include_str!("changes.rs"), "orphans_end_with_their_listener_where_that_is_asked_for"),
    (7, include_str!("../rest/life.rs"), "children_stay_until_the_last_session_of_a_deleted_listener_ends"),
    (8, include_str!("../rest/life.rs"), "a_session_is_dumped_with_its_chain_in_both_modes"),
    (9, include_str!("rules.rs"), "nothing_that_rules_say_ends_the_process"),
    (11, include_str!("websocket.rs"), "sessions_outlive_their_listener"),
    (12, include_str!("udp.rs"), "a_singleton_has_its_session_before_any_packet_and_talks_to_one_peer"),
    (14, include_str!("streams.rs"), "a_tcp_session_is_named_by_its_ends_without_v6_clothes"),
    (14, include_str!("rules.rs"), "addresses_match_with_and_without_v6_clothes"),
    (15, include_str!("websocket.rs"), "opcodes_pings_and_closes_come_back_as_they_went"),
    (16, include_str!("streams.rs"), "the_rest_of_an_echo_arrives_after_half_close"),
    (17, include_str!("json_socket.rs"), "labels_travel_between_two_proxies"),
    (18, include_str!("chains.rs"), "a_pair_takes_two"),
    (20, include_str!("changes.rs"), "a_page_of_sessions_ends_where_the_next_begins"),
    (22, include_str!("../rest/table.rs"), "clusters_answer_as_the_table_says"),
    (23, include_str!("retries.rs"), "sessions_retry_as_the_table_says"),
];

#[test]
fn every_number_of_the_list_has_a_test() {
    let here = include_str!("defects.rs");
    for (number, source, test) in ELSEWHERE {
        assert!(source.contains(test), "{number}: there is no test {test}");
    }
    for number in 1..=24 {
        let named = here.contains(&format!("fn defect_{number}_"));
        assert!(named || ELSEWHERE.iter().any(|(other, ..)| *other == number), "{number} has no test");
    }
}

#[test]
fn defect_10_a_tracked_failed_session_disturbs_no_delete() {
    let (lab, port, nowhere) = (Lab::new(), free_port(), free_port());
    let rules =
        json!([{ "match": { "op": "defined", "path": "/nothing" }, "action": { "route": { "destination": "c" } } }]);
    let spec = json!({ "protocol": "TCP", "port": port });
    lab.post(
        "/listeners",
        &json!({ "listener": { "name": "l", "spec": spec, "rules": rules, "options": { "track": 600 } } }),
    );
    let route = json!({ "destination": tcp_cluster("c", free_port()) });
    lab.listener_with("refused", json!({ "protocol": "TCP", "port": nowhere }), route, json!({ "track": 600 }));
    for port in [port, nowhere] {
        assert_eq!(tcp_client(port).read(&mut [0; 1]).unwrap_or(0), 0);
    }
    until("both corpses", || lab.sessions().iter().filter(|s| s["status"] == "DESTROYED").count() == 2);
    for path in ["/listeners/l?recursive=true", "/listeners/refused?recursive=true"] {
        lab.delete(path);
    }
    assert_eq!(lab.get("/listeners"), json!([]));
    assert_eq!(lab.get("/clusters"), json!([]), "what came with a listener has gone with it");
    assert_eq!(lab.sessions().len(), 2, "they are still to be read");
}

#[test]
fn defect_13_an_egress_chain_is_whole_again_after_a_reconnect() {
    let (lab, port) = (Lab::new(), free_port());
    let destination = [UdpEcho::start("D1:"), UdpEcho::start("")];
    let _d2 = UdpEcho::on(&format!("127.0.0.2:{}", destination[0].port), "D2:");
    let egress = UdpEcho::start("X1:");
    let _x2 = UdpEcho::on(&format!("127.0.0.2:{}", egress.port), "X2:");
    let two = |name: &str, port: u16| {
        json!({ "name": name, "spec": { "protocol": "UDP", "port": port }, "endpoints": [
            { "name": format!("{name}1"), "spec": { "address": "127.0.0.1" } },
            { "name": format!("{name}2"), "spec": { "address": "127.0.0.2" } }] })
    };
    let retry = json!({ "retry_on": "always", "num_retries": 3, "timeout": 30 });
    let route =
        json!({ "destination": two("d", destination[0].port), "egress": [two("x", egress.port)], "retry": retry });
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, json!({}));
    let client = udp_client(port);
    assert_eq!(ask(&client, "m"), "X1:D1:m");
    lab.delete("/endpoints/x1?recursive=true");
    until("the egress stage to stand again", || lab.sessions()[0]["egress"][0]["status"] == "READY");
    assert_eq!(ask(&client, "m"), "X2:D1:m");
    lab.delete("/endpoints/d1?recursive=true");
    until("the destination to stand again", || lab.sessions()[0]["destination"]["status"] == "READY");
    assert_eq!(ask(&client, "m"), "X2:D2:m");
    assert_eq!(lab.sessions().len(), 1);
}

#[test]
fn defect_18_a_sync_group_is_freed_with_its_last_member_and_keeps_little_for_one_who_waits() {
    let (lab, port) = (Lab::new(), free_port());
    let cluster = json!({ "spec": { "protocol": "Sync", "query": "/IP/src_addr", "max_members": 3 } });
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), cluster);
    let lonely = udp_client(port);
    for number in 0..50 {
        lonely.send(format!("{number}").as_bytes()).unwrap();
    }
    until("all to be taken in", || lab.sessions().first().is_some_and(|s| s["stats"]["packets"]["in"] == 50));
    let second = udp_client(port);
    second.send(b"here").unwrap();
    assert_eq!(receive(&lonely), "here");
    let waited: Vec<String> = (0..32).map(|_| receive(&second)).collect();
    assert_eq!(waited, (18..50).map(|number| number.to_string()).collect::<Vec<_>>(), "the newest 32");
    assert!(is_silent(&second));

    lonely.send(b"for nobody later").unwrap();
    assert_eq!(receive(&second), "for nobody later");
    for name in lab.session_names() {
        lab.delete(&session_path(&name));
    }
    let (third, fourth) = (udp_client(port), udp_client(port));
    third.send(b"a new group").unwrap();
    until("the third", || lab.sessions().len() == 1);
    fourth.send(b"hello").unwrap();
    assert_eq!((receive(&fourth), receive(&third)), ("a new group".into(), "hello".into()));
    assert!(is_silent(&third) && is_silent(&fourth), "nothing is left of the old group");
    let (fifth, sixth) = (udp_client(port), udp_client(port));
    fifth.send(b"five").unwrap();
    assert_eq!((receive(&third), receive(&fourth)), ("five".into(), "five".into()));
    sixth.send(b"six").unwrap();
    assert!(is_silent(&third) && is_silent(&fourth) && is_silent(&fifth), "three members and no more");
}

#[test]
fn defect_19_metrics_have_no_label_per_session() {
    let (lab, port, metrics) = (Lab::new(), free_port(), free_port());
    let metric = json!({ "name": "m", "spec": { "protocol": "Metric" } });
    let route = json!({ "ingress": [metric], "destination": { "name": "e", "spec": { "protocol": "Echo" } } });
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, json!({}));
    lab.listener(
        "metrics",
        json!({ "protocol": "HTTP", "port": metrics }),
        json!({ "spec": { "protocol": "Prometheus" } }),
    );
    let at = std::net::SocketAddr::from(([127, 0, 0, 1], metrics));
    let lines = || {
        let (status, text) = super::program::http(at, "GET /metrics", "", "");
        assert_eq!(status, 200);
        text
    };
    assert_eq!(ask(&udp_client(port), "x"), "x");
    let few = lines().lines().count();
    for _ in 0..200 {
        assert_eq!(ask(&udp_client(port), "x"), "x");
    }
    let text = lines();
    assert_eq!(text.lines().count(), few, "200 sessions more are no line more");
    assert!(text.contains("\nsession_packet_counter_total{clusterName=\"m\"} 201\n"), "{text}");
    for number in 0..20 {
        let (name, port) = (format!("short-lived-{number}"), free_port());
        lab.listener(&name, json!({ "protocol": "UDP", "port": port }), json!({ "spec": { "protocol": "Echo" } }));
        assert_eq!(ask(&udp_client(port), "x"), "x");
        lab.delete(&format!("/listeners/{name}?recursive=true"));
    }
    until("nothing to be left of objects that are gone", || lines().lines().count() == few);
}

#[test]
fn defect_20_lists_and_deletes_of_many_sessions_do_not_stop_traffic() {
    const SESSIONS: usize = 4000;
    let (lab, port, other) = (Lab::with_workers(1), free_port(), free_port());
    let echo = json!({ "name": "e", "spec": { "protocol": "Echo" } });
    lab.post("/clusters", &json!({ "cluster": echo }));
    lab.listener("many", json!({ "protocol": "UDP", "port": port }), json!("e"));
    lab.listener("one", json!({ "protocol": "UDP", "port": other }), json!("e"));
    let clients: Vec<_> = (0..SESSIONS).map(|_| udp_client(port)).collect();
    for clients in clients.chunks(100) {
        for client in clients {
            client.send(b"x").unwrap();
        }
        for client in clients {
            assert_eq!(receive(client), "x");
        }
    }
    let (rounds, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let talker = udp_client(other);
    assert_eq!(ask(&talker, "ready"), "ready");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(ask(&talker, "on"), "on");
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let during = |work: &dyn Fn()| {
            let before = rounds.load(Ordering::Relaxed);
            work();
            rounds.load(Ordering::Relaxed) - before
        };
        let listed = during(&|| assert_eq!(lab.sessions().len(), SESSIONS + 1));
        let began = Instant::now();
        let deleted = during(&|| lab.delete("/listeners/many?recursive=true"));
        let took = began.elapsed();
        stop.store(true, Ordering::Relaxed);
        // one slice of the list, one of the delete: packets pass between any two
        assert!(listed >= 10 && deleted >= 5, "{listed} round trips during the list, {deleted} during the delete");
        assert!(took < Duration::from_secs(5), "deleting {SESSIONS} sessions took {took:?}");
    });
    assert_eq!(lab.session_names().len(), 1);
}

#[test]
fn defect_21_a_logger_appends_and_stays_in_its_directory() {
    let lab = Lab::new();
    std::fs::write(lab.path("log.txt"), "kept\n").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", lab.path("link.txt")).unwrap();
    let outside = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    for (file, client) in [("log.txt", "one"), ("log.txt", "two"), ("link.txt", "three")] {
        let port = free_port();
        let logger = json!({ "spec": { "protocol": "Logger", "log_file": file, "log_prefix": "p" } });
        let body = json!({ "listener": { "name": format!("l{port}"), "spec": { "protocol": "UDP", "port": port },
            "rules": [{ "action": { "route": { "ingress": [logger], "destination": { "spec": { "protocol": "Echo" } } } } }] } });
        let (status, _) = lab.call("POST", "/listeners", Some(&body));
        if file == "link.txt" && status != 200 {
            continue;
        }
        assert_eq!((status, ask(&udp_client(port), client).as_str()), (200, client));
    }
    let log = || std::fs::read_to_string(lab.path("log.txt")).unwrap();
    until("both lines", || log() == "kept\np: onep: two");
    assert_eq!(std::fs::read_to_string("/etc/hostname").unwrap_or_default(), outside, "links are not followed");
}

#[test]
fn defect_22_weight_stands_beside_the_spec_and_zero_is_none() {
    let (lab, port) = (Lab::with_workers(1), free_port());
    let one = UdpEcho::start("1:");
    let _two = UdpEcho::on(&format!("127.0.0.2:{}", one.port), "2:");
    let cluster = json!({ "name": "c", "spec": { "protocol": "UDP", "port": one.port }, "loadbalancer": { "policy": "RoundRobin" },
        "endpoints": [{ "name": "e1", "weight": 0, "spec": { "address": "127.0.0.1" } }, { "name": "e2", "spec": { "address": "127.0.0.2" } }] });
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), cluster);
    for _ in 0..6 {
        assert_eq!(ask(&udp_client(port), "x"), "2:x");
    }
    assert_eq!(lab.get("/endpoints/e1")["weight"], json!(0));
}

#[test]
fn defect_23_retries_without_a_timeout_are_two_seconds_apart() {
    let (lab, port) = (Lab::new(), free_port());
    let retry = json!({ "retry_on": "always", "num_retries": 1 });
    let route = json!({ "destination": tcp_cluster("c", free_port()), "retry": retry });
    lab.listener_with("l", json!({ "protocol": "TCP", "port": port }), route, json!({ "track": 60 }));
    let began = Instant::now();
    assert_eq!(tcp_client(port).read(&mut [0; 1]).unwrap_or(0), 0);
    assert!(began.elapsed() >= Duration::from_millis(1950), "after {:?}", began.elapsed());
    assert_eq!(lab.plane.stats().retries, 1);
    until("the end", || lab.sessions()[0]["status"] == "DESTROYED");
    assert_eq!(events(&lab.sessions()[0]), ["INIT", "LOOKUP SUCCESS", "ERROR", "DESTROY"]);
}

#[test]
fn defect_24_the_policy_none_is_trivial() {
    let (lab, port, upstream) = (Lab::new(), free_port(), tcp_server(echo));
    let mut cluster: Value = tcp_cluster("c", upstream.port());
    cluster["loadbalancer"] = json!({ "policy": "None" });
    lab.listener("l", json!({ "protocol": "TCP", "port": port }), cluster);
    let mut client = tcp_client(port);
    std::io::Write::write_all(&mut client, b"x").unwrap();
    assert_eq!(super::lab::read_exact(&mut client, 1), "x");
    assert_eq!(lab.get("/sessions").as_array().unwrap().len(), 1);
}
