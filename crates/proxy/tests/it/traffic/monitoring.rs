//! Metrics and the access log.

use super::lab::{Lab, UdpEcho, ask, free_port, udp_client, until};
use portolan_proxy::config::engine::Engine;
use portolan_proxy::io::sys;
use serde_json::{Value, json};
use std::os::fd::AsRawFd;

#[test]
fn metric_clusters_count_by_session_where_that_is_asked_for_and_forget_sessions_that_end() {
    let (lab, port) = (Lab::new(), free_port());
    lab.load(&json!({ "admin": { "metrics_per_session": true } }));
    let route = json!({ "destination": { "spec": { "protocol": "Echo" } },
        "ingress": [{ "name": "m", "spec": { "protocol": "Metric" } }] });
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, json!({}));
    assert_eq!(ask(&udp_client(port), "hello"), "hello");
    let name = lab.session_names().remove(0);
    let series = format!("session_byte_counter_total{{clusterName=\"m\",sessionName=\"{name}\"}}");
    assert_eq!(lab.metric(&series), Some(5));
    lab.delete(&super::lab::session_path(&name));
    assert_eq!(lab.metric(&series), None);
    assert_eq!(lab.metric("session_byte_counter_total{clusterName=\"m\"}"), Some(5));
}

#[test]
fn every_number_that_is_promised_is_there() {
    let (lab, port, upstream) = (Lab::with_workers(1), free_port(), UdpEcho::start(""));
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), upstream.cluster("c"));
    let client = udp_client(port);
    assert_eq!(ask(&client, "one"), "one");
    sys::set_option(client.as_raw_fd(), 17, 103, 4).unwrap();
    client.send(&[b'x'; 12]).unwrap();
    (0..3).for_each(|_| assert_eq!(super::lab::receive(&client), "xxxx"));
    for (series, value) in [
        ("listener_requests_total{listenerName=\"l\",protocol=\"UDP\"}", 1),
        ("cluster_requests_total{clusterName=\"c\",protocol=\"UDP\"}", 1),
        ("portolan_proxy_sessions", 1),
        ("portolan_proxy_sessions_total", 1),
        ("portolan_proxy_sessions_ended_total{reason=\"normal\"}", 0),
        ("portolan_proxy_packets_total{direction=\"in\"}", 4),
        ("portolan_proxy_bytes_total{direction=\"in\"}", 15),
        ("portolan_proxy_packets_total{direction=\"out\"}", 4),
        ("portolan_proxy_bytes_total{direction=\"out\"}", 15),
        ("portolan_proxy_segments_total{direction=\"in\"}", 3),
        ("portolan_proxy_connect_seconds_count", 1),
        ("portolan_proxy_setup_seconds_count", 1),
        ("portolan_proxy_retries_total", 0),
        ("portolan_proxy_endpoint_up{cluster=\"c\",endpoint=\"c-EndPoint-0\"}", 1),
        ("portolan_proxy_worker_restarts_total", 0),
    ] {
        assert_eq!(lab.metric(series), Some(value), "{series}");
    }
    assert!(lab.metric("portolan_proxy_segments_total{direction=\"out\"}").unwrap() >= 3);
    assert!(lab.metric("portolan_proxy_rule_hits_total{rule=\"l-RuleList-0-Rule-0\"}") == Some(1));
    until("the worker to have been busy", || {
        ask(&client, "busy") == "busy"
            && lab.plane.stats().workers_busy.iter().any(|share| (0.0..=1.0).contains(share) && *share > 0.0)
    });
    for cause in ["kernel_queue", "setup_queue", "send", "rate", "cap", "no_route", "loop"] {
        assert_eq!(lab.metric(&format!("portolan_proxy_drops_total{{cause=\"{cause}\"}}")), Some(0));
    }
}

#[test]
fn counts_of_objects_that_are_gone_are_forgotten() {
    let (lab, port) = (Lab::with_workers(1), free_port());
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), json!({ "spec": { "protocol": "Echo" } }));
    assert_eq!(ask(&udp_client(port), "x"), "x");
    let series = "listener_requests_total{listenerName=\"l\",protocol=\"UDP\"}";
    assert_eq!(lab.metric(series), Some(1));
    lab.delete("/listeners/l?recursive=true");
    until("the count to go", || lab.metric(series).is_none());
}

