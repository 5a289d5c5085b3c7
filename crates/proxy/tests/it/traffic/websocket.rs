//! WebSocket listeners and clusters.

use super::lab::{LONG, Lab, UdpEcho, ask, free_port, receive, tcp_client, udp_client, until};
use portolan_proxy::proto::http1::{Head, HeadLimits, parse_head};
use portolan_proxy::proto::ws::handshake::{self, Request};
use portolan_proxy::proto::ws::{Event, Opcode, Reader, Role, close_frame, write_frame};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

/// What a peer sent, owned.
#[derive(Debug, PartialEq, Eq, Clone)]
pub(super) enum Got {
    Text(String),
    Binary(Vec<u8>),
    Ping,
    Pong,
    Close(u16, String),
    End,
}

pub(super) struct Peer {
    pub stream: TcpStream,
    pub head: Head,
    reader: Reader,
    role: Role,
    waiting: std::collections::VecDeque<Got>,
}

impl Peer {
    pub(super) fn connect(port: u16, path: &str, subprotocols: &[&str]) -> Self {
        let mut stream = tcp_client(port);
        let subprotocols = subprotocols.iter().map(|&name| name.to_owned()).collect();
        let request = Request { host: format!("127.0.0.1:{port}"), path: path.into(), subprotocols, headers: vec![] };
        stream.write_all(&request.to_bytes([9; 16])).unwrap();
        let (head, mut rest) = read_head(&mut stream);
        handshake::confirm(&head, [9; 16], &request.subprotocols).unwrap();
        let mut peer = Self::new(stream, head, Role::Client);
        peer.feed(&mut rest);
        peer
    }

    /// A client whose request was sent with the nonce of [`Self::connect`].
    pub(super) fn answered(mut stream: TcpStream) -> Self {
        let (head, mut rest) = read_head(&mut stream);
        handshake::confirm(&head, [9; 16], &[]).unwrap();
        let mut peer = Self::new(stream, head, Role::Client);
        peer.feed(&mut rest);
        peer
    }

    /// Serves one client: answers its upgrade.
    pub(super) fn accept(mut stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LONG)).unwrap();
        let (head, mut rest) = read_head(&mut stream);
        let accepted = handshake::accept(&head, &[]).unwrap();
        stream.write_all(accepted.response.as_bytes()).unwrap();
        let mut peer = Self::new(stream, head, Role::Server);
        peer.feed(&mut rest);
        peer
    }

    fn new(stream: TcpStream, head: Head, role: Role) -> Self {
        Self { stream, head, reader: Reader::new(role, 1 << 24), role, waiting: std::collections::VecDeque::new() }
    }

    fn mask(&self) -> Option<[u8; 4]> {
        (self.role == Role::Client).then_some([1, 2, 3, 4])
    }

    pub(super) fn send(&mut self, opcode: Opcode, data: &[u8]) {
        let mut frame = Vec::new();
        write_frame(&mut frame, opcode, data, self.mask());
        self.stream.write_all(&frame).unwrap();
    }

    pub(super) fn close(&mut self, code: u16, reason: &str) {
        let mut frame = Vec::new();
        close_frame(&mut frame, code, reason, self.mask());
        self.stream.write_all(&frame).unwrap();
    }

    pub(super) fn next(&mut self) -> Got {
        let mut buffer = vec![0; 65_536];
        while self.waiting.is_empty() {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Got::End,
                Ok(n) => self.feed(&mut buffer[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Got::End,
                Err(error) => panic!("no frame in time: {error}"),
            }
        }
        self.waiting.pop_front().unwrap()
    }

    fn feed(&mut self, bytes: &mut [u8]) {
        let waiting = &mut self.waiting;
        let done = self.reader.handle_bytes(bytes, |event| {
            waiting.push_back(match event {
                Event::Message { data, text: true } => Got::Text(String::from_utf8(data.to_vec()).unwrap()),
                Event::Message { data, text: false } => Got::Binary(data.to_vec()),
                Event::Ping(_) => Got::Ping,
                Event::Pong => Got::Pong,
                Event::Close { code, reason } => Got::Close(code, reason.to_owned()),
            });
        });
        done.unwrap();
    }
}

