//! Nothing that arrives from outside ends more than its own session.

use super::lab::{Lab, UdpEcho, ask, free_port, tcp_client, udp_client, until};
use portolan_core::hash::SplitMix;
use portolan_proxy::config::types::Framing;
use portolan_proxy::proto::framer::Framer;
use portolan_proxy::proto::http1::{Body, Chunks, HeadLimits, parse_head};
use portolan_proxy::proto::json_socket::{header_end, parse_request, parse_response};
use portolan_proxy::proto::ws::{Opcode, Reader, Role, Walker, write_frame};
use serde_json::json;
use std::io::{Read, Write};

/// A good beginning, changed in a few places and cut somewhere.
fn damaged(seed: &[u8], random: &mut SplitMix) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..random.next_u64() % 4 {
        let at = random.next_u64() as usize % bytes.len();
        bytes[at] = random.next_u64() as u8;
    }
    bytes.truncate(1 + random.next_u64() as usize % bytes.len());
    bytes
}

#[test]
fn damaged_input_is_refused_or_read_and_never_a_fault() {
    let mut frames = Vec::new();
    for (opcode, len) in [(Opcode::Text, 5), (Opcode::Ping, 3), (Opcode::Binary, 300), (Opcode::Close, 0)] {
        write_frame(&mut frames, opcode, &vec![b'a'; len], Some([1, 2, 3, 4]));
    }
    let request = b"GET /x HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    let header = br#"{"labels":{"a":["x",1,null]},"JSONSocketVersion":1}"#;
    let chunks = b"5\r\nhello\r\nA;x=1\r\n0123456789\r\n0\r\n\r\n";
    let framed = b"\0\x03abc\0\0\0\x01d";
    let mut random = SplitMix::new(7);
    for _ in 0..20_000 {
        let mut bytes = damaged(&frames, &mut random);
        Walker::default().handle_bytes(&bytes);
        let done = Reader::new(Role::Server, 1000).handle_bytes(&mut bytes, |_| {});
        assert!(done.is_ok() || done.is_err_and(|violation| (1000..1012).contains(&violation.code)));
        parse_head(&damaged(request, &mut random), HeadLimits::default()).ok();
        let bytes = damaged(header, &mut random);
        assert!(header_end(&bytes).is_none_or(|end| end <= bytes.len()));
        parse_request(&bytes).ok();
        parse_response(&bytes).ok();
        let bytes = damaged(chunks, &mut random);
        let used = Body::Chunked(Chunks::default()).handle_bytes(&bytes, |_| {});
        assert!(used.is_err() || used.is_ok_and(|used| used <= bytes.len()));
        Framer::new(Framing::Len16, 1000).unwrap().handle_bytes(&damaged(framed, &mut random), |_| {}).ok();
    }
}

#[test]
fn noise_on_every_listener_leaves_the_others_alone() {
    let lab = Lab::new();
    let upstream = UdpEcho::start("");
    let echo = json!({ "spec": { "protocol": "Echo" } });
    let ports = [free_port(), free_port(), free_port()];
    lab.listener("ws", json!({ "protocol": "WebSocket", "port": ports[0] }), echo.clone());
    lab.listener("http", json!({ "protocol": "HTTP", "port": ports[1] }), echo.clone());
    lab.listener("js", json!({ "protocol": "JSONSocket", "transport": { "protocol": "TCP", "port": ports[2] } }), echo);
    let udp = free_port();
    lab.listener("udp", json!({ "protocol": "UDP", "port": udp }), upstream.cluster("c"));
    let client = udp_client(udp);
    let mut random = SplitMix::new(11);
    for round in 0..60 {
        let noise: Vec<u8> = (0..200).map(|_| random.next_u64() as u8).collect();
        for port in ports {
            let mut stream = tcp_client(port);
            stream.write_all(&noise).ok();
            stream.write_all(b"\r\n\r\n").ok();
            stream.shutdown(std::net::Shutdown::Write).ok();
            let _answered = stream.read(&mut [0; 100]).is_ok_and(|n| n > 0);
        }
        assert_eq!(ask(&client, &format!("{round}")), format!("{round}"));
    }
    until("all but the UDP session to end", || lab.sessions().len() == 1);
    assert_eq!(portolan_proxy::config::engine::Engine::stats(&*lab.plane).worker_restarts, 0);
}
