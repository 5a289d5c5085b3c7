//! Rates of listeners, sources and clusters: datagrams beyond them are dropped, streams wait.

use super::lab::{
    Lab, UdpEcho, echo, free_port, is_silent, receive, tcp_client, tcp_cluster, tcp_server, udp_client, until,
};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

fn dropped(lab: &Lab) -> u64 {
    lab.metric("portolan_proxy_drops_total{cause=\"rate\"}").unwrap()
}

fn udp_listener(lab: &Lab, upstream: &UdpEcho, options: Value, cluster_options: Value) -> u16 {
    let port = free_port();
    let mut cluster = upstream.cluster("c");
    cluster["options"] = cluster_options;
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), json!({ "destination": cluster }), options);
    port
}

fn send(client: &UdpSocket, count: usize) {
    for i in 0..count {
        client.send(i.to_string().as_bytes()).unwrap();
    }
}

#[test]
fn a_listeners_rate_is_one_for_all_workers_and_counts_what_it_drops() {
    let (lab, upstream) = (Lab::with_workers(2), UdpEcho::start(""));
    let port = udp_listener(&lab, &upstream, json!({ "qos": { "packets_per_second": 1, "burst": 4 } }), json!({}));
    let client = udp_client(port);
    send(&client, 20);
    assert_eq!((0..4).map(|_| receive(&client)).collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    until("the rest to be dropped", || dropped(&lab) >= 15);
    (0..8).for_each(|_| send(&udp_client(port), 1));
    until("what the other worker got to be dropped too", || dropped(&lab) >= 21);
}

#[test]
fn a_source_has_a_rate_of_its_own() {
    let (lab, upstream) = (Lab::with_workers(1), UdpEcho::start(""));
    let qos = json!({ "qos": { "per_source": { "packets_per_second": 0.1, "burst": 2 } } });
    let port = udp_listener(&lab, &upstream, qos, json!({}));
    for source in ["127.0.0.1:0", "127.0.0.2:0"] {
        let client = UdpSocket::bind(source).unwrap();
        client.connect(("127.0.0.1", port)).unwrap();
        send(&client, 5);
        assert_eq!([receive(&client), receive(&client)], ["0", "1"]);
        assert!(is_silent(&client), "{source}");
    }
    assert_eq!(dropped(&lab), 6);
}

#[test]
fn a_clusters_rate_holds_over_all_its_listeners_and_follows_a_change() {
    let (lab, upstream) = (Lab::with_workers(1), UdpEcho::start(""));
    let port = udp_listener(&lab, &upstream, json!({}), json!({ "qos": { "bytes_per_second": 1 } }));
    let client = udp_client(port);
    let large = vec![b'x'; 30_000];
    for _ in 0..3 {
        client.send(&large).unwrap();
    }
    assert_eq!([receive(&client).len(), receive(&client).len()], [30_000, 30_000]);
    until("the third to be dropped", || dropped(&lab) == 1);
}

#[test]
fn the_newest_of_a_batch_pass_where_the_oldest_are_to_be_dropped() {
    let (lab, upstream) = (Lab::with_workers(1), UdpEcho::start(""));
    let qos = json!({ "qos": { "packets_per_second": 0.001, "burst": 3, "drop_policy": "oldest" } });
    let port = udp_listener(&lab, &upstream, qos, json!({}));
    let client = udp_client(port);
    // One segmented send arrives as one batch, however slow this machine is.
    let payload: Vec<u8> = (b'a'..b'k').collect();
    portolan_proxy::io::sys::set_option(std::os::fd::AsRawFd::as_raw_fd(&client), 17, 103, 1).unwrap();
    client.send(&payload).unwrap();
    assert_eq!((0..3).map(|_| receive(&client)).collect::<Vec<_>>(), ["h", "i", "j"]);
    assert_eq!(dropped(&lab), 7);
}

/// Sends bytes through an echo and measures how long their way takes.
fn stream_takes(listener: Value, cluster_options: Value) -> Duration {
    const BYTES: usize = 65_536 + 20_000;
    let (lab, port, upstream) = (Lab::with_workers(1), free_port(), tcp_server(echo));
    let mut cluster = tcp_cluster("c", upstream.port());
    cluster["options"] = cluster_options;
    lab.listener_with("l", json!({ "protocol": "TCP", "port": port }), json!({ "destination": cluster }), listener);
    let mut client = tcp_client(port);
    let began = Instant::now();
    let mut writer = client.try_clone().unwrap();
    let sent: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
    let expected = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut received = vec![0; BYTES];
    client.read_exact(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == expected, "every byte in order");
    assert_eq!(dropped(&lab), 0);
    began.elapsed()
}

#[test]
fn a_stream_beyond_its_rate_waits_and_loses_nothing() {
    let qos = json!({ "qos": { "bytes_per_second": 40_000 } });
    for (listener, cluster) in [(qos.clone(), json!({})), (json!({}), qos)] {
        let took = stream_takes(listener, cluster);
        assert!(took >= Duration::from_millis(90), "20 000 bytes over the burst, less one read, in {took:?}");
    }
}
