//! Twenty hostile clients at once: memory stays within what the configuration allows, and the proxy goes on serving.

use super::lab::{LONG, UdpEcho, ask, free_port, tcp_client, tcp_server, udp_client};
use super::program::Program;
use super::websocket::Peer;
use portolan_proxy::proto::ws::{Opcode, write_frame};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TIME: Duration = Duration::from_secs(30);
const MIB: usize = 1 << 20;
/// The limits of the configuration below.
const MESSAGE: usize = MIB;
const BODY: usize = MIB;
const SETUP_QUEUE: usize = 4 * MIB;
const WORKERS: usize = 2;
/// What a connection may have waiting in both directions, with one read or message more for each.
const CONNECTION: usize = 2 * (256 + 256) * 1024 + MESSAGE;
/// Connections at the same time: one of each client, and those that close.
const CONNECTIONS: usize = 40;
const SYNC: usize = 16 * MIB;
const DATAGRAMS: usize = 4 * MIB;

/// Sends the same bytes again and again, never reads, and begins again when the connection is closed.
fn flood(port: u16, stop: &AtomicBool, first: &[u8], again: &[u8]) {
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut at = 0;
        if stream.write_all(first).is_err() {
            continue;
        }
        while !stop.load(Ordering::Relaxed) {
            match stream.write(&again[at..]) {
                Ok(n) => at = (at + n) % again.len(),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    }
}

/// Sends some bytes slowly, one at a time.
fn trickle(port: u16, stop: &AtomicBool, bytes: &[u8]) {
    while !stop.load(Ordering::Relaxed) {
        let mut stream = tcp_client(port);
        for byte in bytes {
            if stop.load(Ordering::Relaxed) || stream.write_all(&[*byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn frames(opcode: Opcode, data: &[u8], count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    (0..count).for_each(|_| write_frame(&mut bytes, opcode, data, Some([1, 2, 3, 4])));
    bytes
}

fn upgrade() -> Vec<u8> {
    let head =
        "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n";
    format!("{head}Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n").into_bytes()
}

#[test]
fn twenty_hostile_clients_fill_nothing_beyond_the_limits() {
    let silent = tcp_server(|_stream| std::thread::sleep(TIME * 2));
    let (late, echo) = (free_port(), UdpEcho::start(""));
    let ports: Vec<u16> = (0..12).map(|_| free_port()).collect();
    let [http, stuck, api, ws, discard, tcp, framed, json, unready, udp, sync, good] = *ports else { unreachable!() };
    let tcp_to =
        |port: u16| format!("{{spec: {{protocol: TCP, port: {port}}}, endpoints: [{{spec: {{address: 127.0.0.1}}}}]}}");
    let kind = |protocol: &str| format!("{{spec: {{protocol: {protocol}}}}}");
    let patient = ", retry: {retry_on: always, num_retries: 100000, timeout: 500}";
    let rewrite = "rewrite: [{path: /labels/g, value: one}], ";
    let mut list = Vec::new();
    let mut add = |spec: &str, port: u16, destination: &str, retry: &str, rewrite: &str| {
        let route = format!("{{destination: {destination}{retry}}}");
        let spec = spec.replace("PORT", &port.to_string());
        list.push(format!("{{name: l{port}, spec: {{{spec}}}, rules: [{{action: {{{rewrite}route: {route}}}}}]}}"));
    };
    add("protocol: HTTP, port: PORT", http, &kind("Echo"), "", "");
    add("protocol: HTTP, port: PORT", stuck, &tcp_to(silent.port()), "", "");
    add("protocol: HTTP, port: PORT", api, &kind("L7mpController"), "", "");
    add("protocol: WebSocket, port: PORT", ws, &kind("Echo"), "", "");
    add("protocol: WebSocket, port: PORT", discard, &kind("Discard"), "", "");
    add("protocol: TCP, port: PORT", tcp, &kind("Echo"), "", "");
    add("protocol: TCP, port: PORT, framing: len32", framed, &tcp_to(late), patient, "");
    add("protocol: JSONSocket, transport: {protocol: TCP, port: PORT}", json, &tcp_to(late), patient, "");
    add("protocol: TCP, port: PORT", unready, &tcp_to(late), patient, "");
    add("protocol: UDP, port: PORT", udp, &tcp_to(silent.port()), "", "");
    add("protocol: TCP, port: PORT", sync, "{name: sync, spec: {protocol: Sync, query: /labels/g}}", "", rewrite);
    let udp_to =
        format!("{{spec: {{protocol: UDP, port: {}}}, endpoints: [{{spec: {{address: 127.0.0.1}}}}]}}", echo.port);
    add("protocol: UDP, port: PORT", good, &udp_to, "", "");
    let limits = format!("{{ws_message: {MESSAGE}, body: {BODY}, setup_queue: {SETUP_QUEUE}}}");
    let file = format!("admin: {{limits: {limits}}}\nlisteners: [{}]", list.join(",\n "));
    let mut program = Program::start(&["--workers", &WORKERS.to_string()], &file);
    let talker = udp_client(good);
    assert_eq!(ask(&talker, "before"), "before");
    let idle = program.resident();
    let stop = AtomicBool::new(false);
    let get = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    let post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx".repeat(1000);
    let chunks = b"POST /api/v1/clusters HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let headers = ["GET / HTTP/1.1\r\nHost: x\r\n".to_owned(), "a: b\r\n".repeat(98)].concat().into_bytes();
    let mut fragments = frames(Opcode::Binary, b"x", 1);
    fragments[0] &= 0x7f;
    let mut more = frames(Opcode::Continuation, b"x", 1000);
    more.iter_mut().step_by(7).for_each(|first| *first &= 0x7f);
    let partial = |len: usize| frames(Opcode::Binary, &vec![7; len], 1)[..len / 2].to_vec();
    let [pings, echoes] = [frames(Opcode::Ping, &[7; 120], 500), frames(Opcode::Binary, &[7; 5000], 20)];
    let (head, with_fragments) = (upgrade(), [upgrade(), fragments].concat());
    let (junk, zeros) = (vec![b'G'; 1 << 16], vec![0; 1 << 16]);
    let announced = [&(MESSAGE as u32 - 1).to_be_bytes()[..], &[7; 1000]].concat();
    let tiny = b"\0\0\0\x01x".repeat(10_000);
    let one_chunk = b"1\r\nx\r\n".repeat(10_000);
    let opened = br#"{"JSONSocketVersion":1}"#.to_vec();
    let mut most = 0;
    std::thread::scope(|scope| {
        let spawn = |port: u16, first: Vec<u8>, again: Vec<u8>| {
            let stop = &stop;
            scope.spawn(move || flood(port, stop, &first, &again));
        };
        spawn(http, vec![], post.clone());
        spawn(http, chunks.clone(), one_chunk.clone());
        spawn(stuck, get.clone(), junk.clone());
        spawn(stuck, vec![], post);
        spawn(api, get.clone(), junk.clone());
        spawn(api, vec![], b"GET /api/v1/config HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000));
        spawn(api, chunks, one_chunk);
        spawn(discard, head.clone(), pings);
        spawn(ws, head.clone(), echoes);
        spawn(ws, [head, partial(MESSAGE - 1)].concat(), partial(MESSAGE - 1));
        spawn(ws, with_fragments, more);
        spawn(tcp, vec![], zeros.clone());
        spawn(framed, vec![], announced);
        spawn(framed, vec![], tiny);
        spawn(json, b"{".to_vec(), b"\"a\":1,".repeat(100));
        spawn(json, opened, zeros.clone());
        spawn(unready, vec![], zeros.clone());
        spawn(sync, vec![], zeros.clone());
        spawn(sync, vec![], zeros);
        let stop = &stop;
        scope.spawn(move || trickle(http, stop, &headers));
        scope.spawn(move || {
            let client = udp_client(udp);
            while !stop.load(Ordering::Relaxed) {
                client.send(&[7; 8000]).ok();
            }
        });
        let began = Instant::now();
        while began.elapsed() < TIME {
            most = most.max(program.resident());
            assert_eq!(ask(&talker, "meanwhile"), "meanwhile");
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let budget = CONNECTIONS * CONNECTION + WORKERS * (SETUP_QUEUE + SYNC) + BODY + DATAGRAMS;
    assert!(most < idle + budget, "{} MiB over idle, {} allowed", most.saturating_sub(idle) / MIB, budget / MIB);
    assert_eq!(program.exit_code(), None);
    assert_eq!(program.metric("portolan_proxy_worker_restarts_total"), 0);
    // and everything is still there for others
    let mut client = Peer::connect(ws, "/", &[]);
    client.send(Opcode::Text, b"after");
    assert_eq!(client.next(), super::websocket::Got::Text("after".into()));
    let mut client = tcp_client(http);
    client.set_read_timeout(Some(LONG)).unwrap();
    client.write_all(&get).unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}