fn finished(lab: &Lab, admin: Value, options: Value) -> Value {
    let port = free_port();
    let log = lab.path("access.json");
    let mut admin = admin;
    admin["access_log_path"] = json!(log);
    lab.load(&json!({ "admin": admin }));
    let route = json!({ "destination": { "name": "c", "spec": { "protocol": "Echo" } } });
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, options);
    let client = udp_client(port);
    assert_eq!(ask(&client, "hello"), "hello");
    lab.delete("/listeners/l?recursive=true");
    until("the line", || std::fs::read_to_string(&log).is_ok_and(|text| text.ends_with('\n')));
    let text = std::fs::read_to_string(&log).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_finished_session_is_one_line_of_json() {
    let lab = Lab::new();
    let options = json!({ "monitoring": { "labels": ["/IP/dst_addr", "/nothing"] } });
    let line = finished(&lab, json!({}), options);
    for (key, value) in [
        ("listener", json!("l")),
        ("clusters", json!(["c"])),
        ("endpoints", json!([null])),
        ("reason", json!("api")),
        ("error", json!(null)),
        ("packets_in", json!(1)),
        ("bytes_out", json!(5)),
        ("labels", json!({ "/IP/dst_addr": "0.0.0.0" })),
    ] {
        assert_eq!(line[key], value, "{key}: {line}");
    }
    assert!(line["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    assert!(line["session"].as_str().unwrap().starts_with("UDP:127.0.0.1:"), "{line}");
    let reference = include_str!("../../../../../docs/reference/proxy.md");
    for key in line.as_object().unwrap().keys() {
        assert!(reference.contains(&format!("`{key}`")), "docs/reference/proxy.md does not have `{key}`");
    }
}

#[test]
fn a_listener_may_keep_its_sessions_out_of_the_access_log() {
    let lab = Lab::new();
    lab.load(&json!({ "admin": { "access_log_path": lab.path("access.json") } }));
    for (name, monitoring) in [("silent", json!({ "access_log": false })), ("sampled", json!({ "sample_ratio": 0 }))] {
        let port = free_port();
        let route = json!({ "destination": { "spec": { "protocol": "Echo" } } });
        let options = json!({ "monitoring": monitoring });
        lab.listener_with(name, json!({ "protocol": "UDP", "port": port }), route, options);
        assert_eq!(ask(&udp_client(port), "hello"), "hello");
        lab.delete(&format!("/listeners/{name}?recursive=true"));
    }
    let line = finished(&lab, json!({}), json!({}));
    assert_eq!(line["listener"], json!("l"), "the only line");
}

#[test]
fn addresses_in_the_access_log_may_be_cut() {
    let line = finished(&Lab::new(), json!({ "access_log_addresses": "cut" }), json!({}));
    assert_eq!(line["client"], json!("127.0.0.0/24"));
    assert!(line["session"].as_str().unwrap().starts_with("UDP:127.0.0.0/24-0.0.0.0:"), "{line}");
    assert!(!line.to_string().contains("127.0.0.1"), "{line}");
}

#[test]
fn a_logger_writes_inside_its_directory_and_through_no_link() {
    let (lab, outside) = (Lab::new(), tempfile::tempdir().unwrap());
    std::fs::create_dir(lab.dir.path().join("sub")).unwrap();
    std::os::unix::fs::symlink(outside.path(), lab.dir.path().join("link")).unwrap();
    let logger = |file: &str| json!({ "spec": { "protocol": "Logger", "log_file": file } });
    for (file, message) in [("link/x", "stays-out"), ("sub/x", "goes-in")] {
        let port = free_port();
        let route = json!({ "destination": { "spec": { "protocol": "Echo" } }, "ingress": [logger(file)] });
        lab.listener_with(message, json!({ "protocol": "UDP", "port": port }), route, json!({}));
        assert_eq!(ask(&udp_client(port), message), message);
    }
    let log = lab.path("sub/x");
    until("the line", || std::fs::read_to_string(&log).is_ok_and(|text| text == "goes-in"));
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    let cluster = json!({ "cluster": { "name": "out", "spec": { "protocol": "Logger", "log_file": "../x" } } });
    assert_eq!(lab.call("POST", "/clusters", Some(&cluster)).0, 400);
}