pub(super) fn read_head(stream: &mut TcpStream) -> (Head, Vec<u8>) {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).expect("a head in time");
        assert!(n > 0, "closed before the head was complete: {:?}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&buffer[..n]);
        if let Some((head, used)) = parse_head(&read, HeadLimits::default()).unwrap() {
            return (head, read.split_off(used));
        }
    }
}

/// A WebSocket server that sends back what comes, with a prefix; tells the heads of its clients' requests.
pub(super) fn ws_echo(prefix: &'static str) -> (u16, Receiver<Head>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, heads) = channel();
    super::lab::serve(listener, move |stream| {
        let mut peer = Peer::accept(stream);
        sender.send(peer.head.clone()).ok();
        loop {
            match peer.next() {
                Got::Text(text) => peer.send(Opcode::Text, format!("{prefix}{text}").as_bytes()),
                Got::Binary(data) => peer.send(Opcode::Binary, &[prefix.as_bytes(), &data].concat()),
                Got::Close(code, reason) => return peer.close(code, &reason),
                Got::Ping => peer.send(Opcode::Pong, b""),
                Got::Pong => {}
                Got::End => return,
            }
        }
    });
    (port, heads)
}

pub(super) fn ws_cluster(port: u16) -> Value {
    json!({ "name": "ws", "spec": { "protocol": "WebSocket", "port": port }, "endpoints": [{ "spec": { "address": "127.0.0.1" } }] })
}

pub(super) fn talk(port: u16) {
    let mut client = Peer::connect(port, "/some/path?q=1", &["chat", "other"]);
    client.send(Opcode::Binary, b"bytes");
    assert_eq!(client.next(), Got::Binary(b"bytes".to_vec()));
    client.send(Opcode::Text, "grüß".as_bytes());
    assert_eq!(client.next(), Got::Text("grüß".into()));
    client.send(Opcode::Binary, b"");
    assert_eq!(client.next(), Got::Binary(vec![]));
    client.send(Opcode::Ping, b"p");
    assert_eq!(client.next(), Got::Pong);
    client.send(Opcode::Binary, &vec![7; 100_000]);
    assert_eq!(client.next(), Got::Binary(vec![7; 100_000]));
    client.close(1000, "bye");
    assert_eq!(client.next(), Got::Close(1000, "bye".into()));
    assert_eq!(client.next(), Got::End);
}

#[test]
fn opcodes_pings_and_closes_come_back_as_they_went() {
    let lab = Lab::new();
    let [own, through] = [free_port(), free_port()];
    lab.listener("echo", json!({ "protocol": "WebSocket", "port": own }), json!({ "spec": { "protocol": "Echo" } }));
    let (upstream, heads) = ws_echo("");
    lab.listener("through", json!({ "protocol": "WebSocket", "port": through }), ws_cluster(upstream));
    talk(own);
    talk(through);
    let head = heads.recv_timeout(LONG).unwrap();
    assert_eq!((head.target(), head.header("sec-websocket-protocol").as_deref()), ("/some/path?q=1", Some("chat")));
    until("all sessions to end", || lab.sessions().is_empty());
}

#[test]
fn frames_sent_before_the_upstream_stands_are_not_lost() {
    let lab = Lab::new();
    let (port, late) = (free_port(), free_port());
    let retry = json!({ "retry_on": "always", "num_retries": 20, "timeout": 50 });
    let route = json!({ "destination": ws_cluster(late), "retry": retry });
    lab.listener_with("l", json!({ "protocol": "WebSocket", "port": port }), route, json!({}));
    let mut client = Peer::connect(port, "/", &[]);
    client.send(Opcode::Text, b"early");
    until("an attempt to have failed", || lab.sessions()[0]["destination"]["status"] == "RETRYING");
    super::lab::serve(TcpListener::bind(("127.0.0.1", late)).unwrap(), |stream| {
        let mut peer = Peer::accept(stream);
        while let Got::Text(text) = peer.next() {
            peer.send(Opcode::Text, text.as_bytes());
        }
    });
    assert_eq!(client.next(), Got::Text("early".into()));
}

