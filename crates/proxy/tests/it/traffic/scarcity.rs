//! Too little of something: descriptors, room in a reader's queue, patience. What is there goes on, what is refused is
//! counted, and afterwards all is as before.

use super::lab::{
    LONG, Lab, SHORT, UdpEcho, ask, echo, free_port, tcp_client, tcp_cluster, tcp_server, udp_client, until,
};
use super::program::{Program, try_http};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn refusals(program: &Program, limit: &str) -> u64 {
    program.metric(&format!("portolan_proxy_limit_refusals_total{{limit=\"{limit}\"}}"))
}

/// Whether a connection is served: what goes in comes back.
fn is_served(client: &mut TcpStream) -> bool {
    client.write_all(b"x").is_ok() && client.read_exact(&mut [0]).is_ok()
}

#[test]
fn without_descriptors_newcomers_are_refused_and_the_others_and_the_api_go_on() {
    let (tcp, udp) = (free_port(), free_port());
    let (stream, datagram) = (tcp_server(echo), UdpEcho::start(""));
    let listener = |name: &str, protocol: &str, port: u16, cluster: Value| {
        json!({ "name": name, "spec": { "protocol": protocol, "port": port, "address": "127.0.0.1" },
            "rules": [{ "action": { "route": { "destination": cluster } } }] })
    };
    let listeners = [
        listener("tcp", "TCP", tcp, tcp_cluster("stream", stream.port())),
        listener("udp", "UDP", udp, datagram.cluster("datagram")),
    ];
    let program = Program::start_with_files(300, &["--workers", "2"], &json!({ "listeners": listeners }).to_string());
    let talker = udp_client(udp);
    assert_eq!(ask(&talker, "before"), "before");
    let mut clients: Vec<TcpStream> = (0..300).map(|_| tcp_client(tcp)).collect();
    let served: Vec<bool> = clients.iter_mut().map(is_served).collect();
    let count = served.iter().filter(|served| **served).count();
    assert!((20..300).contains(&count), "{count} of 300 are served with 300 descriptors");
    assert!(refusals(&program, "descriptors") > 0, "the API answers, and the refusals are counted");
    assert_eq!(ask(&talker, "meanwhile"), "meanwhile");
    for (client, _) in clients.iter_mut().zip(served).filter(|(_, served)| *served) {
        assert!(is_served(client), "who was taken in is served on");
    }
    drop(clients);
    until("a newcomer to be served", || is_served(&mut tcp_client(tcp)));
    assert_eq!(ask(&talker, "after"), "after");
}

#[test]
fn a_slow_reader_holds_back_its_own_sender_and_loses_nothing() {
    const BYTES: usize = 64 << 20;
    // with a rate, however high, bytes are read and written; without they stay in the kernel
    for options in [json!({}), json!({ "qos": { "bytes_per_second": 1e12 } })] {
        let (lab, port, other) = (Lab::with_workers(1), free_port(), free_port());
        let written = Arc::new(AtomicUsize::new(0));
        let progress = Arc::clone(&written);
        let upstream = tcp_server(move |mut stream| {
            let piece: Vec<u8> = (0..=255).cycle().take(65_536).collect();
            while progress.load(Ordering::Relaxed) < BYTES && stream.write_all(&piece).is_ok() {
                progress.fetch_add(piece.len(), Ordering::Relaxed);
            }
        });
        let route = json!({ "destination": tcp_cluster("c", upstream.port()) });
        lab.listener_with("slow", json!({ "protocol": "TCP", "port": port }), route, options);
        lab.listener("other", json!({ "protocol": "UDP", "port": other }), json!({ "spec": { "protocol": "Echo" } }));
        let mut client = tcp_client(port);
        let mut before = usize::MAX;
        until("the sender to be held back", || {
            let now = written.load(Ordering::Relaxed);
            std::thread::sleep(SHORT);
            now > 0 && std::mem::replace(&mut before, now) == now
        });
        assert!(before < BYTES, "all was taken in, and nobody reads");
        assert_eq!(ask(&udp_client(other), "others pass"), "others pass");
        let (mut read, mut buffer) = (0, vec![0; 65_536]);
        while let Ok(n) = client.read(&mut buffer) {
            assert!(buffer[..n].iter().enumerate().all(|(at, byte)| *byte == (read + at) as u8), "after {read} bytes");
            read += n;
            if n == 0 {
                break;
            }
        }
        assert_eq!(read, BYTES);
    }
}

