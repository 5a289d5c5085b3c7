//! What Envoy does with a unit.

use std::net::{SocketAddr, TcpListener as ForeignListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use portolan_core::gateway::ports::Protocol;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::peers::{Server, ask, ask_udp, ask_until};
use super::{LIMIT, Lab, id, port, public_address, unit};
use crate::envoy::State;

#[tokio::test]
async fn empty_unit_initialises() {
    let lab = Lab::start(Duration::ZERO);
    lab.serve(&id(), &unit(public_address(), [])).await;
    let answer = lab.admin("/ready").await;
    assert!(answer.contains("LIVE"), "{answer}");
    lab.stop().await;
}

#[tokio::test]
async fn two_ports_do_not_mix() {
    let (lab, address) = (Lab::start(Duration::ZERO), public_address());
    let (a, b) = (Server::tcp(b'a').await, Server::tcp(b'b').await);
    let (one, two) = (port(Protocol::Tcp, 8001), port(Protocol::Tcp, 8002));
    lab.serve(&id(), &unit(address, [(one, "web", &[a.address]), (two, "web", &[b.address])])).await;
    for (port, name) in [(8001, b'a'), (8002, b'b')] {
        ask_until((address, port).into(), name).await;
        for _ in 0..20 {
            assert_eq!(ask((address, port).into()).await.unwrap(), name);
        }
    }
    lab.stop().await;
}

#[tokio::test]
async fn udp_is_udp() {
    let (lab, address) = (Lab::start(Duration::ZERO), public_address());
    let (tcp, udp) = (Server::tcp(b't').await, Server::udp(b'u').await);
    let listeners = [
        (port(Protocol::Tcp, 8053), "dns", &[tcp.address][..]),
        (port(Protocol::Udp, 8053), "dns", &[udp.address]),
        (port(Protocol::Udp, 8054), "dns", &[udp.address]),
    ];
    lab.serve(&id(), &unit(address, listeners)).await;
    // more than Envoy takes by default: 1,500 bytes
    for length in [1, 1_400, 9_000] {
        assert_eq!(ask_udp((address, 8053).into(), length).await, vec![b'u'; length]);
    }
    ask_until((address, 8053).into(), b't').await;
    assert!(TcpStream::connect((address, 8054)).await.is_err(), "a UDP port is no TCP port");
    lab.stop().await;
}

#[tokio::test]
async fn markup_in_names_survives() {
    let (lab, address) = (Lab::start(Duration::ZERO), public_address());
    let server = Server::tcp(b'm').await;
    let mut id = id();
    (id.namespace, id.name) = (r#"<b>&"'"#.into(), "{{.}};$(reboot)".into());
    let load_balancer = "a&b<c>'${d}%s\\n\u{e9}";
    lab.serve(&id, &unit(address, [(port(Protocol::Tcp, 8003), load_balancer, &[server.address])])).await;
    ask_until((address, 8003).into(), b'm').await;
    let clusters = lab.admin("/clusters").await;
    assert!(clusters.contains(&format!("{}/{load_balancer}/TCP-8003::", id.namespace)), "{clusters}");
    lab.stop().await;
}

#[tokio::test]
async fn nack_shown_and_last_good_kept() {
    let (lab, address) = (Lab::start(Duration::ZERO), public_address());
    let server = Server::tcp(b'g').await;
    let foreign = ForeignListener::bind((address, 8005)).unwrap();
    let (good, bad) = (port(Protocol::Tcp, 8004), port(Protocol::Tcp, 8005));
    let endpoints = &[server.address][..];
    let report = lab.serve(&id(), &unit(address, [(good, "web", endpoints), (bad, "web", endpoints)])).await;
    assert_eq!(report.rejected.keys().collect::<Vec<_>>(), [&bad]);
    assert!(report.rejected[&bad].contains("Address already in use"), "{report:?}");
    ask_until((address, 8004).into(), b'g').await;
    // the same bytes are not tried again, others are
    drop(foreign);
    let report = lab.serve(&id(), &unit(address, [(good, "web", &[]), (bad, "web", endpoints)])).await;
    assert_eq!(report.rejected.keys().collect::<Vec<_>>(), [&bad]);
    let report = lab.serve(&id(), &unit(address, [(good, "web", endpoints), (bad, "other", endpoints)])).await;
    assert!(report.rejected.is_empty(), "{report:?}");
    for port in [8004, 8005] {
        ask_until((address, port).into(), b'g').await;
    }
    assert_eq!(report.state, State::Running);
    lab.stop().await;
}

#[tokio::test]
async fn endpoint_churn_sends_eds_only() {
    let (lab, address) = (Lab::start(Duration::ZERO), public_address());
    let (a, b) = (Server::tcp(b'a').await, Server::tcp(b'b').await);
    let with = |endpoints: &[SocketAddr]| unit(address, [(port(Protocol::Tcp, 8006), "web", endpoints)]);
    lab.serve(&id(), &with(&[a.address])).await;
    let (cds, lds) = ("cluster_manager.cds.update_success", "listener_manager.lds.update_success");
    let before = (lab.counter(cds).await, lab.counter(lds).await);
    for endpoints in [&[b.address][..], &[a.address, b.address], &[], &[b.address]] {
        lab.serve(&id(), &with(endpoints)).await;
    }
    ask_until((address, 8006).into(), b'b').await;
    assert_eq!((lab.counter(cds).await, lab.counter(lds).await), before);
    lab.stop().await;
}

#[tokio::test]
async fn endpoints_come_and_go_under_load_and_no_request_fails() {
    let (lab, address) = (Lab::start(Duration::ZERO), public_address());
    let (a, b) = (Server::tcp(b'a').await, Server::tcp(b'b').await);
    let with = |endpoints: &[SocketAddr]| unit(address, [(port(Protocol::Tcp, 8007), "web", endpoints)]);
    lab.serve(&id(), &with(&[a.address])).await;
    let public = SocketAddr::new(address, 8007);
    ask_until(public, b'a').await;
    let (ends, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let (ends, asked) = (Arc::clone(&ends), Arc::clone(&asked));
        clients.spawn(async move {
            while !ends.load(Relaxed) {
                ask(public).await.expect("no request fails");
                asked.fetch_add(1, Relaxed);
            }
        });
    }
    let both = [a.address, b.address];
    for endpoints in [&both[..], &both[1..], &both[..1]].repeat(4) {
        lab.serve(&id(), &with(endpoints)).await;
        let (before, begun) = (asked.load(Relaxed), Instant::now());
        while asked.load(Relaxed) < before + 20 {
            assert!(begun.elapsed() < LIMIT, "requests are not answered");
            if let Some(client) = clients.try_join_next() {
                client.unwrap();
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
    ends.store(true, Relaxed);
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert!(asked.load(Relaxed) >= 200, "{asked:?}");
    lab.stop().await;
}