#[test]
fn a_plain_request_is_told_to_upgrade() {
    let (lab, port) = (Lab::new(), free_port());
    lab.listener("l", json!({ "protocol": "WebSocket", "port": port }), json!({ "spec": { "protocol": "Echo" } }));
    let mut client = tcp_client(port);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let (head, rest) = read_head(&mut client);
    assert_eq!((head.status(), head.header("content-type").as_deref()), (426, Some("text/plain")));
    assert_eq!(rest, b"Upgrade Required");
}

#[test]
fn no_route_is_101_and_then_1011() {
    let (lab, port) = (Lab::new(), free_port());
    lab.post(
        "/listeners",
        &json!({ "listener": { "name": "l", "spec": { "protocol": "WebSocket", "port": port }, "rules": [] } }),
    );
    let mut client = Peer::connect(port, "/", &[]);
    assert_eq!(client.next(), Got::Close(1011, String::new()));
}

#[test]
fn a_breach_of_protocol_is_closed_with_its_code() {
    let (lab, port) = (Lab::new(), free_port());
    lab.listener("l", json!({ "protocol": "WebSocket", "port": port }), json!({ "spec": { "protocol": "Echo" } }));
    let mut client = Peer::connect(port, "/", &[]);
    client.stream.write_all(&[0x81, 0x81, 0, 0, 0, 0, 0xff]).unwrap();
    assert!(matches!(client.next(), Got::Close(1007, _)));
}

#[test]
fn sessions_outlive_their_listener() {
    let (lab, port) = (Lab::new(), free_port());
    lab.listener("l", json!({ "protocol": "WebSocket", "port": port }), json!({ "spec": { "protocol": "Echo" } }));
    let mut client = Peer::connect(port, "/", &[]);
    lab.delete("/listeners/l");
    client.send(Opcode::Text, b"still");
    assert_eq!(client.next(), Got::Text("still".into()));
}

#[test]
fn udp_reaches_a_websocket_without_http_metadata_and_with_rewrites() {
    let lab = Lab::new();
    let (upstream, heads) = ws_echo("E:");
    let [plain, rewritten] = [free_port(), free_port()];
    lab.listener("plain", json!({ "protocol": "UDP", "port": plain }), ws_cluster(upstream));
    assert_eq!(ask(&udp_client(plain), "x"), "E:x");
    assert_eq!(heads.recv_timeout(LONG).unwrap().target(), "/");
    let rewrite = json!([{ "path": "/HTTP/url/path", "value": "p" }, { "path": "/HTTP/headers", "value": { "x-id": "7", "host": "evil" } }]);
    let rules = json!([{ "action": { "rewrite": rewrite, "route": { "destination": "ws" } } }]);
    lab.post(
        "/listeners",
        &json!({ "listener": { "name": "r", "spec": { "protocol": "UDP", "port": rewritten }, "rules": rules } }),
    );
    assert_eq!(ask(&udp_client(rewritten), "y"), "E:y");
    let head = heads.recv_timeout(LONG).unwrap();
    assert_eq!((head.target(), head.header("x-id").as_deref()), ("/p", Some("7")));
    assert_ne!(head.header("host").as_deref(), Some("evil"));
}

#[test]
fn messages_pass_a_websocket_on_their_way_to_udp() {
    let lab = Lab::new();
    let (middle, _heads) = ws_echo("E:");
    let (udp, port) = (UdpEcho::start(""), free_port());
    let route = json!({ "ingress": [ws_cluster(middle)], "destination": udp.cluster("u") });
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, json!({}));
    let client = udp_client(port);
    for message in ["m1", "m2", "m3"] {
        client.send(message.as_bytes()).unwrap();
    }
    assert_eq!([receive(&client), receive(&client), receive(&client)], ["E:m1", "E:m2", "E:m3"]);
    let session = &lab.sessions()[0];
    assert_eq!((session["ingress"].as_array().unwrap().len(), &session["ingress"][0]["origin"]), (1, &json!("ws")));
}

#[test]
fn a_client_that_says_nothing_is_let_go() {
    let (lab, port) = (Lab::new(), free_port());
    let route = json!({ "destination": { "spec": { "protocol": "Echo" } } });
    lab.listener_with("l", json!({ "protocol": "WebSocket", "port": port }), route, json!({ "setup_timeout": 1 }));
    let mut client = tcp_client(port);
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}