#[test]
fn datagrams_for_a_full_reader_are_dropped_and_counted_until_it_reads() {
    const SENT: usize = 300;
    let (lab, port) = (Lab::with_workers(1), free_port());
    let path = lab.path("reader.sock");
    let reader = UnixDatagram::bind(&path).unwrap();
    reader.set_read_timeout(Some(LONG)).unwrap();
    let cluster = json!({ "name": "c", "spec": { "protocol": "UnixDomainSocket", "type": "datagram" },
        "endpoints": [{ "spec": { "address": path } }] });
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), cluster);
    let client = udp_client(port);
    for number in 0..SENT {
        client.send(number.to_string().as_bytes()).unwrap();
    }
    let dropped = || lab.metric("portolan_proxy_drops_total{cause=\"send\"}").unwrap() as usize;
    let passed_in = || lab.sessions().first().is_some_and(|it| it["stats"]["packets"]["in"] == json!(SENT));
    until("all to have arrived", passed_in);
    let lost = dropped();
    assert!(lost > 0, "the queue of a Unix socket is shorter than {SENT}");
    let mut buffer = [0; 16];
    let mut take = || {
        let n = reader.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    for number in 0..SENT - lost {
        assert_eq!(take(), number.to_string(), "what fitted is there, in order");
    }
    client.send(b"again").unwrap();
    assert_eq!((take(), dropped()), ("again".to_owned(), lost));
}

#[test]
fn a_flood_of_requests_is_turned_away_and_traffic_does_not_feel_it() {
    let port = free_port();
    let echo = UdpEcho::start("");
    let config = json!({ "admin": { "limits": { "api_connections": 8, "api_request_ms": 500 } }, "listeners": [{
        "name": "l", "spec": { "protocol": "UDP", "port": port }, "rules": [{ "action": { "route": { "destination": echo.cluster("c") } } }] }] });
    let program = Program::start(&["--workers", "1"], &config.to_string());
    let stop = AtomicBool::new(false);
    let (answered, refused, rounds) = std::thread::scope(|scope| {
        let talking = scope.spawn(|| {
            let (client, mut rounds) = (udp_client(port), 0u64);
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(ask(&client, "on"), "on");
                rounds += 1;
            }
            rounds
        });
        // some never finish their request, the others ask without pause
        let silent: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(program.api).unwrap()).collect();
        for mut stream in &silent {
            stream.write_all(b"POST /api/v1/clusters HTTP/1.1\r\n").unwrap();
        }
        let end = Instant::now() + Duration::from_secs(2);
        let asking: Vec<_> = (0..24)
            .map(|_| {
                scope.spawn(move || {
                    let mut counts = [0u64; 2];
                    while Instant::now() < end {
                        // a reset is an answer too: the connection was one too many
                        let status =
                            try_http(program.api, "GET /api/v1/config", "", "").map_or(429, |(status, _)| status);
                        assert!([200, 429].contains(&status), "{status}");
                        counts[usize::from(status == 429)] += 1;
                    }
                    counts
                })
            })
            .collect();
        let counts =
            asking.into_iter().map(|thread| thread.join().unwrap()).fold([0, 0], |a, b| [a[0] + b[0], a[1] + b[1]]);
        stop.store(true, Ordering::Relaxed);
        (counts[0], counts[1], talking.join().unwrap())
    });
    assert!(answered > 0 && refused > 0 && rounds > 10, "{answered} answered, {refused} refused, {rounds} round trips");
    until("the API to have room again", || {
        try_http(program.api, "GET /livez", "", "").is_ok_and(|(status, _)| status == 200)
    });
    assert!(refusals(&program, "api_connections") > 0);
    assert_eq!(program.metric("portolan_proxy_sessions_total"), 1);
}

#[test]
fn clients_that_never_speak_are_let_go_and_counted() {
    const SILENT: usize = 100;
    let (lab, port) = (Lab::with_workers(1), free_port());
    let echo = json!({ "destination": { "spec": { "protocol": "Echo" } } });
    lab.listener_with("l", json!({ "protocol": "WebSocket", "port": port }), echo, json!({ "setup_timeout": 1 }));
    let mut silent: Vec<TcpStream> = (0..SILENT).map(|_| tcp_client(port)).collect();
    for client in &mut silent {
        client.write_all(b"GET / HTTP/1.1\r\nHost").unwrap();
    }
    super::websocket::talk(port);
    for client in &mut silent {
        assert_eq!(client.read(&mut [0; 10]).unwrap_or(0), 0);
    }
    let counted = lab.metric("portolan_proxy_limit_refusals_total{limit=\"setup_timeout\"}");
    assert_eq!(counted, Some(SILENT as u64));
}
