//! Many clients at once, and many changes under traffic; the proxy is a process of its own, with descriptors of its own.

use super::lab::{LONG, UdpEcho, free_port, udp_client, until};
use super::program::Program;
use portolan_proxy::io::sys;
use serde_json::json;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Packets that the kernel has dropped at the sockets of a port.
fn kernel_drops(port: u16) -> u64 {
    let table = ["/proc/net/udp", "/proc/net/udp6"].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    let of_port = |line: &str| {
        let mut fields = line.split_whitespace();
        let local = fields.nth(1)?.rsplit_once(':')?.1;
        (u16::from_str_radix(local, 16) == Ok(port)).then(|| fields.next_back()?.parse::<u64>().ok()).flatten()
    };
    table.lines().filter_map(of_port).sum()
}

fn with_large_buffers(socket: UdpSocket) -> UdpSocket {
    sys::set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 4 << 20).unwrap();
    socket
}

fn udp_to(port: u16, upstream: u16) -> String {
    json!({ "listeners": [{ "name": "l", "spec": { "protocol": "UDP", "port": port, "address": "127.0.0.1" },
        "rules": [{ "name": "first", "action": { "route": { "name": "r", "destination": { "name": "c",
            "spec": { "protocol": "UDP", "port": upstream },
            "endpoints": [{ "name": "e", "spec": { "address": "127.0.0.1" } }] } } } }] }] })
    .to_string()
}

#[test]
fn ten_thousand_clients_in_one_burst_are_ten_thousand_sessions_and_no_packet_is_lost() {
    const CLIENTS: usize = 10_000;
    let sink = with_large_buffers(UdpSocket::bind("127.0.0.1:0").unwrap());
    sink.set_read_timeout(Some(LONG)).unwrap();
    let (port, upstream) = (free_port(), sink.local_addr().unwrap().port());
    let program = Program::start(&["--workers", "2"], &udp_to(port, upstream));
    let receiving = std::thread::spawn(move || {
        let (mut seen, mut buffer, mut count) = (vec![false; CLIENTS], [0; 16], 0);
        while count < CLIENTS {
            let Ok(n) = sink.recv(&mut buffer) else { break };
            let client: usize = std::str::from_utf8(&buffer[..n]).unwrap().parse().unwrap();
            assert!(!std::mem::replace(&mut seen[client], true), "client {client} was heard twice");
            count += 1;
        }
        (count, sink)
    });
    let clients: Vec<UdpSocket> = (0..CLIENTS).map(|_| udp_client(port)).collect();
    for (number, client) in clients.iter().enumerate() {
        client.send(number.to_string().as_bytes()).unwrap();
    }
    let (delivered, sink) = receiving.join().unwrap();
    let dropped = (kernel_drops(port), kernel_drops(upstream));
    assert_eq!((delivered, dropped), (CLIENTS, (0, 0)), "delivered, and dropped by the kernel before us and behind us");
    assert_eq!(program.metric("portolan_proxy_sessions"), CLIENTS as u64);
    assert_eq!(program.metric("portolan_proxy_sessions_total"), CLIENTS as u64);
    drop((sink, clients));
    assert_eq!(program.delete("/listeners/l?recursive=true").0, 200);
    until("all sessions to end", || program.metric("portolan_proxy_sessions") == 0);
}

/// Sends packets with numbers at a modest pace and takes the answers, which must come in order; tells how many.
fn talk(client: &UdpSocket, stop: &AtomicBool) -> Result<u64, String> {
    let (mut sent, mut received) = (0u64, 0u64);
    let mut buffer = [0; 64];
    let mut take = |received: &mut u64| {
        let n = client.recv(&mut buffer).map_err(|error| format!("packet {received}: {error}"))?;
        let number: u64 = std::str::from_utf8(&buffer[..n]).unwrap().parse().unwrap();
        if number != *received {
            return Err(format!("packet {number} in place of {received}"));
        }
        *received += 1;
        Ok(())
    };
    while !stop.load(Ordering::Relaxed) {
        // a few are under way at any time, so that a change never meets silence
        for _ in 0..4 {
            client.send(sent.to_string().as_bytes()).map_err(|error| error.to_string())?;
            sent += 1;
        }
        while sent - received > 4 {
            take(&mut received)?;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    while received < sent {
        take(&mut received)?;
    }
    Ok(sent)
}

#[test]
fn changes_every_ten_milliseconds_lose_no_packet_of_a_session_that_survives() {
    let (port, echo) = (free_port(), UdpEcho::start(""));
    let program = Program::start(&["--workers", "2"], &udp_to(port, echo.port));
    let stop = Arc::new(AtomicBool::new(false));
    let talking: Vec<_> = (0..8)
        .map(|_| {
            let (client, stop) = (udp_client(port), Arc::clone(&stop));
            std::thread::spawn(move || talk(&client, &stop))
        })
        .collect();
    until("all sessions", || program.metric("portolan_proxy_sessions") == 8);
    let rulelist = program.json("/listeners/l")["rules"].as_str().unwrap().to_owned();
    let (began, mut changes) = (Instant::now(), 0u32);
    while began.elapsed() < Duration::from_secs(30) {
        let due = began + Duration::from_millis(10) * changes;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        match changes % 6 {
            0 => program.post("/clusters/c/endpoints", r#"{"endpoint": {"name": "e2", "spec": {"address": "127.0.0.2"}}}"#),
            1 => program.post(
                &format!("/rulelists/{rulelist}/rules/0"),
                r#"{"rule": {"name": "never", "match": {"op": "defined", "path": "/nothing"}, "action": {"route": "r"}}}"#,
            ),
            // the endpoint in use: sessions keep it until they end
            2 => assert_eq!(program.delete("/endpoints/e").0, 200),
            3 => program.post("/clusters/c/endpoints", r#"{"endpoint": {"name": "e", "spec": {"address": "127.0.0.1"}}}"#),
            4 => assert_eq!(program.delete(&format!("/rulelists/{rulelist}/rules/never?recursive=true")).0, 200),
            _ => assert_eq!(program.delete("/endpoints/e2?recursive=true").0, 200),
        }
        changes += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let results: Vec<_> = talking.into_iter().map(|thread| thread.join().unwrap()).collect();
    let drops = (kernel_drops(port), kernel_drops(echo.port));
    assert!(results.iter().all(Result::is_ok), "{results:?}; the kernel dropped {drops:?}");
    assert_eq!(program.metric("portolan_proxy_sessions_total"), 8, "no session was cut");
    assert!(changes > 1500, "{changes} changes in 30 s are not one every 10 ms");
    assert!(results.into_iter().map(Result::unwrap).sum::<u64>() > 10_000);
}
